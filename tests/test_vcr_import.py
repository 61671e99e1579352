"""`harness import --from vcr`: what is in a cassette comes over; what is bad changes nothing."""

from __future__ import annotations

import base64
import gzip
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
import zstandard

from harness.cassette import ModelEffect, Tape, read_cassette
from harness.interop import vcr_files
from harness.interop.synthetic import synthesise
from harness.interop.vcr_files import read_cassette_file
from harness.records import ModelReply, ToolCall, Usage
from harness.runfile import read_run
from harness.store import Store
from tests.commands import Commands
from tests.scripted import dataset
from tests.test_recording import failing
from tests.wired import WiredBackend

pytest.importorskip("vcr")
pytest.importorskip("openai")

URI = "https://user:secret@model.test/v1/chat/completions?key=secret"
CALL = ToolCall("c1", "bash", '{"command": "ls"}')
FIRST = ModelReply("look", (CALL,), finish_reason="tool_calls", usage=Usage(10, 5))
DONE = ModelReply("four", finish_reason="stop", usage=Usage(12, 3))
ASK = [{"role": "user", "content": "two and two?"}]
THEN = [
    *ASK,
    {"role": "assistant", "content": "look", "tool_calls": [CALL.openai()]},
    {"role": "tool", "tool_call_id": "c1", "content": "4"},
]


def request(messages: Any = ASK, **more: Any) -> dict[str, Any]:
    body = json.dumps({"temperature": 0, "messages": messages, "model": "m", **more})
    return {"method": "POST", "uri": URI, "body": body, "headers": {"Accept": ["*/*"]}}


def response(reply: ModelReply, *, stream: bool = False, **headers: str) -> dict[str, Any]:
    made = synthesise(reply, id="r", model="m", stream=stream)
    return answer(made.status, made.body.decode(), {**made.headers, **headers})


def answer(status: int, body: Any, headers: dict[str, str] | None = None) -> dict[str, Any]:
    return {
        "status": {"code": status, "message": "?"},
        "headers": {name.title(): [value] for name, value in (headers or {}).items()},
        "body": {"string": body},
    }


def pair(asked: dict[str, Any], answered: dict[str, Any]) -> dict[str, Any]:
    return {"request": asked, "response": answered}


TALK = [pair(request(), response(FIRST)), pair(request(THEN), response(DONE))]


def cassette(*interactions: dict[str, Any]) -> dict[str, Any]:
    return {"version": 1, "interactions": list(interactions)}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    (tmp_path / "in").mkdir()
    return Commands(tmp_path, monkeypatch)


def write(here: Commands, value: Any, name: str = "one.yaml") -> Path:
    path = here.folder / "in" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(value, bytes):
        path.write_bytes(value)
    else:
        path.write_text(json.dumps(value) if name.endswith("json") else yaml.dump(value))
    return path


def imported(here: Commands, path: str = "in/one.yaml") -> Any:
    return here("import", "--from", "vcr", path, "--run", "i")


def tape_of(here: Commands, task_id: str = "one") -> Tape:
    entry = read_run(here.store, "i").entry(task_id, 1)
    assert entry is not None
    assert entry.cassette is not None
    return read_cassette(here.store, entry.cassette, "it")


def replies(here: Commands, task_id: str = "one") -> list[ModelReply | None]:
    return [e.reply for e in tape_of(here, task_id).effects if isinstance(e, ModelEffect)]


# ------------------------------------------------------------------------------------ what is taken


@pytest.mark.parametrize("name", ["one.yaml", "one.yml", "one.json"])
def test_a_conversation_becomes_model_turns(here: Commands, name: str) -> None:
    write(here, cassette(*TALK), name)
    done = imported(here, f"in/{name}")
    assert "1 samples x epochs of vcrpy; effects: 2 model" in done.stdout
    assert "imported from vcrpy" in done.stdout
    assert replies(here) == [FIRST, DONE]
    tape = tape_of(here)
    assert tape.header.sample.question == "two and two?"
    asked = [request for _, request in tape.requests()]
    assert [one.messages for one in asked] == [ASK, THEN]
    assert (asked[0].model, asked[0].params) == ("m", {"temperature": 0})
    assert tape.end is not None
    assert (tape.end.status, tape.end.answer) == ("ok", "four")
    assert here("verify").stdout.startswith("i: 1 of 1 cassettes")
    assert "no wire evidence" in here("verify", "--wire").stdout
    assert "$ ls" not in here("show", "i", "one").stdout
    assert "→ bash" in here("show", "i", "one").stdout
    assert read_run(here.store, "i").settings.transport == {"api_url": "https://model.test/v1"}
    everything = b"".join(p.read_bytes() for p in here.folder.glob("st/**/*") if p.is_file())
    assert b"secret" not in everything


def test_a_stream_is_put_together(here: Commands) -> None:
    asked = [request(ASK, stream=True, stream_options={"include_usage": True})]
    asked += [request(THEN, stream=True)]
    pairs = zip(asked, (FIRST, DONE), strict=True)
    write(here, cassette(*(pair(one, response(reply, stream=True)) for one, reply in pairs)))
    imported(here)
    assert replies(here) == [FIRST, DONE]
    assert read_run(here.store, "i").settings.stream is True
    assert [r.params for _, r in tape_of(here).requests()] == [{"temperature": 0}] * 2


WHOLE = synthesise(FIRST, id="r", model="m").body
BODIES: dict[str, Callable[[], dict[str, Any]]] = {
    "gzip": lambda: answer(200, gzip.compress(WHOLE), {"content-encoding": "gzip"}),
    "deflate": lambda: answer(200, zlib.compress(WHOLE), {"content-encoding": "deflate"}),
    "raw deflate": lambda: answer(
        200, zlib.compress(WHOLE, wbits=-zlib.MAX_WBITS), {"content-encoding": "deflate"}
    ),
    "zstd": lambda: answer(200, zstandard.compress(WHOLE), {"content-encoding": "zstd"}),
    "zstd, in two frames": lambda: answer(
        200, zstandard.compress(WHOLE[:9]) + zstandard.compress(WHOLE[9:]),
        {"content-encoding": "zstd"},
    ),
    "unpacked already": lambda: answer(200, WHOLE, {"content-encoding": "gzip"}),
    "brotli, unpacked already": lambda: answer(200, WHOLE, {"content-encoding": "br"}),
    "bytes": lambda: answer(200, WHOLE, {"content-type": "application/json"}),
    "base64": lambda: {
        **answer(200, None),
        "body": {"base64_string": base64.b64encode(WHOLE).decode()},
    },
    "an older httpx": lambda: {
        "status_code": 200, "http_version": "HTTP/1.1", "content": WHOLE.decode(),
        "headers": {"content-type": "application/json"},
    },
    "no headers": lambda: {"status": {"code": 200}, "body": {"string": WHOLE.decode()}},
    "a plain body": lambda: {"status": 200, "headers": None, "body": WHOLE.decode()},
}  # fmt: skip


@pytest.mark.parametrize("form", BODIES)
def test_bodies_in_every_form_that_vcrpy_gave_them(here: Commands, form: str) -> None:
    write(here, cassette(pair(request(), BODIES[form]())))
    imported(here)
    assert replies(here) == [FIRST]


def test_attempts_belong_to_the_reply_that_came_of_them(here: Commands) -> None:
    busy = answer(429, '{"error": {"message": "Busy."}}', {"content-type": "application/json"})
    write(here, cassette(pair(request(), busy), pair(request(), busy), *TALK))
    done = imported(here)
    assert "left out" not in done.stdout
    assert replies(here) == [FIRST, DONE]
    meta = tape_of(here).effects[0].meta
    assert meta is not None
    assert meta["attempts"] == [{"status": 429}, {"status": 429}, {"status": 200}]
    assert meta["response_id"] == "r"


def test_a_conversation_that_ended_in_an_error(here: Commands) -> None:
    gone = answer(401, '{"error": {"message": "No such key."}}')
    write(here, cassette(TALK[0], pair(request(THEN), gone)))
    imported(here)
    entry = read_run(here.store, "i").samples[0]
    assert (entry.status, entry.verdict) == ("error", "error")
    end = tape_of(here).end
    assert end is not None
    assert end.failure is not None
    assert end.failure.kind == "model"
    assert "HTTP 401: “No such key.”" in end.failure.message
    assert "attempts" not in end.failure.message


def test_overflows_and_refusals_are_replies(here: Commands) -> None:
    full = ModelReply(error="context_exceeded")
    write(here, cassette(TALK[0], pair(request(THEN), response(full))))
    imported(here)
    assert replies(here) == [FIRST, full]
    assert read_run(here.store, "i").samples[0].verdict == "context_exceeded"


def test_a_failed_request_in_the_middle_is_left_out_and_said(here: Commands) -> None:
    lost = pair(request([*ASK, *ASK]), answer(500, "oops"))
    write(here, cassette(TALK[0], lost, TALK[1]))
    done = imported(here)
    assert "1 requests got no reply and were not repeated; left out" in done.stdout
    assert replies(here) == [FIRST, DONE]


def test_other_requests_are_left_out_and_counted(here: Commands) -> None:
    other = {**request(), "uri": "https://model.test/v1/embeddings"}
    listed = {**request(), "method": "GET"}
    write(here, cassette(pair(other, answer(200, "{}")), *TALK, pair(listed, answer(200, "{}"))))
    assert "2 requests are no chat completions; left out" in imported(here).stdout
    assert len(replies(here)) == 2


def test_a_folder_of_files_is_a_run_of_samples(here: Commands) -> None:
    for name in ("a.yaml", "deep/a.yaml", "deep/b.json", "b@2.yaml", "%2e%2e@1.yaml"):
        write(here, cassette(*TALK), name)
    write(here, {"services": {}}, "compose.yaml")
    write(here, [1, 2], "list.json")
    write(here, cassette(pair({**request(), "uri": "https://x.test/"}, answer(200, ""))), "c.yaml")
    write(here, b"\x00", "notes.txt")
    write(here, b"\x00", ".hidden.yaml")
    done = imported(here, "in")
    found = [(entry.task_id, entry.epoch) for entry in read_run(here.store, "i").samples]
    assert {("a", 1), ("deep/a", 1), ("deep/b", 1), ("b", 2), ("..", 1)} <= set(found)
    assert "skipped: in/compose.yaml is no cassette" in done.stdout
    assert "skipped: in/list.json is no cassette" in done.stdout


def test_submit_says_the_answer(here: Commands) -> None:
    submit = ToolCall("c2", "submit", '{"answer": 4.50}')
    last = ModelReply("so", (submit,), finish_reason="tool_calls")
    write(here, cassette(TALK[0], pair(request(THEN), response(last))))
    imported(here)
    end = tape_of(here).end
    assert end is not None
    assert end.answer == "4.50"


def test_what_was_exported_comes_back_and_is_scored_the_same(here: Commands) -> None:
    dataset(here.folder / "data", [("a", 1, "a"), ("b", 2, "x"), ("../c", 3, "../c")])
    here.record("--epochs", "2", backend=WiredBackend(), run="r")
    here("export", "r", "--format", "vcr", "-o", "out")
    done = here("import", "--from", "vcr", "out", "--run", "i", "--dataset", "data")
    assert "differ" not in done.stdout  # vcrpy has no verdicts
    ours, theirs = read_run(here.store, "r"), read_run(here.store, "i")
    for one, other in zip(ours.samples, theirs.samples, strict=True):
        for name in ("task_id", "epoch", "level", "verdict", "steps", "usage", "status"):
            assert getattr(one, name) == getattr(other, name)
    here("export", "i", "--format", "vcr", "-o", "again")
    for path in (here.folder / "out").iterdir():
        before, after = (
            yaml.safe_load((here.folder / folder / path.name).read_text())["interactions"]
            for folder in ("out", "again")
        )
        assert [pair["request"]["uri"] for pair in before] == [
            pair["request"]["uri"] for pair in after
        ]
        assert len(before) == len(after)


def test_an_error_comes_back_as_one(here: Commands) -> None:
    dataset(here.folder / "data", [("a", 1, "a"), ("b", 2, "x")])
    here.record("--ignore-errors", backend=WiredBackend(failing))
    here("export", "r", "--format", "vcr", "-o", "out")
    here("import", "--from", "vcr", "out", "--run", "i")


# ---------------------------------------------------------------------------------- what is refused

GOOD = yaml.dump(cassette(*TALK)).encode()
BAD: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "no cassette of vcrpy"),
    "not a cassette": (b"services: {}\n", "no cassette of vcrpy"),
    "text": (b"just a text", "no cassette of vcrpy"),
    "no interactions": (b"version: 1\ninteractions: []\n", "no cassette of vcrpy with a chat"),
    "cut off": (GOOD[:-60], "one.yaml"),
    "binary": (b"\x00\x01\x02\xff", "is no YAML"),
    "an object of Python": (
        b"version: 1\ninteractions: !!python/object/apply:os.system ['touch owned']\n",
        "asks for an object (!!python/object/apply:os.system)",
    ),
    "an object deep inside": (
        GOOD.replace(b"look", b"look", 1) + b"x: !!python/name:os.system\n",
        "asks for an object",
    ),
    "another tag": (b"interactions: !mine [1]\n", "asks for an object (!mine)"),
    "aliases without end": (
        b"a: &a [x, x]\n" + b"".join(
            b"%c: &%c [*%c, *%c, *%c, *%c]\n" % (c + 1, c + 1, c, c, c, c) for c in range(97, 120)
        ) + b"interactions: *x\n",
        "has no request",
    ),
    "nested without end": (b"interactions: " + b"[" * 50_000, "exceeded maximum nesting"),
    "nested blocks": (b"- " * 90_000 + b"x\n", "nested too deeply"),
    "quotes without end": (b'{"interactions": "' + b'\\"' * 3_000_000, "is no JSON"),
    "many values": (b"interactions: [" + b"1," * 300_000 + b"1]", "too many values"),
    "many values in JSON": (b'{"interactions": [' + b"[]," * 999_999 + b"1]}", "too many"),
    "broken JSON": (b'{"version": 1, "interactions": [', "is no JSON"),
    "nested JSON": (b'{"a": ' + b"[" * 200_000 + b"]" * 200_000 + b"}", "nested too deeply"),
    "a later version": (b"version: 2\ninteractions: []\n", "version 2; this program reads 1"),
    "before 1.0": (b"- request: {}\n  response: {}\n", "vcrpy before 1.0"),
    "one that is no pair": (b"version: 1\ninteractions: [1]\n", "interaction 1 is damaged"),
}  # fmt: skip


def changed(**fields: Any) -> dict[str, Any]:
    return cassette(pair({**request(), **fields}, response(FIRST)))


BAD_VALUES: dict[str, tuple[Any, str]] = {
    "no uri": (changed(uri=None), "has no method or no uri"),
    "an odd uri": (changed(uri="ftp://x/chat/completions"), "no http(s) address"),
    "no JSON": (changed(body="hello"), "the request's body is no JSON"),
    "no messages": (changed(body="{}"), "no list of messages"),
    "odd messages": (changed(body='{"messages": [1]}'), "no list of messages"),
    "odd tools": (changed(body='{"messages": [], "tools": [1]}'), "tools are no list"),
    "an odd extra_body": (changed(body='{"messages": [], "extra_body": 1}'), "extra_body"),
    "an odd body": (changed(body=[1, 2]), "is no text"),
    "no status": (cassette(pair(request(), {"body": {"string": "x"}})), "has no status"),
    "an odd status": (cassette(pair(request(), answer(99999, "x"))), "has no status"),
    "truncated gzip": (
        cassette(
            pair(request(), answer(200, gzip.compress(WHOLE)[:-9], {"content-encoding": "gzip"}))
        ),
        "is damaged: it is cut off",
    ),
    "damaged gzip": (
        cassette(
            pair(
                request(),
                answer(200, gzip.compress(WHOLE)[:20] + b"\xff" * 90, {"content-encoding": "gzip"}),
            )
        ),
        "interaction 1, the response's body is damaged",
    ),
    "truncated zstd": (
        cassette(
            pair(
                request(), answer(200, zstandard.compress(WHOLE)[:-9], {"content-encoding": "zstd"})
            )
        ),
        "is damaged: it is cut off",
    ),
    "unknown packing": (
        cassette(pair(request(), answer(200, b"\x8b\x02\x80{}\x03", {"content-encoding": "br"}))),
        "packed with br",
    ),
    "many values in a request": (
        changed(body='{"messages": [' + "{}," * 999_999 + "{}]}"),
        "holds too many values",
    ),
    "many values in a response": (
        cassette(pair(request(), answer(200, "[" + "[]," * 3_000_000 + "1]"))),
        "holds too many values",
    ),
    "odd base64": (
        cassette(pair(request(), {**answer(200, ""), "body": {"base64_string": "a"}})),
        "is no base64",
    ),
}


def refused(here: Commands, path: str = "in/one.yaml") -> str:
    """The one line of the error; the store, which did not exist, still does not."""
    done = here("import", "--from", "vcr", path, "--run", "i", status=2)
    lines = [line for line in done.stderr.splitlines() if not line.startswith("  try: ")]
    assert len(lines) == 1, done.stderr
    assert not (here.folder / "st").exists()
    assert not (here.folder / "owned").exists()
    return lines[0]


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_one_line_and_nothing_is_stored(here: Commands, name: str) -> None:
    data, told = BAD[name]
    write(here, data)
    assert told in refused(here)


@pytest.mark.parametrize("name", BAD_VALUES)
def test_a_bad_interaction_is_named(here: Commands, name: str) -> None:
    value, told = BAD_VALUES[name]
    write(here, value)
    line = refused(here)
    assert told in line
    assert "in/one.yaml, interaction 1" in line


def test_a_folder_with_one_bad_file_changes_nothing(here: Commands) -> None:
    write(here, cassette(*TALK), "a.yaml")
    write(here, GOOD[:-60], "b.yaml")
    assert "in/b.yaml" in refused(here, "in")


def test_a_folder_without_cassettes_is_said_to_be_one(here: Commands) -> None:
    write(here, b"services: {}", "compose.yaml")
    assert "holds no cassette of vcrpy with a chat completion" in refused(here, "in")


def test_what_is_too_large_is_not_read(here: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file by its size; a body by what it unpacks to."""
    bomb = gzip.compress(b"a" * 3_000_000)
    write(here, cassette(pair(request(), answer(200, bomb, {"content-encoding": "gzip"}))))
    monkeypatch.setattr(vcr_files, "MAX_RECORD", 1 << 20)
    assert "is larger than 1 MiB" in refused(here)
    packed = gzip.compress(b"a" * 900_000)
    one = pair(request(), answer(200, packed, {"content-encoding": "gzip"}))
    write(here, cassette(*[one] * 5))  # YAML writes it once
    assert "the bodies in in/one.yaml are larger than 4 MiB" in refused(here)
    with (here.folder / "in" / "one.yaml").open("wb") as file:
        file.truncate(200 << 20)  # a sparse file, one line of NULs
    assert "is larger than 64 MiB; it is not read" in refused(here)


def test_a_name_that_is_taken_is_refused(here: Commands) -> None:
    write(here, cassette(*TALK))
    imported(here)
    before = sorted(path for path in (here.folder / "st").rglob("*"))
    assert (
        "a run 'i' already"
        in here("import", "--from", "vcr", "in/one.yaml", "--run", "i", status=2).stderr
    )
    assert sorted(path for path in (here.folder / "st").rglob("*")) == before


def test_numbers_that_no_json_has_are_no_numbers(here: Commands) -> None:
    body = '{"messages": [], "model": "m", "temperature": NaN}'
    write(here, changed(body=body))
    imported(here)
    assert [r.params for _, r in tape_of(here).requests()] == [{"temperature": None}]


def test_what_vcrpy_itself_wrote_is_read(here: Commands) -> None:
    from vcr.request import Request
    from vcr.serialize import serialize
    from vcr.serializers import jsonserializer, yamlserializer

    for serializer in (yamlserializer, jsonserializer):
        requests = [Request("POST", URI, request()["body"].encode(), {"a": "b"})]
        made = {"requests": requests, "responses": [response(FIRST)]}
        write(here, serialize(made, serializer).encode())
        (found,) = read_cassette_file(here.folder / "in" / "one.yaml")
        assert found.body == WHOLE
        assert json.loads(found.sent)["model"] == "m"
        assert found.headers["content-type"] == "application/json"
    assert Store(here.folder / "st").has_run("i") is False
