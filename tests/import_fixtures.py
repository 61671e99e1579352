"""Small results as EvalScope and inspect would write them, for the import tests.

`python scripts/make_import_fixtures.py` writes them to `tests/data/imports`. Questions, answers and
conversations are invented here; nothing is taken from anybody's run. Needs zstandard, with which
inspect compresses.
"""

from __future__ import annotations

import io
import json
import shutil
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "data" / "imports"
MODEL = "toy-model"
START = 1_800_000_000.0

JSON = dict[str, Any]

TASKS: dict[str, tuple[int, str, str, str]] = {
    "t-a": (1, "What is the sum of the numbers in the file?", "12", "numbers.txt"),
    "t-b": (1, "Which of the two bells is the heavier one?", "the left", ""),
    "u-a": (2, "Name the colours of the flag in the catalogue, in order.", "green, blue", ""),
    "u-b": (2, "How many bytes does the longest line have?", "80", ""),
    "u-c": (2, "Which shelf is empty?", "third", ""),
    "v-a": (3, "What does the last letter say?", "come home", ""),
    "v-b": (3, "How many doors are painted red?", "4", ""),
}
"""Level, question, answer, attachment."""


def prompt(task: str) -> str:
    """The first message, as both tools' GAIA tasks build it."""
    _, question, _, file = TASKS[task]
    note = f"A file comes with it: /shared_files/{file}\n\n" if file else ""
    return f"Answer in as few words as you can.\n\n{note}Here is the question:\n\n{question}"


# ---------------------------------------------------------------------------------------- EvalScope


class Scope:
    """One sample's conversation as EvalScope keeps it."""

    def __init__(self, task: str) -> None:
        self.task, self.step, self.time = task, 0, START
        self.messages: list[JSON] = []
        self.events: list[JSON] = []
        self.completion = ""
        self.stop = "stop"
        self.say("system", "You work step by step.")
        self.say("user", prompt(task))

    def say(self, role: str, content: Any, **more: Any) -> str:
        """A message; its id."""
        id = f"{self.task}-{len(self.messages)}"
        self.messages.append({"id": id, "role": role, "content": content, **more})
        return id

    def event(self, kind: str, id: str | None, payload: JSON, ms: float | None = None) -> None:
        """An event of the trace."""
        self.time += 0.5
        self.events.append(
            {
                "step": self.step,
                "timestamp": self.time,
                "type": kind,
                "message_id": id,
                "latency_ms": ms,
                "token_usage": None,
                "payload": payload,
            }
        )

    def turn(self, content: Any, *calls: tuple[str, JSON], stop: str = "", lost: str = "") -> None:
        """A turn of the model."""
        stop = stop or ("tool_calls" if calls else "stop")
        made: list[JSON] = [
            {
                "id": f"call_{number}",
                "function": {"name": name, "arguments": arguments},
                "parse_error": lost or None,
                "type": None,
            }
            for number, (name, arguments) in enumerate(calls)
        ]
        perf = {"latency": 0.25, "ttft": 0.1, "input_tokens": 100, "output_tokens": 7}
        id = self.say(
            "assistant", content, tool_calls=made or None, model=MODEL,
            perf_metrics=None if stop == "model_length" else perf,
        )  # fmt: skip
        self.event("model_generate", id, {"stop_reason": stop}, 250.0)
        for call in made:
            self.event("tool_call", id, {"id": call["id"], **call["function"]})
        self.step += 1
        self.stop = stop
        self.completion = content if isinstance(content, str) else "see the parts"

    def result(self, name: str, content: str, *, id: str = "call_0", error: Any = None) -> None:
        """What a tool gave."""
        self.say("tool", content, tool_call_id=id, function=name, error=error)
        self.event("tool_result", None, {"name": name, "id": id, "error": error and error["type"]})


def scope_a() -> Scope:
    found = Scope("t-a")
    found.turn("I read it.", ("bash", {"command": "cat /shared_files/numbers.txt"}))
    found.result("bash", "3\n4\n5\n\n[stderr]\nno end of line\n[exit 1]")
    found.turn("Two commands.", ("bash", {"command": "echo $((3+4+5))"}), ("bash", {"command": ""}))
    found.result("bash", "12\n")
    found.result("bash", "(no output)", id="call_1")
    found.turn("Done.", ("submit", {"answer": "12"}))
    found.completion = "12"
    return found


def scope_b() -> Scope:
    found = Scope("t-b")
    found.turn("I think it is the left one.")
    found.say("user", "Call a tool, please.")
    found.turn("The left!")
    found.event("submit", None, {"source": "implicit", "raw_text_preview": "The left!"})
    return found


def scope_tools() -> Scope:
    found = Scope("u-a")
    thought = {"type": "reasoning", "reasoning": "The catalogue has it."}
    text = {"type": "text", "text": "I look it up."}
    found.turn([thought, text], ("lookup", {"page": 7}))
    found.result("lookup", "the flag is green, then blue")
    found.turn("Once more.", ("lookup", {"page": 99}))
    error = {"type": "unknown", "message": "there is no page 99"}
    found.result("lookup", error["message"], error=error)
    found.turn("Done.", ("submit", {"answer": "Green; Blue"}))
    found.completion = "Green; Blue"
    return found


def scope_dead() -> Scope:
    found = Scope("u-b")
    error = {"type": "unknown", "message": "Error while fetching server API version: no socket"}
    for command in ("wc -L text", "ls"):
        found.turn("I measure.", ("bash", {"command": command}))
        found.result("bash", error["message"], error=error)
    found.turn("I guess.", ("submit", {"answer": "80"}))
    found.completion = "80"
    return found


def scope_overflow() -> Scope:
    found = Scope("v-a")
    found.turn("I read all letters.", ("bash", {"command": "cat letters/*", "timeout": 9}))
    found.result("bash", "dear\n\n[stderr]\nCommand timed out\n[TIMEOUT]")
    found.turn("the context of 100 tokens is exceeded", stop="model_length")
    return found


def scope_stopped() -> Scope:
    found = Scope("v-b")
    lost = "the arguments could not be parsed"
    found.turn("I count.", ("bash", {}), lost=lost)
    found.result("bash", "(no output)")
    found.turn("Let me see: 4", ("bash", {"command": "ls doors"}))
    found.result("bash", "red1 red2\n")
    found.event("error", None, {"source": "loop", "message": "max_steps_exceeded"})
    return found


def metadata(task: str) -> JSON:
    """What EvalScope keeps of the data set's row."""
    level, _, _, file = TASKS[task]
    return {"task_id": task, "level": str(level), "file_name": file, "Annotator Metadata": {}}


def prediction(found: Scope, index: int) -> JSON:
    """A line of `predictions`."""
    message = {**found.messages[-1], "content": found.completion, "role": "assistant"}
    return {
        "index": index,
        "model": MODEL,
        "model_output": {
            "model": MODEL,
            "choices": [{"message": message, "stop_reason": found.stop, "logprobs": None}],
            "usage": None,
            "error": None,
        },
        "messages": found.messages,
        "agent_trace": {
            "strategy": "react",
            "max_steps": 5,
            "total_usage": None,
            "events": found.events,
        },
        "metadata": metadata(found.task),
    }


def review(found: Scope, index: int, right: bool, generation: int) -> JSON:
    """A line of `reviews`."""
    score = {
        "value": {"acc": 1.0 if right else 0.0},
        "status": "success",
        "extracted_prediction": found.completion,
        "prediction": found.completion,
        "explanation": "compared",
        "metadata": {},
    }
    return {
        "index": index,
        "target": [TASKS[found.task][2]],
        "messages": found.messages,
        "sample_score": {
            "score": score,
            "sample_id": index,
            "group_id": index // 2,
            "generation_index": generation,
            "sample_metadata": metadata(found.task),
        },
    }


CONFIG = """\
agent_config:
  command_timeout: 30
  max_steps: 5
  mode: native
api_key: '**********'
api_url: http://127.0.0.1:9/v1
dataset_args:
  gaia:
    dataset_id: /home/somebody/toys
datasets:
- gaia
evalscope_version: 1.14.1
generation_config:
  batch_size: 2
  stream: true
  temperature: 0.5
limit: null
model: toy-model
repeats: 2
sandbox:
  default_config:
    image: toys:1
  enabled: true
"""


def write_evalscope(folder: Path) -> None:
    """Two repeats of seven samples; `u-c` ended in error both times, and level 3 has no reviews."""
    (folder / "configs").mkdir(parents=True)
    (folder / "configs" / "task_config.yaml").write_text(CONFIG)
    rows = {
        "2023_level1": ((scope_a, True), (scope_b, True)),
        "2023_level2": ((scope_tools, False), (scope_dead, True)),
        "2023_level3": ((scope_overflow, False), (scope_stopped, False)),
    }
    for subset, samples in rows.items():
        lines: list[JSON] = []
        reviews: list[JSON] = []
        for row, (make, right) in enumerate(samples):
            for generation in range(2):
                index = row * 2 + generation
                lines.append(prediction(make(), index))
                reviews.append(review(make(), index, right, generation))
        write_lines(folder / "predictions" / MODEL / f"gaia_{subset}.jsonl", lines[::-1])
        if subset != "2023_level3":
            write_lines(folder / "reviews" / MODEL / f"gaia_{subset}.jsonl", reviews)
    counts = {"2023_level1": (4, 0), "2023_level2": (6, 2), "2023_level3": (4, 0)}
    report = {
        "schema_version": 2,
        "name": f"{MODEL}@gaia",
        "metrics": [{"identity": {"name": "accuracy"}, "num": 8, "score": 0.75}],
        "execution_summary": {
            "requested": 14,
            "succeeded": 12,
            "errored": 2,
            "incomplete": True,
            "subsets": {
                name: {"requested": requested, "succeeded": requested - errored, "errored": errored}
                for name, (requested, errored) in counts.items()
            },
        },
        "num": 8,
    }
    path = folder / "reports" / MODEL / "gaia.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(report, indent=1) + "\n")


def write_lines(path: Path, lines: list[JSON]) -> None:
    """JSON Lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


# ------------------------------------------------------------------------------------------ inspect

LONG = "a line that is long enough to be kept as an attachment, once for all " * 3
HASH = "0123456789abcdef0123456789abcdef"


class Log:
    """One sample's conversation as inspect keeps it."""

    def __init__(self, task: str) -> None:
        self.task = task
        self.messages: list[JSON] = []
        self.events: list[JSON] = []
        self.say("system", "Use the submit tool.")
        self.say("user", prompt(task), source="input")

    def say(self, role: str, content: Any, **more: Any) -> str:
        """A message; its id."""
        id = f"{self.task}-{len(self.messages)}"
        self.messages.append({"id": id, "content": content, "role": role, **more})
        return id

    def turn(self, content: Any, *calls: tuple[str, JSON], stop: str = "", **more: Any) -> None:
        """A turn of the model."""
        made = [
            {
                "id": f"call_{n}",
                "function": name,
                "arguments": arguments,
                "type": "function",
                **more,
            }
            for n, (name, arguments) in enumerate(calls)
        ]
        self.say("assistant", content, source="generate", model=MODEL, tool_calls=made or None)
        message = self.messages[-1]
        stop = stop or ("tool_calls" if calls else "stop")
        usage = {"input_tokens": 60, "output_tokens": 9, "total_tokens": 109,
                 "input_tokens_cache_read": 40}  # fmt: skip
        response = {
            "choices": [
                {
                    "message": {
                        "tool_calls": [
                            {"function": {"name": name, "arguments": json.dumps(given, indent=1)}}
                            for name, given in calls
                        ]
                    }
                }
            ]
        }
        schema = {"type": "object", "properties": {"command": {"type": "string"}}}
        self.events.append(
            {
                "event": "model",
                "timestamp": "2027-01-01T00:00:00+00:00",
                "model": MODEL,
                "input": [],
                "tools": [{"name": "bash", "description": "Runs it.", "parameters": schema}],
                "tool_choice": "auto",
                "config": {},
                "output": {
                    "model": MODEL,
                    "choices": [{"message": message, "stop_reason": stop}],
                    "usage": usage,
                },
                "call": {"request": {}, "response": response} if self.task == "t-a" else None,
                "working_time": 0.5,
            }
        )

    def result(
        self, name: str, content: str, *, exit: int | None = None, error: Any = None
    ) -> None:
        """What a tool gave."""
        more = {"error": error} if error else {}
        id = self.say("tool", content, tool_call_id="call_0", function=name, **more)
        self.events.append({"event": "tool", "function": name, "message_id": id, "result": content})
        if exit is not None:
            self.events.append({"event": "sandbox", "action": "exec", "result": exit})

    def sample(self, epoch: int, answer: str | None, value: Any, **more: Any) -> JSON:
        """The member of the archive."""
        last = [message for message in self.messages if message["role"] == "assistant"][-1:]
        choices = [{"message": message, "stop_reason": "stop"} for message in last]
        scores = {"gaia_scorer": {"value": value, "answer": answer, "history": []}}
        _, _, target, file = TASKS[self.task]
        return {
            "id": self.task,
            "epoch": epoch,
            "input": self.messages[1]["content"],
            "target": target,
            "files": [f"/shared_files/{file}"] if file else None,
            "messages": self.messages,
            "output": {"model": MODEL, "choices": choices, "completion": answer or ""},
            "scores": scores if value is not None else None,
            "metadata": {"level": str(TASKS[self.task][0])},
            "events": self.events,
            "model_usage": {MODEL: {"input_tokens": 120, "output_tokens": 18}},
            "started_at": "2027-01-01T00:00:00+00:00",
            "completed_at": "2027-01-01T00:00:07+00:00",
            "total_time": 7.0,
            **more,
        }


def log_a(epoch: int) -> JSON:
    found = Log("t-a")
    found.turn("I read it.", ("bash", {"command": "cat /shared_files/numbers.txt"}))
    found.result("bash", f"attachment://{HASH}", exit=3)
    found.turn("Done.", ("submit", {"answer": "12"}))
    found.result("submit", "12")
    return found.sample(epoch, "12", "C", attachments={HASH: LONG})


def log_b(epoch: int) -> JSON:
    found = Log("t-b")
    reasoning = {"type": "reasoning", "reasoning": "It sounds lower."}
    found.turn([reasoning, {"type": "text", "text": "I think the left."}])
    found.say("user", "Go on.")
    found.turn("the left")
    limit = {"type": "message", "limit": 5.0}
    return found.sample(epoch, "the left", "C", limit=limit)


def log_error(epoch: int) -> JSON:
    found = Log("u-a")
    found.turn("I look.", ("bash", {"command": "look"}))
    error = {"message": "RateLimitError: try later", "traceback": "…", "traceback_ansi": "…"}
    return found.sample(epoch, None, None, error=error, error_retries=[{"message": "the same"}])


def log_dead(epoch: int) -> JSON:
    found = Log("u-b")
    error = {"type": "sandbox_unavailable", "message": "the container is gone"}
    found.turn("I measure.", ("bash", {"command": "wc -L text"}))
    found.result("bash", "", error=error)
    found.turn("I guess.", ("submit", {"answer": "80"}))
    found.result("submit", "80")
    return found.sample(epoch, "80", "C")


def log_stopped(epoch: int) -> JSON:
    found = Log("v-b")
    parse_error = "the arguments could not be parsed"
    found.turn("I count.", ("bash", {}), parse_error=parse_error)
    found.result("bash", "", error={"type": "parsing", "message": parse_error})
    found.turn("4", ("bash", {"command": "ls doors"}))
    return found.sample(epoch, "4", "C", limit={"type": "message", "limit": 6.0})


def header(ids: list[Any], *, epochs: int, status: str, results: Any) -> JSON:
    """The head of a log."""
    return {
        "version": 2,
        "status": status,
        "eval": {
            "eval_id": "e", "run_id": "r", "created": "2027-01-01T00:00:00+00:00",
            "task": "toys", "task_id": "t", "task_version": 0,
            "dataset": {"name": "toys", "samples": len(ids), "sample_ids": ids},
            "model": f"openai-api/local/{MODEL}",
            "model_generate_config": {"temperature": 0.5, "max_connections": 4},
            "sandbox": {"type": "docker"},
            "config": {"epochs": epochs, "message_limit": 6},
            "packages": {"inspect_ai": "0.3.285"},
        },
        "plan": {"name": "plan", "steps": [], "config": {}},
        "results": results,
        "stats": {},
    }  # fmt: skip


def results(accuracy: float, count: int) -> JSON:
    """The figures of a log."""
    metrics = {"accuracy": {"name": "accuracy", "value": accuracy}}
    score = {"name": "gaia_scorer", "scorer": "gaia_scorer", "scored_samples": count,
             "metrics": metrics}  # fmt: skip
    return {"total_samples": count, "completed_samples": count, "scores": [score]}


def zstd_archive(members: dict[str, bytes]) -> bytes:
    """A zip archive whose members are compressed with Zstandard, as inspect writes it."""
    import zstandard

    out = io.BytesIO()
    directory = b""
    for name, data in members.items():
        packed = zstandard.ZstdCompressor(level=9).compress(data)
        at = out.tell()
        shared = struct.pack(
            "<HHHHHIIIHH", 63, 0x800, 93, 0, 33, zlib.crc32(data), len(packed), len(data),
            len(name), 0,
        )  # fmt: skip
        out.write(b"PK\x03\x04" + shared + name.encode() + packed)
        made_by = struct.pack("<H", 63)
        directory += b"PK\x01\x02" + made_by + shared + struct.pack("<HHHII", 0, 0, 0, 0, at)
        directory += name.encode()
    at, count = out.tell(), len(members)
    end = struct.pack("<HHHHIIH", 0, 0, count, count, len(directory), at, 0)
    out.write(directory + b"PK\x05\x06" + end)
    return out.getvalue()


def plain_archive(members: dict[str, bytes]) -> bytes:
    """The same with deflate."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, data)
    return out.getvalue()


def encoded(value: Any) -> bytes:
    """JSON as inspect writes it: NaN may stand in it."""
    return json.dumps(value).encode()


def write_inspect(folder: Path) -> None:
    """`log.eval` (two epochs, all kinds of ends), `started.eval` (never finished), `old.json`."""
    folder.mkdir(parents=True)
    makers = (log_a, log_b, log_error, log_dead, log_stopped)
    ids = ["t-a", "t-b", "u-a", "u-b", "v-b"]
    members = {
        f"samples/{sample['id']}_epoch_{epoch}.json": encoded(sample)
        for epoch in (1, 2)
        for sample in (make(epoch) for make in makers)
    }
    head = header(ids, epochs=2, status="success", results=results(1.0, 8))
    members["header.json"] = encoded(head)
    (folder / "log.eval").write_bytes(zstd_archive(members))
    start = header(["t-a", "t-b"], epochs=1, status="started", results=None)
    start.pop("status")
    members = {"_journal/start.json": encoded(start), "samples/t-a_epoch_1.json": encoded(log_a(1))}
    (folder / "started.eval").write_bytes(plain_archive(members))
    (folder / "old.json").write_bytes(encoded(old_log()) + b"\n")


def old_log() -> JSON:
    """A log in one JSON text: no events, numbers for ids and scores, NaN, a lone surrogate."""
    samples = []
    for number, (make, value) in enumerate(((log_a, 1.0), (log_b, 0.0), (log_dead, float("nan")))):
        sample = make(1)
        task = sample["id"]
        for message in sample["messages"]:
            message.pop("id")
        sample["messages"][0]["content"] = "Use the \ud800 tool."
        sample.update(id=number + 1, events=[], metadata={"task_id": task, "Level": TASKS[task][0]})
        sample["scores"] = {"match": {"value": value, "answer": sample["output"]["completion"]}}
        samples.append(sample)
    head = header([1, 2, 3], epochs=1, status="success", results=results(0.5, 2))
    return {**head, "samples": samples}


def main(folder: Path) -> None:
    """Write all of it anew."""
    for name, write in (("evalscope", write_evalscope), ("inspect", write_inspect)):
        shutil.rmtree(folder / name, ignore_errors=True)
        write(folder / name)
