"""Histories, requests and their digests."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import canonical
from harness.records import (
    BashReply,
    BashRequest,
    Frozen,
    History,
    ModelReply,
    ModelRequest,
    Outcome,
    ToolCall,
    ToolReply,
    ToolRequest,
    TrajectoryHash,
    Usage,
    ValueRequest,
    assistant_message,
    reply_digest,
)
from tests.json_values import messages, texts, values


def chain(items: list[dict[str, Any]]) -> bytes:
    """The history's digest, from its definition."""
    state = sha256(b"gaia-harness/1").digest()
    for item in items:
        state = sha256(state + sha256(canonical.dumps(item)).digest()).digest()
    return state


@given(st.lists(messages(), max_size=6), st.lists(messages(), max_size=3))
def test_a_history_is_a_list_that_shares_its_past(
    first: list[dict[str, Any]], second: list[dict[str, Any]]
) -> None:
    history = History(first)
    longer = history.append(*second)
    assert list(history) == first
    assert list(longer) == first + second
    assert len(longer) == len(first) + len(second)
    assert history.chain == chain(first)
    assert longer.chain == History.of(first + second).chain == chain(first + second)
    if second:
        assert longer[-1] == second[-1]
        assert longer[len(first) :] == second


@given(
    st.lists(messages(), max_size=4),
    st.lists(st.dictionaries(texts, values(), max_size=3), max_size=2),
    st.dictionaries(texts, values(), max_size=3),
    texts,
)
def test_a_model_request_digest_is_what_the_design_says(
    history: list[dict[str, Any]], tools: list[Any], params: dict[str, Any], model: str
) -> None:
    expected = canonical.digest(
        {
            "kind": "model",
            "model": model,
            "params": params,
            "tools": canonical.digest(tools),
            "messages": chain(history).hex(),
        }
    )
    plain = ModelRequest(history, tools, params)
    frozen = ModelRequest(History(history), Frozen(tools), Frozen(params))
    assert plain.digest(model) == frozen.digest(model) == expected


def test_a_request_is_not_changed_by_what_the_loop_does_later() -> None:
    history = [{"role": "user", "content": "one"}]
    params = {"extra_body": {"top_k": 1}}
    request = ModelRequest(history, [], params)
    before = request.digest("m")
    history[0]["content"] = "two"
    params["extra_body"]["top_k"] = 2
    assert request.digest("m") == before
    assert request.messages[0]["content"] == "one"


class Text(str):
    """A text of another library's."""


class Number(float):
    """A number of another library's."""


class Whole(int):
    """A whole number of another library's."""


def test_texts_and_numbers_of_other_libraries_are_taken_for_what_they_are() -> None:
    """Nothing can write down their classes."""
    ours: dict[str, Any] = {"a": ["x", 1.5, 2, True]}
    theirs: dict[str, Any] = {Text("a"): (Text("x"), Number(1.5), Whole(2), True)}
    pairs: list[tuple[Any, Any]] = [
        (ModelRequest([ours], [ours], ours), ModelRequest([theirs], [theirs], theirs)),
        (BashRequest("x", 2.0), BashRequest(Text("x"), Whole(2))),
        (ToolRequest("x", "x", ours), ToolRequest(Text("x"), Text("x"), theirs)),
        (ValueRequest("x", int), ValueRequest(Text("x"), int)),
    ]
    for mine, others in pairs:
        assert mine.digest("m") == others.digest("m")
        fields = ("messages", "tools", "params", "command", "timeout", "name", "arguments")
        values = [getattr(others, field) for field in fields if hasattr(others, field)]
        assert msgspec.json.encode([list(v) if isinstance(v, History) else v for v in values])


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        (BashRequest, (b"ls",)),
        (BashRequest, (None,)),
        (BashRequest, (["ls"],)),
        (BashRequest, ("ls", None)),
        (BashRequest, ("ls", "soon")),
        (BashRequest, ("ls", float("inf"))),
        (BashRequest, ("ls", float("nan"))),
        (ToolRequest, (None, "t", {})),
        (ToolRequest, ("s", 5, {})),
        (ToolRequest, ("s", "t", None)),
        (ToolRequest, ("s", "t", ["x"])),
        (ValueRequest, (5, int)),
        (ModelRequest, ("hello",)),
        (ModelRequest, (["hello"],)),
        (ModelRequest, ([None],)),
        (ModelRequest, ([{"content": object()}],)),
        (ModelRequest, ([], ["bash"])),
        (ModelRequest, ([], {"bash": 1})),
        (ModelRequest, ([], [], ["seed"])),
        (ModelRequest, ([], [], {"seed": float("nan")})),
    ],
)
def test_what_could_not_be_written_down_is_no_request(kind: Any, arguments: Any) -> None:
    """It is refused where the loop makes it: live, and in the same way in every replay."""
    with pytest.raises((TypeError, ValueError)):
        kind(*arguments)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (BashRequest("ls", 1), BashRequest("ls", 2)),
        (BashRequest("ls", 1), BashRequest("ls ", 1)),
        (ToolRequest("a", "t", {"x": 1}), ToolRequest("a", "t", {"x": 2})),
        (ToolRequest("a", "t", {}), ToolRequest("b", "t", {})),
        (ValueRequest("now", lambda: 1), ValueRequest("seed", lambda: 1)),
        (BashRequest("now", 1), ValueRequest("now", lambda: 1)),
    ],
)
def test_other_requests_have_other_digests(one: Any, other: Any) -> None:
    assert one.digest() != other.digest()


def test_a_timeout_is_a_number_however_it_is_spelt() -> None:
    assert BashRequest("ls", 180).digest() == BashRequest("ls", 180.0).digest()


def test_tool_calls_read_like_openai_objects() -> None:
    call = ToolCall("functions.bash:0", "bash", '{"command": "ls"}')
    assert call["function"]["name"] == call.function.name == "bash"
    assert call["id"] == "functions.bash:0"
    assert ModelReply(tool_calls=[call.openai()]).tool_calls == (call,)  # type: ignore[arg-type]
    request = ModelRequest([{"role": "assistant", "content": "", "tool_calls": [call]}])
    assert request.messages[0]["tool_calls"] == [call.openai()]


REPLIES = [
    ModelReply("a"),
    ModelReply("b"),
    ModelReply("a", reasoning="r"),
    ModelReply("a", refusal="no"),
    ModelReply("a", (ToolCall("1", "bash", "{}"),)),
    ModelReply("a", (ToolCall("2", "bash", "{}"),)),
    ModelReply("a", finish_reason="stop"),
    ModelReply("a", usage=Usage(1, 2)),
    ModelReply("a", error="refused"),
    ModelReply("\ud800"),
    BashReply(),
    BashReply(b"a"),
    BashReply(b"", b"a"),
    BashReply(exit_code=1),
    BashReply(exit_code=None),
    BashReply(timed_out=True),
    BashReply(omitted=1),
    BashReply(b"\xff"),
    ToolReply("tool"),
    ToolReply("tool", is_error=True),
    None,
    {"a": 1},
    [1.5],
    "text",
]


def test_whatever_a_loop_can_read_of_a_reply_counts() -> None:
    digests = {reply_digest(reply) for reply in REPLIES}
    assert len(digests) == len(REPLIES)


def test_the_trajectory_counts_requests_replies_and_the_end() -> None:
    def digest(effects: list[tuple[str, bytes]], outcome: Outcome) -> str:
        state = TrajectoryHash()
        for request, reply in effects:
            state.add(request, reply)
        return state.result(outcome)

    ok = Outcome(status="ok", answer="42")
    one, two = "00" * 32, "11" * 32
    found = {
        digest([], ok),
        digest([(one, b"x" * 32)], ok),
        digest([(two, b"x" * 32)], ok),
        digest([(one, b"y" * 32)], ok),
        digest([], Outcome(status="ok")),
        digest([], Outcome(status="ok", answer="43")),
        digest([], Outcome(status="error", answer="42")),
    }
    assert len(found) == 7


def test_the_message_of_a_reply() -> None:
    reply = ModelReply(None, (ToolCall("1", "bash", "{}"),), reasoning="hm")
    plain = assistant_message(reply)
    assert plain == {
        "role": "assistant",
        "content": "",
        "tool_calls": [reply.tool_calls[0].openai()],
    }
    assert assistant_message(reply, reasoning=True) == {**plain, "reasoning_content": "hm"}
    assert "tool_calls" not in assistant_message(ModelReply("x"))
