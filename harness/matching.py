"""How far a tape could still be followed when fewer parts of model requests count."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import msgspec

from harness.cassette import RecordedRequest
from harness.causes import Likely
from harness.difference import Path, first_difference
from harness.records import MATCH_PARTS


class Matching(msgspec.Struct, frozen=True, kw_only=True):
    """How far the tape could be followed if fewer parts of model requests counted.

    It says what the tape can tell: which recorded requests hold the same model, tools and params.
    Whether the loop gets there is for a looser replay to find out, and that is never identity.
    """

    agree: list[str]
    """Parts of the request (of `MATCH_PARTS`) that are as recorded."""
    differ: list[str]
    match_on: list[str]
    """What could still count; empty when nothing agrees, and no looser replay goes on."""
    later: int
    """Model requests on the tape behind this one."""
    could_match: int
    """How many of them in a row hold the same model, tools and params, where those still count
    (messages, where they do, follow from the same replies)."""
    unchanged: int
    """How many of all later ones hold the recorded value of what differs, so that one and the
    same change would explain them too."""

    def text(self) -> str:
        """One sentence."""
        if not self.match_on:
            return "nothing that counts agrees, so no looser replay would go on"
        text = f"{_listed(self.agree)} {'agrees' if len(self.agree) == 1 else 'agree'}: with "
        text += f"--match-on {','.join(self.match_on)} this request would pass"
        if self.later:
            text += (
                f", and then {self.could_match} of the {self.later} model requests behind it could"
            )
        if self.unchanged:
            text += f"; {self.unchanged} repeat what was recorded here"
        return text


def matching_of(
    later: Iterator[tuple[int, RecordedRequest]],
    recorded: RecordedRequest,
    found: Mapping[str, Likely | None],
    match_on: Collection[str],
) -> Matching:
    """`later`: the recorded requests behind `recorded`; `found`: what differs in each part."""
    agree = [part for part in MATCH_PARTS if not found[part]]
    still = [part for part in agree if part in match_on]
    differing = [
        likely.difference.path for part, likely in found.items() if likely and part in match_on
    ]
    count, could, unchanged = 0, 0, 0
    for _, other in later:
        could += (
            bool(still)
            and could == count
            and all(_equal(recorded, other, (part,)) for part in still)
        )
        count += 1
        unchanged += bool(differing) and all(_equal(recorded, other, path) for path in differing)
    return Matching(
        agree=agree,
        differ=[part for part in MATCH_PARTS if found[part]],
        match_on=still,
        later=count,
        could_match=could,
        unchanged=unchanged,
    )


def _equal(recorded: RecordedRequest, other: RecordedRequest, path: Path) -> bool:
    """Whether two recorded requests agree in a part, or in one message where the path names it.

    Messages as a whole always do: a loop that goes on as recorded makes the recorded ones.
    """
    part, *inner = path
    if part != "messages":
        return first_difference(getattr(recorded, str(part)), getattr(other, str(part))) is None
    if not inner:
        return True
    at = inner[0]
    assert isinstance(at, int)
    old, new = recorded.messages[at : at + 1], other.messages[at : at + 1]
    return bool(old) and first_difference(old, new) is None


def _listed(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)
