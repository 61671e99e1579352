"""Answers and truths drawn to hit the borders of the scoring rules, and the proof over them.

Unrelated random texts are nearly always wrong for each other and test little. So texts are drawn
as *families*: one core, spelled several times by a few *edits*, most of which the rules forgive.
Each text of a family is tried as an answer to each. Both verdicts are then common, and the wrong
ones are near misses.
"""

from collections import Counter
from collections.abc import Callable
from itertools import permutations
from typing import NamedTuple

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from harness.scorer import question_scorer
from tests.reference_scorer import references
from tests.spellings import (
    Edits,
    apply,
    choices,
    item_edits,
    number_cores,
    number_edits,
    plain_texts,
    string_cores,
    string_edits,
)

Pair = tuple[str | None, str]
Family = tuple[str | None, str | None, str | None, str | None]
Scorer = Callable[[str | None, str], bool]


def _families(
    cores: st.SearchStrategy[str], edits: st.SearchStrategy[Edits]
) -> st.SearchStrategy[Family]:
    """A core as it is, edited two times, and once more, or now and then another core."""

    def family(core: str, spellings: list[Edits], other: str, way: int) -> Family:
        first, second, third = (apply(core, spelling) for spelling in spellings)
        return core, first, second, other if way == 7 else third

    return st.builds(
        family, cores, st.lists(edits, min_size=3, max_size=3), cores, st.integers(0, 7)
    )


_parts = st.one_of(
    st.tuples(number_cores, st.lists(number_edits, min_size=3, max_size=3)),
    st.tuples(string_cores, st.lists(item_edits, min_size=3, max_size=3)),
)
_SEPARATORS = (",", ", ", ";", "; ", " ,", ",\n", ";,", "\uff0c", " and ", "|")


def _join(parts: list[str], choice: int) -> str:
    """Joined by a separator, one of the first six mostly, sometimes alternating."""
    joined = ""
    for part in parts:
        joined += part + _SEPARATORS[choice % 6 if choice % 8 else choice // 8 % len(_SEPARATORS)]
        choice //= 2
    return joined if choice % 16 == 3 else joined.rstrip(",; \n\uff0c")


def _rearrange(parts: list[str], choice: int) -> list[str]:
    ways: tuple[Callable[[], list[str]], ...] = (
        lambda: parts[::-1],
        lambda: sorted(parts),
        lambda: parts[:-1],
        lambda: [*parts, ""],
        lambda: ["", *parts],
        lambda: parts + parts[-1:],
        lambda: [part for part in parts if part],
    )
    return ways[choice // 8 % len(ways)]() if choice % 8 == 0 else parts


def _list_family(parts: list[tuple[str, list[Edits]]], ways: list[int]) -> Family:
    """A list joined in four ways: as it is, rearranged or not, then with edited parts."""
    cores = [core.replace(",", "") for core, _ in parts]

    def spelling(number: int) -> str:
        edited = [
            apply(core, edits[number]) if ways[3] >> number & 4 else core
            for core, (_, edits) in zip(cores, parts, strict=True)
        ]
        return _join(_rearrange(edited, ways[number]), ways[number] // 8)

    return _join(cores, ways[3]), spelling(0), spelling(1), spelling(2)


NONE_LIKE = ("None", "none", " NONE!", "a, None", "inf", "None;", "", "nan")

FAMILIES: dict[str, st.SearchStrategy[Family]] = {
    "numbers": _families(number_cores, number_edits),
    "lists": st.builds(
        _list_family,
        st.lists(_parts, min_size=2, max_size=4),
        st.lists(choices, min_size=4, max_size=4),
    ),
    "strings": _families(string_cores, string_edits),
    "wild": st.tuples(plain_texts, plain_texts, st.none(), st.sampled_from(NONE_LIKE)),
}
PAIRS: dict[str, st.SearchStrategy[Pair]] = {
    kind: st.builds(lambda family, at: (family[at], family[0] or ""), families, st.integers(1, 3))
    for kind, families in FAMILIES.items()
}


class Tally(NamedTuple):
    """How many pairs agreed, and how many of them were right or stood for the first time."""

    drawn: int
    right: int
    distinct: int

    @property
    def share_right(self) -> float:
        return self.right / self.drawn


def agree(
    kind: str,
    count: int,
    scorer: Scorer = question_scorer,
    *,
    seed_value: int | None = None,
    seen: set[int] | None = None,
    shrink: bool = True,
) -> Tally:
    """Draw at least ``count`` pairs of ``kind`` and compare each verdict with both references.

    They come as families of four texts, in which each is an answer to each other (None only an
    answer) and the first to itself.
    Raises AssertionError with the smallest pair found where a verdict differs (without ``shrink``:
    with the first). Without ``seed_value`` every call draws other pairs. Hashes of the pairs go
    into ``seen``: pairs that an earlier call left there are not counted as distinct again.
    """
    drawn: Counter[bool] = Counter()
    seen = set() if seen is None else seen
    known = len(seen)
    ports = references()

    @settings(
        max_examples=-(-count // (10 if kind == "wild" else 13)),
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink) if shrink else (Phase.generate,),
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(FAMILIES[kind])
    def compare(family: Family) -> None:
        for answer, truth in [(family[0], family[0]), *permutations(family, 2)]:
            if truth is None:
                continue
            verdict = scorer(answer, truth)
            for port in ports:
                expected = port.question_scorer(answer, truth)
                assert verdict is expected, (
                    f"{port.name}: {expected}, ours: {verdict}, answer {answer!r}, truth {truth!r}"
                )
            drawn[verdict] += 1
            seen.add(hash((answer, truth)))

    (compare if seed_value is None else seed(seed_value)(compare))()
    return Tally(drawn.total(), drawn[True], len(seen) - known)
