"""More lenient forms of an answer and a truth, one idea each: what `explain` tries in turn.

A rewrite maps ``(answer, truth)`` to the same two with one difference of form removed, or returns
them as they are. Whether that made the answer right, the official scorer says. Pure.
"""

import re
import unicodedata
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from math import isclose, isfinite

from harness.scorer import answer_kind, list_form, number_form, question_scorer, truth_number

Pair = tuple[str, str]
Rewrite = Callable[[str, str], Pair]


def _both(rewrite: Callable[[str], str]) -> Rewrite:
    return lambda answer, truth: (rewrite(answer), rewrite(truth))


def _by_part(rewrite: Rewrite) -> Rewrite:
    """Apply to the whole, or place by place where the truth is a list of the same length."""

    def by_part(answer: str, truth: str) -> Pair:
        if answer_kind(truth) != "list":
            return rewrite(answer, truth)
        parts, truths = list_form(answer), list_form(truth)
        if len(parts) != len(truths):
            return answer, truth
        pairs = [rewrite(part, other) for part, other in zip(parts, truths, strict=True)]
        return ",".join(part for part, _ in pairs), ",".join(other for _, other in pairs)

    return by_part


_PLAIN = str.maketrans(
    "\u2212\u2044\u2215\u00d7\u0131\u2018\u2019\u201a\u201b\u2032\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb"
    "\u0410\u0412\u0415\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0425"
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456"
    "\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7\u03bf\u03bd",
    '-//xi\'\'\'\'\'"""""""ABEKMHOPCTXaeopcyxiABEZHIKMNOPTYXov',
)
"""Minus, slashes, times, dotless i; quotes; Cyrillic and Greek letters that look Latin."""


def _plain(text: str) -> str:
    """Compatibility forms, dashes, quotes, invisible characters and homoglyphs made plain."""
    marks = {"Pd": "-", "Cf": ""}
    normal = unicodedata.normalize("NFKC", text.translate(_PLAIN)).translate(_PLAIN)
    return "".join(marks.get(unicodedata.category(letter), letter) for letter in normal)


def _without_accents(text: str) -> str:
    decomposed = unicodedata.normalize("NFKD", text)
    return "".join(letter for letter in decomposed if unicodedata.category(letter) != "Mn")


def _folded(text: str) -> str:
    """Case folded, but for a lone letter: that may name an option, and is no article."""
    return text.casefold() if len(text) > 1 else text


def _commas(text: str) -> str:
    """Bullets and numbering dropped; newlines, ``and``, slashes and the like made commas."""
    text = re.sub(r"(?m)^\s*(?:[-*\u2022]|\d+[.)])\s+", "", text.strip())
    return re.sub(r"(?i)\s*[,;]?\s*(?:\n|\band\b|[,;&/|\u3001])\s*", ",", text)


def _separated(answer: str, truth: str) -> Pair:
    """Both sides as lists, where the truth is one in this wider sense."""
    wider = _commas(truth)
    return (_commas(answer), wider) if answer_kind(wider) == "list" else (answer, truth)


def _without_articles(text: str) -> str:
    return re.sub(r"(?i)\b(?:the|an?)\s+(?=\w)", "", text)


_SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen"
)
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_SCALES = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9}
_VALUES = {word: value for value, word in enumerate(_SMALL.split())}
_VALUES |= {word: 10 * value for value, word in enumerate(_TENS.split(), 2)}
_WORD = f"(?:{'|'.join([*_VALUES, *_SCALES])})"
# Possessive, and not begun inside a number: a search in a thousand digits stays linear.
_DIGITS = r"(?<![\w.])[-+]?(?:\d[\d,]*+(?:\.\d*+)?|\.\d++)"
_NUMBER = rf"{_DIGITS}(?:[eE][-+]?\d+)?"
_SPELLED = re.compile(
    rf"(?i)(?:\b{_WORD}\b|{_DIGITS}[\s-]+{_WORD}\b)(?:[\s-]+(?:and\s+)?{_WORD}\b)*"
)


def _digits(text: str) -> str:
    """Number words as digits: ``one hundred and five`` is 105, ``1.5 million`` is 1500000."""

    def value(match: re.Match[str]) -> str:
        total = current = Decimal(0)
        for token in re.findall(rf"{_DIGITS}|[a-z]+", match[0].lower()):
            if token in _SCALES:
                current = (current or Decimal(1)) * _SCALES[token]
                if token != "hundred":
                    total, current = total + current, Decimal(0)
            elif token != "and":
                spelled = _VALUES.get(token)
                current += Decimal(token.replace(",", "") if spelled is None else spelled)
        return f"{(total + current).normalize():f}"

    return _SPELLED.sub(value, text)


def _one_style(answer: str, truth: str) -> Pair:
    """Thousands separators dropped, a decimal comma made a point."""
    grouping = re.compile(r"(?<=\d)[,'\u2019_\s](?=\d{3}(?!\d))")
    answer, truth = grouping.sub("", answer), grouping.sub("", truth)
    if "." not in truth:
        answer = re.sub(r"(?<=\d)\.(?=\d{3}(?!\d))", "", answer)
    if answer_kind(truth) == "number" and "." not in answer:
        answer = re.sub(r"(?<=\d),(?=\d+\D*$)", ".", answer)
    return answer, truth


def _bare(answer: str, truth: str) -> Pair:
    """Punctuation dropped where the rules keep it: around numbers, inside items of a list."""
    if truth_number(truth) is None:
        return _without_punctuation(answer), _without_punctuation(truth)
    return answer.strip().strip("()[]{}'\"*`=:!?").rstrip("."), truth


def _without_punctuation(text: str) -> str:
    return "".join(letter for letter in text if unicodedata.category(letter)[0] not in "PS")


_HEDGES = {"not", "no", "nor", "neither", "never", "or", "either", "except", "without", "but"}
_UNIT_WORD = r"[^\W\d_\x00]|[\u00b0%\u20ac\u00a3\u00a5$'\"\u2032\u2033]"
_MEASURE = re.compile(
    rf"\s*(?:[A-Z]{{2,3}}|[^\w\s.+-])?\s*({_NUMBER})"
    rf"(?:[\s-]*(?:{_UNIT_WORD})[^\s,;]*(?:\s+[^\W\d_]+){{0,2}})?[.!]?\s*"
)


def _amount(text: str) -> str:
    """The number of ``5 km``, ``EUR 5`` or ``5 miles per hour``; any other text as it is."""
    match = _MEASURE.fullmatch(text)
    return text if match is None or _hedged(text) else match[1]


def _without_unit(answer: str, truth: str) -> Pair:
    """A unit on one of the two sides only is dropped there."""
    if truth_number(truth) is not None:
        return _amount(answer), truth
    return answer, _amount(truth) if isfinite(number_form(answer)) else truth


def _scaled(answer: str, truth: str) -> Pair:
    value, expected = number_form(answer), truth_number(truth)
    if expected is None or not value or not isfinite(value):
        return answer, truth
    percent = "%" in answer
    powers = (3, 6, 9, -3, -6, -9, *((2, -2) if percent else ()))
    if any(isclose(value, expected * 10.0**power, rel_tol=1e-12) for power in powers):
        return truth, truth
    return answer, truth


def _rounded(answer: str, truth: str) -> Pair:
    """Equal once the more precise of the two has the decimals of the other."""
    try:
        value, expected = Decimal(answer.translate(_SYMBOLS).strip()), Decimal(truth.strip())
        unit = Decimal(1).scaleb(-min(_decimals(value), _decimals(expected)))
        same = value.quantize(unit) == expected.quantize(unit) != 0
    except InvalidOperation:  # no number, or one that is far too long
        return answer, truth
    return (truth, truth) if same else (answer, truth)


_SYMBOLS = str.maketrans("", "", "$%,")


def _decimals(value: Decimal) -> int:
    """How many digits stand after the point. Raises InvalidOperation unless finite."""
    exponent = value.as_tuple().exponent
    if not isinstance(exponent, int):
        raise InvalidOperation
    return max(0, -exponent)


def _in_order(answer: str, truth: str) -> Pair:
    """Equal if each part of the truth is matched by another part of the answer."""
    left = list_form(answer)
    for part in list_form(truth):
        match = next((other for other in left if question_scorer(f"{other},", f"{part},")), None)
        if match is None:
            return answer, truth
        left.remove(match)
    return (answer, truth) if left else (truth, truth)


def _alone(answer: str, truth: str) -> Pair:
    """Equal if the truth stands whole among the words of the answer, unhedged."""
    if _hedged(answer):
        return answer, truth
    number = truth_number(truth)
    if answer_kind(truth) == "list" and len(list_form(answer)) != len(list_form(truth)):
        return answer, truth
    if number is None:
        return (truth, truth) if stands_in(truth, answer) else (answer, truth)
    numbers = re.findall(_NUMBER, answer)
    found = len(numbers) == 1 and number_form(numbers[0].rstrip(".")) == number
    return (truth, truth) if found else (answer, truth)


def _hedged(text: str) -> bool:
    return not set(re.findall(r"\w+", text.lower())).isdisjoint(_HEDGES)


def stands_in(part: str, whole: str) -> bool:
    """Whether the words of ``part`` stand together in ``whole``, among at most 20 others.

    Case matters for a lone letter.
    """
    if len(part.strip()) > 1:
        part, whole = part.lower(), whole.lower()
    words, others = re.findall(r"\w+", part), re.findall(r"\w+", whole)
    spare = len(others) - len(words)
    if not words or spare > 20:
        return False
    return any(others[at : at + len(words)] == words for at in range(spare + 1))


REWRITES: dict[str, Rewrite] = {
    "lookalike": _both(_plain),
    "accents": _both(_without_accents),
    "letter_case": _both(_folded),
    "number_word": _both(_digits),
    "separators_in_number": _one_style,
    "list_separator": _separated,
    "article": _both(_without_articles),
    "punctuation": _by_part(_bare),
    "unit": _by_part(_without_unit),
    "scale": _by_part(_scaled),
    "rounding": _by_part(_rounded),
    "order": _in_order,
    "extra_words": _alone,
}
"""In the order in which two of them are combined; each by the label that it stands for."""
