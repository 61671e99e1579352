"""`harness verify --wire` over evidence that is as it should be, and over evidence that is not.

Sockets are blocked here: what plays the evidence reaches no network.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import exchange
from harness.cassette import RecordedRequest
from harness.dataset import Dataset
from harness.errors import LackError, ModelError
from harness.interop.evidence import sent_as
from harness.interop.synthetic import synthesise
from harness.interop.wire_proof import Player, differences, prove
from harness.records import ModelReply, ModelRequest, ToolCall, Usage
from harness.store import Store
from tests.commands import Commands
from tests.scripted import Backend, config, dataset, take
from tests.test_recording import failing
from tests.wired import WiredBackend, change_evidence, change_meta, exchanged, with_fields

pytest.importorskip("vcr")
pytest.importorskip("openai")

ROWS = [("a", 1, "a"), ("b", 2, "x")]
HELLO = ModelRequest([{"role": "user", "content": "hello"}])


@pytest.fixture
def data(tmp_path: Path) -> Dataset:
    return dataset(tmp_path / "data", ROWS)


@pytest.fixture(scope="module")
def player() -> Iterator[Player]:
    found = Player()
    yield found
    found.close()


def bad(store: Store) -> list[str]:
    return [line for line, is_bad in prove(store) if is_bad]


def told(store: Store) -> str:
    return "\n".join(line for line, _ in prove(store))


@pytest.mark.parametrize("stream", [False, True])
def test_what_was_recorded_is_made_again(store: Store, data: Dataset, stream: bool) -> None:
    take(store, config(data), WiredBackend(stream=stream))
    (line,) = [line for line, _ in prove(store)]
    assert "r: 8 of 8 model replies made again from the wire, 0 differences (8 exchanges" in line
    assert "openai" in line
    assert "vcrpy" in line


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        (rb"look 1", rb"look 2", "content: the tape has “look 1”, the wire gives “look 2”"),
        (rb"echo 1", rb"echo 7", "tool_calls[0].arguments: "),
        (rb"\"id\": \"c1\"", rb"\"id\": \"c7\"", "tool_calls[0].id: "),
        (rb"\"name\": \"bash\"", rb"\"name\": \"bosh\"", "tool_calls[0].name: "),
        (rb"\"prompt_tokens\": 10", rb"\"prompt_tokens\": 11", "usage.input_tokens: "),
        (rb"\"completion_tokens\": 5", rb"\"completion_tokens\": 6", "usage.output_tokens: "),
        (rb"cmpl-7", rb"cmpl-8", "meta.response_id: "),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_one_changed_byte_is_named_with_its_place(
    store: Store, data: Dataset, old: bytes, new: bytes, field: str, stream: bool
) -> None:
    """The store is consistent: only the wire can tell."""
    take(store, config(data), WiredBackend(stream=stream))
    change_evidence(store, "r", "b", 2, lambda data: data.replace(old, new))
    (line,) = bad(store)
    assert line.startswith(f"r: sample 'b', epoch 1, step 2: {field}"), line
    assert "7 of 8" not in told(store)
    assert "1 differences" in told(store)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"request_sha256": "0" * 64}, "request_sha256: the request on the tape is not the one"),
        ({"status": 500}, "reply: the tape has one, and the wire gives none: HTTP 500"),
        ({"status": 401}, "reply: the tape has one, and the wire gives none: HTTP 401"),
        ({"text": "{}"}, "reply: the tape has one, and the wire gives none: "),
        ({"text": ""}, "reply: the tape has one, and the wire gives none: "),
        ({"text": None, "base64": "/w=="}, "reply: the tape has one, and the wire gives none: "),
    ],
)
def test_an_exchange_that_gives_no_reply_is_a_difference(
    store: Store, data: Dataset, fields: dict[str, Any], expected: str
) -> None:
    take(store, config(data), WiredBackend())
    change_evidence(store, "r", "a", 4, with_fields(**fields))
    (line,) = bad(store)
    assert line.startswith(f"r: sample 'a', epoch 1, step 4: {expected}"), line


def test_a_redirect_in_the_evidence_leads_nowhere(store: Store, data: Dataset) -> None:
    """A header that is not on the list is not played, whoever put it there."""
    take(store, config(data), WiredBackend())
    change_evidence(
        store, "r", "a", 1,
        with_fields(status=307, headers={"location": "http://127.0.0.1:9/", "date": "x"}),
    )  # fmt: skip
    (line,) = bad(store)
    assert "step 1: reply: the tape has one, and the wire gives none: HTTP 307" in line


def test_damaged_evidence_is_damage(store: Store, data: Dataset) -> None:
    take(store, config(data), WiredBackend())
    change_evidence(store, "r", "a", 1, lambda data: data.replace(b"gaia-harness-wire", b"other"))
    change_evidence(store, "r", "b", 3, lambda data: b"{")
    first, second = bad(store)
    assert "step 1 of the cassette of sample 'a', epoch 1, in run 'r'" in first
    assert "no wire evidence of version 1" in first
    assert "step 3 of the cassette of sample 'b', epoch 1, in run 'r' is damaged" in second


def test_what_has_no_evidence_is_said_to_have_none(store: Store, data: Dataset) -> None:
    take(store, config(data, run="none"), Backend())
    take(store, config(data, run="off", keep_wire=False), WiredBackend())
    lines = list(prove(store))
    assert not any(is_bad for _, is_bad in lines)
    assert [line.split("(")[0] for line, _ in lines] == [
        "none: no wire evidence, so nothing is proved ",
        "off: no wire evidence, so nothing is proved ",
    ]
    take(store, config(data), WiredBackend())
    change_meta(store, "r", "a", 1, lambda meta: meta.pop("wire"))
    assert "7 of 8 model replies made again" in told(store)
    assert "r: 1 model replies have no wire evidence" in told(store)


def test_withheld_and_broken_exchanges_are_counted_and_not_played(
    store: Store, data: Dataset
) -> None:
    """Two attempts and one exchange: the one of the reply may be what was withheld."""
    take(store, config(data), WiredBackend())

    def withheld(meta: dict[str, Any]) -> None:
        meta["attempts"].insert(0, {"status": 429, "waited": 1.0})

    change_meta(store, "r", "a", 1, withheld)
    lost = exchange.encode(
        msgspec.structs.replace(
            exchanged(HELLO, ModelReply(content="x")), status=None, body=b"", error="ConnectError"
        )
    )
    sent = json.loads(lost)

    def broken(meta: dict[str, Any]) -> None:
        sent["request_sha256"] = json.loads(store.get(meta["wire"][0]))["request_sha256"]
        meta["wire"].insert(0, store.put(json.dumps(sent).encode()))
        meta["attempts"].insert(0, {"error": "connection", "waited": 1.0})

    change_meta(store, "r", "b", 2, broken)
    assert bad(store) == []
    assert "7 of 8 model replies made again" in told(store)
    assert "r: 1 exchanges lost their connection; not played" in told(store)
    assert "r: 1 model replies have no wire evidence" in told(store)


def test_an_effect_that_failed_has_evidence_and_no_reply(store: Store, data: Dataset) -> None:
    take(store, config(data), WiredBackend(failing))
    assert bad(store) == []
    assert "r: 6 of 6 model replies made again" in told(store)


def test_a_changed_merger_is_noticed(
    store: Store, data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The regression test for the merger: it reads every reply as it did when it was recorded."""
    take(store, config(data), WiredBackend(stream=True))
    monkeypatch.setattr("harness.live.merge._arguments", lambda value: (value or "").strip("}"))
    assert any("tool_calls[0].arguments" in line for line in bad(store))


# -------------------------------------------------------------------------- the command; packages


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    dataset(tmp_path / "data", ROWS)
    return Commands(tmp_path, monkeypatch)


def test_the_command_ends_with_the_right_status(here: Commands) -> None:
    here.record(backend=WiredBackend())
    here.record(run="bare", backend=WiredBackend(), status=0)
    done = here("verify", "--wire")
    assert "r: wire evidence: 8 exchanges" in done.stdout
    assert "bare: 8 of 8 model replies made again" in done.stdout
    change_evidence(
        here.store, "r", "a", 2, lambda data: data.replace(b"look 1", b"lo\\\\u001b[31m")
    )
    assert "differences" not in here("verify").stdout
    done = here("verify", "--wire", status=1)
    assert "r: sample 'a', epoch 1, step 2: content: " in done.stdout
    assert "\x1b" not in done.stdout
    assert "r: sample" not in here("verify", "--wire", "bare").stdout
    here("verify", "--wire", "nothing", status=2)


def test_the_size_of_the_evidence_is_shown_apart(here: Commands) -> None:
    here.record(backend=WiredBackend())
    here.record("--no-wire", run="bare", backend=WiredBackend())
    assert "\n  wire evidence: 8 exchanges, 0.0" in here("show", "r").stdout
    assert "\n  no wire evidence\n" in here("show", "bare").stdout
    change_meta(here.store, "r", "a", 1, lambda meta: meta.update(wire=["sha256:" + "0" * 64]))
    assert "wire evidence: damaged (harness verify r)" in here("show", "r").stdout


@pytest.mark.parametrize("package", ["vcr", "openai"])
def test_a_missing_package_is_named(
    here: Commands, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    here.record(backend=WiredBackend())
    monkeypatch.setitem(sys.modules, package, None)
    done = here("verify", "--wire", status=3)
    assert f"the package {package} is missing" in done.stderr
    assert "pip install 'gaia-harness[vcr]'" in done.stderr
    here("verify")


def test_where_vcrpy_does_not_catch_the_call_nothing_is_reached(
    store: Store, data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older vcrpy that does not know the SDK's HTTP client: named, and no request gets out."""
    take(store, config(data), WiredBackend())
    monkeypatch.setattr("vcr.patch.CassettePatcherBuilder.build", lambda self: iter(()))
    with pytest.raises(LackError, match="does not play to openai") as caught:
        list(prove(store))
    assert "--upgrade" in str(caught.value)


# ------------------------------------------------------------------------------- reading the wire

TEXT = st.text(min_size=1, max_size=20)
CALLS = st.lists(st.builds(ToolCall, TEXT, TEXT, st.text(max_size=30)), max_size=3)
USAGES = st.builds(Usage, st.integers(0, 2**40), st.integers(0, 2**40))
FINISHES = st.sampled_from(["stop", "tool_calls", "length", None])


@st.composite
def replies(draw: st.DrawFn) -> ModelReply:
    """What our merger can make of a response."""
    refusal = draw(st.none() | TEXT)
    content = draw(st.none() | TEXT)
    filtered = draw(st.booleans())
    refused = refusal is not None or (filtered and content is None)
    return ModelReply(
        content=content,
        tool_calls=tuple(draw(CALLS)),
        reasoning=draw(st.none() | TEXT),
        refusal=refusal,
        finish_reason="content_filter" if filtered else draw(FINISHES),
        usage=draw(USAGES),
        error="refused" if refused else None,
    )


ODD = [
    ModelReply(error="context_exceeded"),
    ModelReply(error="refused"),
    ModelReply(error="refused", finish_reason="stop", usage=Usage(3, 0)),
    ModelReply(content="half \ud83d", finish_reason="stop"),
    ModelReply(),
]


@given(reply=st.sampled_from(ODD) | replies(), stream=st.booleans())
def test_a_synthesised_response_is_read_as_the_reply_that_it_was_made_of(
    player: Player, reply: ModelReply, stream: bool
) -> None:
    found = exchange.decode(exchange.encode(exchanged(HELLO, reply, stream)), "it")
    recorded = RecordedRequest("scripted", {}, [], [{"role": "user", "content": "hello"}])
    again, details, bodies = player.play(recorded, stream, found, reply)
    assert list(differences(reply, {}, again, details)) == []
    assert all(sent_as(recorded, stream, body) for body in bodies)
    assert bodies


def test_a_response_that_is_none_says_why(player: Player) -> None:
    recorded = RecordedRequest("scripted", {}, [], [{"role": "user", "content": "hello"}])
    reply = ModelReply(content="x", finish_reason="stop")
    found = exchange.decode(exchange.encode(exchanged(HELLO, reply)), "it")
    found = msgspec.structs.replace(found, status=503, text='{"error": {"message": "Busy."}}')
    with pytest.raises(ModelError, match=r"^HTTP 503: “Busy.”") as caught:
        player.play(recorded, False, found, reply)
    assert "127.0.0.1" not in caught.value.message


@pytest.mark.parametrize(
    "params", [{}, {"stream": True}, {"extra_body": {"top_k": 3}}, {"seed": 1}]
)
@pytest.mark.parametrize("spaced", [False, True])
def test_a_body_is_known_by_its_digest_however_it_was_sent(
    params: dict[str, Any], spaced: bool
) -> None:
    """Streamed or not, with stream_options or without, by an older httpx or a new one."""
    from hashlib import sha256

    from harness.live import wire

    messages = [{"role": "user", "content": "naïve"}]
    recorded = RecordedRequest("m", params, [], messages)
    for stream, usage in ((False, True), (True, True), (True, False)):
        body = wire.request_body(
            "m", ModelRequest(messages, [], params), stream=stream, stream_usage=usage
        )
        data = json.dumps(body).encode() if spaced else wire.body_bytes(body)
        for setting in (False, True):
            found = sent_as(recorded, setting, sha256(data).hexdigest())
            assert found is not None
            assert found.data == data
            assert found.stream == bool(body.get("stream"))
    assert sent_as(recorded, False, "0" * 64) is None
    assert synthesise(ModelReply(content="x"), id="i", model="m").body.isascii()
