"""The seam: what is recorded is served again, once, in order, and nothing else ever is."""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.agent import react
from harness.attempt import attempt
from harness.cassette import (
    FORMAT,
    VERSION,
    Agent,
    End,
    Header,
    Intent,
    ModelEffect,
    Tape,
    decode_lines,
    read_cassette,
)
from harness.divergence import Place
from harness.errors import (
    AgentError,
    DivergenceError,
    HarnessError,
    Interrupted,
    LackError,
    LimitError,
    ModelError,
    SampleError,
    SandboxError,
    SecretError,
    ToolServerError,
)
from harness.files import Appender, Memory
from harness.journal import Journal, TapeWriter
from harness.records import (
    MATCH_PARTS,
    BashReply,
    BashRequest,
    Failure,
    ModelReply,
    ModelRequest,
    Outcome,
    Reply,
    Request,
    Sample,
    Settings,
    ToolCall,
    ToolReply,
    ToolRequest,
    Usage,
    ValueRequest,
)
from harness.redact import MARK, Redactor
from harness.replaying import replay_tape
from harness.store import Store
from harness.world import Continuing, Diverged, Recorder, Replayer, ScriptedWorld, World
from tests.scripted import call, says
from tests.test_cassette import effects

SAMPLE = Sample(task_id="t", question="Why?", level=1)
HEADER = Header(format=FORMAT, version=VERSION, sample=SAMPLE, agent=Agent("a:b", ""))
SETTINGS = Settings(model="m")
PLACE = Place("r", "t", 1)


class Recording:
    """A recorder over a journal in memory, and what it came to."""

    def __init__(self, world: Any, store: Store | None = None, **more: Any) -> None:
        self.store = store or Store.in_memory()
        self.journal = Journal.begin(self.store, "r", "k", HEADER, TapeWriter())
        self.world = Recorder(world, self.journal, model="m", **more)

    def tape(self, outcome: Outcome | None = None) -> Tape:
        """The sealed tape, read back from the store."""
        outcome = outcome or Outcome(status="ok", answer="x")
        end = End(
            status=outcome.status,
            answer=outcome.answer,
            failure=outcome.failure,
            trajectory=self.world.trajectory.result(outcome),
            totals=self.journal.writer.totals,
        )
        return read_cassette(self.store, self.journal.seal(end), "the cassette")


def recorded(replies: Sequence[Reply], requests: Sequence[Request]) -> Tape:
    """A tape of these requests and replies."""
    recording = Recording(ScriptedWorld(replies))
    for request in requests:
        recording.world.perform(request)
    return recording.tape()


def raises(world: Any, request: Request) -> HarnessError:
    """The error that a request is answered with."""
    with pytest.raises(HarnessError) as caught:
        world.perform(request)
    return caught.value


# ------------------------------------------------------------------------------- one at a time


class SlowTape(Tape):
    """Calls back while a reply is read."""

    during: Callable[[], object]

    def reply(self, effect: Any) -> Reply:
        self.during()
        return super().reply(effect)


def scripted_world(during: Callable[[], object]) -> World:
    return ScriptedWorld(lambda request: (during(), BashReply())[1])


def recorder(during: Callable[[], object]) -> World:
    return Recording(scripted_world(during)).world


def replayer(during: Callable[[], object]) -> Replayer:
    found = recorded([BashReply()] * 2, [BashRequest("x")] * 2)
    tape = SlowTape(found.lines, "x")
    tape.during = during
    return Replayer(tape, model="m")


def continuing(during: Callable[[], object]) -> World:
    return Continuing(
        Replayer(Tape([HEADER], "x"), model="m"),
        lambda _: Recording(scripted_world(during)).world,
    )


@pytest.mark.parametrize("make", [scripted_world, recorder, replayer, continuing])
def test_a_second_call_while_one_is_open_is_refused(make: Callable[..., World]) -> None:
    """Also from another thread; the first goes on undisturbed, and so does what follows."""
    inside, go_on = threading.Event(), threading.Event()

    def during() -> None:
        inside.set()
        assert go_on.wait(30)

    world = make(during)
    replies: list[Reply] = []
    thread = threading.Thread(target=lambda: replies.append(world.perform(BashRequest("x"))))
    thread.start()
    assert inside.wait(30)
    with pytest.raises(RuntimeError, match="a second perform"):
        world.perform(BashRequest("x"))
    go_on.set()
    thread.join()
    assert replies == [BashReply()]
    assert world.perform(BashRequest("x")) == BashReply()


def test_a_refused_call_leaves_no_trace_on_the_tape() -> None:
    refused: list[str] = []

    def reentering(request: Request) -> Reply:
        with pytest.raises(RuntimeError) as caught:
            recording.world.perform(request)
        refused.append(str(caught.value))
        return BashReply(b"once")

    recording = Recording(ScriptedWorld(reentering))
    assert recording.world.perform(BashRequest("x")) == BashReply(b"once")
    assert len(refused) == 1
    assert len(recording.tape().effects) == 1


# ----------------------------------------------------------------------------------- errors stay

ERRORS = [ModelError, SandboxError, ToolServerError, LimitError, SecretError, AgentError]


def swallowing(sample: Sample, world: World, settings: Settings) -> str | None:
    """A loop that takes no error for an answer."""
    for number in range(6):
        try:
            world.perform(BashRequest(f"echo {number}"))
        except Exception:
            continue
    return "never mind"


@pytest.mark.parametrize("error", ERRORS)
def test_a_failure_is_recorded_and_replayed_as_the_same(error: type[SampleError]) -> None:
    """E06: a call that never succeeded replays as the same error, however the loop takes it."""
    inner = ScriptedWorld([BashReply(b"0"), BashReply(b"1"), error("it is gone"), BashReply()])
    recording = Recording(inner)
    outcome = attempt(swallowing, SAMPLE, recording.world, SETTINGS)
    assert outcome == Outcome(status="error", failure=Failure(error.kind, "it is gone"))
    assert len(inner.requests) == 3  # nothing was asked for any more
    assert type(raises(recording.world, BashRequest("echo 9"))) is error

    tape = recording.tape(outcome)
    assert [effect.failure for effect in tape.effects] == [None, None, outcome.failure]
    world = Replayer(tape, model="m")
    assert attempt(swallowing, SAMPLE, world, SETTINGS) == outcome
    assert type(world.ended_by) is error
    assert world.served == 3
    assert type(raises(world, BashRequest("another"))) is error
    world.check_finished()
    replayed = replay_tape(tape, swallowing, SETTINGS, place=PLACE)
    assert replayed.identical
    assert replayed.outcome == outcome


@pytest.mark.parametrize("error", [LimitError("no tokens left"), SandboxError("no sandbox")])
def test_a_failure_between_two_requests_is_replayed_there(error: SampleError) -> None:
    """A limit that was reached, before anything was asked: no effect holds it, the end does."""
    left = iter([None, None, error])

    def before() -> None:
        if (found := next(left)) is not None:
            raise found

    inner = ScriptedWorld(lambda request: BashReply(b"x"))
    recording = Recording(inner, before=before)
    outcome = attempt(swallowing, SAMPLE, recording.world, SETTINGS)
    assert outcome.failure == Failure(error.kind, error.message)
    assert len(inner.requests) == 2
    tape = recording.tape(outcome)
    assert len(tape.effects) == 2
    replayed = replay_tape(tape, swallowing, SETTINGS, place=PLACE)
    assert replayed.identical
    assert replayed.outcome == outcome


def test_a_request_with_a_secret_is_neither_sent_nor_written_down() -> None:
    secret = "sk-0123456789abcdef"
    inner = ScriptedWorld([BashReply(f"the key is {secret}".encode())])
    recording = Recording(inner, redactor=Redactor([secret]))
    reply = recording.world.perform(BashRequest("env"))
    assert reply.stdout == f"the key is {MARK}".encode()
    found = raises(recording.world, BashRequest(f"curl -u {secret} x"))
    assert type(found) is SecretError
    assert len(inner.requests) == 1
    assert secret.encode() not in (recording.store.read_journal("r", "k") or b"")
    assert secret not in str(raises(recording.world, BashRequest("true")))


def test_a_secret_in_an_error_is_removed_before_anybody_sees_it() -> None:
    secret = "sk-0123456789abcdef"
    recording = Recording(
        ScriptedWorld([ModelError(f"401 for {secret}")]), redactor=Redactor([secret])
    )
    found = raises(recording.world, ModelRequest([]))
    assert str(found) == f"401 for {MARK}"
    assert recording.tape().effects[0].failure == Failure("model", f"401 for {MARK}")


def test_a_divergence_stays_whatever_the_loop_makes_of_it() -> None:
    """A loop that swallows it ends so all the same; also if it comes back to the tape."""
    tape = recorded([BashReply()] * 6, [BashRequest(f"echo {n}") for n in (0, 1, 7, 3, 4, 5)])
    world = Replayer(tape, model="m", place=PLACE)
    with pytest.raises(Diverged) as caught:
        attempt(swallowing, SAMPLE, world, SETTINGS)
    assert caught.value.report.effect == 3
    assert world.served == 2
    assert raises(world, BashRequest("echo 7")) is caught.value
    replayed = replay_tape(tape, swallowing, SETTINGS, place=PLACE)
    assert isinstance(replayed.divergence, Diverged)
    assert not replayed.identical
    assert replayed.trajectory is None


@pytest.mark.parametrize("error", [LackError("the disk is full"), DivergenceError("other")])
def test_what_concerns_more_than_the_sample_is_raised_again(error: HarnessError) -> None:
    inner = ScriptedWorld([error])
    with pytest.raises(type(error)):
        attempt(swallowing, SAMPLE, inner, SETTINGS)
    assert len(inner.requests) == 1


def swallowing_everything(sample: Sample, world: World, settings: Settings) -> str | None:
    """Even what is no `Exception`."""
    for number in range(3):
        try:
            world.perform(BashRequest(f"echo {number}"))
        except BaseException:
            continue
    return "never mind"


def test_an_interruption_stays_too() -> None:
    """A loop with a bare `except` must not turn Ctrl-C into an answer that is sealed."""
    stop = threading.Event()

    def interrupting(request: Request) -> Reply:
        stop.set()
        return BashReply()

    inner = ScriptedWorld(interrupting)
    recording = Recording(inner, stopped=stop.is_set)
    with pytest.raises(Interrupted):
        attempt(swallowing_everything, SAMPLE, recording.world, SETTINGS)
    assert len(inner.requests) == 1
    assert len(recording.tape().effects) == 1


def test_what_an_interruption_breaks_is_not_the_sample_s_fault() -> None:
    """The sandbox is taken away from a command that runs: no failure is written down."""
    stop = threading.Event()

    def taken_away(request: Request) -> Reply:
        stop.set()
        raise SandboxError("the container is gone")

    recording = Recording(ScriptedWorld(taken_away), stopped=stop.is_set)
    with pytest.raises(Interrupted):
        recording.world.perform(BashRequest("sleep 100"))
    assert recording.tape().effects == []


# ----------------------------------------------------------------------- what a replay serves


def test_repeated_requests_are_served_in_order_each_once() -> None:
    """E04: `bar`, `whee`, and then a miss."""
    cases: list[tuple[Request, list[Reply]]] = [
        (ModelRequest([{"role": "user", "content": "x"}]), [ModelReply("bar"), ModelReply("whee")]),
        (BashRequest("date"), [BashReply(b"bar"), BashReply(b"whee")]),
        (ToolRequest("s", "t"), [ToolReply("bar"), ToolReply("whee")]),
    ]
    for asked, replies in cases:
        world = Replayer(recorded(replies, [asked] * 2), model="m")
        assert [world.perform(asked), world.perform(asked)] == replies
        world.check_finished()
        found = raises(world, asked)
        assert isinstance(found, Diverged)
        assert found.report.effect == 3
        assert found.report.effects == 2


def test_a_request_is_served_at_its_place_only() -> None:
    """A reply further down is not fetched for a request that comes too early."""
    tape = recorded([BashReply(b"1"), BashReply(b"2")], [BashRequest("a"), BashRequest("b")])
    world = Replayer(tape, model="m")
    assert isinstance(raises(world, BashRequest("b")), Diverged)
    assert world.served == 0


def test_left_over_effects_are_a_divergence() -> None:
    tape = recorded([BashReply()] * 3, [BashRequest(f"echo {n}") for n in range(3)])
    world = Replayer(tape, model="m", place=PLACE)
    world.perform(BashRequest("echo 0"))
    with pytest.raises(Diverged) as caught:
        world.check_finished()
    assert (caught.value.report.kind, caught.value.report.effect) == ("end", 2)
    assert raises(world, BashRequest("echo 1")) is caught.value

    def stops(sample: Sample, world: World, settings: Settings) -> str:
        world.perform(BashRequest("echo 0"))
        return "x"

    assert replay_tape(tape, stops, SETTINGS, place=PLACE).divergence is not None


def test_what_differs_from_run_to_run_is_served_as_recorded() -> None:
    """E01: a time or a hash in an output goes into the next request; every request still hits."""
    ticks = itertools.count(1_000_000)

    def clock(request: Request) -> Reply:
        if isinstance(request, BashRequest):
            return BashReply(f"{next(ticks)} {object()!r}".encode())
        assert isinstance(request, ModelRequest)
        if len(request.messages) > 8:
            return says(None, call("submit", answer=request.messages[-1]["content"]))
        return says(None, call("bash", command="date"))

    recording = Recording(ScriptedWorld(clock))
    outcome = attempt(react, SAMPLE, recording.world, SETTINGS)
    replayed = replay_tape(recording.tape(outcome), react, SETTINGS, place=PLACE)
    assert replayed.identical
    assert replayed.outcome == outcome
    assert outcome.answer is not None
    assert outcome.answer.startswith("10000")


@given(st.permutations([0, 0, 0, 1, 1, 1, 2, 2, 2]))
def test_epochs_are_draws_of_their_own(order: list[int]) -> None:
    """E05: three draws of one request, replayed in any order of scheduling."""
    asked = ModelRequest([{"role": "user", "content": "a number?"}])
    draws = [[ModelReply(f"{epoch} {turn}") for turn in range(3)] for epoch in range(3)]
    worlds = [Replayer(recorded(replies, [asked] * 3), model="m") for replies in draws]
    found: list[list[Reply]] = [[], [], []]
    for epoch in order:
        found[epoch].append(worlds[epoch].perform(asked))
    assert found == draws


def test_a_reply_comes_back_field_by_field() -> None:
    """E07: nothing that a loop can read is lost, token totals included."""
    reply = ModelReply(
        "text",
        (ToolCall("", "bash", '{"command": "ls'), ToolCall("functions.bash:0", "bash", "{}")),
        reasoning="because",
        refusal="no",
        finish_reason="length",
        usage=Usage(1234, 56),
        error="context_exceeded",
    )
    asked = ModelRequest([{"role": "user", "content": "x"}])
    tape = recorded([reply, ModelReply(usage=Usage(1, 1))], [asked, asked])
    found = Replayer(tape, model="m").perform(asked)
    for field in ModelReply.__struct_fields__:
        assert getattr(found, field) == getattr(reply, field), field
    assert tape.usage() == Usage(1235, 57)
    assert tape.end is not None
    assert (tape.end.totals.input_tokens, tape.end.totals.output_tokens) == (1235, 57)


@pytest.mark.parametrize(
    ("asked", "reply"),
    [
        (BashRequest("cat x"), BashReply(b"\xff\x00\xfe", b"\xc3", 1, False, 3)),
        (BashRequest("echo \ud800\x00"), BashReply(bytes(range(256)))),
        (ToolRequest("s", "t", {"\ud800": "\udfff"}), ToolReply("\ud800 \x00\x1b[0m", True)),
        (
            ModelRequest([{"role": "user", "content": "\ud800"}]),
            ModelReply("\udc80", (ToolCall("\ud800", "\x00", "\udfff"),), reasoning="\ud800"),
        ),
        (ValueRequest("\ud800", lambda: {"\ud800": ["\udfff"]}), {"\ud800": ["\udfff"]}),
        (ToolRequest("s", "t", {"id": 10**40}), ToolReply("x")),
        (ValueRequest("big", lambda: -(2**70)), -(2**70)),
    ],
)
def test_odd_bytes_and_characters_survive(asked: Request, reply: Reply) -> None:
    """E10: byte for byte, through the file and back."""
    world = Replayer(recorded([reply], [asked]), model="m")
    assert world.perform(asked) == reply


@settings(max_examples=25)
@given(effects())
def test_record_and_replay_have_one_trajectory(found: list[tuple[Request, Reply]]) -> None:
    replies = {id(request): reply for request, reply in found}
    recording = Recording(ScriptedWorld(lambda request: replies[id(request)]))
    seen = [recording.world.perform(request) for request, _ in found]
    outcome = Outcome(status="ok", answer="x")
    world = Replayer(recording.tape(outcome), model="m")
    assert [world.perform(request) for request, _ in found] == seen
    assert world.trajectory.result(outcome) == recording.world.trajectory.result(outcome)


def test_metadata_stand_on_the_tape_and_nowhere_else() -> None:
    """Ids, timing and attempts: invisible to the loop, no part of the trajectory."""

    class Telling(ScriptedWorld):
        def take_meta(self) -> dict[str, Any]:
            return {"attempts": 3, "id": "chatcmpl-1"}

    tapes = []
    for kind in (ScriptedWorld, Telling):
        recording = Recording(kind([BashReply(b"x"), ModelError("no")]))
        recording.world.perform(BashRequest("x"))
        raises(recording.world, ModelRequest([]))
        tapes.append(recording.tape())
    plain, telling = tapes
    assert [effect.meta for effect in plain.effects] == [None, None]
    assert [effect.meta for effect in telling.effects] == [{"attempts": 3, "id": "chatcmpl-1"}] * 2
    assert plain.end == telling.end
    assert Replayer(telling, model="m").perform(BashRequest("x")) == BashReply(b"x")


# -------------------------------------------------------------------------------------- match_on

TOOLS = [{"type": "function", "function": {"name": "t"}}]
ASKED = ModelRequest([{"role": "user", "content": "x"}], TOOLS, {"seed": 1})
OTHERS: dict[str, tuple[str, ModelRequest]] = {
    "model": ("n", ASKED),
    "messages": ("m", ModelRequest([{"role": "user", "content": "y"}], TOOLS, {"seed": 1})),
    "tools": ("m", ModelRequest([{"role": "user", "content": "x"}], [], {"seed": 1})),
    "params": ("m", ModelRequest([{"role": "user", "content": "x"}], TOOLS, {"seed": 2})),
}
SUBSETS = [subset for size in range(1, 5) for subset in itertools.combinations(MATCH_PARTS, size)]


@pytest.mark.parametrize("match_on", SUBSETS, ids=",".join)
@pytest.mark.parametrize("changed", MATCH_PARTS)
def test_which_parts_of_a_model_request_count(match_on: tuple[str, ...], changed: str) -> None:
    tape = recorded([ModelReply("first"), ModelReply("yes")], [ASKED, ASKED])
    model, asked = OTHERS[changed]
    world = Replayer(tape, model=model, match_on=match_on)
    if changed in match_on:
        assert isinstance(raises(world, asked), Diverged)
    else:
        assert world.perform(asked) == ModelReply("first")
        assert world.perform(asked) == ModelReply("yes")


@pytest.mark.parametrize("match_on", SUBSETS, ids=",".join)
def test_only_model_requests_are_matched_loosely(match_on: tuple[str, ...]) -> None:
    tape = recorded([BashReply(), ModelReply()], [BashRequest("a", 5), ASKED])
    for asked in (BashRequest("b", 5), BashRequest("a", 6), ASKED, ToolRequest("a", "t")):
        world = Replayer(tape, model="m", match_on=match_on)
        assert isinstance(raises(world, asked), Diverged)
    world = Replayer(tape, model="m", match_on=match_on)
    world.perform(BashRequest("a", 5))
    assert isinstance(raises(world, BashRequest("a", 5)), Diverged)


@pytest.mark.parametrize("match_on", [*SUBSETS, MATCH_PARTS[::-1]], ids=",".join)
def test_a_looser_replay_is_never_called_identical(match_on: tuple[str, ...]) -> None:
    """Not even one that differs in nothing."""
    recording = Recording(ScriptedWorld([says(None, call("submit", answer="x"))]))
    outcome = attempt(react, SAMPLE, recording.world, SETTINGS)
    replayed = replay_tape(recording.tape(outcome), react, SETTINGS, place=PLACE, match_on=match_on)
    assert replayed.divergence is None
    assert replayed.outcome == outcome
    assert replayed.identical is (set(match_on) == set(MATCH_PARTS))


# ---------------------------------------------------------------------------------------- values


class Number(float):
    """As numeric libraries have them."""


class Text(str):
    """A text of another class."""

    __slots__ = ()


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        (1.0, 1.0),
        (None, None),
        ([1, "a", {"b": [True, -0.5]}], [1, "a", {"b": [True, -0.5]}]),
        ((1, (2,)), [1, [2]]),
        ({1: "a", None: "b"}, {"1": "a", "null": "b"}),
        (Number(1.5), 1.5),
        (Text("x"), "x"),
        ("\ud83d\ude00", "\U0001f600"),
    ],
)
def test_a_value_is_made_once_and_is_json_from_then_on(value: Any, seen: Any) -> None:
    """The loop that records sees what the loop that replays will see, to the type."""
    made: list[int] = []

    def make() -> Any:
        made.append(1)
        return value

    recording = Recording(ScriptedWorld([]))
    found = recording.world.perform(ValueRequest("v", make))
    assert found == seen
    assert type(found) is type(seen)
    world = Replayer(recording.tape(), model="m")
    again = world.perform(ValueRequest("v", make))
    assert again == seen
    assert type(again) is type(seen)
    assert made == [1]
    assert isinstance(
        raises(Replayer(recording.tape(), model="m"), ValueRequest("w", make)), Diverged
    )


def explode() -> Any:
    raise OSError("no such thing")


def leave() -> Any:
    raise SystemExit(2)


@pytest.mark.parametrize("arguments", [{1: 2}, {"a": {1}}, {"a": math.inf}])
def test_a_request_that_has_no_digest_ends_the_loop_in_replay_as_it_did_live(
    arguments: Any,
) -> None:
    def loop(sample: Sample, world: World, settings: Settings) -> None:
        world.perform(BashRequest("x"))
        world.perform(ToolRequest("s", "t", arguments))

    recording = Recording(ScriptedWorld([BashReply()]))
    outcome = attempt(loop, SAMPLE, recording.world, SETTINGS)
    assert outcome.failure is not None
    assert outcome.failure.kind == "agent"
    tape = recording.tape(outcome)
    assert len(tape.effects) == 1
    replayed = replay_tape(tape, loop, SETTINGS, place=PLACE)
    assert replayed.identical
    assert replayed.outcome == outcome


def test_a_loop_s_tools_are_its_own() -> None:
    """One that adds to them does not add to those of the next attempt."""
    tools = [{"type": "function", "function": {"name": "theirs"}}]

    def loop(sample: Sample, world: World, settings: Settings) -> str:
        assert isinstance(world.tools, list)
        world.tools[0]["function"]["description"] = "mine"
        world.tools.append({"type": "function", "function": {"name": "mine"}})
        world.perform(ModelRequest([{"role": "user", "content": "x"}], world.tools))
        return "x"

    recording = Recording(ScriptedWorld([ModelReply("y")], tools=tools))
    tape = recording.tape(attempt(loop, SAMPLE, recording.world, SETTINGS))
    for _ in range(2):
        assert replay_tape(tape, loop, SETTINGS, place=PLACE, tools=tools).identical
    assert tools == [{"type": "function", "function": {"name": "theirs"}}]


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (explode, "OSError: no such thing"),
        (leave, "SystemExit: 2"),
        (lambda: math.nan, "ValueError"),
        (lambda: {1, 2}, "TypeError"),
        (lambda: b"x", "TypeError"),
        (object, "TypeError"),
    ],
)
def test_a_value_that_cannot_be_had_ends_the_sample_and_replays_so(
    make: Callable[[], Any], told: str
) -> None:
    """An exception of `make` cannot be given back from a tape, so it is no reply."""

    def loop(sample: Sample, world: World, settings: Settings) -> str:
        try:
            return str(world.perform(ValueRequest("now", make)))
        except Exception:
            return "without it"

    recording = Recording(ScriptedWorld([]))
    outcome = attempt(loop, SAMPLE, recording.world, SETTINGS)
    assert outcome.failure is not None
    assert outcome.failure.kind == "agent"
    assert "'now'" in outcome.failure.message
    assert told in outcome.failure.message
    replayed = replay_tape(recording.tape(outcome), loop, SETTINGS, place=PLACE)
    assert replayed.identical
    assert replayed.outcome == outcome


# ----------------------------------------------------------------- paid once: the order on disk


class Watched(Memory):
    """Files in memory that note every append."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[tuple[bytes, bool]] = []

    def append(self, name: str, *, size: int | None = None) -> Appender:
        inner, log = super().append(name, size=size), self.log

        class Noting:
            def append(self, data: bytes, *, durable: bool) -> None:
                log.append((data, durable))
                inner.append(data, durable=durable)

            def close(self) -> None:
                inner.close()

        return Noting()


@pytest.mark.parametrize(
    ("asked", "reply", "costs"),
    [
        (ModelRequest([{"role": "user", "content": "x"}]), ModelReply("y"), True),
        (ToolRequest("s", "t", {"a": 1}), ToolReply("y"), True),
        (BashRequest("x"), BashReply(b"y"), False),
        (ModelRequest([]), ModelError("no"), True),
        (BashRequest("x"), SandboxError("no"), False),
    ],
)
def test_the_intent_is_on_the_disk_before_the_request_and_the_reply_before_the_loop(
    asked: Request, reply: Any, costs: bool
) -> None:
    files = Watched()
    store = Store(files)
    found: list[Any] = []

    def inspecting(request: Request) -> Reply:
        found.append(decode_lines(store.read_journal("r", "k") or b"", "x"))
        found.append(list(files.log))
        if isinstance(reply, BaseException):
            raise reply
        return reply

    recording = Recording(ScriptedWorld(inspecting), store)
    try:
        recording.world.perform(asked)
    except SampleError:
        assert isinstance(reply, SampleError)
    lines, log = found
    intents = [line for line in lines if isinstance(line, Intent)]
    assert intents == ([Intent(effect=1, digest=asked.digest("m"))] if costs else [])
    if costs:
        assert isinstance(lines[-1], Intent)
        assert log[-1][1], "the intent was not synced"
    # the very next append is the effect, and it is synced before perform returns
    assert len(files.log) == len(log) + 1
    data, durable = files.log[-1]
    assert durable
    effect = decode_lines(data, "x")[0]
    assert effect.digest == asked.digest("m")  # type: ignore[union-attr]
    assert (effect.failure is None) is not isinstance(reply, SampleError)  # type: ignore[union-attr]


def test_a_request_that_died_is_counted_as_maybe_paid() -> None:
    """The intent stays without its reply when the process dies between the two."""

    class Dead(BaseException):
        pass

    def dying(request: Request) -> Reply:
        raise Dead

    recording = Recording(ScriptedWorld(dying))
    with pytest.raises(Dead):
        recording.world.perform(ModelRequest([{"role": "user", "content": "x"}]))
    lines = decode_lines(recording.store.read_journal("r", "k") or b"", "x")
    assert isinstance(lines[-1], Intent)
    assert not any(isinstance(line, ModelEffect) for line in lines)


def test_what_a_recorder_tells_of_limits_and_tokens() -> None:
    asked: list[str] = []
    spent: list[int] = []
    recording = Recording(
        ScriptedWorld([ModelReply(usage=Usage(10, 5)), BashReply(), ModelReply()]),
        before=lambda: asked.append("before"),
        spent=spent.append,
    )
    recording.world.perform(ModelRequest([]))
    recording.world.perform(BashRequest("x"))
    recording.world.perform(ModelRequest([]))
    assert asked == ["before"] * 3
    assert spent == [15, 0]
    assert recording.world.last_reply == ModelReply()


# ------------------------------------------------------------------------------------ continuing


def echoing(sample: Sample, world: World, settings: Settings) -> str:
    """Eight commands, each made from the output before it."""
    output = b"start"
    for _ in range(8):
        output = world.perform(BashRequest(f"next {output.decode()}")).stdout
    return output.decode()


def counting() -> Callable[[Request], Reply]:
    numbers = itertools.count()
    return lambda request: BashReply(str(next(numbers)).encode())


@pytest.mark.parametrize("kept", range(9))
def test_a_tape_is_continued_as_if_nothing_had_happened(kept: int) -> None:
    undisturbed = Recording(ScriptedWorld(counting()))
    outcome = attempt(echoing, SAMPLE, undisturbed.world, SETTINGS)
    tape = undisturbed.tape(outcome)

    rest = ScriptedWorld([tape.reply(effect) for effect in tape.effects[kept:]])
    went_live: list[Replayer] = []

    def go_live(replayer: Replayer) -> Recorder:
        went_live.append(replayer)
        return Recording(rest, trajectory=replayer.trajectory).world

    prefix = Tape(tape.prefix(kept).lines, "x")
    world = Continuing(Replayer(prefix, model="m"), go_live)
    assert attempt(echoing, SAMPLE, world, SETTINGS) == outcome
    assert world.trajectory.result(outcome) == undisturbed.world.trajectory.result(outcome)
    assert len(rest.requests) == 8 - kept
    assert [replayer.served for replayer in went_live] == ([kept] if kept < 8 else [])
    assert world.forked_at is None


def test_a_failed_request_is_asked_again() -> None:
    """Retry: the failure at the end of the tape is no reply."""
    recording = Recording(ScriptedWorld([BashReply(b"0"), SandboxError("gone")]))
    outcome = attempt(echoing, SAMPLE, recording.world, SETTINGS)
    replayer = Replayer(recording.tape(outcome), model="m")
    inner = ScriptedWorld(counting())
    world = Continuing(replayer, lambda _: Recording(inner).world)
    assert attempt(echoing, SAMPLE, world, SETTINGS).answer == "6"
    assert [request.command for request in inner.requests][:2] == ["next 0", "next 0"]  # type: ignore[union-attr]
    assert replayer.served == 1


@pytest.mark.parametrize("fork", [True, False])
def test_a_divergence_forks_only_when_told_to(fork: bool) -> None:
    recording = Recording(ScriptedWorld(counting()))
    tape = recording.tape(attempt(echoing, SAMPLE, recording.world, SETTINGS))

    def other(sample: Sample, world: World, settings: Settings) -> str:
        world.perform(BashRequest("next start"))
        return str(world.perform(BashRequest("something else")).stdout)

    inner = ScriptedWorld([BashReply(b"live")])
    world = Continuing(
        Replayer(tape, model="m", place=PLACE), lambda _: Recording(inner).world, fork=fork
    )
    if fork:
        assert attempt(other, SAMPLE, world, SETTINGS).answer == "b'live'"
        assert world.forked_at is not None
        assert world.forked_at.effect == 2
        assert len(inner.requests) == 1
    else:
        with pytest.raises(Diverged):
            attempt(other, SAMPLE, world, SETTINGS)
        assert inner.requests == []
        assert world.forked_at is None


def test_the_last_reply_is_that_of_either_side() -> None:
    asked = ModelRequest([{"role": "user", "content": "x"}])
    tape = recorded([ModelReply("old")], [asked])
    world = Continuing(
        Replayer(tape, model="m"), lambda _: Recording(ScriptedWorld([ModelReply("new")])).world
    )
    world.perform(asked)
    assert world.last_reply == ModelReply("old")
    world.perform(asked)
    assert world.last_reply == ModelReply("new")


# --------------------------------------------------------------------------------- scripted worlds


def test_a_scripted_world_gives_its_replies_in_order_and_keeps_what_was_asked() -> None:
    world = ScriptedWorld([BashReply(b"1"), ToolReply("2")], tools=TOOLS)
    asked: list[Request] = [
        BashRequest("x"),
        ToolRequest("s", "t"),
        ValueRequest("v", lambda: 3),
    ]
    assert [world.perform(request) for request in asked] == [BashReply(b"1"), ToolReply("2"), 3]
    assert world.requests == asked
    assert world.servers == {"t": "scripted"}
    assert ScriptedWorld([], tools=TOOLS, servers={"t": "s"}).servers == {"t": "s"}
    with pytest.raises(SampleError, match="no more replies"):
        world.perform(BashRequest("y"))


def test_a_scripted_world_can_be_a_function_or_raise() -> None:
    world = ScriptedWorld(lambda request: BashReply(request.command.encode()))  # type: ignore[union-attr]
    assert world.perform(BashRequest("abc")) == BashReply(b"abc")
    world = ScriptedWorld([ModelError("down"), BashReply()])
    assert raises(world, BashRequest("x")) is raises(world, BashRequest("x"))
