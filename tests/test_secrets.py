"""A canary in every place where a secret can stand is found nowhere afterwards (E08).

Through the commands, with a scripted backend at the seam: the key comes from the environment, the
MCP servers' values from a file, as a user would have them. Over real HTTP, with a real sandbox and
a real tool server: `tests/live/test_secrets_live.py`. The search itself is in `test_redact.py`.
"""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from harness.errors import ModelError, SandboxError, ToolServerError
from harness.exchange import FORMAT as WIRE
from harness.records import (
    BashReply,
    BashRequest,
    ModelRequest,
    Reply,
    Request,
    Sample,
    ToolReply,
    ToolRequest,
    Usage,
    ValueRequest,
)
from harness.redact import MARK
from tests.commands import Commands
from tests.scripted import Backend, call, counting, dataset, says
from tests.test_files import everything
from tests.test_redact import still_there

KEY = "sk-canary/0123+456=789&xyz"
ENV = "mcp-canary-env-7f3a?9c/x"
HEADER = "Bearer mcp-canary-header-55aa"
CANARIES = (KEY, ENV, HEADER.removeprefix("Bearer "))

SERVERS = {
    "mcpServers": {
        "local": {
            "command": "server",
            "args": ["--token", ENV, f"--url=http://u:{ENV}@h/"],
            "env": {"SERVER_TOKEN": ENV, "PLAIN": "visible"},
        },
        "remote": {"url": "http://h/mcp", "headers": {"Authorization": HEADER}},
    }
}
SCHEMA = {
    "type": "function",
    "function": {"name": "fetch", "description": f"uses {ENV}", "parameters": {"type": "object"}},
}


def spelled(secret: str) -> str:
    """A text with a secret in many spellings: raw, URL-encoded, as JSON, base64 at each place."""
    found = [secret, quote(secret), quote(secret, safe=""), json.dumps({"key": secret})]
    for before in ("", ".", ".."):
        data = f"{before}{secret} and more".encode()
        found += [base64.b64encode(data).decode(), base64.urlsafe_b64encode(data).decode()]
        found += [base64.encodebytes(data * 3).decode()]
    return "\n".join(found)


ALL = "\n".join(spelled(secret) for secret in CANARIES)


class Leaking(Backend):
    """All that comes from outside holds every canary in every spelling."""

    def __init__(self, policy: Any) -> None:
        super().__init__(policy)
        self.tools = [{"name": "fetch", "server": "local", "schema": SCHEMA}]
        self.stream = False

    def world(self, sample: Sample, attachment: Path | None) -> Any:
        world = super().world(sample, attachment)
        world.take_meta = self.meta  # type: ignore[method-assign]
        return world

    def meta(self) -> dict[str, Any]:
        wire: dict[str, Any] = {"format": WIRE, "version": 1, "method": "POST", "path": f"/{KEY}"}
        wire |= {"request_sha256": "", "status": 401, "headers": {"x-request-id": ALL}}
        body: Any = json.dumps({"error": {"message": ALL}})
        if self.stream:  # the key comes in pieces of three characters
            chunks = [KEY[at : at + 3] for at in range(0, len(KEY), 3)]
            events = [{"choices": [{"delta": {"content": chunk}}]} for chunk in chunks]
            body = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
        wire |= {"text": body, "stream": self.stream}
        binary = {**wire, "text": None, "base64": base64.b64encode(b"\xff" + KEY.encode()).decode()}
        exchanges = [json.dumps(found).encode() for found in (wire, binary)]
        return {"id": ALL, ALL: ALL, "attempts": [{"error": ALL}], "exchanges": exchanges}


def loop(sample: Sample, world: Any, settings: Any) -> str:
    """A user's loop: all kinds of requests; how it ends depends on the sample."""
    talk: list[dict[str, Any]] = [{"role": "user", "content": sample.question}]
    reply = world.perform(ModelRequest(talk, world.tools, settings.params))
    talk.append({"role": "assistant", "content": f"{reply.content} {reply.reasoning}"})
    out = world.perform(BashRequest("env", 5.0))
    got = world.perform(ToolRequest("local", "fetch", {"url": "x"}))
    value = world.perform(ValueRequest("environment", lambda: {KEY: [ALL, dict(os.environ)]}))
    talk.append({"role": "user", "content": f"{out.stdout!r} {out.stderr!r} {got.content} {value}"})
    world.perform(ModelRequest(talk, world.tools, settings.params))
    if sample.task_id == "raises":
        raise KeyError(ALL)
    if sample.task_id == "asks":  # the request would carry it
        world.perform(BashRequest(f"curl -H 'Authorization: Bearer {KEY}' http://h", 5.0))
    if sample.task_id == "differs" and os.environ.get("SECOND"):  # in-process replay comes second
        world.perform(BashRequest(f"echo {ALL}", 5.0))
    os.environ["SECOND"] = "1" if sample.task_id == "differs" else ""
    return ALL if sample.task_id == "reveals" else f"{reply.content} {out.stdout!r}"


def leaking(sample: Sample, request: Request) -> Reply:
    if isinstance(request, BashRequest):
        return BashReply(ALL.encode() + b"\xff", ALL.encode())
    if isinstance(request, ToolRequest):
        return ToolServerError(f"died: {ALL}") if sample.task_id == "tool" else ToolReply(ALL)
    assert isinstance(request, ModelRequest)
    late = len(request.messages) > 1
    if late and sample.task_id == "model":
        return ModelError(f"HTTP 401: Incorrect API key provided: {ALL}")
    if late and sample.task_id == "sandbox":
        return SandboxError(f"sandbox lost: {ALL}")
    return says(
        ALL, call("bash", id=KEY, command=ALL), call(KEY), reasoning=ALL, refusal=ALL,
        finish_reason=KEY,
    )  # fmt: skip


TASKS = ("answers", "asks", "differs", "model", "raises", "reveals", "sandbox", "tool")
KEPT = tuple(
    part for task in TASKS if task not in ("differs", "reveals") for part in ("--task-id", task)
)
LOOP = ("--agent", "tests.test_secrets:loop", "--mcp", "mcp.json")


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    """A folder with a data set, the MCP servers' file, and the key in the environment."""
    dataset(tmp_path / "data", [(task, 1, "x") for task in TASKS])
    found = Commands(tmp_path, monkeypatch)
    (tmp_path / "mcp.json").write_text(json.dumps(SERVERS))
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("SECOND", "")
    return found


def clean(cli: Commands, *outputs: str) -> None:
    """No canary, in any spelling, in any file of the store or in these texts."""
    for name, data in everything(cli.folder / "st").items():
        for secret in CANARIES:
            assert not still_there(data.decode("utf-8", "replace"), secret), (name, secret)
            assert not still_there(name, secret)
    for text in outputs:
        for secret in CANARIES:
            assert not still_there(text, secret), (text[:300], secret)


READERS = (
    ("ls",), ("ls", "--json"), ("show", "r"), ("show", "r", "--json"), ("show", "r", "--raw"),
    *(("show", "r", task) for task in TASKS), *(("show", "r", task, "--raw") for task in TASKS),
    ("verify",), ("score", "--json"), ("score", "--explain", "--show-truths", "--dataset", "data"),
    # not those whose loop prints the key that it knows itself
    ("replay", "--json", *KEPT), ("--debug", "replay", *KEPT), ("--debug", "show", "r", "nope"),
    ("diff", "r", "r", "--json"), ("gc", "--dry-run"), ("bundle", "r", "-o", "r.bundle"),
)  # fmt: skip


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_canary_is_found_nowhere(cli: Commands, stream: bool) -> None:
    """E08: replies, errors, exceptions, answers, values, metadata, HTTP exchanges, MCP values, a
    request that would carry it, and a loop that gives it away only when it is replayed."""
    backend = Leaking(leaking)
    backend.stream = stream
    recorded = cli.record(*LOOP, "--json", "--ignore-errors", status=1, backend=backend)
    clean(cli, recorded.stdout, recorded.stderr)
    samples = {sample["task_id"]: sample for sample in json.loads(recorded.stdout)["samples"]}
    assert MARK in samples["answers"]["answer"]
    assert {task for task in TASKS if samples[task]["status"] == "error"} == {
        "asks", "model", "raises", "sandbox", "tool"
    }  # fmt: skip
    # what a loop says only when it knows the key cannot be replayed without: told at once
    assert [task for task in TASKS if not samples[task]["replayable"]] == ["differs", "reveals"]
    for args in READERS:
        result = cli(*args, status=None)
        clean(cli, result.stdout, result.stderr)
    assert backend.asked.count(("asks", "bash")) == 1  # the one that carries it was not sent
    told = cli("show", "r", "asks").stdout
    assert "a request was about to carry a secret of this run at command" in told


def test_an_interrupted_recording_keeps_no_canary_either(cli: Commands) -> None:
    """E08: the journal, before it is sealed; and what is said when it goes on."""

    class Killed(BaseException):
        pass

    def dying(sample: Sample, request: Request) -> Reply:
        late = isinstance(request, ModelRequest) and len(request.messages) > 1
        return Killed() if late else leaking(sample, request)

    with pytest.raises(Killed):
        cli.record(*LOOP, "--task-id", "answers", backend=Leaking(dying))
    assert cli.store.journals("r") == ["answers@1"]
    clean(cli)
    again = cli.record(*LOOP, "--task-id", "answers", backend=Leaking(leaking))
    clean(cli, again.stdout, again.stderr)


@pytest.mark.parametrize("key", [None, "sk-another-key-of-someone", "x", KEY])
def test_a_replay_needs_no_key_and_matches_with_any(
    cli: Commands, monkeypatch: pytest.MonkeyPatch, key: str | None
) -> None:
    """E08: what was redacted was so before the loop saw it, so nothing differs for who replays."""
    cli.record(*LOOP, *KEPT, "--ignore-errors", backend=Leaking(leaking))
    monkeypatch.delenv("OPENAI_API_KEY")
    if key is not None:
        monkeypatch.setenv("OPENAI_API_KEY", key)
    (cli.folder / "mcp.json").unlink()
    report = json.loads(cli("replay", "--json").stdout)
    for sample in report["samples"]:
        # its loop computes with the key itself, which no tape can take from it
        if sample["task_id"] != "asks" or key == KEY:
            assert sample["identical"] is True, sample["task_id"]


@pytest.mark.parametrize("key", ["x", "k", "EMPTY", "none", "sk-12345678"])
def test_a_short_key_destroys_no_text(
    cli: Commands, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    """E08: keys as local servers want them; a warning says that they are not looked for."""
    monkeypatch.setenv("OPENAI_API_KEY", key)
    text = f"x k EMPTY none sk-12345678 {key}"

    def policy(sample: Sample, request: Request) -> Reply:
        if isinstance(request, BashRequest):
            return BashReply(text.encode())
        return counting(sample, request)

    result = cli.record("--task-id", "answers", backend=Backend(policy))
    assert "1 of the secrets is shorter than 12 characters" in result.stderr
    shown = cli("show", "r", "answers").stdout
    assert text in shown
    assert MARK not in shown
    assert MARK not in cli("show", "r", "answers", "--raw").stdout


# ------------------------------------------------------------------- what the user said himself


@pytest.mark.parametrize(
    ("place", "args"),
    [
        ("--prompt-template", ("--prompt-template", "template")),
        ("-g", ("-g", f'extra_body={{"a": [{json.dumps(KEY)}]}}')),
        ("-g", ("-g", f"extra_body={{{json.dumps(KEY)}: 1}}")),
        ("-g", ("-g", f'extra_body={{"a": "{base64.b64encode(KEY.encode()).decode()}"}}')),
        ("--model", ("--model", f"model-{KEY}")),
        ("the sandbox's settings.image", ("--docker-image", f"r/{KEY}")),
        ("the data set, in a sample.question", ("--dataset", "question")),
        ("the data set, in a sample.file_name", ("--dataset", "file")),
        ("the data set, in a sample.task_id", ("--dataset", "id")),
        ("--dataset", ("--dataset", "mcp-canary-env-7f3a", "--mcp", "mcp2.json")),
    ],
)
def test_what_was_given_with_a_secret_in_it_is_refused_before_anything_is_paid(
    cli: Commands, place: str, args: tuple[str, ...]
) -> None:
    """E08: prompt templates, parameters, names, questions and file names are stored as they are
    given; one that holds the key is refused with its place, and nothing is written."""
    (cli.folder / "template").write_text(f"The key is {KEY}. {{question}}")
    for folder, row in (
        ("question", {"Question": f"Why is it {KEY}?"}),
        ("file", {"file_name": KEY.replace("/", "") + ".txt"}),
        ("id", {"task_id": f"t{KEY}"}),
    ):
        dataset(cli.folder / folder, [("a", 1, "x")])
        path = cli.folder / folder / "2023" / "validation" / "metadata.jsonl"
        path.write_text(json.dumps({**json.loads(path.read_text()), **row}) + "\n")
    if place.endswith("file_name"):  # no slash in a file name: a key without one
        os.environ["OPENAI_API_KEY"] = KEY.replace("/", "")
        (path.parent.parent.parent.parent / "file" / "2023" / "validation" / (
            KEY.replace("/", "") + ".txt")).write_text("x")  # fmt: skip
    dataset(cli.folder / "mcp-canary-env-7f3a", [("a", 1, "x")])
    servers = {"s": {"command": "server", "env": {"SERVER_TOKEN": "mcp-canary-env-7f3a"}}}
    (cli.folder / "mcp2.json").write_text(json.dumps({"mcpServers": servers}))
    backend = Backend()
    result = cli.record(*args, status=2, backend=backend)
    assert f"error: {place}" in result.stderr
    assert "holds a secret of this run" in result.stderr
    assert not still_there(result.output, KEY)
    assert backend.asked == []
    assert not (cli.folder / "st" / "runs" / "r.json").exists()
    clean(cli)


def test_an_address_is_stored_without_what_it_carries(cli: Commands) -> None:
    """E08: user, password and query of `--api-url` are never kept; a key in its path is removed."""
    url = f"http://user:{quote(ENV, safe='')}@h/{quote(KEY, safe='')}/v1?key={KEY}"
    cli.record(*LOOP, "--api-url", url, "--task-id", "tool", status=4, backend=Leaking(leaking))
    clean(cli)
    transport = json.loads(cli.store.read_run("r"))["settings"]["transport"]
    assert transport["api_url"] == f"http://h/{MARK}/v1"


def test_what_is_no_secret_is_kept(cli: Commands) -> None:
    """Of an MCP server's settings only what is secret goes: the rest governs the run."""
    cli.record(*LOOP, "--task-id", "tool", status=4, backend=Leaking(leaking))
    kept = json.dumps(json.loads(cli.store.read_run("r"))["settings"]["mcp"])
    for word in ("server", "SERVER_TOKEN", "PLAIN", "Authorization", "http://h/mcp"):
        assert word in kept


def test_no_environment_is_kept(cli: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the environment but versions: neither names nor values of the user's variables."""
    monkeypatch.setenv("SOMEBODYS_VARIABLE", "somebodys-value-0123456789")
    cli.record(*LOOP, "--task-id", "tool", status=4, backend=Leaking(leaking))
    for data in everything(cli.folder / "st").values():
        assert b"SOMEBODYS_VARIABLE" not in data
        assert b"somebodys-value" not in data
        assert str(cli.folder).encode() not in data


def test_a_fork_refuses_and_hides_the_same(cli: Commands) -> None:
    """E08: what goes on live from a tape has secrets too."""
    cli.record(*LOOP, "--task-id", "answers", backend=Leaking(leaking))
    (cli.folder / "template").write_text(f"{KEY} {{question}}")
    fork = ("replay", "r", "--on-divergence", "fork", "--as", "f", "--dataset", "data",
            "--mcp", "mcp.json", "--agent", "tests.test_secrets:longer")  # fmt: skip
    cli.backend = Leaking(leaking)
    result = cli(*fork, "--prompt-template", "template", status=2)
    assert "--prompt-template holds a secret of this run" in result.stderr
    assert cli.backend.asked == []
    result = cli(*fork, "--json")
    assert cli.backend.models() == 1
    clean(cli, result.stdout, result.stderr)


def longer(sample: Sample, world: Any, settings: Any) -> str:
    """Goes one turn further than `loop`."""
    answer = loop(sample, world, settings)
    reply = world.perform(ModelRequest([{"role": "user", "content": "Sure?"}]))
    assert reply.usage == Usage(10, 5)
    return f"{answer} {reply.content}"
