"""Divergences: the right place, the right likely cause, and a report that is fit to be read."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness import canonical, dialogue
from harness.agent import react
from harness.cassette import (
    FORMAT,
    VERSION,
    Agent,
    Effect,
    End,
    Header,
    ModelEffect,
    Tape,
    read_cassette,
)
from harness.divergence import Divergence, Place, describe, left_over, summary
from harness.journal import Journal, OpenTape, TapeWriter
from harness.records import (
    BashReply,
    BashRequest,
    Failure,
    History,
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
    ValueRequest,
    assistant_message,
)
from harness.store import Store
from harness.terminal import columns, printable
from harness.world import Diverged, Recorder, Replayer, ScriptedWorld, World

SAMPLE = Sample(task_id="7f3a-11", question="How many boats left?", level=1, file_name="boats.csv")
PLACE = Place("demo", SAMPLE.task_id, 1)


def schema(name: str, description: str = "does it") -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": description}}


BASH, SUBMIT = schema("bash", "Runs one shell command."), schema("submit")
LINES = "".join(f"boat {number} left the harbour at dawn\n" for number in range(60))
PROGRESS = b"\x1b[32mok\x1b[0m read 10 %\rread 55 %\rread 100 % of the list of boats\nsum: 60\n"

Tidy = Callable[[str], str]


def unescaped(text: str) -> str:
    return re.sub("\x1b\\[[0-9;]*m", "", text)


def last_states(text: str) -> str:
    return "\n".join(line.rpartition("\r")[2] for line in text.split("\n"))


def shown(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n<<{len(text) - 2 * half} characters are not shown>>\n{text[-half:]}"


@dataclass(frozen=True)
class Loop:
    """A loop with many ways to be changed."""

    system: str = "You are a careful helper.\nAnswer with one number."
    template: str = "Question: {question}\nFile: {file}\nBegin."
    tools: tuple[dict[str, Any], ...] = (BASH, SUBMIT)
    params: dict[str, Any] = field(default_factory=lambda: {"temperature": 0.7, "seed": 1})
    limit: int = 400
    tidy: Tidy = str
    prefix: str = ""
    suffix: str = ""
    timeout: float = 30.0
    url: str = "{}"
    reasoning: bool = False
    speech: Tidy = str
    reminder: str = "You called no tool; call one."
    remind: bool = True
    max_steps: int = 10
    backwards: bool = False
    swap: bool = False
    skip: str = "nothing"
    twice: str = "nothing"
    check: str = ""
    after_submit: bool = False
    keep: int | None = None
    clock: str = ""
    ids: Tidy = str
    as_user: bool = False

    def __call__(self, sample: Sample, world: World) -> str | None:
        prompt = self.template.replace("{question}", sample.question)
        history = History(
            [
                {"role": "system", "content": self.system},
                {"role": "user", "content": prompt.replace("{file}", sample.file_name)},
            ]
        )
        for _ in range(self.max_steps):
            if self.clock:
                world.perform(ValueRequest(self.clock, lambda: 7))
            if self.keep is not None:
                history = self.shortened(history)
            reply = world.perform(ModelRequest(history, self.tools, self.params))
            said = assistant_message(reply, reasoning=self.reasoning)
            said["content"] = self.speech(said["content"])
            history = history.append(said)
            if not reply.tool_calls:
                if self.remind:
                    history = history.append({"role": "user", "content": self.reminder})
                continue
            submitted, results = None, []
            for call in reversed(reply.tool_calls) if self.backwards else reply.tool_calls:
                argument = json.loads(call.arguments)
                if call.name == "submit":
                    submitted = argument
                    if not self.after_submit:
                        return str(argument)
                elif self.skip not in argument:
                    for _ in range(2 if self.twice in argument else 1):
                        text = self.run(call.name, argument, world)
                    ids = {"tool_call_id": self.ids(call.id)}
                    result: dict[str, Any] = {"role": "tool", **ids, "content": text}
                    if self.as_user:
                        result = {"role": "user", "content": [{"type": "text", "text": text}]}
                    results.append(result)
            if submitted is not None:
                return str(submitted)
            if self.check:
                world.perform(BashRequest(self.check, self.timeout))
            history = history.append(*(results[::-1] if self.swap else results))
        return None

    def run(self, name: str, argument: str, world: World) -> str:
        if name == "fetch":
            url = self.url.format(argument)
            return str(world.perform(ToolRequest("web", "get", {"url": url, "raw": True})).content)
        reply = world.perform(BashRequest(self.prefix + argument, self.timeout))
        text = shown(self.tidy(reply.stdout.decode()), self.limit)
        return f"{text}[exit {reply.exit_code}]{self.suffix}"

    def shortened(self, history: History) -> History:
        old = list(history)
        return History(
            {**message, "content": message["content"][: self.keep]}
            if message["role"] == "tool" and at < len(old) - 3
            else message
            for at, message in enumerate(old)
        )


def calls(*wanted: tuple[str, Any]) -> ModelReply:
    return ModelReply(
        content=" Now: ",
        reasoning="I should look.",
        tool_calls=tuple(
            ToolCall(f"c{number}", name, json.dumps(argument))
            for number, (name, argument) in enumerate(wanted)
        ),
    )


def scripted() -> ScriptedWorld:
    """Four turns: two commands; no call; a fetch and a command; an answer with a call behind it.

    Effects: 1 model, 2 ls, 3 cat, 4 model, 5 model, 6 fetch, 7 python3, 8 model.
    """
    turns: Iterator[ModelReply] = iter(
        [
            calls(("bash", "ls /shared_files"), ("bash", "cat boats.csv")),
            ModelReply(content="Let me think."),
            calls(("fetch", "http://boats/"), ("bash", "python3 sum.py")),
            calls(("submit", "60"), ("bash", "rm -r scratch")),
        ]
    )
    outputs = {
        "ls /shared_files": b"boats.csv\n",
        "cat boats.csv": LINES.encode(),
        "python3 sum.py": PROGRESS,
    }

    def perform(request: Request) -> Reply:
        if isinstance(request, ModelRequest):
            return next(turns, ModelReply(content="Hm."))
        if isinstance(request, BashRequest):
            return BashReply(outputs.get(request.command, b""))
        return ToolReply("<p>sixty boats, and no more than sixty</p>")

    return ScriptedWorld(perform)


def record(
    loop: Any, *, world: World | None = None, sample: Sample = SAMPLE, end: Outcome | None = None,
    settings: dict[str, Any] | None = None, seal: bool = True,
) -> Tape:  # fmt: skip
    """A tape of the loop, by way of a journal and (unless not sealed) a cassette of a store."""
    store = Store.in_memory()
    header = Header(
        format=FORMAT, version=VERSION, sample=sample, agent=Agent("tests:loop", ""),
        settings=settings or {},
    )  # fmt: skip
    journal = Journal.begin(store, "demo", "key", header, TapeWriter())
    recorder = Recorder(world or scripted(), journal, model="m-1")
    answer = loop(sample, recorder)
    if not seal:
        journal.close()
        return Tape(OpenTape(store.read_journal("demo", "key") or b"", "the journal").lines, "it")
    outcome = end or Outcome(status="ok", answer=answer if isinstance(answer, str) else None)
    line = End(
        status=outcome.status,
        answer=outcome.answer,
        failure=outcome.failure,
        trajectory=recorder.trajectory.result(outcome),
        totals=journal.writer.totals,
    )
    return read_cassette(store, journal.seal(line), "the cassette")


def follow(tape: Tape, loop: Any, *, model: str = "m-1", sample: Sample = SAMPLE) -> None:
    world = Replayer(tape, model=model, place=PLACE)
    loop(sample, world)
    world.check_finished()


def diverge(tape: Tape, loop: Any, *, model: str = "m-1", sample: Sample = SAMPLE) -> Divergence:
    with pytest.raises(Diverged) as caught:
        follow(tape, loop, model=model, sample=sample)
    report = caught.value.report
    check_text(report)
    assert report.followed == report.effect - 1
    return report


def check_text(report: Divergence) -> str:
    """What holds for every report, whatever is in it."""
    text = report.text()
    lines = text.split("\n")
    assert len(lines) <= 25
    assert all(printable(line) == line for line in lines)
    assert all(columns(line) <= 120 and len(line) <= 120 for line in lines)
    assert len(report.cause) <= 200
    assert len(report.detail) <= 400
    assert not report.words or report.path
    assert len(msgspec.json.encode(report)) < 20_000
    return text


LOOP = Loop()


@pytest.fixture(scope="module")
def tape() -> Tape:
    return record(LOOP)


def test_an_unchanged_loop_does_not_diverge(tape: Tape) -> None:
    assert [type(effect).__struct_config__.tag for effect in tape.effects] == (
        ["model", "bash", "bash", "model", "model", "tool", "bash", "model"]
    )
    follow(tape, LOOP)


CHANGES = {
    # name: changed fields of the loop; step, effect, kind, path, cause
    "system prompt": (
        {"system": "You are a careless helper.\nAnswer with one number."},
        (1, 1, "model", "messages[0].content", "system prompt"),
    ),
    "template": (
        {"template": "The question: {question}\nFile: {file}\nBegin."},
        (1, 1, "model", "messages[1].content", "prompt template"),
    ),
    "template without the question": (
        {"template": "Guess. {file}"},
        (1, 1, "model", "messages[1].content", "prompt template or question"),
    ),
    "one field of a schema": (
        {"tools": (schema("bash", "Runs one bash command."), SUBMIT)},
        (1, 1, "model", "tools[0].function.description", "tool schema: bash"),
    ),
    "tool added": (
        {"tools": (BASH, schema("fetch"), SUBMIT)},
        (1, 1, "model", "tools[1]", "tool added: fetch"),
    ),
    "tool removed": (
        {"tools": (SUBMIT,)},
        (1, 1, "model", "tools[0]", "tool removed: bash"),
    ),
    "tools in another order": (
        {"tools": (SUBMIT, BASH)},
        (1, 1, "model", "tools[0]", "order of tools"),
    ),
    "tool renamed": (
        {"tools": (schema("shell", "Runs one shell command."), SUBMIT)},
        (1, 1, "model", "tools[0]", "tool added: shell; tool removed: bash"),
    ),
    "parameter changed": (
        {"params": {"temperature": 0.2, "seed": 1}},
        (1, 1, "model", "params.temperature", "generation parameter: temperature"),
    ),
    "parameter added": (
        {"params": {"temperature": 0.7, "seed": 1, "extra_body": {"top_k": 3}}},
        (1, 1, "model", "params.extra_body", "generation parameter: extra_body"),
    ),
    "parameter removed": (
        {"params": {"temperature": 0.7}},
        (1, 1, "model", "params.seed", "generation parameter: seed"),
    ),
    "two parameters": (
        {"params": {"temperature": 0, "seed": 2}},
        (1, 1, "model", "params.seed", "generation parameters: seed, temperature"),
    ),
    "prompt and schema": (
        {"system": "Hello.", "tools": (schema("bash", "Runs a command."), SUBMIT)},
        (1, 1, "model", "messages[0].content", "system prompt; tool schema: bash"),
    ),
    "a lower limit on outputs": (
        {"limit": 300},
        (2, 4, "model", "messages[4].content", "output limit"),
    ),
    "a higher limit on outputs": (
        {"limit": 1000},
        (2, 4, "model", "messages[4].content", "output limit"),
    ),
    "no limit on outputs": (
        {"limit": 10**6},
        (2, 4, "model", "messages[4].content", "output limit"),
    ),
    "escapes taken out": (
        {"tidy": unescaped},
        (4, 8, "model", "messages[9].content", "text cleaning of outputs"),
    ),
    "overwritten lines taken out": (
        {"tidy": last_states},
        (4, 8, "model", "messages[9].content", "text cleaning of outputs"),
    ),
    "outputs stripped": (
        {"tidy": str.strip},
        (2, 4, "model", "messages[3].content", "text cleaning of outputs"),
    ),
    "other words around outputs": (
        {"suffix": "; the command is done"},
        (2, 4, "model", "messages[3].content", "text of tool messages"),
    ),
    "calls in another order": (
        {"backwards": True},
        (1, 2, "bash", "command", "order of tool calls"),
    ),
    "results in another order": (
        {"swap": True},
        (2, 4, "model", "messages[3].content", "order of tool calls"),
    ),
    "other command": (
        {"prefix": "set -e; "},
        (1, 2, "bash", "command", "other command"),
    ),
    "other timeout": (
        {"timeout": 60},
        (1, 2, "bash", "timeout", "command timeout"),
    ),
    "other arguments": (
        {"url": "{}?all"},
        (3, 6, "tool", "arguments.url", "tool arguments"),
    ),
    "other ids": (
        {"ids": str.upper},
        (2, 4, "model", "messages[3].tool_call_id", "tool call ids"),
    ),
    "reasoning sent back": (
        {"reasoning": True},
        (2, 4, "model", "messages[2].reasoning_content", "reasoning sent back"),
    ),
    "assistant message": (
        {"speech": str.strip},
        (2, 4, "model", "messages[2].content", "assistant message"),
    ),
    "reminder": (
        {"reminder": "You called no tool; do call one."},
        (3, 5, "model", "messages[6].content", "reminder"),
    ),
    "no reminder": (
        {"remind": False},
        (3, 5, "model", "messages[6]", "reminder left out"),
    ),
    "old outputs shortened": (
        {"keep": 50},
        (4, 8, "model", "messages[4].content", "shortening of the history"),
    ),
    "first call left out": (
        {"skip": "ls"},
        (1, 2, "bash", "command", "order of tool calls"),
    ),
    "last call left out": (
        {"skip": "cat"},
        (2, 3, "model", "", "recorded call left out"),
    ),
    "one more call": (
        {"check": "pwd"},
        (1, 4, "bash", "", "call that was not recorded"),
    ),
    "call repeated": (
        {"twice": "ls"},
        (1, 3, "bash", "command", "request repeated"),
    ),
    "a value where a turn was": (
        {"clock": "time"},
        (0, 1, "value", "", "kind of request: value instead of model"),
    ),
    "calls after submit": (
        {"after_submit": True},
        (4, 9, "bash", "", "loop asked for more than was recorded"),
    ),
    "fewer steps": (
        {"max_steps": 2},
        (2, 5, "end", "", "loop stopped earlier"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_likely_causes(tape: Tape, name: str) -> None:
    changes, expected = CHANGES[name]
    changed: Loop = replace(LOOP, **changes)  # type: ignore[arg-type]
    report = diverge(tape, changed)
    assert (report.step, report.effect, report.kind, report.path, report.cause) == expected
    # seen from the other side, it is the same place and the same kind of cause
    if report.kind == "model" and not re.search("added|removed|left out|order", report.cause):
        back = diverge(record(changed), LOOP)
        assert (back.step, back.effect, back.path, back.cause) == (
            report.step, report.effect, report.path, report.cause,
        )  # fmt: skip
        assert (back.recorded, back.asked) == (report.asked, report.recorded)


def test_four_edits_of_the_shipped_loop_give_four_causes(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Settings(model="m-1", max_output_chars=400)

    def shipped(sample: Sample, world: World, settings: Settings = told) -> str | None:
        return react(sample, world, settings)

    def script() -> ScriptedWorld:
        commands = [("bash", {"command": line}) for line in ("ls /shared_files", "cat boats.csv")]
        turns = iter([calls(*commands), calls(("submit", {"answer": 60}))])

        def perform(request: Request) -> Reply:
            if isinstance(request, BashRequest):
                return BashReply(LINES.encode() if "cat" in request.command else b"boats.csv\n")
            return next(turns)

        return ScriptedWorld(perform)

    recorded = record(shipped, world=script(), settings=msgspec.to_builtins(told))
    follow(recorded, shipped)
    found: list[Divergence] = []
    with monkeypatch.context() as edit:
        edit.setattr(dialogue, "SYSTEM_PROMPT", dialogue.SYSTEM_PROMPT.replace("small", "tiny"))
        found.append(diverge(recorded, shipped))
    with monkeypatch.context() as edit:
        edit.setitem(dialogue.BASH_TOOL["function"], "description", "Run a command.")
        found.append(diverge(recorded, shipped))
    less = msgspec.structs.replace(told, max_output_chars=300)
    found.append(diverge(recorded, lambda sample, world: shipped(sample, world, less)))
    with monkeypatch.context() as edit:
        hear = dialogue.Dialogue.hear
        edit.setattr(dialogue.Dialogue, "hear", lambda self, reply: hear(self, reply)[::-1])
        found.append(diverge(recorded, shipped))
    assert [(report.step, report.cause) for report in found] == [
        (1, "system prompt"),
        (1, "tool schema: bash"),
        (2, "output limit"),
        (1, "order of tool calls"),
    ]
    assert "[-small-]{+tiny+}" in found[0].words
    assert "(limit 400)" in found[2].detail
    template = msgspec.structs.replace(told, prompt_template="{question} {file} Please begin.")
    report = diverge(recorded, lambda sample, world: shipped(sample, world, template))
    assert (report.step, report.cause) == (1, "prompt template")
    assert "Please begin+}" in report.words


def test_another_model(tape: Tape) -> None:
    report = diverge(tape, LOOP, model="m-2")
    assert (report.step, report.path, report.cause) == (1, "model", "model")
    assert (report.recorded, report.asked, report.words) == ("m-1", "m-2", "m-[-1-]{+2+}")
    assert report.still_matching is not None
    assert report.still_matching.match_on == ["messages", "tools", "params"]
    assert (report.still_matching.could_match, report.still_matching.later) == (3, 3)


def test_another_question_and_another_attachment(tape: Tape) -> None:
    other = msgspec.structs.replace(SAMPLE, question="How many boats came back?")
    report = diverge(tape, LOOP, sample=other)
    assert (report.path, report.cause) == ("messages[1].content", "question")
    assert "many boats [-left-]{+came back+}?" in report.words
    other = msgspec.structs.replace(SAMPLE, file_name="ships.csv")
    report = diverge(tape, LOOP, sample=other)
    assert (report.path, report.cause) == ("messages[1].content", "attachment")


def test_outputs_in_messages_of_the_user() -> None:
    """A loop of one's own may show outputs as it likes."""
    loop = replace(LOOP, as_user=True)
    recorded = record(loop)
    report = diverge(recorded, replace(loop, limit=300))
    assert (report.step, report.cause) == (2, "output limit")
    assert report.path == "messages[4].content[0].text"
    report = diverge(recorded, replace(loop, suffix="; done"))
    assert (report.step, report.cause) == (2, "user message")
    assert diverge(recorded, LOOP).cause == "user message replaced by tool message"


def test_old_outputs_that_were_shortened_when_recorded() -> None:
    recorded = record(replace(LOOP, keep=50))
    report = diverge(recorded, LOOP)
    assert (report.step, report.cause) == (4, "shortening of the history")
    assert "when recorded" in report.detail
    assert "not alike" in diverge(recorded, replace(LOOP, keep=60)).detail
    assert "loop now" in diverge(record(LOOP), replace(LOOP, keep=60)).detail


def test_a_system_prompt_that_is_no_longer_sent() -> None:
    def loop(*roles: str) -> Callable[[Sample, World], None]:
        messages = [{"role": role, "content": f"to the {role}"} for role in roles]
        return lambda sample, world: world.perform(ModelRequest(messages))

    both, one = record(loop("system", "user")), record(loop("user"))
    assert diverge(both, loop("user")).cause == "system prompt left out"
    assert diverge(one, loop("system", "user")).cause == "system prompt added"
    assert diverge(one, loop("user", "user")).cause == "user message added"
    assert diverge(both, loop("user", "system")).cause == "order of messages"
    developer = diverge(both, loop("developer", "user"))
    assert (developer.path, developer.cause) == ("messages[0]", "role of the system prompt")
    assert diverge(both, loop("assistant", "user")).cause == (
        "system prompt replaced by assistant message"
    )


def test_a_request_that_is_sent_again(tape: Tape) -> None:
    def again(sample: Sample, world: World) -> None:
        class Twice(ScriptedWorld):
            def _perform(self, request: Request) -> Reply:
                reply = world.perform(request)
                if isinstance(reply, ModelReply) and not reply.tool_calls:
                    return world.perform(request)
                return reply

        LOOP(sample, Twice([]))

    report = diverge(tape, again)
    assert (report.step, report.effect, report.cause) == (3, 5, "request repeated")
    assert "effect 4" in report.detail


def test_values_have_names(tape: Tape) -> None:
    recorded = record(replace(LOOP, clock="time"))
    report = diverge(recorded, replace(LOOP, clock="dice"))
    assert (report.kind, report.cause, report.path) == ("value", "other value", "value")
    assert (report.recorded, report.asked) == ("time", "dice")
    assert diverge(recorded, LOOP).cause == "kind of request: model instead of value"


def test_a_tape_that_is_at_its_end_says_how_it_ended() -> None:
    short = replace(LOOP, max_steps=2)
    stopped = diverge(record(short, settings={"max_steps": 2}), LOOP)
    assert (stopped.step, stopped.effect, stopped.kind) == (3, 5, "model")
    assert stopped.cause == "loop asked for more than was recorded"
    assert "max_steps (2)" in stopped.detail
    assert "without an answer" in diverge(record(short), LOOP).detail
    assert "with its answer" in diverge(record(LOOP), replace(LOOP, after_submit=True)).detail
    assert "interrupted" in diverge(record(short, seal=False), LOOP).detail
    failed = Outcome(status="error", failure=Failure("agent", "the agent raised ValueError"))
    assert "error (agent)" in diverge(record(short, end=failed), LOOP).detail
    assert stopped.asked == "a model request with 7 messages"
    assert stopped.recorded is None


def test_left_over_effects_are_counted(tape: Tape) -> None:
    report = diverge(tape, replace(LOOP, max_steps=2))
    assert report.detail.startswith("4 recorded effects (2 of the model) were never asked for")
    assert report.command == "harness show demo 7f3a-11 --epoch 1"
    report = left_over(tape, 7, at=PLACE, step=3)
    assert report.detail.startswith("1 recorded effect (1 of the model) was never asked for")


def test_a_record_whose_digest_is_not_its_own_is_no_change_of_the_loop(tape: Tape) -> None:
    for at in (0, 1):
        lines = list(tape.lines)
        place = lines.index(tape.effects[at])
        effect = tape.effects[at]
        lines[place] = msgspec.structs.replace(effect, digest="0" * 64)
        report = diverge(Tape(lines, "it"), LOOP)
        assert (report.effect, report.cause) == (at + 1, "damaged record")
        assert report.command == "harness verify demo"
        assert (report.recorded, report.asked) == (None, None)


# ----------------------------------------------------------------------------- how far it would go


def test_what_a_looser_replay_would_pass(tape: Tape) -> None:
    report = diverge(tape, replace(LOOP, system="Hello."))
    still = report.still_matching
    assert still is not None
    assert (still.agree, still.differ) == (["model", "tools", "params"], ["messages"])
    assert (still.match_on, still.later, still.could_match) == (still.agree, 3, 3)
    assert still.unchanged == 3  # every later request has the recorded system prompt
    assert report.looser == ("harness replay demo --task-id 7f3a-11 --match-on model,tools,params")
    # and so it is
    world = Replayer(tape, model="m-1", match_on=still.match_on)
    assert replace(LOOP, system="Hello.")(SAMPLE, world) == "60"
    world.check_finished()


def test_later_requests_that_would_not_match(tape: Tape) -> None:
    """What is claimed of the rest of the tape is what the tape holds, not what is hoped for."""

    def cooling(sample: Sample, world: World, system: str = "Begin.") -> None:
        history = History([{"role": "system", "content": system}])
        for step, heat in enumerate((0.5, 0.5, 0.1, 0.5)):
            prompt = {"role": "system", "content": system if step < 2 else "Finish."}
            history = History([prompt, *history[1:]])
            reply = world.perform(ModelRequest(history, (), {"temperature": heat}))
            history = history.append(assistant_message(reply))

    recorded = record(cooling)
    report = diverge(recorded, lambda sample, world: cooling(sample, world, "Start."))
    still = report.still_matching
    assert still is not None
    assert (still.later, still.could_match, still.unchanged) == (3, 1, 1)
    assert "then 1 of the 3 model requests behind it could; 1 repeat" in report.text()


def test_nothing_agrees(tape: Tape) -> None:
    changed = replace(LOOP, system="?", tools=(), params={})
    report = diverge(tape, changed, model="m-2")
    assert report.cause == (
        "model; system prompt; tool removed: bash, submit; generation parameters: seed, temperature"
    )
    assert report.still_matching is not None
    assert (report.still_matching.match_on, report.still_matching.could_match) == ([], 0)
    assert report.looser is None


def test_a_loose_replay_is_told_only_what_counts(tape: Tape) -> None:
    request = ModelRequest([{"role": "user", "content": "?"}], (BASH,), LOOP.params)
    report = describe(tape, 0, request, model="m-1", at=PLACE, step=1, match_on=("params", "tools"))
    assert (report.path, report.cause) == ("tools[1]", "tool removed: submit")
    still = report.still_matching
    assert still is not None
    assert (still.agree, still.match_on) == (["model", "params"], ["params"])
    assert still.unchanged == 3  # messages do not count, so they need not be those recorded


# ------------------------------------------------------------------------------------ what is shown


def test_the_report_reads_like_this(tape: Tape) -> None:
    """E02: the place, the first difference with its words marked, the cause, the next command."""
    report = diverge(tape, replace(LOOP, system=LOOP.system.replace("careful", "careless")))
    assert report.text() == (
        "demo 7f3a-11 epoch 1: diverges at step 1 (effect 1, model)\n"
        "  cause     system prompt\n"
        "            The system prompt that the loop sends now is not the recorded one.\n"
        "  where     messages[0].content\n"
        "  recorded  You are a careful helper.\\nAnswer with one number.\n"
        "  asked     You are a careless helper.\\nAnswer with one number.\n"
        "  words     You are a [-careful-]{+careless+} helper.\\nAnswer with one number.\n"
        "  still     0 of the 8 recorded effects followed; model, tools and params agree: "
        "with --match-on model,tools,params this\n"
        "            request would pass, and then 3 of the 3 model requests "
        "behind it could; 3 repeat what was recorded here\n"
        "  try       harness replay demo --task-id 7f3a-11 --on-divergence fork --as demo-fork\n"
        "  or        harness replay demo --task-id 7f3a-11 --match-on model,tools,params"
    )
    assert msgspec.to_builtins(report) == {
        "run": "demo", "task_id": "7f3a-11", "epoch": 1, "step": 1, "effect": 1, "kind": "model",
        "path": "messages[0].content",
        "recorded": "You are a careful helper.\nAnswer with one number.",
        "asked": "You are a careless helper.\nAnswer with one number.",
        "words": "You are a [-careful-]{+careless+} helper.\nAnswer with one number.",
        "cause": "system prompt",
        "detail": "The system prompt that the loop sends now is not the recorded one.",
        "still_matching": {
            "agree": ["model", "tools", "params"], "differ": ["messages"],
            "match_on": ["model", "tools", "params"], "later": 3, "could_match": 3, "unchanged": 3,
        },
        "followed": 0, "effects": 8,
        "command": "harness replay demo --task-id 7f3a-11 --on-divergence fork --as demo-fork",
        "looser": "harness replay demo --task-id 7f3a-11 --match-on model,tools,params",
    }  # fmt: skip


def test_what_is_absent_is_told_from_what_is_empty(tape: Tape) -> None:
    report = diverge(tape, replace(LOOP, system=""))
    assert "  asked     (empty text)" in report.text().split("\n")
    report = diverge(tape, replace(LOOP, params={"temperature": 0.7}))
    assert "  asked     (nothing)" in report.text().split("\n")
    assert report.detail == "seed is left out in this replay."
    report = diverge(tape, replace(LOOP, params={"temperature": 0.7, "seed": "1"}))
    assert (report.recorded, report.asked) == ("1", '"1"')
    assert report.detail == "seed is changed in this replay."


def test_more_differences_are_counted(tape: Tape) -> None:
    report = diverge(tape, replace(LOOP, system="?", template="{question}"))
    assert (report.path, report.cause) == ("messages[0].content", "system prompt")
    assert report.detail.endswith(" One more message differs.")
    names = [f"{number}-" * 30 for number in range(40)]
    many = replace(LOOP, tools=tuple(map(schema, names)), params=dict.fromkeys(names, 1))
    report = diverge(tape, many)
    assert report.cause.startswith("tool added: 0-0-0-")
    assert " and 36 more; tool re…" in report.cause


def test_commands_can_be_pasted() -> None:
    odd = msgspec.structs.replace(SAMPLE, task_id="it's; " + "long-" * 12 + "id")
    tape = record(LOOP, sample=odd)
    world = Replayer(tape, model="m-2", place=Place("r" * 100, odd.task_id, 2))
    with pytest.raises(Diverged) as caught:
        LOOP(odd, world)
    report = caught.value.report
    lines = check_text(report).split("\n")
    first = next(number for number, line in enumerate(lines) if line.startswith("  try "))
    pasted = "\n".join(lines[first:]).split("\n  or ")[0].removeprefix("  try ")
    done = subprocess.run(
        ["bash", "-c", f"harness() {{ printf '%s\\n' \"$@\"; }}; {pasted.strip()}"],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert done.stdout.splitlines() == [
        "replay", "r" * 100, "--task-id", odd.task_id, "--on-divergence", "fork",
        "--as", "r" * 95 + "-fork",
    ]  # fmt: skip


def test_without_a_run_there_is_no_command(tape: Tape) -> None:
    with pytest.raises(Diverged) as caught:
        replace(LOOP, system="?")(SAMPLE, Replayer(tape, model="m-1"))
    report = caught.value.report
    assert (report.command, report.looser) == (None, None)
    assert report.text().startswith("7f3a-11 epoch 1: diverges at step 1 (effect 1, model)\n")


def test_summary_groups_by_cause_and_step(tape: Tape) -> None:
    prompt = diverge(tape, replace(LOOP, system="Hello."))
    command = diverge(tape, replace(LOOP, prefix="set -e; "))
    many = [msgspec.structs.replace(prompt, task_id=f"id-{number}") for number in range(143)]
    other_step = [msgspec.structs.replace(many[0], task_id=f"o-{i}", step=2) for i in range(2)]
    epochs = [msgspec.structs.replace(command, epoch=epoch) for epoch in (1, 2, 3)]
    assert summary([command, *other_step, *many, *epochs[1:]]) == [
        "143 samples diverge at step 1: system prompt",
        "3 attempts at 1 sample diverge at step 1: other command",
        "2 samples diverge at step 2: system prompt",
    ]
    assert summary([prompt]) == ["1 sample diverges at step 1: system prompt"]
    assert summary([]) == []
    odd = msgspec.structs.replace(prompt, cause="tool schema: \x1b[2J\n" + "x" * 500)
    (line,) = summary([odd])
    assert printable(line) == line
    assert columns(line) <= 120


# --------------------------------------------------------------------------- odd and huge requests


_TEXT = st.text(
    st.sampled_from(list("ab \n\t\x1b\x07\x00\u202e\ud83d\ude00\U0001f600é漢\u0301]-{"))
)


def _simple(system: str, name: str, key: str, command: str) -> Callable[[Sample, World], None]:
    def loop(sample: Sample, world: World) -> None:
        request = ModelRequest(
            [{"role": "system", "content": system}], [schema(name)], {key: [system]}
        )
        world.perform(request)
        world.perform(BashRequest(command))

    return loop


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=60, deadline=None)
@given(st.tuples(_TEXT, _TEXT, _TEXT, _TEXT), st.tuples(_TEXT, _TEXT, _TEXT, _TEXT), _TEXT, _TEXT)
def test_reports_are_fit_for_a_terminal(
    old: tuple[str, ...], new: tuple[str, ...], run: str, task_id: str
) -> None:
    tape = record(_simple(*old))
    report = None
    try:
        _simple(*new)(SAMPLE, Replayer(tape, model="m-1", place=PLACE))
    except Diverged as error:
        report = error.report
    alike = [canonical.join_pairs(text) for text in old] == [canonical.join_pairs(t) for t in new]
    assert (report is None) == alike
    if report is not None:
        assert report.cause != "damaged record"
        check_text(report)
        renamed = msgspec.structs.replace(report, run=run, task_id=task_id).text()
        assert all(printable(line) == line for line in renamed.split("\n"))
        assert summary([report]) == [printable(line) for line in summary([report])]


def _deep(levels: int, leaf: Any) -> Any:
    for _ in range(levels):
        leaf = {"properties": {"k": [leaf]}}
    return leaf


MB = 1_000_000


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x" * MB, "x" * MB + "y"),
        ("x" * MB, "y" * MB),
        ("漢" * MB, "漢" * (MB // 2) + "字" * (MB // 2)),
        ("e" + "\u0301" * MB, "a" + "\u0301" * MB),
        ("a b " * (MB // 4), "b a " * (MB // 4)),
        ("\x1b[31m" * (MB // 5), "\u202e" * MB),
        (".-" * (MB // 2), "-." * (MB // 2)),
        ("\n" * MB, "\r\n" * (MB // 2)),
        ("\ud800" * (MB // 20), "\udfff" * (MB // 20)),
        ("", " " * MB),
    ],
)
def test_huge_texts_give_small_reports(old: str, new: str) -> None:
    tape = record(_simple(old, "bash", "seed", "ls"))
    for changed in (
        _simple(new, "bash", "seed", "ls"),
        _simple(old, new, "seed", "ls"),
        _simple(old, "bash", new, "ls"),
        _simple(old, "bash", "seed", new),
    ):
        check_text(diverge(tape, changed))
    report = describe(
        tape, 0, ModelRequest([]), model="m", at=Place("r" * 100, "t\u202e" * MB, 1), step=10**30
    )
    assert len(report.text()) < 25 * 120


def test_deep_values() -> None:
    def loop(leaf: Any) -> Callable[[Sample, World], None]:
        tool = schema("bash") | {"parameters": _deep(100, leaf)}
        return lambda sample, world: world.perform(ModelRequest([], [tool]))

    report = diverge(record(loop(1)), loop(2))
    assert report.cause == "tool schema: bash"
    assert (report.recorded, report.asked) == ("1", "2")
    assert report.path.startswith("tools[0].parameters.properties.k[0].properties")


# --------------------------------------------------------------------------------------------- cost


def _turns(count: int, last: str) -> Callable[[Sample, World], None]:
    def loop(sample: Sample, world: World) -> None:
        history = History([{"role": "system", "content": "Begin."}])
        for step in range(count):
            reply = world.perform(ModelRequest(history, (BASH,), {"seed": 1}))
            text = last if step == count - 2 else f"go on with {step}"
            history = history.append(assistant_message(reply), {"role": "user", "content": text})

    return loop


def _steps_to_describe(turns: int, index: int) -> int:
    """How many calls of functions it takes to describe a divergence of a history of that length."""
    world = ScriptedWorld(lambda request: ModelReply(content=f"reply to {len(request.messages)}"))  # type: ignore[union-attr]
    tape = record(_turns(turns, "one end"), world=world)
    messages = tape.request(index).messages
    messages[-1] = {**messages[-1], "content": "another end"}
    request = ModelRequest(messages, (BASH,), {"seed": 1})
    count = 0

    def called(*event: Any) -> None:
        nonlocal count
        count += 1

    sys.setprofile(called)
    try:
        report = describe(tape, index, request, model="m-1", at=PLACE, step=turns)
    finally:
        sys.setprofile(None)
    assert report.path.startswith(f"messages[{len(messages) - 1}]")
    return count


@pytest.mark.parametrize("at", [0, -1])
def test_the_cost_grows_with_the_tape_and_not_with_its_square(at: int) -> None:
    """A history of 2,000 messages costs about ten times what one of 200 does."""
    short, long = (_steps_to_describe(turns, at % turns) for turns in (100, 1000))
    assert long < 12 * short


def test_difflib_is_loaded_only_when_something_diverged() -> None:
    code = (
        "import sys, harness.divergence; "
        "print(sorted({'difflib', 'shlex', 'openai', 'docker'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


def test_every_effect_of_a_tape_is_described(tape: Tape) -> None:
    """Whatever is asked for wherever, there is a report."""
    asked: list[Request] = [
        ModelRequest([]),
        BashRequest("true"),
        ToolRequest("web", "get"),
        ValueRequest("time", lambda: 0),
    ]
    for index in range(len(tape.effects) + 1):
        for request in asked:
            report = describe(tape, index, request, model="m-1", at=PLACE, step=1)
            assert report.cause
            assert report.detail
            check_text(report)
    assert any(isinstance(effect, ModelEffect) for effect in tape.effects)
    assert all(isinstance(effect, Effect) for effect in tape.effects)
