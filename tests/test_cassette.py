"""Cassettes: whatever a loop did comes back from the tape, and nothing stands on it twice."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.cassette import (
    FORMAT,
    VERSION,
    Agent,
    End,
    Header,
    Tape,
    Totals,
    check_header,
    decode_lines,
    encode_line,
    read_cassette,
    read_end,
)
from harness.errors import DamageError
from harness.journal import Journal, OpenTape, TapeWriter
from harness.records import (
    BashReply,
    BashRequest,
    History,
    ModelReply,
    ModelRequest,
    Reply,
    Request,
    Sample,
    ToolCall,
    ToolReply,
    ToolRequest,
    Usage,
    ValueRequest,
)
from harness.store import Store
from harness.world import Recorder, Replayer, ScriptedWorld
from tests.json_values import clean_texts, messages, texts, values

SAMPLE = Sample(task_id="t1", question="Why?", level=1)
HEADER = Header(
    format=FORMAT, version=VERSION, sample=SAMPLE, agent=Agent("tests:agent", "sha256:x")
)

calls = st.builds(ToolCall, texts, texts, texts)
model_replies = st.builds(
    ModelReply,
    content=st.none() | texts,
    tool_calls=st.lists(calls, max_size=3).map(tuple),
    reasoning=st.none() | texts,
    refusal=st.none() | texts,
    finish_reason=st.none() | texts,
    usage=st.builds(Usage, st.integers(0, 10**6), st.integers(0, 10**6)),
    error=st.sampled_from([None, "refused", "context_exceeded"]),
)
outputs = (
    st.binary(max_size=200)
    | clean_texts.map(str.encode)
    | st.sampled_from([b"x" * 100, b"\xff" * 100, b"abc\n" * 50, b"\0" * 70])
)
bash_replies = st.builds(
    BashReply,
    outputs,
    outputs,
    st.none() | st.integers(0, 255),
    st.booleans(),
    st.integers(0, 10**9),
)
tool_replies = st.builds(ToolReply, texts | st.just("long text " * 20), st.booleans())


def _same(value: Any) -> Any:
    return value


@st.composite
def effects(draw: st.DrawFn) -> list[tuple[Request, Reply]]:
    """A loop's requests and what came back: histories that grow, shrink and are rewritten."""
    found: list[tuple[Request, Reply]] = []
    history = History()
    for _ in range(draw(st.integers(0, 8))):
        kind = draw(st.sampled_from(["model", "model", "bash", "tool", "value"]))
        if kind == "model":
            change = draw(st.sampled_from(["grow", "grow", "grow", "cut", "rewrite", "new"]))
            items = list(history)
            if change == "cut":
                items = items[: draw(st.integers(0, len(items)))]
            elif change == "rewrite" and items:
                for index in draw(st.sets(st.integers(0, len(items) - 1), max_size=3)):
                    items[index] = draw(messages())
            elif change == "new":
                items = []
            if change == "grow":
                history = history.append(*draw(st.lists(messages(), max_size=3)))
            else:
                history = History(items)
            tools = draw(st.lists(st.dictionaries(texts, values(), max_size=2), max_size=1))
            request: Request = ModelRequest(history, tools, draw(st.sampled_from([{}, {"t": 1.5}])))
            found.append((request, draw(model_replies)))
        elif kind == "bash":
            timeout = draw(st.floats(0.1, 1e6))
            found.append((BashRequest(draw(texts), timeout), draw(bash_replies)))
        elif kind == "tool":
            arguments = draw(st.dictionaries(texts, values(), max_size=2))
            found.append((ToolRequest(draw(texts), draw(texts), arguments), draw(tool_replies)))
        else:
            value = draw(values())
            found.append((ValueRequest(draw(texts), partial(_same, value)), value))
    return found


def taped(effects: list[tuple[Request, Reply]], store: Store) -> tuple[Journal, list[Reply]]:
    """Record the effects; the journal and the replies as the loop saw them."""
    journal = Journal.begin(store, "r", "k", HEADER, TapeWriter())
    replies = {id(request): reply for request, reply in effects}
    world = Recorder(ScriptedWorld(lambda request: replies[id(request)]), journal, model="m")
    return journal, [world.perform(request) for request, _ in effects]


@given(effects())
def test_what_was_recorded_is_replayed(effects: list[tuple[Request, Reply]]) -> None:
    """Every request matches, every reply comes back equal, every request can be rebuilt."""
    store = Store.in_memory()
    journal, seen = taped(effects, store)
    tape = Tape(decode_lines(journal.read(), "x"), "x")
    replayer = Replayer(tape, model="m")
    assert [replayer.perform(request) for request, _ in effects] == seen
    replayer.check_finished()
    rebuilt = dict(tape.requests())
    for index, (request, _) in enumerate(effects):
        if isinstance(request, ModelRequest):
            found = rebuilt[index]
            again = ModelRequest(found.messages, found.tools, found.params)
            assert again.digest(found.model) == request.digest("m")


@given(effects(), st.data())
def test_a_journal_goes_on_where_it_was_left(
    effects: list[tuple[Request, Reply]], data: st.DataObject
) -> None:
    """Cut anywhere, at every byte: what is whole is kept, and the rest recorded behind it."""
    store = Store.in_memory()
    journal, seen = taped(effects, store)
    whole = store.read_journal("r", "k") or b""
    at = data.draw(st.integers(0, len(whole)))
    found = OpenTape(whole[:at], "x")
    assert found.size + found.torn == at
    if not found.lines:
        return
    store.files.write("journal/r/k.jsonl", whole[:at])
    tape = Tape(found.lines, "x")
    replayer = Replayer(tape, model="m")
    served = len(tape.effects)
    assert [replayer.perform(request) for request, _ in effects[:served]] == seen[:served]
    writer = TapeWriter.after(tape, replayer.last_request, "m")
    again = Journal.reopen(store, "r", "k", found, writer)
    replies = {id(request): reply for request, reply in effects}
    world = Recorder(
        ScriptedWorld(lambda request: replies[id(request)]),
        again,
        model="m",
        trajectory=replayer.trajectory,
    )
    assert [world.perform(request) for request, _ in effects[served:]] == seen[served:]
    second = Replayer(Tape(decode_lines(again.read(), "x"), "x"), model="m")
    assert [second.perform(request) for request, _ in effects] == seen
    assert again.writer.totals == journal.writer.totals


def history_of(count: int, output: str) -> list[tuple[Request, Reply]]:
    """A plain ReAct trajectory: each turn one command with a long output."""
    found: list[tuple[Request, Reply]] = []
    history = History([{"role": "system", "content": "s" * 500}, {"role": "user", "content": "u"}])
    for turn in range(count):
        call = ToolCall(f"c{turn}", "bash", json.dumps({"command": f"cmd {turn}"}))
        reply = ModelReply(f"thinking about {turn}", (call,))
        found.append((ModelRequest(history, [{"type": "function"}], {}), reply))
        text = f"{turn} {output}"
        found.append((BashRequest(f"cmd {turn}", 5), BashReply(text.encode())))
        history = history.append(
            {
                "role": "assistant",
                "content": f"thinking about {turn}",
                "tool_calls": [call.openai()],
            },
            {
                "role": "tool",
                "tool_call_id": call.id,
                "content": text[:900] + "\n[cut]\n" + text[-900:],
            },
        )
    return found


def test_a_tape_grows_with_what_is_new_and_with_nothing_else() -> None:
    sizes = []
    for turns in (20, 80):
        store = Store.in_memory()
        journal, _ = taped(history_of(turns, "line of output\n" * 200), store)
        sizes.append(len(journal.read()))
    assert sizes[1] <= 4.1 * sizes[0]
    distinct = 80 * (200 * 15 + 60)
    assert sizes[1] <= 1.3 * distinct


def test_an_output_that_was_seen_before_is_referred_to() -> None:
    store = Store.in_memory()
    text = b"the same long output\n" * 100
    effects: list[tuple[Request, Reply]] = [
        (BashRequest(f"cat {number}", 5), BashReply(text)) for number in range(50)
    ]
    journal, _ = taped(effects, store)
    assert journal.read().count(b"the same long output") == 100


def seal(store: Store, effects: list[tuple[Request, Reply]]) -> str:
    journal, _ = taped(effects, store)
    end = End(status="ok", answer="42", trajectory="00", totals=journal.writer.totals)
    return journal.seal(end)


def test_a_sealed_cassette_has_no_intents_and_ends_with_the_answer() -> None:
    store = Store.in_memory()
    name = seal(store, history_of(2, "out"))
    data = store.get(name)
    assert b'"intent"' not in data
    assert data.splitlines()[0].startswith(b'{"type":"cassette","format":"gaia-harness-cassette"')
    assert read_end(store, name, "x").answer == "42"
    assert read_cassette(store, name, "x").header.sample == SAMPLE


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (b"", "first line"),
        (b"{}\n", "line 1"),
        (b"[]\n", "line 1"),
        (b"\xff\n", "line 1"),
        (b'{"type":"cassette"\n', "line 1"),
        (b'{"type":"bash"}\n', "line 1"),
        (b'{"type":"nonsense"}\n', "line 1"),
        (b"[" * 100_000 + b"\n", "line 1"),
        (b'{"a":' * 100_000 + b"\n", "line 1"),
        (encode_line(HEADER) + b"x\n", "line 2"),
        (encode_line(HEADER) * 2, "last line"),
        (encode_line(HEADER).replace(b'"version":1', b'"version":2'), "version 2"),
        (encode_line(HEADER).replace(b"gaia-harness-cassette", b"other"), "first line"),
    ],
)
def test_what_is_no_cassette_is_damage(lines: bytes, told: str) -> None:
    store = Store.in_memory()
    with pytest.raises(DamageError, match=told):
        read_cassette(store, store.put(lines), "the cassette")


def test_a_version_that_is_not_known_is_named_even_if_its_lines_are_not() -> None:
    store = Store.in_memory()
    first = encode_line(HEADER).replace(b'"version":1', b'"version":7')
    name = store.put(first + b'{"type":"hologram"}\n')
    with pytest.raises(DamageError, match="version 7"):
        read_cassette(store, name, "x")


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"bash","digest":"00","request":{"command":"x","timeout":1.0},"reply":{"stdout":{"line":99}}}',
        b'{"type":"bash","digest":"00","request":{"command":"x","timeout":1.0},"reply":{"stdout":{"line":2}}}',
        b'{"type":"bash","digest":"00","request":{"command":"x","timeout":1.0},"reply":{"stdout":{"line":-1}}}',
        b'{"type":"bash","digest":"00","request":{"command":"x","timeout":1.0},"reply":{"stdout":{"base64":"?"}}}',
        b'{"type":"bash","digest":"00","request":{"command":"x","timeout":1.0},"reply":{"stdout":{"base64":"\\u00e9"}}}',
        b'{"type":"bash","digest":"00","request":{"command":"x","timeout":1.0},"reply":{"stdout":{"line":1}}}',
        b'{"type":"bash","digest":"00","request":{"command":"x","timeout":1.0}}',
    ],
)
def test_an_output_that_cannot_be_resolved_is_damage(line: bytes) -> None:
    tape = Tape(decode_lines(encode_line(HEADER) + line, "x"), "x")
    with pytest.raises(DamageError):
        tape.reply(tape.effects[0])


@pytest.mark.parametrize(
    "splices",
    ["[[5,0,[1]]]", "[[0,-1,[2]]]", "[[0,0,[99]]]", "[[0,0,[1]]]", "[[0,0,[3]]]", "[[-1,0,[2]]]"],
)
def test_a_history_that_cannot_be_resolved_is_damage(splices: str) -> None:
    message = b'{"type":"message","message":{"role":"user"},"content":[[2,"message",0,9]]}\n'
    model = b'{"type":"model","digest":"00","request":{"splices":%b},"reply":{}}' % splices.encode()
    tape = Tape(decode_lines(encode_line(HEADER) + message + model, "x"), "x")
    with pytest.raises(DamageError):
        list(tape.requests())


def test_a_parent_that_is_not_there_or_too_short_is_damage() -> None:
    store = Store.in_memory()
    end = encode_line(End(status="ok", trajectory="00", totals=Totals()))
    parent = store.put(encode_line(HEADER) + end)
    for cassette, lines in [("sha256:" + "0" * 64, 1), (parent, 0), (parent, 9), (parent, -3)]:
        header = json.loads(encode_line(HEADER))
        header["parent"] = {"cassette": cassette, "lines": lines, "effects": 0}
        child = store.put(json.dumps(header).encode() + b"\n" + end)
        with pytest.raises(DamageError):
            read_cassette(store, child, "x")


def test_header_of_the_line() -> None:
    assert check_header(decode_lines(encode_line(HEADER), "x"), "x") == HEADER


@given(st.lists(values(), max_size=3))
def test_metadata_of_any_kind_is_kept(items: list[Any]) -> None:
    store = Store.in_memory()
    journal = Journal.begin(store, "r", "k", HEADER, TapeWriter())
    request = BashRequest("x", 1)
    for item in items:
        taped_request = journal.intend(request, "00")
        journal.effect(request, taped_request, "00", BashReply(), meta={"item": item})
    tape = Tape(decode_lines(journal.read(), "x"), "x")
    assert len(tape.effects) == len(items)
