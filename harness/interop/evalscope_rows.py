"""The lines of EvalScope's files, one by one: what a prediction and its review say.

`predictions` holds messages, trace and output, `reviews` score and target. The same sample has the
same `index` in both.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import msgspec

from harness.dataset import UNKNOWN
from harness.interop.conversation import Message, Perf, Talk, ToolError, Turn, ended, failed
from harness.interop.reading import NOTHING, plain
from harness.records import BashReply, Outcome, Usage, Verdict

_EXIT = re.compile(r"(?:^|\n)\[exit (-?\d{1,9})\]\Z")


class Index(msgspec.Struct):
    """Which sample a line is of."""

    index: int


class Event(msgspec.Struct):
    """An event of a trace."""

    type: str = ""
    timestamp: float | None = None
    message_id: str | None = None
    latency_ms: float | None = None
    payload: msgspec.Raw = NOTHING


class Trace(msgspec.Struct):
    """What the loop did."""

    strategy: str | None = None
    max_steps: int | None = None
    events: list[Event] = []
    total_usage: Perf | None = None


class Choice(msgspec.Struct):
    """One reply of the model."""

    message: Message | None = None
    stop_reason: str | None = None


class Output(msgspec.Struct):
    """What EvalScope scores."""

    choices: list[Choice] = []
    usage: Perf | None = None
    error: str | None = None


class Metadata(msgspec.Struct):
    """What is kept of the data set's row."""

    task_id: str | None = None
    level: str | int | float | None = None
    file_name: str | None = None


class Prediction(msgspec.Struct):
    """A line of `predictions`."""

    index: int
    messages: list[Message] = []
    model_output: Output | None = None
    agent_trace: Trace | None = None
    metadata: Metadata | None = None


class _Score(msgspec.Struct):
    value: dict[str, msgspec.Raw] = {}
    status: str | None = None
    extracted_prediction: str | None = None
    prediction: str | None = None
    main_score_name: str | None = None


class _SampleScore(msgspec.Struct):
    score: _Score
    generation_index: int | None = None
    sample_metadata: Metadata | None = None


class Review(msgspec.Struct):
    """A line of `reviews`."""

    index: int
    sample_score: _SampleScore
    target: str | list[str] | None = None


class Reviewed(NamedTuple):
    """What is kept of a review; its messages are those of the prediction."""

    verdict: Verdict | None
    told: str
    answer: str | None
    target: str | None
    generation: int | None
    metadata: Metadata | None


def usage_of(found: Perf) -> Usage:
    """Tokens, as far as they are told."""
    return Usage(max(found.input_tokens or 0, 0), max(found.output_tokens or 0, 0))


def seconds_of(trace: Trace) -> float:
    """From the first request to the last event."""
    times = [event.timestamp for event in trace.events if event.timestamp is not None]
    if not times:
        return 0.0
    first = trace.events[0].latency_ms or 0.0
    return min(max(max(times) - min(times) + first / 1000, 0.0), 1e9)


def turn_of(message: Message, events: dict[str, Event], found: Prediction, what: str) -> Turn:
    """What is kept of a model turn beside its message; `events` by the id of the message."""
    perf = message.perf_metrics
    event = events.get(message.id or "")
    meta: dict[str, Any] = {}
    reason: str | None = None
    if event is not None:
        payload = plain(event.payload, what)
        told = payload.get("stop_reason") if isinstance(payload, dict) else None
        reason = told if isinstance(told, str) else None
        if event.latency_ms is not None:
            meta["seconds"] = round(event.latency_ms / 1000, 6)
    if reason is None and message is found.messages[-1] and found.model_output is not None:
        choices = found.model_output.choices
        reason = choices[0].stop_reason if choices else None
    return Turn(usage_of(perf) if perf else Usage(), reason, meta or None)


def bash_reply(message: Message, text: str, error: ToolError | None) -> BashReply | None:
    """The result of a command, from the text that EvalScope makes of it; None if it did not run.

    Its parts are joined by line ends: output, `[stderr]` and errors, `[TIMEOUT]` or `[exit N]`.
    """
    if error is not None:
        return BashReply(exit_code=None, timed_out=True) if error.type == "timeout" else None
    if text == "(no output)":
        return BashReply()
    code: int | None = 0
    timed_out = text == "[TIMEOUT]" or text.endswith("\n[TIMEOUT]")
    if timed_out:
        text, code = text.removesuffix("[TIMEOUT]").removesuffix("\n"), None
    elif match := _EXIT.search(text):
        text, code = text[: match.start()], int(match[1])
    head, mark, tail = ("\n" + text).rpartition("\n[stderr]\n")
    stdout, stderr = (head[1:], tail) if mark else (text, "")
    return BashReply(
        stdout.encode("utf-8", "surrogatepass"),
        stderr.encode("utf-8", "surrogatepass"),
        code,
        timed_out,
    )


def reviewed(review: Review, what: str) -> Reviewed:
    """A review's verdict, answer and target. `what` names the line in errors."""
    score = review.sample_score.score
    verdict: Verdict | None = None
    told = ""
    usable = score.status in (None, "success")
    keys = sorted(score.value, key=lambda key: key != score.main_score_name)  # else the first
    for key in keys if usable else ():
        value = plain(score.value[key], what)
        if isinstance(value, int | float):
            verdict, told = ("right" if value == 1 else "wrong"), f"{key} {value:g}"
            break
    target = review.target
    if isinstance(target, list):
        target = target[0] if len(target) == 1 else None
    if (target or "").strip() in ("", UNKNOWN):  # the test split, which EvalScope scores too
        target, verdict = None, None
    answer = score.extracted_prediction
    return Reviewed(
        verdict,
        told,
        score.prediction if answer is None else answer,
        target,
        review.sample_score.generation_index,
        review.sample_score.sample_metadata,
    )


def outcome_of(
    found: Prediction, talk: Talk, review: Reviewed | None, what: str
) -> tuple[Outcome, str | None, list[str]]:
    """How the sample ended, why there is no answer, and what was decided about that."""
    output = found.model_output or Output()
    if output.error:
        return failed("model", output.error), None, []
    answer = review.answer if review is not None else None
    if answer is None and output.choices and output.choices[0].message is not None:
        content = output.choices[0].message.content
        answer = content if isinstance(content, str) else None
    events = found.agent_trace.events if found.agent_trace else []
    stopped = any(_is_cut_off(event, what) for event in events if event.type == "error")
    return ended(talk, answer, stopped=stopped, tool="EvalScope")


def _is_cut_off(event: Event, what: str) -> bool:
    payload = plain(event.payload, what)
    return isinstance(payload, dict) and payload.get("message") == "max_steps_exceeded"
