"""Where two recordings of one sample part: the first effect in which they are not alike.

Alike is what a person would call so. Tool-call ids and token counts are left aside: endpoints draw
the ones at random and count the others each in its own way. What the runs' settings say of every
request (model, parameters, timeout of commands) is no difference at each sample either.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from harness.cassette import (
    AnyEffect,
    BashEffect,
    ModelEffect,
    RecordedRequest,
    Tape,
)
from harness.difference import ABSENT, Difference, difference_words, excerpts, first_difference
from harness.difference import path_text as text_of
from harness.records import ModelReply, Settings, reply_digest

Message = Mapping[str, Any]


class Parting(msgspec.Struct, kw_only=True):
    """The first place where two cassettes of one sample are not alike."""

    step: int
    """Model turn, from 1; 0 before the first."""
    effect: int
    """Number of the effect, from 1; of the last one for `end`."""
    kind: str
    """Of B's effect: `model`, `bash`, `tool`, `value`; `end`."""
    what: str
    """`request`, `reply`, `end` (another status or answer), or `length` when one goes on."""
    path: str = ""
    """Of the first difference."""
    words: str = ""
    """The differing words, as `[-A's-]{+B's+}`; for `length`, which of the two goes on."""


def part(
    a: Tape, b: Tape, settings: tuple[Settings, Settings], names: tuple[str, str] = ("A", "B")
) -> Parting | None:
    """Where tape B first differs from tape A; None where they are alike to the end.

    `settings` are those of the two runs. Raises DamageError for a tape that cannot be read.
    """
    steps = 0
    requests = _Requests(a, settings[0]), _Requests(b, settings[1])
    for index, (old, new) in enumerate(zip(a.effects, b.effects, strict=False)):
        steps += isinstance(new, ModelEffect)
        what, found = "request", None
        if _kind(old) != _kind(new):
            found = Difference(("kind",), _kind(old), _kind(new))
        elif old.digest != new.digest:
            found = _requests_differ(*requests, index)
        if found is None:
            what, found = "reply", _replies_differ(a, old, b, new)
        if found is not None:
            return _parting(found, step=steps, effect=index + 1, kind=_kind(new), what=what)
    if len(a.effects) != len(b.effects):
        longer, name = (b, names[1]) if len(b.effects) > len(a.effects) else (a, names[0])
        effect = longer.effects[min(len(a.effects), len(b.effects))]
        return Parting(
            step=steps + isinstance(effect, ModelEffect),
            effect=min(len(a.effects), len(b.effects)) + 1,
            kind=_kind(effect),
            what="length",
            words=f"{name} goes on",
        )
    found = first_difference(_end(a), _end(b))
    if found is None:
        return None
    return _parting(found, step=steps, effect=len(a.effects), kind="end", what="end")


def _parting(found: Difference, **place: Any) -> Parting:
    words = difference_words(found)
    if not words:  # one of the two has nothing there
        old, new = excerpts(found)
        words = f"[-{old}-]" if old is not None else ""
        words += f"{{+{new}+}}" if new is not None else ""
    return Parting(path=text_of(found.path), words=words, **place)


def _kind(effect: AnyEffect) -> str:
    return str(type(effect).__struct_config__.tag)


def _end(tape: Tape) -> dict[str, Any]:
    """How it ended; an error by its kind, as in the trajectory."""
    end = tape.end
    if end is None:
        return {}
    kind = end.failure.kind if end.failure else None
    return {"status": end.status, "answer": end.answer, "error": kind}


# ---------------------------------------------------------------------------------------- requests


class _Requests:
    """The requests of a tape, read forward once."""

    def __init__(self, tape: Tape, settings: Settings) -> None:
        self.tape, self.settings = tape, settings
        self.known: Sequence[Message] = ()
        """The messages of the request read last."""
        self._left: Iterator[tuple[int, RecordedRequest]] = tape.requests()

    def model(self, index: int) -> RecordedRequest:
        """The model request that is this effect."""
        return next(request for at, request in self._left if at == index)

    def own(self, found: RecordedRequest) -> dict[str, Any]:
        """What such a request says beyond the settings and the messages."""
        own: dict[str, Any] = {"tools": found.tools}
        if found.model != self.settings.model:
            own["model"] = found.model
        if found.params != self.settings.params:
            own["params"] = found.params
        return own

    def other(self, index: int) -> dict[str, Any]:
        """A request that is no model's, as JSON."""
        effect = self.tape.effects[index]
        fields: dict[str, Any] = msgspec.to_builtins(effect.request)
        if isinstance(effect, BashEffect) and effect.request.timeout == self._timeout:
            del fields["timeout"]
        return fields

    @property
    def _timeout(self) -> float:
        return float(self.settings.command_timeout)


def _requests_differ(a: _Requests, b: _Requests, index: int) -> Difference | None:
    if not isinstance(a.tape.effects[index], ModelEffect):
        return first_difference(a.other(index), b.other(index))
    old, new = a.model(index), b.model(index)
    found = first_difference(a.own(old), b.own(new))
    found = found or _messages_differ(old.messages, new.messages, a.known, b.known)
    a.known, b.known = old.messages, new.messages
    return found


def _messages_differ(
    old: Sequence[Message],
    new: Sequence[Message],
    known_old: Sequence[Message],
    known_new: Sequence[Message],
) -> Difference | None:
    """The first difference of two histories; what both requests before had is not read again."""
    for at in range(max(len(old), len(new))):
        if at >= len(old):
            return Difference(("messages", at), ABSENT, new[at])
        if at >= len(new):
            return Difference(("messages", at), old[at], ABSENT)
        if at < min(len(known_old), len(known_new)) and (
            old[at] is known_old[at] and new[at] is known_new[at]
        ):
            continue
        found = first_difference(_without_ids(old, at), _without_ids(new, at))
        if found is not None:
            return found.under("messages", at)
    return None


def _without_ids(messages: Sequence[Message], at: int) -> Message:
    """A message with the number of each tool call in the place of its id."""
    message = messages[at]
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        return {**message, "tool_calls": [_numbered(call, n) for n, call in enumerate(calls)]}
    wanted = message.get("tool_call_id")
    if wanted is None:
        return message
    for before in range(at - 1, -1, -1):
        calls = messages[before].get("tool_calls")
        if isinstance(calls, list):
            ids = [call.get("id") if isinstance(call, Mapping) else None for call in calls]
            if wanted in ids:
                return {**message, "tool_call_id": ids.index(wanted)}
            break
    return message


def _numbered(call: Any, number: int) -> Any:
    return {**call, "id": number} if isinstance(call, Mapping) else call


# ----------------------------------------------------------------------------------------- replies


def _replies_differ(a: Tape, old: AnyEffect, b: Tape, new: AnyEffect) -> Difference | None:
    if old.failure or new.failure:
        kinds = [effect.failure.kind if effect.failure else None for effect in (old, new)]
        return first_difference({"error": kinds[0]}, {"error": kinds[1]})
    first, second = a.reply(old), b.reply(new)
    if reply_digest(first) == reply_digest(second):
        return None
    return first_difference(_readable(first), _readable(second))


def _readable(reply: Any) -> Any:
    """A reply as JSON: bytes as the text that they are, no tool-call ids, no usage."""
    if isinstance(reply, ModelReply):
        return {
            "content": reply.content or "",
            "error": reply.error,
            "finish_reason": reply.finish_reason,
            "reasoning": reply.reasoning,
            "refusal": reply.refusal,
            "tool_calls": [
                {"name": call.name, "arguments": call.arguments} for call in reply.tool_calls
            ],
        }
    if not isinstance(reply, msgspec.Struct):
        return reply
    return {
        name: value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value
        for name, value in msgspec.structs.asdict(reply).items()
    }
