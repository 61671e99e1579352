"""The scripted policy server of the demo, over real HTTP with the real SDK."""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openai
import pytest

import harness

SCRIPT = Path(__file__).resolve().parent.parent.parent / "scripts" / "scripted_policy.py"
METADATA = Path(harness.__file__).parent / "data" / "mini" / "2023" / "validation"
ROWS = [
    json.loads(line)
    for line in (METADATA / "metadata.jsonl").read_text(encoding="utf-8").splitlines()
]
MODEL = "scripted-policy"
MAX_STEPS = 12
TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": name,
            "parameters": {"type": "object", "properties": {key: {"type": "string"}}},
        },
    }
    for name, key in (("bash", "command"), ("submit", "answer"))
]
Reply = dict[str, Any]


@contextmanager
def served(*options: str) -> Iterator[openai.OpenAI]:
    command = [sys.executable, str(SCRIPT), "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            url = f"http://127.0.0.1:{port}/v1"
            with openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=60) as client:
                yield client
        finally:
            process.terminate()
            assert process.wait(timeout=30) == 0


@pytest.fixture(scope="module")
def client() -> Iterator[openai.OpenAI]:
    with served() as client:
        yield client


def question(phrase: str) -> str:
    (found,) = [row["Question"] for row in ROWS if phrase in row["Question"]]
    return str(found)


def history(asked: str, turns: int = 0, results: Sequence[str] = ()) -> list[Any]:
    """A prompt around the question, some turns of the model, and the last turn's tool results."""
    messages: list[Any] = [
        {"role": "system", "content": "Solve the task."},
        {"role": "user", "content": f"Here is a task.\n\n{asked}\n\nIts file is in /shared_files."},
    ]
    for turn in range(turns):
        messages.append({"role": "assistant", "content": f"turn {turn}"})
        messages.append({"role": "user", "content": "Please go on."})
    calls = [
        {"id": f"c{i}", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
        for i, _ in enumerate(results)
    ]
    if results:
        messages.append({"role": "assistant", "content": "", "tool_calls": calls})
    for i, result in enumerate(results):
        messages.append({"role": "tool", "tool_call_id": f"c{i}", "content": result})
    return messages


def whole(client: openai.OpenAI, messages: list[Any]) -> Reply:
    reply = client.chat.completions.create(model=MODEL, messages=messages, tools=TOOLS)
    return reply.model_dump(exclude_unset=True)


def chunks(client: openai.OpenAI, messages: list[Any], **more: Any) -> list[Reply]:
    parts = client.chat.completions.create(
        model=MODEL, messages=messages, tools=TOOLS, stream=True, **more
    )
    return [part.model_dump(exclude_unset=True) for part in parts]


def merged(parts: list[Reply]) -> Reply:
    """What the chunks of a stream say together, in the form of a whole reply."""
    message: dict[str, Any] = {"content": None, "refusal": None}
    calls: list[dict[str, Any]] = []
    finish = []
    for part in parts:
        for choice in part["choices"]:
            delta = choice["delta"]
            message["role"] = delta.get("role", message.get("role"))
            for key in ("content", "refusal", "reasoning_content"):
                if delta.get(key):
                    message[key] = (message.get(key) or "") + delta[key]
            for piece in delta.get("tool_calls", []):
                function = piece["function"]
                if piece["index"] == len(calls):
                    calls.append({"id": piece["id"], "type": piece["type"], "function": function})
                else:
                    assert piece["index"] == len(calls) - 1
                    calls[-1]["function"]["arguments"] += function["arguments"]
            finish += [choice["finish_reason"]] if choice["finish_reason"] else []
    if calls:
        message["tool_calls"] = calls
    (reason,) = finish
    frame = {key: parts[0][key] for key in ("id", "created", "model", "system_fingerprint")}
    return frame | {
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": reason}],
        "usage": parts[-1]["usage"],
    }


def calls_of(reply: Reply) -> list[tuple[str, str]]:
    calls = reply["choices"][0]["message"].get("tool_calls", [])
    return [(call["function"]["name"], call["function"]["arguments"]) for call in calls]


def arguments_of(text: str) -> Any:
    """The arguments as JSON, None where they are none."""
    try:
        return json.loads(text)
    except ValueError:
        return None


def test_a_stream_says_what_the_whole_reply_says_at_every_step(client: openai.OpenAI) -> None:
    seen: Counter[str] = Counter()
    bash = []
    for row in ROWS:
        count = 0
        for step in range(MAX_STEPS):
            messages = history(row["Question"], step)
            try:
                reply = whole(client, messages)
            except openai.BadRequestError as error:
                seen[str(error.code)] += 1
                break
            usage = {"stream_options": {"include_usage": True}}
            assert merged(chunks(client, messages, **usage)) == reply
            calls = calls_of(reply)
            message = reply["choices"][0]["message"]
            count += sum(name == "bash" and bool(arguments_of(text)) for name, text in calls)
            seen["reasoning"] += "reasoning_content" in message
            seen["cut"] += reply["choices"][0]["finish_reason"] == "length"
            seen["refusal"] += bool(message["refusal"])
            seen["parallel"] += len(calls) > 1
            seen["unknown"] += any(name not in {"bash", "submit"} for name, _ in calls)
            seen["empty"] += any(text == "" for _, text in calls)
            seen["no object"] += any(isinstance(arguments_of(text), list) for _, text in calls)
            seen["broken"] += any(text and arguments_of(text) is None for _, text in calls)
            seen["sleep"] += any("sleep 600" in text for _, text in calls)
            names = [name for name, _ in calls]
            seen["submit between"] += "submit" in names[1:-1]
            if "submit" in names or message["refusal"]:
                break
        bash.append(count)
    once = dict.fromkeys(
        ("context_length_exceeded", "reasoning", "cut", "refusal", "unknown", "empty", "no object"),
        1,
    )
    assert {name: seen[name] for name in once} == once
    assert seen["broken"] == 2  # one is the cut one
    assert (seen["sleep"], seen["submit between"]) == (1, 1)
    assert seen["parallel"] >= 5
    assert sum(bash) >= 110
    assert sorted(bash)[len(bash) // 2] >= 4
    assert sorted(bash)[:2] == [0, 4]
    assert sorted(bash)[-2] <= 9


def test_a_stream_is_cut_small_and_counts_tokens_when_asked(client: openai.OpenAI) -> None:
    messages = history(question("picking list"))
    parts = chunks(client, messages)
    pieces = [
        piece["function"]["arguments"]
        for part in parts
        for choice in part["choices"]
        for piece in choice["delta"].get("tool_calls", [])
    ]
    assert len(pieces) > 2
    assert arguments_of(pieces[1]) is None
    assert set(json.loads("".join(pieces))) == {"command"}
    assert not any(part.get("usage") for part in parts)
    counted = chunks(client, messages, stream_options={"include_usage": True})
    assert [bool(part["choices"]) for part in counted] == [True] * len(parts) + [False]
    usage = counted[-1]["usage"]
    assert usage["prompt_tokens"] + usage["completion_tokens"] == usage["total_tokens"] > 0


def test_the_same_request_gets_the_same_reply_whatever_came_between(client: openai.OpenAI) -> None:
    messages = history(question("paper chase"), 2)
    first = whole(client, messages)
    whole(client, history(question("paper chase"), 5))
    whole(client, history(question("loans of a small library")))
    assert whole(client, messages) == first
    with served() as other:
        assert whole(other, messages) == first


def test_it_says_that_it_is_scripted(client: openai.OpenAI) -> None:
    reply = whole(client, history(question("paper chase")))
    assert reply["model"] == "scripted-policy"
    assert "scripted" in reply["system_fingerprint"]
    assert [(model.id, model.owned_by) for model in client.models.list()] == [(MODEL, "scripted")]


@pytest.mark.parametrize(
    ("results", "answer"),
    [
        (["exit code 0\nkg = 4711\n"], "4711"),
        (["kg = 1", "kg = 2"], "2"),
        (["kg = 3", "nothing"], "3"),
        (["nothing"], "0"),
    ],
)
def test_the_answer_is_read_from_the_last_results(
    client: openai.OpenAI, results: list[str], answer: str
) -> None:
    reply = whole(client, history(question("picking list"), 4, results))
    ((name, arguments),) = calls_of(reply)
    assert (name, json.loads(arguments)) == ("submit", {"answer": answer})


def test_a_move_can_depend_on_a_failure(client: openai.OpenAI) -> None:
    asked = question("paper chase")
    failed = whole(client, history(asked, 0, ["bash: line 1: unzip: command not found"]))
    worked = whole(client, history(asked, 0, ["(no output)"]))
    assert "zipfile -e" in calls_of(failed)[0][1]
    assert "zipfile" not in calls_of(worked)[0][1]


def test_a_command_can_take_a_path_from_the_last_result(client: openai.OpenAI) -> None:
    listing = "  7 chase/attic/rafters.txt\n  2 chase/attic/trunk.txt\n 17 chase/other.txt\n"
    reply = whole(client, history(question("paper chase"), 2, [listing]))
    assert [json.loads(text) for _, text in calls_of(reply)] == [
        {"command": "cat chase/attic/rafters.txt"}
    ]


def test_the_question_is_found_in_parts_and_across_line_breaks(client: openai.OpenAI) -> None:
    asked = question("seven seats")
    plain = whole(client, history(asked))
    parts = [
        {"type": "text", "text": "Task:\n" + asked[:60]},
        {"type": "text", "text": asked[60:].replace(" ", "\n  ") + "\nThank you."},
    ]
    reply = whole(client, [{"role": "user", "content": parts}])
    assert reply["choices"] == plain["choices"]


def test_a_full_context_is_an_error_with_its_code(client: openai.OpenAI) -> None:
    messages = history(question("before its formulas were calculated"), 5)
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(model=MODEL, messages=messages, stream=stream)
        assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "messages")


def test_what_it_does_not_know_it_refuses(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as unknown:
        whole(client, [{"role": "user", "content": "What is the capital of France?"}])
    assert unknown.value.code == "unknown_sample"
    with pytest.raises(openai.NotFoundError) as other:
        client.chat.completions.create(
            model="gpt-something", messages=history(question("paper chase"))
        )
    assert other.value.code == "model_not_found"


def test_a_client_that_leaves_early_makes_no_noise(capfd: pytest.CaptureFixture[str]) -> None:
    messages = history(question("paper chase"))
    with served() as client:
        for _ in range(5):
            address = (client.base_url.host, client.base_url.port or 80)
            with socket.create_connection(address, timeout=30) as connection:
                connection.sendall(b"GET /count HTTP/1.1\r\nHost: x\r\n\r\n")
                assert connection.recv(15) == b"HTTP/1.1 200 OK"
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        assert whole(client, messages)["choices"]
    assert "Traceback" not in capfd.readouterr().err


def test_flaky_stumbles_once_and_counters_tell(tmp_path: Path) -> None:
    log, port_file = tmp_path / "log.jsonl", tmp_path / "port"
    messages = history(question("tram network"), 1)
    with served("--flaky", "--log", str(log), "--port-file", str(port_file)) as client:
        assert f":{int(port_file.read_text())}/" in str(client.base_url)
        with pytest.raises(openai.RateLimitError) as caught:
            whole(client, messages)
        assert caught.value.response.headers["retry-after"] == "0"
        first = whole(client, messages)
        assert whole(client, messages) == first
        root = str(client.base_url).removesuffix("/v1/")
        assert client.get(f"{root}/count", cast_to=dict) == {"completions": 2, "errors": 1}
    with served("--flaky") as client:
        assert whole(client.with_options(max_retries=1), messages) == first
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(line["status"], line["task_id"][:8], line["step"]) for line in lines] == [
        (429, "2503b6b3", 1),
        (200, "2503b6b3", 1),
        (200, "2503b6b3", 1),
    ]
