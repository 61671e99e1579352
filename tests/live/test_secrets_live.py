"""A canary over real HTTP, in a real shell, through a real tool server: found nowhere (E08).

The endpoint repeats the key wherever an endpoint can: error bodies, headers, cookies, texts, in a
stream in pieces of three characters. The shell prints it in every spelling. No Docker is needed.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from harness.records import ModelReply
from harness.redact import MARK
from tests.live.line import ROOT, harness
from tests.quirk_server import QuirkServer
from tests.quirks import QUIRKS, Answer, Quirk, call, chunk, completion, usage_chunk
from tests.scripted import dataset
from tests.test_files import everything
from tests.test_redact import still_there

KEY = "sk-canary/live+0123456789=ab"
TOKEN = "mcp-canary-token-0123456789"
COOKIE = "cookie-canary-0123456789"  # no secret of ours: kept out by the list of headers
HEADERS = {
    "set-cookie": f"session={COOKIE}; key={KEY}",
    "x-request-id": f"req-{KEY}",
    "openai-organization": f"org-{KEY}",
    "www-authenticate": f"Bearer {KEY}",
}

# put together where nobody looks for it: each piece is too short to be one
PRINTS = r"""
k='sk-canary'"$(printf '/live+')"'0123456'"$(printf 789=ab)"
echo "$k"; echo "$k" >&2
printf '%s' "$k" | base64; printf '.%s' "$k" | base64 -w 12; printf '..%s and more' "$k" | base64
printf '%s' "$k" | od -An -v -tx1 | tr -d ' \n' | sed 's/../%&/g'; echo
touch "${k//\//_}"; ls
"""


def pieces(text: str) -> list[str]:
    return [text[at : at + 3] for at in range(0, len(text), 3)]


def said(body: Mapping[str, Any], text: str, name: str, arguments: dict[str, Any]) -> Answer:
    """A reply of text and one call, whole or in small pieces, as it is asked for."""
    asked = call("call_1", name, json.dumps(arguments))
    if not body.get("stream"):
        message = {"role": "assistant", "content": text, "tool_calls": [asked]}
        answer = Answer.json(completion({**message, "reasoning_content": text}, "tool_calls"))
        return Answer(200, {**HEADERS, **answer.headers}, answer.pieces)
    first = {"index": 0, "id": "call_1", "function": {"name": name, "arguments": ""}}
    chunks = [
        *(chunk({"reasoning_content": piece}) for piece in pieces(text)),
        *(chunk({"content": piece}) for piece in pieces(text)),
        chunk({"tool_calls": [first]}),
        *(
            chunk({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]})
            for piece in pieces(json.dumps(arguments))
        ),
        chunk({}, "tool_calls"),
        usage_chunk(),
    ]
    return Answer.sse(*chunks, headers=HEADERS)


class Leaky:
    """The endpoint: fails twice, then leads each sample through shell and tool server."""

    def __init__(self) -> None:
        self.failures = [
            Answer.error(500, f"worker with {KEY} crashed", {**HEADERS, "retry-after": "0"}),
            Answer.error(429, f"slow down, {KEY}", {**HEADERS, "retry-after": "0"}),
        ]

    def __call__(self, body: Mapping[str, Any]) -> Answer:
        if "denied" in json.dumps(body["messages"]):
            return Answer.error(401, f"Incorrect API key provided: {KEY}", HEADERS)
        if self.failures:
            return self.failures.pop()
        turn = sum(message["role"] == "assistant" for message in body["messages"])
        if turn == 0:
            return said(body, f"I was given {KEY}.", "bash", {"command": PRINTS})
        if turn == 1:
            return said(body, f"Its token is {TOKEN}.", "environment", {})
        return said(body, KEY, "submit", {"answer": f"{KEY} and {TOKEN}"})


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[QuirkServer]:
    quirk = Quirk((), (), reply=ModelReply(), live=Leaky())
    monkeypatch.setitem(QUIRKS, "leaky", quirk)
    with QuirkServer() as running:
        yield running


def clean(text: str) -> None:
    for secret in (KEY, TOKEN, COOKIE):
        assert not still_there(text, secret), secret
        # percent-encoded byte by byte, as `od` prints it
        assert "".join(f"%{byte:02x}" for byte in secret.encode()) not in text.lower()


@pytest.mark.parametrize("stream", ["true", "false"], ids=["streamed", "whole"])
def test_a_canary_over_http_is_found_nowhere(
    tmp_path: Path, server: QuirkServer, stream: str
) -> None:
    """E08, from outside: store, journals, wire evidence, reports, progress, `--debug`; and what
    was recorded replays with no key, and with another."""
    dataset(tmp_path / "data", [("leaks", 1, "x"), ("denied", 2, "x")])
    program = str(ROOT / "tests" / "mcp_servers" / "stdio_server.py")
    tools = {"command": sys.executable, "args": [program, "ok"], "env": {"TOOL_TOKEN": TOKEN}}
    servers = {"t": {**tools, "tools": ["environment"]}}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    done = harness(
        "--debug", "record", "--run", "r", "--store", "st", "--dataset", "data", "--model",
        "leaky", "--api-url", server.url, "--sandbox", "local", "--mcp", "mcp.json", "--json",
        "-g", f"stream={stream}", "-g", "retry_interval=0.05", "--eval-batch-size", "2",
        cwd=tmp_path, variables={"OPENAI_API_KEY": KEY},
    )  # fmt: skip
    assert done.returncode == 4, done.stderr
    found = {sample["task_id"]: sample for sample in json.loads(done.stdout)["samples"]}
    assert found["leaks"]["answer"] == f"{MARK} and {MARK}"
    assert (found["leaks"]["steps"], found["denied"]["status"]) == (3, "error")
    # the key was used, and the server did say it
    assert {asked.headers["authorization"] for asked in server.asked} == {f"Bearer {KEY}"}
    assert len(server.asked) == 6

    outputs = [done.stdout, done.stderr]
    readers: list[tuple[str, ...]] = [
        ("show", "r", "leaks"), ("show", "r", "leaks", "--raw"), ("show", "r", "denied"),
        ("show", "r", "--raw"), ("ls", "--json"), ("verify",), ("score", "--json"),
        ("bundle", "r", "-o", "r.bundle"),
    ]  # fmt: skip
    for args in readers:
        shown = harness(*args, "--store", "st", cwd=tmp_path)
        assert shown.returncode == 0, shown.stderr
        outputs += [shown.stdout, shown.stderr]
    transcript = outputs[2]
    assert transcript.count(MARK) > 8  # each spelling that the shell printed, and the texts
    assert "1 of the secrets" not in done.stderr
    for key in ("", "sk-of-somebody-else-entirely"):
        replayed = harness(
            "replay", "r", "--store", "st", "--json", cwd=tmp_path,
            variables={"OPENAI_API_KEY": key, "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"},
        )  # fmt: skip
        assert replayed.returncode == 0, replayed.stderr
        for sample in json.loads(replayed.stdout)["samples"]:
            assert sample["identical"] is True
            assert sample["trajectory"] == found[sample["task_id"]]["trajectory"]
        outputs += [replayed.stdout, replayed.stderr]
    for output in outputs:
        clean(output)
    for name, data in everything(tmp_path / "st").items():
        text = data.decode("utf-8", "replace")
        clean(f"{name}\n{text}")
        clean("".join(re.findall(r'content\\?": ?\\?"([^"\\]*)', text)))  # streamed in pieces
    assert len(server.asked) == 6
