"""The loop, against scripted worlds: what it runs, what it tells the model, when it ends."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import agent as agent_module
from harness.agent import react
from harness.attempt import attempt
from harness.cassette import FORMAT, VERSION, Agent, End, Header, Tape, decode_lines
from harness.dialogue import REMINDER, REMINDERS, bash_text
from harness.divergence import Place
from harness.journal import Journal, TapeWriter
from harness.records import (
    BashReply,
    BashRequest,
    ModelReply,
    ModelRequest,
    Reply,
    Request,
    Sample,
    Settings,
    ToolCall,
    ToolReply,
    ToolRequest,
)
from harness.replaying import replay_tape
from harness.store import Store
from harness.world import Recorder, ScriptedWorld
from tests.json_values import texts, values
from tests.scripted import says

SAMPLE = Sample(task_id="t", question="Why?", level=1)
FETCH = {"type": "function", "function": {"name": "fetch", "parameters": {"type": "object"}}}


def run(
    replies: Sequence[Reply], **more: Any
) -> tuple[str | None, list[Request], list[dict[str, Any]]]:
    """The answer, the requests, and the messages of the last model request."""
    world = ScriptedWorld(replies, tools=[FETCH], servers={"fetch": "web"})
    answer = react(SAMPLE, world, Settings(**more))
    return answer, world.requests, last_messages(world.requests)


def last_messages(requests: Sequence[Request]) -> list[dict[str, Any]]:
    asked = [request for request in requests if isinstance(request, ModelRequest)]
    return [dict(message) for message in asked[-1].messages]


def kinds(requests: Sequence[Request]) -> list[str]:
    return [request.kind for request in requests]


def commands(requests: Sequence[Request]) -> list[str]:
    return [request.command for request in requests if isinstance(request, BashRequest)]


def submit(answer: Any, id: str = "s") -> ToolCall:
    return ToolCall(id, "submit", json.dumps({"answer": answer}))


def bash(command: str, id: str = "b") -> ToolCall:
    return ToolCall(id, "bash", json.dumps({"command": command}))


def test_it_can_be_read_aloud() -> None:
    """The loop stays under 80 lines."""
    assert agent_module.__file__ is not None
    assert len(Path(agent_module.__file__).read_text().splitlines()) < 80


def test_a_plain_run() -> None:
    answer, requests, messages = run(
        [
            says("Let me look.", bash("ls /shared_files")),
            BashReply(b"data.csv\n"),
            says(None, bash("cat data.csv")),
            BashReply(b"", b"no such file\n", 1),
            says("Done.", submit("42")),
        ],
        command_timeout=7.5,
    )
    assert answer == "42"
    assert kinds(requests) == ["model", "bash", "model", "bash", "model"]
    assert requests[1] == BashRequest("ls /shared_files", 7.5)
    assert [message["role"] for message in messages] == [
        "system", "user", "assistant", "tool", "assistant", "tool",
    ]  # fmt: skip
    assert messages[3] == {"role": "tool", "tool_call_id": "b", "content": "data.csv\n"}
    assert messages[5]["content"] == "[stderr]\nno such file\n[exit code 1]"
    assert messages[4]["content"] == ""


# ------------------------------------------------------------------------------ how it ends


@pytest.mark.parametrize(
    ("submitted", "answer"),
    [
        ("Paris", "Paris"),
        (" $1,000.50 **x** \n", " $1,000.50 **x** \n"),
        ("", ""),
        (42, "42"),
        (1.5, "1.5"),
        (True, "true"),
        (["a", "b"], "a, b"),
        ({"a": 1}, '{"a":1}'),
        (None, None),
    ],
)
def test_only_what_is_submitted_is_the_answer_untouched(submitted: Any, answer: Any) -> None:
    """A07, A13: any JSON value becomes text; the prose around it counts for nothing."""
    found, _, _ = run([says("FINAL ANSWER: 7\n**8**", submit(submitted))])
    assert found == answer
    assert found is None or type(found) is str


def test_a_number_keeps_its_spelling() -> None:
    raw = ToolCall("s", "submit", '{"answer": 1.50}')
    assert run([says(None, raw)])[0] == "1.50"


@pytest.mark.parametrize(
    ("calls", "answer", "ran"),
    [
        ([bash("one"), submit("a"), bash("two")], "a", ["one"]),
        ([submit("a"), submit("b")], "a", []),
        ([submit("a"), bash("one")], "a", []),
        ([ToolCall("x", "submit", "{}"), bash("one"), submit("b")], "b", ["one"]),
        ([ToolCall("x", "submit", '"a"'), submit(None)], None, []),
    ],
)
def test_the_first_submit_wins(calls: list[ToolCall], answer: str | None, ran: list[str]) -> None:
    """D17: calls before it are run, calls after it are not; a broken one does not count."""
    found, requests, _ = run([says(None, *calls), *[BashReply(b"x")] * 3])
    assert found == answer
    assert commands(requests) == ran
    assert kinds(requests).count("model") == 1


@pytest.mark.parametrize(
    "quiet",
    [
        says("The answer is 42. FINAL ANSWER: 42"),
        says(""),
        says(None),
        says(None, finish_reason="length"),
        says("", reasoning="I think it is 42"),
        says("a plan", finish_reason="stop", refusal="no"),
    ],
)
def test_a_model_that_calls_nothing_is_reminded_twice(quiet: ModelReply) -> None:
    """D18, A13: no call, no answer, however sure the prose is; and no endless asking."""
    answer, requests, messages = run([quiet] * 10)
    assert answer is None
    assert len(requests) == REMINDERS + 1 == 3
    assert [m["role"] for m in messages[2:]] == ["assistant", "user", "assistant", "user"]
    assert messages[3]["content"] == messages[5]["content"] == REMINDER


def test_a_call_resets_the_count_of_reminders() -> None:
    """Twice in a row: also a call that cannot be run is one."""
    quiet, broken = says("hm"), says(None, ToolCall("x", "nothing", "{}"))
    replies = [quiet, quiet, broken, quiet, quiet, says(None, bash("ls")), BashReply(), quiet]
    answer, requests, messages = run([*replies, quiet, quiet, says(None, submit("a"))])
    assert answer is None
    assert kinds(requests).count("model") == 9
    assert [m["content"] for m in messages].count(REMINDER) == 6


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_it_ends_when_its_steps_are_spent(steps: int) -> None:
    """D18: no answer; the commands of the last turn are still run."""
    world = ScriptedWorld(
        lambda request: BashReply() if isinstance(request, BashRequest) else says(None, bash("x"))
    )
    assert react(SAMPLE, world, Settings(max_steps=steps)) is None
    assert kinds(world.requests) == ["model", "bash"] * steps


def test_the_number_of_steps_is_never_told() -> None:
    """Or a run could not be replayed with more of them."""
    asked = []
    for steps in (3, 50):
        _, requests, _ = run([says("hm")] * 3, max_steps=steps)
        asked.append([request.digest("m") for request in requests])
    assert asked[0] == asked[1]


@pytest.mark.parametrize("error", ["context_exceeded", "refused"])
def test_an_overflow_or_a_refusal_ends_it(error: str) -> None:
    answer, requests, _ = run([says("x", submit("a"), error=error)])
    assert answer is None
    assert len(requests) == 1


# ------------------------------------------------------------- calls that cannot be run as they are


@pytest.mark.parametrize("arguments", ["", " ", "null"])
def test_a_tool_of_a_server_is_called_without_arguments(arguments: str) -> None:
    """D06, down to the history that goes out with the next request."""
    _, requests, messages = run(
        [says(None, ToolCall("f", "fetch", arguments)), ToolReply("ok"), says(None, submit("a"))]
    )
    assert requests[1] == ToolRequest("web", "fetch", {})
    assert messages[2]["tool_calls"][0]["function"]["arguments"] == "{}"
    assert messages[3] == {"role": "tool", "tool_call_id": "f", "content": "ok"}


@pytest.mark.parametrize(
    ("broken", "finish_reason", "told"),
    [
        ('{"command": "rm -rf', "tool_calls", "not valid JSON"),
        ('{"command": "rm -rf', "length", "cut off at the token limit"),
        ('"rm -rf /"', "tool_calls", "must be a JSON object"),
        ('["rm"]', "stop", "must be a JSON object"),
        ("5", None, "must be a JSON object"),
        ('{"cmd": "rm"}', None, "'command' is missing"),
        ('{"command": {"rm": 1}}', None, "must be a string"),
    ],
)
def test_a_broken_call_goes_back_to_the_model_and_is_not_run(
    broken: str, finish_reason: str | None, told: str
) -> None:
    """D07, D08: the sample goes on, and the next request is one that endpoints accept."""
    answer, requests, messages = run(
        [
            says("try", ToolCall("x", "bash", broken), finish_reason=finish_reason),
            says(None, submit("a")),
        ]
    )
    assert answer == "a"
    assert commands(requests) == []
    assert messages[3]["tool_call_id"] == "x"
    assert messages[3]["content"].startswith("[not run: ")
    assert told in messages[3]["content"]
    assert isinstance(json.loads(messages[2]["tool_calls"][0]["function"]["arguments"]), dict)


def test_an_unknown_tool_is_named_with_those_that_exist() -> None:
    _, requests, messages = run(
        [says(None, ToolCall("x", "python", "{}"), bash("ls")), BashReply(b"y"),
         says(None, submit("a"))]
    )  # fmt: skip
    assert (
        messages[3]["content"] == "[not run: there is no tool 'python'; tools: bash, submit, fetch]"
    )
    assert messages[4]["content"] == "y"
    assert commands(requests) == ["ls"]


def test_arguments_that_came_as_an_object_are_accepted() -> None:
    """D08: some endpoints hand over a dict; here it has become text below the seam."""
    given_dict = ModelReply(
        tool_calls=[{"id": "x", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}]  # type: ignore[arg-type]
    )
    _, requests, _ = run([given_dict, BashReply(), says(None, submit("a"))])
    assert commands(requests) == ["ls"]


def test_repeated_ids_are_each_their_own_call() -> None:
    """D09, D10: within a turn and over turns; results stand behind their calls, in order."""
    odd = "functions.bash:0"
    _, requests, messages = run(
        [
            says(None, bash("one", odd), bash("two", odd)),
            BashReply(b"1"), BashReply(b"2"),
            says(None, bash("three", odd)),
            BashReply(b"3"),
            says(None, submit("a", odd)),
        ]
    )  # fmt: skip
    assert commands(requests) == ["one", "two", "three"]
    results = [m for m in messages if m["role"] == "tool"]
    assert [(m["tool_call_id"], m["content"]) for m in results] == [
        (odd, "1"), (odd, "2"), (odd, "3"),
    ]  # fmt: skip


# ----------------------------------------------------------------------------- what the model sees


def test_a_flood_and_escapes_are_shown_as_the_dialogue_says() -> None:
    """C10, C11: one text, live and replayed; the tape holds the bytes as they came."""
    reply = BashReply(
        b"\x1b[31m" + b"0123456789" * 5000 + b"\x1b[0m", b"\xff\r50%\r100%", 3, False, 7
    )
    _, _, messages = run([says(None, bash("x")), reply, says(None, submit("a"))],
                         max_output_chars=1000)  # fmt: skip
    assert messages[3]["content"] == bash_text(reply, 180.0, 1000)
    assert messages[3]["content"].startswith("0123456789" * 50)
    assert "left out here" in messages[3]["content"]
    assert messages[3]["content"].endswith("100%\n[exit code 3]")


def test_a_timeout_is_told_with_its_seconds() -> None:
    _, _, messages = run(
        [says(None, bash("x")), BashReply(b"part", b"", None, True), says(None, submit("a"))],
        command_timeout=2.0,
    )
    assert messages[3]["content"] == "part\n[stopped: still running after 2 s]"


def test_results_of_servers() -> None:
    fetch = ToolCall("f", "fetch", '{"url": "http://x", "n": 2.50}')
    _, requests, messages = run(
        [says(None, fetch, fetch), ToolReply("not found", True), ToolReply("y" * 3000),
         says(None, submit("a"))],
        max_output_chars=1000,
    )  # fmt: skip
    assert requests[1] == ToolRequest("web", "fetch", {"url": "http://x", "n": 2.5})
    assert messages[3]["content"] == "[error]\nnot found"
    assert messages[4]["content"] == (
        "y" * 500 + "\n[... 2000 bytes left out here ...]\n" + "y" * 500
    )


def test_the_settings_go_into_every_request() -> None:
    _, requests, _ = run(
        [says(None, bash("x"), reasoning="r"), BashReply(), says(None, submit("a"))],
        params={"temperature": 0.7}, prompt_template="Q: {question}", send_reasoning=True,
    )  # fmt: skip
    for request in (requests[0], requests[2]):
        assert isinstance(request, ModelRequest)
        assert request.params == {"temperature": 0.7}
        assert request.messages[1]["content"] == "Q: Why?"
    assert last_messages(requests)[2]["reasoning_content"] == "r"


# --------------------------------------------------------------------------- whatever a model says

argument_texts = (
    texts
    | values().map(json.dumps)
    | st.fixed_dictionaries({"command": texts}).map(json.dumps)
    | st.sampled_from(["", "null", '{"command": "x', '{"command": 1}', '{"url": 1e999}'])
)
calls = st.builds(
    ToolCall, st.sampled_from(["a", "a", "b", ""]) | texts,
    st.sampled_from(["bash", "bash", "fetch", "python"]) | texts, argument_texts,
)  # fmt: skip
turns = st.builds(
    ModelReply,
    content=st.none() | texts,
    tool_calls=st.lists(calls, max_size=3).map(tuple),
    reasoning=st.none() | texts,
    finish_reason=st.sampled_from(["stop", "length", "tool_calls", None]),
)
results = st.builds(
    BashReply, st.binary(max_size=90), st.binary(max_size=90), st.integers(0, 2) | st.none(),
    st.booleans(),
)  # fmt: skip


@settings(max_examples=40)
@given(
    st.lists(turns, min_size=1, max_size=6),
    st.lists(results, min_size=1, max_size=4),
    st.lists(st.builds(ToolReply, texts, st.booleans()), min_size=1, max_size=3),
    st.sampled_from([None, 900]),
)
def test_whatever_a_model_says_the_loop_goes_on_and_replays(
    said: list[ModelReply], printed: list[BashReply], fetched: list[ToolReply], limit: int | None
) -> None:
    """No reply breaks the loop; every call gets one result, in order; the tape replays."""
    asked: list[Request] = []

    def answering(request: Request) -> Reply:
        asked.append(request)
        count = sum(request.kind == other.kind for other in asked) - 1
        if isinstance(request, BashRequest):
            return printed[count % len(printed)]
        if isinstance(request, ToolRequest):
            return fetched[count % len(fetched)]
        return said[count % len(said)]

    store = Store.in_memory()
    header = Header(format=FORMAT, version=VERSION, sample=SAMPLE, agent=Agent("", ""))
    journal = Journal.begin(store, "r", "k", header, TapeWriter())
    inner = ScriptedWorld(answering, tools=[FETCH], servers={"fetch": "web"})
    world = Recorder(inner, journal, model="m")
    loop = Settings(model="m", max_steps=8, max_output_chars=50, context_limit=limit)
    outcome = attempt(react, SAMPLE, world, loop)
    assert outcome.status == "ok", outcome.failure
    assert kinds(asked).count("model") <= 8

    messages = last_messages(asked)
    waiting: list[str] = []
    for message in messages[2:]:
        if message["role"] == "tool":
            assert message["tool_call_id"] == waiting.pop(0)
            continue
        assert waiting == []
        for made in message.get("tool_calls", ()):
            assert isinstance(json.loads(made["function"]["arguments"]), dict)
            waiting.append(made["id"])
    assert waiting == []

    end = End(
        status="ok",
        answer=outcome.answer,
        trajectory=world.trajectory.result(outcome),
        totals=journal.writer.totals,
    )
    tape = Tape([*decode_lines(journal.read(), "x"), end], "x")
    replayed = replay_tape(
        tape, react, loop, place=Place("r", "t", 1), tools=[FETCH], servers={"fetch": "web"}
    )
    assert replayed.divergence is None
    assert replayed.identical


def test_a_submit_among_other_calls_replays_alike() -> None:
    """D17: the replay runs as many commands as the recording did."""
    replies = [says(None, bash("one"), submit("a"), bash("two")), BashReply(b"x")]
    store = Store.in_memory()
    header = Header(format=FORMAT, version=VERSION, sample=SAMPLE, agent=Agent("", ""))
    journal = Journal.begin(store, "r", "k", header, TapeWriter())
    world = Recorder(ScriptedWorld(replies), journal, model="m")
    outcome = attempt(react, SAMPLE, world, Settings(model="m"))
    assert outcome.answer == "a"
    end = End(
        status="ok",
        answer="a",
        trajectory=world.trajectory.result(outcome),
        totals=journal.writer.totals,
    )
    tape = Tape([*decode_lines(journal.read(), "x"), end], "x")
    assert len(tape.effects) == 2
    assert replay_tape(tape, react, Settings(model="m"), place=Place("r", "t", 1)).identical
