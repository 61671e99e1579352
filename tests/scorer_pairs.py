"""Answers and truths drawn to hit the borders of the scoring rules, and the proof over them.

Unrelated random texts are nearly always wrong for each other and test little. So texts are drawn
as *families*: one core, spelled several times by a few *edits*, most of which the rules forgive.
Each text of a family is tried as an answer to each. Both verdicts are then common, and the wrong
ones are near misses.
"""

import string
import unicodedata
from collections import Counter
from collections.abc import Callable
from itertools import permutations
from typing import NamedTuple

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from harness.scorer import question_scorer
from tests.reference_scorer import references

Pair = tuple[str | None, str]
Family = tuple[str | None, str | None, str | None, str | None]
Scorer = Callable[[str | None, str], bool]
Edit = Callable[[str, int], str]
Edits = list[tuple[Edit, int]]

WHITESPACE = " \t\n\r\x0b\x0c\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2003\u2009\u2028\u2029\u202f\u3000"
ALMOST_WHITESPACE = "\u200b\u200c\u200d\u2060\ufeff\u180e\xad\x00\x08\u2800"
OTHER_PUNCTUATION = "\u2013\u2014\u2019\u201c\u201d\u2026\u00bf\u00ab\u3001\u3002\uff0c\uff1b\u037e"
SIGNS_AND_SYMBOLS = "\u2212\u00b1\u00a3\u20ac\u00a5\u00b0\u00b2\u00bd\u2460\u216b\uff04\uff05\u066b"
LETTERS = (
    "\u03a3\u03c3\u03c2\u00df\u1e9e\u0130\u0131\u017f\u212a\u212b\u00c5\u00e9\ufb01\u01c5\u0410"
)
MARKS = "\u0301\u0307\u0308\u0345\u0330"
SURROGATES = "\ud800\udbff\udc00\udfff"
ODD = ALMOST_WHITESPACE + OTHER_PUNCTUATION + SIGNS_AND_SYMBOLS + LETTERS + MARKS + SURROGATES
DIGIT_ZEROS = "\u0660\u0966\uff10\u09e6\U0001d7ce"

_NUMBERS = (
    "inf|-inf|Infinity|+INF|infinite|nan|-NaN|1e400|-1e400|1e-400|0|-0|0.0|00|.5|5.|.|+5|--5|- 5|"
    "0x10|1e|e5|1e5|1E+5|1_000|1__0|_1|1_|1000|1,000|$5|50%|5 km|1/2|12:30|3-4|0.1|42000|"
    "0.30000000000000004|9007199254740993|9007199254740992|1.7976931348623157e308|5e-324|2e-324|"
    "four|None|true|1 000||?"
)
_WORDS = (
    "Paris|St. Louis|the Beatles|sea gull|\u039f\u03b4\u03cc\u03c2|\u03a3\u0391\u03a3|O'Neil|x.y_z|"
    "Stra\u00dfe|STRASSE|\u0130stanbul|\u0131i|re\u0301sume\u0301|r\u00e9sum\u00e9|caf\u00e9 |"
    "[a|b]|and|None|True|\ufb01sh|\u6771\u4eac|C#"
)
_TAILS = "0|.0|.|e0|E+00|_0|.000000000000000000001|e-0|00|%|1|j|k"
_WRAPS = 'the {}|({})|about {}|{} or so|not {}|"{}"|**{}**|{}.|\\boxed{{{}}}|{}/{}'
SPECIAL_NUMBERS = (*_NUMBERS.split("|"), "0." + "3" * 60, "7" * 400)
WORDS = _WORDS.split("|")
TAILS = _TAILS.split("|")
WRAPS = _WRAPS.split("|")


# An edit changes a text at a place and with a character that both come from one drawn integer.
def _insert(characters: str) -> Edit:
    def edit(text: str, choice: int) -> str:
        which, place = divmod(choice, len(text) + 1)
        return text[:place] + characters[which % len(characters)] + text[place:]

    return edit


def _indent(text: str, choice: int) -> str:
    return WHITESPACE[choice % len(WHITESPACE)] + text


def _respell_digits(text: str, choice: int) -> str:
    zero = ord(DIGIT_ZEROS[choice % len(DIGIT_ZEROS)])
    return text.translate({ord(str(digit)): zero + digit for digit in range(10)})


def _pad_zeros(text: str, choice: int) -> str:
    sign = text[:1] if text[:1] in ("-", "+") else ""
    return sign + "0" * (choice % 3 + 1) + text[len(sign) :]


def _tail(text: str, choice: int) -> str:
    return text + TAILS[choice % len(TAILS)]


def _shift_exponent(text: str, choice: int) -> str:
    return f"{text}0e-1" if choice % 2 else f"{text}e1"


def _nudge(text: str, choice: int) -> str:
    places = [place for place, letter in enumerate(text) if letter in string.digits]
    if not places:
        return text
    place = places[choice % len(places)]
    return f"{text[:place]}{(int(text[place]) + 1) % 10}{text[place + 1 :]}"


def _flip_sign(text: str, _: int) -> str:
    return text[1:] if text.startswith("-") else "-" + text


def _drop(text: str, choice: int) -> str:
    place = choice % (len(text) + 1)
    return text[:place] + text[place + 1 :]


def _normalise(text: str, choice: int) -> str:
    if choice % 4 == 0:
        return unicodedata.normalize("NFC", text)
    if choice % 4 == 1:
        return unicodedata.normalize("NFD", text)
    return unicodedata.normalize("NFKC" if choice % 4 == 2 else "NFKD", text)


def _recase(text: str, choice: int) -> str:
    return (text.upper(), text.lower(), text.title(), text.swapcase(), text.casefold())[choice % 5]


def _swap(text: str, choice: int) -> str:
    place = choice % (len(text) + 1)
    return text[:place] + text[place : place + 2][::-1] + text[place + 2 :]


def _wrap(text: str, choice: int) -> str:
    return WRAPS[choice % len(WRAPS)].format(text, text)


_FORGIVEN_IN_NUMBERS: tuple[Edit, ...] = (
    *(_insert("$%,"), _insert("$%,"), _insert("_"), _pad_zeros, _tail, _shift_exponent),
    *(_respell_digits, _indent),
)
_SPOILING_NUMBERS: tuple[Edit, ...] = (
    *(_nudge, _flip_sign, _drop, _tail, _wrap, _insert(WHITESPACE), _insert(ALMOST_WHITESPACE)),
    *(_insert(SIGNS_AND_SYMBOLS), _insert(";."), _insert(string.digits), _insert("eE+-_."), _swap),
)
_FORGIVEN_IN_STRINGS: tuple[Edit, ...] = (
    *(_insert(WHITESPACE), _insert(WHITESPACE), _recase, _recase),
    *(_insert(string.punctuation.translate({44: None, 59: None})),) * 2,
)
_SPOILING_STRINGS: tuple[Edit, ...] = (
    *(_normalise, _drop, _wrap, _insert(ODD), _insert(ODD), _insert(string.ascii_letters), _nudge),
    *(_insert(string.punctuation), _swap, lambda text, _: text.strip()),
)
_FORGIVEN_IN_ITEMS: tuple[Edit, ...] = (_insert(WHITESPACE), _recase)

_choices = st.integers(0, 2**16)


def _edits(
    forgiven: tuple[Edit, ...], spoiling: tuple[Edit, ...], fifths: int
) -> st.SearchStrategy[Edits]:
    """Some forgiven edits, and in so many fifths of the draws one more, which may spoil."""
    mild = st.tuples(st.sampled_from(forgiven), _choices)
    harsh = st.tuples(st.sampled_from(forgiven + spoiling), _choices)

    def sequence(edits: Edits, last: tuple[Edit, int], way: int) -> Edits:
        return [*edits, last] if way >= 5 - fifths else edits

    return st.builds(sequence, st.lists(mild, min_size=1, max_size=3), harsh, st.integers(0, 4))


def _apply(text: str, edits: Edits) -> str:
    for edit, choice in edits:
        text = edit(text, choice)
    return text


any_character = st.characters(exclude_categories=())
any_text = st.text(any_character, max_size=8)
border_text = st.one_of(
    st.text(
        string.ascii_letters + string.digits + string.punctuation + WHITESPACE + ODD, max_size=9
    ),
    any_text,
)
number_cores = st.one_of(
    st.sampled_from(SPECIAL_NUMBERS),
    st.integers(-(10**4), 10**4).map(str),
    st.integers(-(10**40), 10**40).map(str),
    st.floats().map(repr),
    st.floats(-1e6, 1e6).map(lambda value: f"{value:.3f}"),
)
string_cores = st.one_of(
    st.sampled_from(WORDS), st.lists(st.sampled_from(WORDS), max_size=3).map(" ".join), border_text
)

_number_edits = _edits(_FORGIVEN_IN_NUMBERS, _SPOILING_NUMBERS, 1)
_string_edits = _edits(_FORGIVEN_IN_STRINGS, _SPOILING_STRINGS, 4)
_item_edits = _edits(_FORGIVEN_IN_ITEMS, _SPOILING_STRINGS, 1)


def _families(
    cores: st.SearchStrategy[str], edits: st.SearchStrategy[Edits]
) -> st.SearchStrategy[Family]:
    """A core as it is, edited two times, and once more, or now and then another core."""

    def family(core: str, spellings: list[Edits], other: str, way: int) -> Family:
        first, second, third = (_apply(core, spelling) for spelling in spellings)
        return core, first, second, other if way == 7 else third

    return st.builds(
        family, cores, st.lists(edits, min_size=3, max_size=3), cores, st.integers(0, 7)
    )


_parts = st.one_of(
    st.tuples(number_cores, st.lists(_number_edits, min_size=3, max_size=3)),
    st.tuples(string_cores, st.lists(_item_edits, min_size=3, max_size=3)),
)
_SEPARATORS = (",", ", ", ";", "; ", " ,", ",\n", ";,", "\uff0c", " and ", "|")


def _join(parts: list[str], choice: int) -> str:
    """Joined by a separator, one of the first six mostly, sometimes alternating."""
    joined = ""
    for part in parts:
        joined += part + _SEPARATORS[choice % (6 if choice % 8 else len(_SEPARATORS))]
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
            _apply(core, edits[number]) if ways[3] >> number & 4 else core
            for core, (_, edits) in zip(cores, parts, strict=True)
        ]
        return _join(_rearrange(edited, ways[number]), ways[number] // 8)

    return _join(cores, ways[3]), spelling(0), spelling(1), spelling(2)


_wild_texts = st.one_of(border_text, any_text, number_cores, string_cores)
texts = st.one_of(
    _wild_texts,
    st.builds(_apply, number_cores, _number_edits),
    st.builds(_apply, string_cores, _string_edits),
)
NONE_LIKE = ("None", "none", " NONE!", "a, None", "inf", "None;", "", "nan")

FAMILIES: dict[str, st.SearchStrategy[Family]] = {
    "numbers": _families(number_cores, _number_edits),
    "lists": st.builds(
        _list_family,
        st.lists(_parts, min_size=2, max_size=4),
        st.lists(_choices, min_size=4, max_size=4),
    ),
    "strings": _families(string_cores, _string_edits),
    "wild": st.tuples(_wild_texts, _wild_texts, st.none(), st.sampled_from(NONE_LIKE)),
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
