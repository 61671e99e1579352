"""What a divergence is, told so that a person can act on it.

During replay the loop asked for something that the cassette does not hold at that place. The report
names the place, the first difference with the differing words marked, the likely cause, how far the
rest of the tape could be followed by a looser replay, and the next command. It is a message to a
person: everything in it is bounded and fit for a terminal, whatever models and tools wrote.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import Literal, NamedTuple

import msgspec

from harness import model_causes
from harness.cassette import ModelEffect, Tape
from harness.causes import (
    DAMAGED,
    NO_DIFFERENCE,
    REPEATED,
    Likely,
    of_effect,
    past_the_end,
    stopped_before,
)
from harness.difference import (
    difference_words,
    encodable,
    excerpts,
    path_text,
    shorten,
)
from harness.matching import Matching, matching_of
from harness.records import MATCH_PARTS, ModelRequest, Request
from harness.terminal import columns, printable

COLUMNS = 120
"""Columns of a line of a report, at most."""

_LABEL = 12  # columns in front of a value
_MOST = {"": 2, "recorded": 2, "asked": 2, "words": 4, "still": 3}  # lines; others take one


class Place(NamedTuple):
    """The sample that is being replayed."""

    run: str
    task_id: str
    epoch: int
    options: str = ""
    """What the replay was told besides, as on a command line: the next command needs it."""


class Divergence(msgspec.Struct, frozen=True, kw_only=True):
    """The report on one sample. `msgspec.to_builtins` gives its JSON form."""

    run: str
    task_id: str
    epoch: int
    step: int
    """Model turn, from 1: the one asked for, or the one whose reply led to the request."""
    effect: int
    """Number of the effect on the tape, from 1."""
    kind: Literal["model", "bash", "tool", "value", "end"]
    """What the loop asked for; `end`: it asked for nothing more."""
    path: str = ""
    """Of the first difference, in the request; empty when there is no request to set beside it."""
    recorded: str | None = None
    """Excerpt around the first difference; None where nothing is there."""
    asked: str | None = None
    words: str = ""
    """The first differing words, as `be [-careful-]{+quick+} now`."""
    cause: str = ""
    """Likely cause: a short phrase that is the same for all samples with that cause."""
    detail: str = ""
    still_matching: Matching | None = None
    """Only for a model request set beside a recorded model request."""
    followed: int = 0
    """Effects that were served before."""
    effects: int = 0
    """Effects on the tape."""
    command: str | None = None
    """The next command."""
    looser: str | None = None
    """The command that replays on with what still matches, if anything does."""

    def text(self) -> str:
        """The report for a terminal: at most 25 lines of 120 columns, no control characters."""
        run, task = _clip(printable(self.run[:200]), 34), _clip(printable(self.task_id[:200]), 37)
        place = f"epoch {self.epoch}: diverges at step {self.step}"
        first = f"{run} {task} {place} (effect {self.effect}, {self.kind})".lstrip()
        still = f"{self.followed} of the {self.effects} recorded effects followed"
        if self.still_matching:
            still += f"; {self.still_matching.text()}"
        lines = [_clip(first, COLUMNS)]
        for label, text in (
            ("cause", self.cause),
            ("", self.detail),
            ("where", self.path),
            ("recorded", self.recorded),
            ("asked", self.asked),
            ("words", self.words),
            ("still", still),
        ):
            if label in ("recorded", "asked") and (self.recorded, self.asked) != (None, None):
                text = "(nothing)" if text is None else text or "(empty text)"
            if text:
                lines += _entry(label, _fold(text, _MOST.get(label, 1)))
        for label, command in (("try", self.command), ("or", self.looser)):
            if command:
                lines += _entry(label, _fold(command, 4, more=" \\"))
        return "\n".join(lines)


def describe(
    tape: Tape,
    index: int,
    request: Request,
    *,
    model: str,
    at: Place,
    step: int,
    match_on: Collection[str] = MATCH_PARTS,
) -> Divergence:
    """Why `request`, the one asked for as effect `index` (from 0), is not what the tape holds.

    `model` is the replay's, `step` the model turn (from 1), `match_on` what was asked to count.
    Raises DamageError when the tape cannot be read.
    """
    matching: Matching | None = None
    if index >= len(tape.effects):
        likely = past_the_end(tape, request)
    elif isinstance(request, ModelRequest) and isinstance(tape.effects[index], ModelEffect):
        likely, matching = _model(tape, index, request, model, match_on)
    else:
        likely = of_effect(tape, index, request, model)
    return _report(tape, index, request.kind, likely, at, step, matching)


def left_over(tape: Tape, index: int, *, at: Place, step: int) -> Divergence:
    """The loop ended, and nobody asked for effect `index` (from 0) and those behind it."""
    return _report(tape, index, "end", stopped_before(tape, index), at, step)


def summary(divergences: Iterable[Divergence]) -> list[str]:
    """One line for each cause and step, the most frequent first."""
    groups: defaultdict[tuple[int, str], list[Divergence]] = defaultdict(list)
    for found in divergences:
        groups[found.step, found.cause].append(found)
    lines = []
    for (step, cause), members in sorted(
        groups.items(), key=lambda group: (-len(group[1]), group[0])
    ):
        samples = len({(found.run, found.task_id) for found in members})
        who = "1 sample" if samples == 1 else f"{samples} samples"
        if len(members) > samples:
            who = f"{len(members)} attempts at {who}"
        verb = "diverges" if len(members) == 1 else "diverge"
        lines.append(_clip(f"{who} {verb} at step {step}: {printable(cause[:200])}", COLUMNS))
    return lines


# --------------------------------------------------------------- a request beside a recorded effect


def _model(
    tape: Tape, index: int, request: ModelRequest, model: str, match_on: Collection[str]
) -> tuple[Likely, Matching]:
    """The parts of a model request beside the recorded ones, in one pass over the tape."""
    requests = tape.requests()
    before, recorded = None, next(requests)
    while recorded[0] < index:
        before, recorded = recorded[1], next(requests)
    old = recorded[1]
    earlier = before.messages if before else []
    found = {
        "model": model_causes.of_model(old.model, model),
        "messages": model_causes.of_messages(
            tape, index, old.messages, earlier, list(request.messages)
        ),
        "tools": model_causes.of_tools(old.tools, request.tools),
        "params": model_causes.of_params(old.params, request.params),
    }
    matching = matching_of(requests, old, found, match_on)
    differing = [likely for part, likely in found.items() if likely and part in match_on]
    if not differing:
        return NO_DIFFERENCE, matching
    likely = differing[0]._replace(cause="; ".join(likely.cause for likely in differing))
    digest = request.digest(model)
    for number, effect in enumerate(tape.effects[:index], 1):
        if effect.digest == digest:
            detail = f"This is the request of effect {number} once more."
            return likely._replace(cause=REPEATED, detail=detail), matching
    return likely, matching


# --------------------------------------------------------------------------------- making reports


def _report(
    tape: Tape,
    index: int,
    kind: Literal["model", "bash", "tool", "value", "end"],
    likely: Likely,
    at: Place,
    step: int,
    matching: Matching | None = None,
) -> Divergence:
    found = likely.difference
    recorded, asked = excerpts(found)
    command, looser = _commands(at, kind, likely.cause, matching)
    return Divergence(
        run=at.run,
        task_id=at.task_id,
        epoch=at.epoch,
        step=step,
        effect=index + 1,
        kind=kind,
        path=path_text(found.path),
        recorded=recorded,
        asked=asked,
        words=difference_words(found) if found.path else "",
        cause=shorten(encodable(likely.cause), 200),
        detail=shorten(encodable(likely.detail), 400),
        still_matching=matching,
        followed=index,
        effects=len(tape.effects),
        command=command and encodable(command),
        looser=looser and encodable(looser),
    )


def _commands(
    at: Place, kind: str, cause: str, matching: Matching | None
) -> tuple[str | None, str | None]:
    """What to do next, and what else could be done for nothing."""
    if not at.run:
        return None, None
    from shlex import quote  # only a divergence needs it

    run, task = quote(at.run), quote(at.task_id)
    if cause == DAMAGED:
        return f"harness verify {run}", None
    if kind == "end":
        return f"harness show {run} {task} --epoch {at.epoch}", None
    replay = f"harness replay {run} --task-id {task}{at.options and ' ' + at.options}"
    fork = f"{replay} --on-divergence fork --as {quote(at.run[:95] + '-fork')}"
    loose = matching.match_on if matching else []
    return fork, f"{replay} --match-on {','.join(loose)}" if loose else None


def _entry(label: str, texts: list[str]) -> list[str]:
    return [f"{'' if i else '  ' + label:<{_LABEL}}{text}" for i, text in enumerate(texts)]


def _fold(text: str, most: int, *, more: str = "") -> list[str]:
    """The text in lines that fit, broken at spaces where there are any; `more` ends all but the
    last. What is beyond `most` lines is left out."""
    width = COLUMNS - _LABEL - len(more)
    text = printable(text[: width * most * 2])
    lines: list[str] = []
    while text and len(lines) < most:
        end = _fitting(text, width)
        space = text.rfind(" ", 1, end + 1)
        if end < len(text) and space > (0 if more else end // 2):  # a command breaks at blanks
            end = space
        lines.append(text[:end])
        text = text[end:].lstrip(" ")
    if text:
        lines[-1] = _clip(lines[-1] + " …" * width, width)
    return [line + more for line in lines[:-1]] + lines[-1:]


def _fitting(text: str, width: int) -> int:
    """How many characters of the text fit; never more than there are columns."""
    used = 0
    for count, char in enumerate(text[:width]):
        used += columns(char)
        if used > width:
            return count
    return min(len(text), width)


def _clip(text: str, width: int) -> str:
    return text if _fitting(text, width) == len(text) else text[: _fitting(text, width - 1)] + "…"
