"""Which steps of another tool's conversation our loop would take as well."""

from __future__ import annotations

from typing import Any

import pytest

from harness.agent import react
from harness.cassette import Tape, read_cassette
from harness.interop.imported import ImportedEffect, ImportedSample, Source
from harness.interop.importing import write_import
from harness.records import (
    BashReply,
    BashRequest,
    Failure,
    ModelReply,
    ModelRequest,
    Outcome,
    Request,
    Sample,
    Settings,
    ToolCall,
    ToolReply,
    ToolRequest,
)
from harness.runfile import RunSettings, read_run
from harness.store import Store
from harness.vouching import Vouched, vouch

SETTINGS = Settings(model="m", command_timeout=30.0)
ASKED = ModelRequest([{"role": "user", "content": "theirs"}])


def turn(*calls: tuple[str, str], **more: Any) -> ImportedEffect:
    """A model turn that calls tools, by name and argument text."""
    made = tuple(ToolCall(f"c{n}", name, text) for n, (name, text) in enumerate(calls))
    return ImportedEffect(ASKED, ModelReply("so", made), **more)


def bash(command: str) -> tuple[str, str]:
    return "bash", f'{{"command": "{command}"}}'


def ran(request: Request, reply: Any = None) -> ImportedEffect:
    return ImportedEffect(request, BashReply(b"x") if reply is None else reply)


def command(text: str, timeout: float = 30.0) -> ImportedEffect:
    return ran(BashRequest(text, timeout))


SUBMIT = turn(("submit", '{"answer": "7"}'))


def vouched(*effects: ImportedEffect, answer: str | None = "7", **end: Any) -> Vouched:
    """The judgement on a tape of these effects."""
    store = Store.in_memory()
    outcome = end.pop("outcome", Outcome(status="ok", answer=answer))
    sample = ImportedSample(
        sample=Sample(task_id="a", question="How many?", level=1),
        effects=list(effects),
        outcome=outcome,
        **end,
    )
    source = Source(tool="Other", version="1")
    run_settings = RunSettings(loop=SETTINGS, agent="other:loop")
    write_import(store, "r", source=source, settings=run_settings, samples=[sample])
    return vouch(tape(store), react, SETTINGS)


def tape(store: Store) -> Tape:
    (entry,) = read_run(store, "r").samples
    assert entry.cassette is not None
    return read_cassette(store, entry.cassette, "it")


def test_a_conversation_that_the_loop_would_have_too() -> None:
    found = vouched(turn(bash("ls")), command("ls"), SUBMIT)
    assert found.text == "loop: 2 of 2 steps follow"


@pytest.mark.parametrize(
    ("effects", "why"),
    [
        ((turn(bash("ls")), command("pwd")), "another command was run: $ pwd"),
        ((turn(bash("ls")), command("ls", 5.0)), "it ran with a timeout of 5 s"),
        ((turn(bash("ls")),), "it was not run there: $ ls"),
        ((turn(("bash", "{")), command("")), "1 more were run: nothing"),
        ((turn(bash("ls")), ran(ToolRequest("s", "look", {}), ToolReply("x"))), "something else"),
        ((turn(bash("ls"), meta={"lost": "arguments"}), command("ls")), "arguments were not kept"),
    ],
)
def test_a_step_that_the_loop_would_not_take(effects: tuple[Any, ...], why: str) -> None:
    found = vouched(*effects, turn(bash("id")), command("id"), SUBMIT)
    assert found.text.startswith(f"loop: 2 of 3 steps follow; step 1: {why}")
    assert list(found.doubts) == [1]


def test_tools_of_servers_are_called_by_name_and_arguments() -> None:
    call = turn(("look", '{"page": 7}'))
    same = vouched(call, ran(ToolRequest("s", "look", {"page": 7}), ToolReply("x")), SUBMIT)
    assert same.doubts == {}
    other = vouched(call, ran(ToolRequest("s", "look", {"page": 8}), ToolReply("x")), SUBMIT)
    assert other.doubts == {1: "another call was made: look"}


def test_where_the_loop_ends_otherwise() -> None:
    said = ImportedEffect(ASKED, ModelReply("7"))
    assert "step 2: the loop would go on" in vouched(said, said).text
    assert vouched(said, said, said).doubts == {3: "the loop ends without an answer"}
    four = vouched(said, said, said, said, said)
    assert four.text == (
        "loop: 2 of 5 steps follow; step 3: the loop ends without an answer; "
        "the loop ends at step 3"
    )
    assert vouched(SUBMIT, answer="8").doubts == {1: "the loop ends with another answer"}
    assert vouched(turn(bash("ls")), command("ls"), answer=None).doubts == {}  # its own limit


def test_a_sample_that_ended_in_an_error_or_without_room() -> None:
    failure = Failure("model", "no reply came")
    ended = Outcome(status="error", failure=failure)
    assert vouched(turn(bash("ls")), command("ls"), outcome=ended).doubts == {}
    broken = ImportedEffect(ASKED, None, failure)
    assert vouched(broken, outcome=ended).text == "loop: 1 of 1 steps follow"
    full = ImportedEffect(ASKED, ModelReply("full", error="context_exceeded"))
    assert vouched(full, answer=None, last_error="context_exceeded").doubts == {}
    assert vouched(outcome=ended).text == "loop: 0 of 0 steps follow"


def test_only_the_first_doubts_are_told_in_full() -> None:
    effects = [effect for n in range(6) for effect in (turn(bash(f"c{n}")), command("other"))]
    found = vouched(*effects, SUBMIT)
    assert found.text.endswith("; and 3 more")
    assert len(found.doubts) == 6
