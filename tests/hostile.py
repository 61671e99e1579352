"""A store that holds one of everything, taken apart, so that tests can put it together wrongly.

`parts()` are its files as JSON values; `assemble` writes a store of changed parts, with every
digest and name computed anew, so that nothing but the change itself is wrong.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest

from harness import canonical, dialogue, sealing
from harness.errors import ModelError
from harness.exchange import FORMAT as WIRE
from harness.records import (
    BashReply,
    BashRequest,
    ModelRequest,
    Reply,
    Request,
    Sample,
    Settings,
    ToolReply,
    ToolRequest,
    ValueRequest,
    assistant_message,
)
from harness.runfile import read_run, write_run
from harness.store import LAYOUT, PREFIX, Store, journal_path, object_path, run_path, sample_key
from harness.world import World
from tests.commands import Commands
from tests.scripted import Backend, call, dataset, says

ROWS = [("a", 1, "a"), ("b", 2, "x")]
STEERING = "\x1b]0;owned\x07\x1b[2J\r\x00\x7f\u202e\x9b31m\x85\u2028"
"""Characters that would steer a terminal, hide text or break a line."""

Parts = dict[str, Any]
Path_ = tuple[str | int, ...]


def rich(sample: Sample, world: World, settings: Settings) -> str:
    """A loop that uses all that a tape can hold."""
    talk: list[dict[str, Any]] = [{"role": "user", "content": sample.question}]
    now = world.perform(ValueRequest("now", lambda: {"at": [1, 2.5, None, True, "x"]}))
    for turn in range(4):
        tools = [dialogue.BASH_TOOL, *world.tools]
        reply = world.perform(ModelRequest(talk, tools, settings.params))
        talk.append(assistant_message(reply, reasoning=True))
        out = world.perform(BashRequest(f"cat {turn}", 5.0))
        world.perform(BashRequest("cat /dev/urandom", 5.0))
        got = world.perform(ToolRequest("web", "fetch", {"url": f"http://x/{turn}", "n": 1}))
        text = out.stdout.decode() + got.content
        talk.append({"role": "tool", "tool_call_id": "c", "content": text})
        if turn == 2:  # an old output is shortened
            talk[2] = {**talk[2], "content": talk[2]["content"][:100] + "…"}
    return str(now)


def other(sample: Sample, world: World, settings: Settings) -> str:
    """A loop that leaves the tape of `rich` at its second model request."""
    first = [{"role": "user", "content": sample.question}]
    world.perform(ValueRequest("now", lambda: 1))
    reply = world.perform(ModelRequest(first, [dialogue.BASH_TOOL, *world.tools], settings.params))
    for text in ("cat 0", "cat /dev/urandom"):
        world.perform(BashRequest(text, 5.0))
    world.perform(ToolRequest("web", "fetch", {"url": "http://x/0", "n": 1}))
    talk = [*first, assistant_message(reply, reasoning=True), {"role": "user", "content": "well?"}]
    world.perform(ModelRequest(talk, [dialogue.BASH_TOOL], {"seed": 7}))
    return "?"


class Killed(BaseException):
    """Stands for the end of the process."""


def policy(sample: Sample, request: Request) -> Reply:
    """What the outside says to `rich`."""
    if isinstance(request, BashRequest):
        odd = b"\xff\x00\xfe" * 30 if "random" in request.command else b"one line of many\n" * 9
        return BashReply(odd, b"warning\n", 1, False, 3)
    if isinstance(request, ToolRequest):
        return ToolReply("a page " * 20, is_error=True)
    return says("I look.", call("bash", command="cat"), reasoning="because", refusal="no")


def dying(sample: Sample, request: Request) -> Reply:
    """The process ends at sample b's second turn."""
    asked = isinstance(request, ModelRequest) and len(request.messages) > 2
    return Killed() if sample.task_id == "b" and asked else policy(sample, request)


def failing(sample: Sample, request: Request) -> Reply:
    """The endpoint gives up at the third turn."""
    late = isinstance(request, ModelRequest) and len(request.messages) > 4
    return ModelError("no reply after 5 attempts") if late else policy(sample, request)


SCHEMA = {
    "type": "function",
    "function": {"name": "fetch", "description": "d", "parameters": {"type": "object"}},
}


class RichBackend(Backend):
    """Has an MCP tool, an image, and evidence of what was on the wire."""

    def __init__(self, policy: Any = policy) -> None:
        super().__init__(policy)
        self.tools = [{"name": "fetch", "server": "web", "schema": SCHEMA}]
        self.image = {"reference": "i", "id": "sha256:1", "layers": ["sha256:2"]}

    def world(self, sample: Sample, attachment: Path | None) -> Any:
        world = super().world(sample, attachment)
        wire = {"format": WIRE, "version": 1, "method": "POST", "path": "/v1", "request_sha256": ""}
        exchange = json.dumps({**wire, "status": 200, "text": "{}"}).encode()
        world.take_meta = lambda: {  # type: ignore[method-assign]
            "attempts": [{"status": 429, "waited": 1.0}, {"status": 200, "waited": 0.0}],
            "exchanges": [exchange],
        }
        return world


OPTIONS = (
    "--agent", "tests.hostile:rich", "--max-steps", "9", "-g", "seed=1",
    "-g", 'extra_body={"x": [1]}',
)  # fmt: skip
"""Of every recording here."""


def record_rich(folder: Path) -> None:
    """Into `folder`: the data set `data`; in the store `st` the run `r`, whose sample a has a
    cassette with a parent and whose sample b was interrupted, and the whole run `s`."""
    dataset(folder / "data", ROWS)
    with pytest.MonkeyPatch.context() as patched:
        harness = Commands(folder, patched)
        harness.record(*OPTIONS, run="s", backend=RichBackend())
        only_a = (*OPTIONS, "--task-id", "a")
        harness.record(*only_a, backend=RichBackend(failing), status=4)
        harness.record(*only_a, "--retry-errors", backend=RichBackend())
        with pytest.raises(Killed):
            harness.record(*OPTIONS, backend=RichBackend(dying))
        patched.setattr(sealing, "COST", 2)  # the slow hash, but quick
        key = msgspec.structs.replace(sealing.seal({"a": "a", "b": "x"}), cost=2)
        run = read_run(harness.store, "r")
        run.sealed_key = harness.store.put(sealing.encode(key))
        write_run(harness.store, run)


@cache
def _recorded() -> Parts:
    with TemporaryDirectory() as name:
        folder = Path(name)
        record_rich(folder)
        store = Store(folder / "st")
        run = json.loads(store.read_run("r"))
        (entry,) = [sample for sample in run["samples"] if sample["task_id"] == "a"]
        child = _lines(store.get(entry["cassette"]))
        parent = _lines(store.get(child[0]["parent"]["cassette"]))
        wire = next(line["meta"]["wire"][0] for line in parent if line.get("meta"))
        return {
            "layout": json.loads(store.files.read("layout.json")),
            "run": run,
            "child": child,
            "parent": parent,
            "journal": _lines(store.read_journal("r", sample_key("b", 1)) or b""),
            "wire": json.loads(store.get(wire)),
            "key": json.loads(store.get(run["sealed_key"])),
            # the other run as it is: file name → bytes
            "files": {
                path: store.files.read(path)
                for path in [run_path("s"), *store.files.listing("objects")]
            },
        }


def _lines(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in data.splitlines()]


def parts() -> Parts:
    """A copy of the parts, to be changed."""
    return copy.deepcopy(_recorded())


CHANGEABLE = ("layout", "run", "child", "parent", "journal", "wire", "key")


def places(value: Any, path: Path_ = ()) -> Iterator[Path_]:
    """Where in a JSON value there is another one."""
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield (*path, key)
            yield from places(item, (*path, key))


def all_places() -> list[Path_]:
    """Every value in every part that may be changed; the part is the first step of the path."""
    found = _recorded()
    return [path for part in CHANGEABLE for path in places(found[part], (part,))]


def change(value: Any, path: Path_, new: Any) -> None:
    """Put `new` in the place."""
    for step in path[:-1]:
        value = value[step]
    value[path[-1]] = new


def assemble(folder: Path, given: Parts) -> None:
    """Write the store `st` and the data set `data` of the parts; names and digests fit them."""
    dataset(folder / "data", ROWS)
    store = folder / "st"
    files: dict[str, bytes] = {**LAYOUT, **given["files"]}
    files["layout.json"] = _bytes(given["layout"])

    def put(data: bytes) -> str:
        name = PREFIX + sha256(data).hexdigest()
        files[object_path(name)] = data
        return name

    # an object's name is found in what names it as text: no need to know where it stands
    kept = _recorded()
    first = next(line["meta"]["wire"][0] for line in kept["parent"] if line.get("meta"))
    names = {
        first: put(_bytes(given["wire"])),
        kept["run"]["sealed_key"]: put(_bytes(given["key"])),
    }

    def named(value: Any) -> bytes:
        data = _bytes(value)
        for old, new in names.items():
            data = data.replace(old.encode(), new.encode())
        return data

    def lines(part: str) -> bytes:
        return b"".join(named(line) + b"\n" for line in given[part])

    names[kept["child"][0]["parent"]["cassette"]] = put(lines("parent"))
    names[kept["run"]["samples"][0]["cassette"]] = put(lines("child"))
    run = json.loads(named(given["run"]))
    if run.get("digest") == kept["run"]["digest"]:
        del run["digest"]
        run["digest"] = PREFIX + sha256(canonical.dumps(run)).hexdigest()
    files[run_path("r")] = _bytes(run)
    files[journal_path("r", sample_key("b", 1))] = lines("journal")
    for name, data in files.items():
        path = store / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def _bytes(value: Any) -> bytes:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")
