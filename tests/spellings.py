"""Values and the ways to spell them, at the borders of the scoring rules, for hypothesis.

A *core* is a number or a text; an *edit* changes its spelling at a place and with a character that
both come from one drawn integer. Some edits the rules mostly forgive, others mostly spoil.
"""

import string
import unicodedata
from collections.abc import Callable

from hypothesis import strategies as st

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
LOOKALIKES = (
    "-\u2212-\u2013'\u2019,\uff0c$\uff04.\u30021\u00b9s\u017f"  # plain, foreign, plain, ...
)
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


def _lookalike(text: str, choice: int) -> str:
    at = choice % (len(LOOKALIKES) // 2) * 2
    old, new = LOOKALIKES[at], LOOKALIKES[at + 1]
    return text.replace(old, new) if old in text else text + new


def _respell_base(text: str, choice: int) -> str:
    if not text.isdecimal() or len(text) > 9:
        return f"({text})"
    return f"{int(text):{'#x' if choice % 2 else '#b'}}"


def _end(text: str, choice: int) -> str:
    return text + ".!?)'\""[choice % 6]


def _wrap(text: str, choice: int) -> str:
    return WRAPS[choice % len(WRAPS)].format(text, text)


_FORGIVEN_IN_NUMBERS: tuple[Edit, ...] = (
    *(_insert("$%,"), _insert("$%,"), _insert("_"), _pad_zeros, _tail, _shift_exponent),
    *(_respell_digits, _indent),
)
_SPOILING_NUMBERS: tuple[Edit, ...] = (
    *(_nudge, _flip_sign, _drop, _tail, _wrap, _insert(WHITESPACE), _insert(ALMOST_WHITESPACE)),
    *(_insert(SIGNS_AND_SYMBOLS), _insert(";."), _insert(string.digits), _insert("eE+-_."), _swap),
    *(_lookalike, _respell_base, _insert(string.punctuation)),
)
_FORGIVEN_IN_STRINGS: tuple[Edit, ...] = (
    *(_insert(WHITESPACE), _insert(WHITESPACE), _recase, _recase),
    *(_insert(string.punctuation.translate({44: None, 59: None})),) * 2,
)
_SPOILING_STRINGS: tuple[Edit, ...] = (
    *(_normalise, _drop, _wrap, _insert(ODD), _insert(ODD), _insert(string.ascii_letters), _nudge),
    *(_insert(string.punctuation), _swap, lambda text, _: text.strip()),
    *(_insert(OTHER_PUNCTUATION), _lookalike, _end),
)
_FORGIVEN_IN_ITEMS: tuple[Edit, ...] = (_insert(WHITESPACE), _recase)

choices = st.integers(0, 2**16)


def _edits(
    forgiven: tuple[Edit, ...], spoiling: tuple[Edit, ...], fifths: int
) -> st.SearchStrategy[Edits]:
    """Some forgiven edits, and in so many fifths of the draws one more, which may spoil."""
    mild = st.tuples(st.sampled_from(forgiven), choices)
    harsh = st.tuples(st.sampled_from(spoiling), choices)

    def sequence(edits: Edits, last: tuple[Edit, int], way: int) -> Edits:
        return [*edits, last] if way >= 5 - fifths else edits

    return st.builds(sequence, st.lists(mild, min_size=1, max_size=3), harsh, st.integers(0, 4))


def apply(text: str, edits: Edits) -> str:
    """The text after each edit."""
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

number_edits = _edits(_FORGIVEN_IN_NUMBERS, _SPOILING_NUMBERS, 2)
string_edits = _edits(_FORGIVEN_IN_STRINGS, _SPOILING_STRINGS, 3)
item_edits = _edits(_FORGIVEN_IN_ITEMS, _SPOILING_STRINGS, 1)

plain_texts = st.one_of(border_text, any_text, number_cores, string_cores)
texts = st.one_of(
    plain_texts,
    st.builds(apply, number_cores, number_edits),
    st.builds(apply, string_cores, string_edits),
)
