"""The likely cause of a divergence: its phrase, and how one effect differs from another.

A cause is one short phrase that stays the same from sample to sample, so that reports can be
grouped by it; the detail is a sentence about the one sample.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from harness.cassette import AnyEffect, BashTape, Effect, ModelEffect, Tape, ToolTape
from harness.difference import ABSENT, Difference, first_difference
from harness.records import BashRequest, ModelRequest, Request, Settings, ToolRequest

ORDER = "order of tool calls"
REPEATED = "request repeated"
LEFT_OUT = "recorded call left out"
NEW_CALL = "call that was not recorded"
MORE = "loop asked for more than was recorded"
STOPPED = "loop stopped earlier"
DAMAGED = "damaged record"


class Likely(NamedTuple):
    """What differs first, and why that is likely so."""

    cause: str
    detail: str
    difference: Difference


NO_DIFFERENCE = Likely(
    DAMAGED,
    "The request is the recorded one in every part, but not by its recorded digest: the cassette "
    "was changed, or another version wrote it.",
    Difference((), ABSENT, ABSENT),
)


def of_effect(tape: Tape, index: int, request: Request, model: str) -> Likely:
    """Another kind of request, or another command, tool call or value."""
    recorded = tape.effects[index]
    start, stop = _turn(tape, index)
    digest = request.digest(model)
    same = [number for number, e in enumerate(tape.effects, 1) if e.digest == digest]
    found = first_difference(_fields(recorded), _fields(request))
    if found is None:
        return NO_DIFFERENCE
    old, new = _kind(recorded), request.kind
    if old != new:
        found = Difference((), _brief(recorded), _brief(request))
    elsewhere = f" The same request was recorded as effect {same[0]}." if same else ""
    if new in ("bash", "tool"):
        later = [number for number in same if index + 1 < number <= stop]
        if later:
            detail = (
                f"The loop asks for effect {later[0]} before effect {index + 1}: it runs the calls "
                "of a turn in another order, or leaves some out."
            )
            return Likely(ORDER, detail, found)
        if any(start < number <= index for number in same):
            return Likely(REPEATED, "The loop runs a call of this turn once more.", found)
    if old == new:
        field = str(found.path[0])
        cause = _CAUSES.get(field, f"other {new}")
        return Likely(cause, f"The {new} request differs in its {field}.{elsewhere}", found)
    if new == "model" and old != "value":
        detail = f"The loop goes on to the next turn without a {old} call that was recorded."
        return Likely(LEFT_OUT, detail + elsewhere, found)
    if old == "model" and new != "value":
        detail = f"{_called(tape, start)} The loop now runs one more before the next turn."
        return Likely(NEW_CALL, detail + elsewhere, found)
    detail = f"The tape holds a {old} request here, and the loop makes a {new} request."
    return Likely(f"kind of request: {new} instead of {old}", detail + elsewhere, found)


_CAUSES = {
    "command": "other command",
    "timeout": "command timeout",
    "arguments": "tool arguments",
}


def _turn(tape: Tape, index: int) -> tuple[int, int]:
    """The effects between two model requests that effect `index` is among (from, up to)."""
    start = stop = index
    while start and not isinstance(tape.effects[start - 1], ModelEffect):
        start -= 1
    while stop < len(tape.effects) and not isinstance(tape.effects[stop], ModelEffect):
        stop += 1
    return start, stop


def _called(tape: Tape, start: int) -> str:
    """What the last reply asked for, and what was made of it."""
    last = tape.effects[start - 1] if start else None
    calls = len(last.reply.tool_calls) if isinstance(last, ModelEffect) and last.reply else 0
    ran = _turn(tape, start)[1] - start
    s = "" if calls == 1 else "s"
    return f"The model's reply has {calls} tool call{s}, of which {ran} led to an effect."


def past_the_end(tape: Tape, request: Request) -> Likely:
    """The loop goes on where the tape has ended."""
    end = tape.end
    turns = sum(isinstance(effect, ModelEffect) for effect in tape.effects)
    if end is None:
        detail = "The recording was interrupted here."
    elif end.failure is not None:
        detail = f"The recorded attempt ended here in an error ({end.failure.kind})."
    elif end.answer is not None:
        detail = "The recorded loop ended here with its answer."
    elif end.last_error is not None:
        detail = f"The recorded loop ended here: the model's last reply was {end.last_error}."
    else:
        detail = "The recorded loop ended here without an answer."
        if turns >= tape.header.settings.get("max_steps", Settings().max_steps):
            detail = f"The recorded loop ended here, at its max_steps ({turns})."
    return Likely(MORE, detail, Difference((), ABSENT, _brief(request)))


def stopped_before(tape: Tape, index: int) -> Likely:
    """The loop ended, and nobody asked for effect `index` and those behind it."""
    rest = tape.effects[index:]
    turns = sum(isinstance(effect, ModelEffect) for effect in rest)
    many, s = ("were", "s") if len(rest) > 1 else ("was", "")
    detail = f"{len(rest)} recorded effect{s} ({turns} of the model) {many} never asked for: "
    if isinstance(rest[0], ModelEffect):
        detail += "the loop ended earlier, or has a lower max_steps."
    else:
        detail += "the loop no longer runs a call that it ran when it was recorded."
    return Likely(STOPPED, detail, Difference((), _brief(rest[0]), ABSENT))


def _kind(effect: AnyEffect) -> str:
    return str(type(effect).__struct_config__.tag)


def _fields(of: AnyEffect | Request) -> dict[str, Any]:
    """What counts of a request that is none of the model; the others have nothing in common."""
    if isinstance(of, ModelRequest | ModelEffect):
        return {"model": True}
    request = of.request if isinstance(of, Effect) else of
    if isinstance(request, BashRequest | BashTape):
        return {"command": request.command, "timeout": float(request.timeout)}
    if isinstance(request, ToolRequest | ToolTape):
        return {"server": request.server, "name": request.name, "arguments": request.arguments}
    return {"value": request.name}


def _brief(of: AnyEffect | Request) -> str:
    """One line for a request of any kind."""
    if isinstance(of, ModelRequest):
        return f"a model request with {len(of.messages)} messages"
    if isinstance(of, ModelEffect):
        return "a model request"
    kind = _kind(of) if isinstance(of, Effect) else of.kind
    fields = _fields(of)
    if kind == "tool":
        return f"tool: {fields['server']}.{fields['name']}"
    return f"{kind}: {fields.get('command', fields.get('value'))}"
