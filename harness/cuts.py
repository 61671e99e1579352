"""Why one output is shown to the model in another way than it was: another cut, other cleaning.

Outputs are on the tape, so a claim about a cut is checked against the output itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from harness.cassette import ModelEffect, Tape
from harness.causes import Likely
from harness.difference import Difference, common_prefix, common_suffix
from harness.records import BashReply, Settings, ToolReply

OUTPUT_LIMIT = "output limit"
CLEANING = "text cleaning of outputs"


def outputs_before(tape: Tape, index: int) -> Iterator[str]:
    """Texts of the outputs that came since the model request before effect `index`."""
    for at in range(index - 1, -1, -1):
        effect = tape.effects[at]
        if isinstance(effect, ModelEffect):
            return
        reply = tape.reply(effect)
        if isinstance(reply, BashReply):
            yield reply.stdout.decode("utf-8", "replace")
            yield reply.stderr.decode("utf-8", "replace")
        elif isinstance(reply, ToolReply):
            yield reply.content


# What cleaning a text takes out or writes in another way: terminal sequences, control characters,
# blanks, the replacement character, and the usual ways of spelling such characters out.
_NOISE = re.compile(
    "\x1b\\[[0-?]*[ -/]*[@-~]|\x1b\\][^\x07\x1b]*(?:\x07|\x1b\\\\)?|\x1b."
    "|[\x00-\x20\x7f-\xa0\ufffd\u2028\u2029\u200b-\u200f\u2400-\u2426\ud800-\udfff\ufeff]"
    r"|\\x[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}",
    re.DOTALL,
)
_LOOK = 20_000  # characters before and behind a difference that are looked at
_AGREE = 32  # characters that must agree before texts are called alike
_EDGE = 8  # characters beyond a cut that must be those of the output


def shown_otherwise(tape: Tape, found: Difference, outputs: Sequence[str]) -> Likely | None:
    """Another cut of the same output, or the same output cleaned in another way."""
    old, new = found.recorded, found.asked
    start = common_prefix(old, new)
    if _alike(old, new, start):
        detail = (
            "The same output, but for blanks, control characters, overwritten lines or bytes that "
            "are no UTF-8."
        )
        return Likely(CLEANING, detail, found)
    end = common_suffix(old, new, start)
    if len(old) == len(new) and old.lower() == new.lower():
        return None  # the same cut, in another case
    if any(_goes_on(text, start, end, output) for text in (old, new) for output in outputs):
        limit = tape.header.settings.get("max_output_chars", Settings().max_output_chars)
        detail = (
            f"The same output is cut elsewhere: {len(old)} characters recorded (limit {limit}), "
            f"{len(new)} now."
        )
        return Likely(OUTPUT_LIMIT, detail, found)
    return None


def _alike(old: str, new: str, start: int) -> bool:
    """Whether the texts, from a little before their difference on, agree but for noise."""
    begin = max(0, start - _LOOK)  # a terminal sequence may have begun before
    whole = max(len(old), len(new)) <= start + _LOOK
    for bare in (_bare, _last_states):
        shared = bare(old[begin:start])
        a, b = bare(old[begin : start + _LOOK]), bare(new[begin : start + _LOOK])
        if (whole and a == b) or common_prefix(a, b) >= len(shared) + _AGREE:
            return True
    return False


def _bare(text: str) -> str:
    return _NOISE.sub("", text)


def _last_states(text: str) -> str:
    """Bare, and without what carriage returns overwrote: a progress bar's earlier states."""
    return _bare("\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n")))


def _goes_on(text: str, start: int, end: int, output: str) -> bool:
    """Whether the output goes on in this text where the other text leaves it, or begins before."""
    stop = len(text) - end
    pieces = []
    if start >= _EDGE and stop - start >= _EDGE:
        pieces.append(text[max(0, start - _AGREE) : start + _EDGE])
    if end >= _EDGE and stop - start >= _EDGE:
        pieces.append(text[stop - _EDGE : stop + _AGREE])
    if any(piece in output for piece in pieces):
        return True
    # the output may have been cleaned before it was cut
    bare = [_bare(piece) for piece in pieces]
    return any(len(piece) > _EDGE and piece in _bare(output) for piece in bare)
