"""One peer's recording or replay, in the peers' own environment; imports nothing of the harness.

    python -m benchmarks.peer SYSTEM record|replay FOLDER PORT SAMPLES STEPS

A loop with the real `openai` SDK over the workload: a call of the model, a command, and so on. One
cassette per sample, samples one after the other. Prints JSON: CPU seconds of starting up (imports),
CPU and wall seconds of the loop, and how many replies were not those of the workload.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from benchmarks.workload import MODEL, Workload

STARTED = time.process_time()
"""CPU seconds of starting the interpreter."""

SYSTEM_PROMPT = "You answer a question by running commands; call submit with the answer."
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"The tool {name}.",
            "parameters": {"type": "object", "properties": {argument: {"type": "string"}}},
        },
    }
    for name, argument in (("bash", "command"), ("submit", "answer"))
]

Create = Callable[..., Any]
Run = Callable[[str], str]
Cassette = Callable[[Path], AbstractContextManager[Any]]


class _Live:
    """The endpoint, and commands whose outputs are the workload's."""

    def __init__(self, port: str, workload: Workload) -> None:
        openai = importlib.import_module("openai")
        self.client = openai.OpenAI(
            base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0
        )
        self.workload = workload
        self.at = (0, 0)

    def create(self, **request: Any) -> Any:
        return self.client.chat.completions.create(**request)

    def bash(self, command: str) -> str:
        number, step = self.at
        return self.workload.outputs[number][step]


def vcrpy(live: _Live, recording: bool) -> tuple[Cassette, Create, Run]:
    """Matching on the body: by default its cassettes serve wrong replies."""
    vcr = importlib.import_module("vcr").VCR(
        serializer="json",
        record_mode="all" if recording else "none",
        match_on=["method", "scheme", "host", "port", "path", "query", "body"],
        filter_headers=["authorization"],
    )
    return lambda path: vcr.use_cassette(f"{path}.json"), live.create, live.bash


def cassetter(live: _Live, recording: bool) -> tuple[Cassette, Create, Run]:
    """As its documentation shows it."""
    use = importlib.import_module("cassetter").use_cassette
    mode = "rewrite" if recording else "none"
    return lambda path: use(f"{path}.yaml", record_mode=mode), live.create, live.bash


def frozentrace(live: _Live, recording: bool) -> tuple[Cassette, Create, Run]:
    """Records what its wrapped functions return: the model's and the commands'."""
    module = importlib.import_module("frozentrace")
    create = module.intercept(
        lambda **request: live.create(**request).model_dump(), kind="llm", name="llm"
    )
    bash = module.intercept(live.bash, kind="tool", name="bash")

    def use(path: Path) -> Any:
        if recording:
            return module.record(f"{path}.json")
        return module.replay(f"{path}.json", strict=True)

    return use, create, bash


PEERS: dict[str, Callable[[_Live, bool], tuple[Cassette, Create, Run]]] = {
    "vcrpy": vcrpy,
    "cassetter": cassetter,
    "frozentrace": frozentrace,
}


def run(name: str, mode: str, folder: Path, port: str, samples: int, steps: int) -> dict[str, Any]:
    """All samples; what they took."""
    workload = Workload(samples, steps)
    making = time.process_time()
    live = _Live(port, workload)
    use, create, bash = PEERS[name](live, mode == "record")
    start = STARTED + time.process_time() - making
    folder.mkdir(parents=True, exist_ok=True)
    wrong = 0
    cpu, wall = time.process_time(), time.perf_counter()
    for number in range(samples):
        with contextlib.ExitStack() as stack:
            stack.enter_context(use(folder / f"{number:05d}"))
            wrong += _sample(live, create, bash, number, steps)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return {"start_cpu_s": start, "cpu_s": cpu, "wall_s": wall, "bytes": size, "wrong": wrong}


def _sample(live: _Live, create: Create, bash: Run, number: int, steps: int) -> int:
    """The loop; how many replies were not the workload's."""
    wrong = 0
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": SYSTEM_PROMPT},
        {"role": "user", "content": live.workload.questions[number]},
    ]
    for step in range(steps):
        live.at = number, step
        reply = create(model=MODEL, messages=list(messages), tools=TOOLS, temperature=0)
        whole = reply if isinstance(reply, dict) else reply.model_dump()
        message = whole["choices"][0]["message"]
        call = message["tool_calls"][0]
        command = json.loads(call["function"]["arguments"])["command"]
        output = bash(command)
        meant = live.workload.responses[number][step]["choices"][0]["message"]
        given = (message["content"], call["function"]["arguments"], output)
        function = meant["tool_calls"][0]["function"]
        wrong += given != (
            meant["content"], function["arguments"], live.workload.outputs[number][step]
        )  # fmt: skip
        messages.append(
            {
                "role": "assistant",
                "content": message["content"],
                "tool_calls": [
                    {"id": call["id"], "type": "function", "function": dict(call["function"])}
                ],
            }
        )
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": output})
    return wrong


if __name__ == "__main__":
    given = sys.argv[1:]
    found = run(given[0], given[1], Path(given[2]), given[3], int(given[4]), int(given[5]))
    print(json.dumps(found))
