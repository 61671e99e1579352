# ruff: noqa: E501 - one rewrite a line reads best
"""Wrong rewrites of ``harness/scorer.py``, each one idea; `scripts/mutate_scorer.py` tries them.

Some rewrites change nothing and are no mutants: list before number (no float holds a separator),
parts trimmed of plain spaces, an empty answer without parts, ``"none"`` for no answer, ``[,;]`` or
``\\s`` as regular expressions in place of the string methods.
"""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

Scorer = Callable[[str | None, str], bool]

SOURCE = Path(__file__).resolve().parent.parent / "harness" / "scorer.py"
IMPORTS = "import math, re, string, unicodedata\nfrom decimal import Decimal, InvalidOperation\n"


class MutantDoesNotFit(Exception):
    """The scorer's source no longer holds the text that a mutant replaces."""


class Mutant(NamedTuple):
    """A wrong rewrite: each ``old`` stands exactly once in the source and becomes ``new``."""

    name: str
    changes: tuple[tuple[str, str], ...]

    def source(self) -> str:
        """The changed source. Raises `MutantDoesNotFit`."""
        text = SOURCE.read_text("utf-8")
        for old, new in (*self.changes, ("from string import", f"{IMPORTS}from string import")):
            if text.count(old) != 1:
                raise MutantDoesNotFit(f"{self.name}: {text.count(old)} times in scorer.py: {old}")
            text = text.replace(old, new)
        return text

    def scorer(self) -> Scorer:
        """The changed scorer, loaded."""
        module = ModuleType(f"mutant_{self.name}")
        exec(compile(self.source(), self.name, "exec"), module.__dict__)
        scorer: Scorer = module.__dict__["question_scorer"]
        return scorer


def _at(place: str) -> Callable[..., Mutant]:
    """Mutants that replace one place of the source by another text."""
    return lambda name, new: Mutant(name, ((place, new),))


_none = _at('"None" if model_answer is None else model_answer')
_kind = _at("kind = answer_kind(ground_truth)")
_string = _at("return string_form(answer) == string_form(ground_truth)")
_number = _at("return _same_part(answer, ground_truth)")
_split_both = _at("parts, truths = list_form(answer), list_form(ground_truth)")
_list = _at("return len(parts) == len(truths) and all(map(_same_part, parts, truths))")
_select = _at('return "list" if "," in truth or ";" in truth else "string"')
_float = _at("return float(truth)")
_symbols = _at('"$%,"')
_clean = _at("truth_number(answer.translate(_NUMBER_SYMBOLS))")
_unreadable = _at('return float("inf") if value is None else value')
_split = _at('return text.replace(";", ",").split(",")')
_item = _at('return "".join(text.split()).lower()')
_punctuation = _at('_PUNCTUATION = str.maketrans("", "", punctuation)')
_form = _at("return item_form(text).translate(_PUNCTUATION)")
_item_equal = _at("return item_form(answer) == item_form(truth)")
_equal = _at("return number_form(answer) == expected")

_UNICODE_PUNCTUATION = "".join(
    (
        "_PUNCTUATION = dict.fromkeys(code for code in range(0x110000) if unicodedata.category(chr(",
        "code)).startswith(%s))",
    )
)
_NOT_ASCII_NUMBER = r'r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", truth, re.ASCII'

MUTANTS = (
    # No answer
    _none("none_is_empty", 'model_answer or ""'),
    _none("none_is_null", '"null" if model_answer is None else model_answer'),
    _none("none_is_wrong", "model_answer\n    if answer is None:\n        return False"),
    _none("empty_is_none", 'model_answer or "None"'),
    _none(
        "empty_is_wrong",
        '"None" if model_answer is None else model_answer\n    if not answer:\n        return False',
    ),
    # The answer or the truth is cleaned
    _none("answer_stripped", '"None" if model_answer is None else model_answer.strip()'),
    _none("marker_removed", '(model_answer or "None").removeprefix("FINAL ANSWER: ")'),
    _none("bold_removed", '(model_answer or "None").strip("*")'),
    _none("brackets_removed", '(model_answer or "None").strip("[]")'),
    _none("quotes_removed", '(model_answer or "None").replace("\'", "")'),
    _none("tail_trimmed", '(model_answer or "None").rstrip(",; ")'),
    _none("period_trimmed", '(model_answer or "None").removesuffix(".")'),
    _none("articles_removed", 're.sub(r"\\b(the|a|an) ", "", (model_answer or "None").lower())'),
    _none("answer_nfkc", 'unicodedata.normalize("NFKC", model_answer or "None")'),
    _none("format_characters_removed", '(model_answer or "None").replace("\\u200b", "")'),
    _kind(
        "truth_without_thousands",
        'ground_truth = re.sub(r"(\\d),(?=\\d{3}\\b)", r"\\1", ground_truth)\n    kind = answer_kind(ground_truth)',
    ),
    _kind(
        "truth_without_dollar",
        'ground_truth = ground_truth.replace("$", "")\n    kind = answer_kind(ground_truth)',
    ),
    _kind(
        "truth_without_percent",
        'ground_truth = ground_truth.removesuffix("%")\n    kind = answer_kind(ground_truth)',
    ),
    _kind(
        "truth_trimmed",
        'ground_truth = ground_truth.rstrip(",; ")\n    kind = answer_kind(ground_truth)',
    ),
    _kind(
        "question_mark_is_wrong",
        'if ground_truth == "?":\n        return False\n    kind = answer_kind(ground_truth)',
    ),
    # Which rule
    _kind("answer_selects_list", 'kind = "list" if "," in answer else answer_kind(ground_truth)'),
    _kind(
        "number_needs_both",
        'kind = answer_kind(ground_truth)\n    if kind == "number" and truth_number(answer) is None:\n        kind = "string"',
    ),
    _select("no_list", 'return "string"'),
    _select("semicolon_selects_no_list", 'return "list" if "," in truth else "string"'),
    _select("comma_selects_no_list", 'return "list" if ";" in truth else "string"'),
    _select(
        "space_needed_for_list", 'return "list" if ", " in truth or ";" in truth else "string"'
    ),
    _select(
        "bar_selects_list", 'return "list" if any(mark in truth for mark in ",;|") else "string"'
    ),
    # What a float is
    _float("int_only", "return int(truth)"),
    _float(
        "isdigit",
        'return float(truth) if truth.lstrip("+-").replace(".", "", 1).isdigit() else None',
    ),
    _float(
        "isdecimal",
        'return float(truth) if truth.strip().lstrip("+-").replace(".", "", 1).isdecimal() else None',
    ),
    _float("ascii_number", f"return float(truth) if re.fullmatch({_NOT_ASCII_NUMBER}) else None"),
    _float("no_underscores", 'return None if "_" in truth else float(truth)'),
    _float("any_underscores", 'return float(truth.replace("_", ""))'),
    _float("finite_only", "return float(truth) if math.isfinite(float(truth)) else None"),
    _float("nan_is_text", "return None if math.isnan(float(truth)) else float(truth)"),
    _float("no_spaces_around", "return float(truth) if truth == truth.strip() else None"),
    _float("spaces_inside", 'return float("".join(truth.split()))'),
    _float("unicode_minus", 'return float(truth.replace("\\u2212", "-"))'),
    _float("digits_nfkc", 'return float(unicodedata.normalize("NFKC", truth))'),
    _float(
        "number_in_prose",
        'return float(re.match(r"\\s*[-+]?[\\d.]+(?=\\s|$)", truth)[0]) if re.match(r"\\s*[-+]?[\\d.]+(?=\\s|$)", truth) else float(truth)',
    ),
    Mutant(
        "decimal",
        (
            ("return float(truth)", "return Decimal(truth)"),
            ("except ValueError:", "except (ValueError, InvalidOperation):"),
        ),
    ),
    _float("rounded_to_6", "return round(float(truth), 6)"),
    _float(
        "hexadecimal", 'return float(int(truth, 16)) if truth.startswith("0x") else float(truth)'
    ),
    # What is deleted from an answer to a number
    _symbols("dollar_kept", '"%,"'),
    _symbols("percent_kept", '"$,"'),
    _symbols("comma_kept", '"$%"'),
    _symbols("currencies_deleted", '"$%,\\u20ac\\u00a3"'),
    _symbols("spaces_deleted", '"$%, "'),
    _symbols("semicolons_deleted", '"$%,;"'),
    _symbols("parentheses_deleted", '"$%,()"'),
    _clean("symbols_stripped", 'truth_number(answer.strip("$%,"))'),
    _clean(
        "symbols_at_their_ends", 'truth_number(answer.lstrip("$").rstrip("%").replace(",", ""))'
    ),
    _clean(
        "symbols_once",
        'truth_number(answer.replace("$", "", 1).replace("%", "", 1).replace(",", "", 1))',
    ),
    _clean("symbols_to_spaces", 'truth_number(answer.translate(str.maketrans("$%,", "   ")))'),
    _clean("thousands_only", 'truth_number(re.sub(r",(?=\\d{3})", "", answer.strip("$%")))'),
    _clean("uncleaned", "truth_number(answer)"),
    _clean(
        "percent_is_a_hundredth",
        'truth_number(answer.replace("%", "e-2").translate(_NUMBER_SYMBOLS))',
    ),
    _clean("decimal_comma", 'truth_number(answer.replace(",", ".").translate(_NUMBER_SYMBOLS))'),
    _clean("thousand_suffix", 'truth_number(answer.replace("k", "e3").translate(_NUMBER_SYMBOLS))'),
    # What cannot be read, and when numbers are equal
    _unreadable("unreadable_is_nan", 'return float("nan") if value is None else value'),
    _unreadable("unreadable_is_minus_infinity", 'return float("-inf") if value is None else value'),
    _unreadable("unreadable_is_zero", "return value or 0.0"),
    _unreadable(
        "unreadable_is_an_error",
        "if value is None:\n        raise ValueError(answer)\n    return value",
    ),
    _equal("relative_tolerance", "return math.isclose(number_form(answer), expected)"),
    _equal(
        "absolute_tolerance",
        "return number_form(answer) == expected or abs(number_form(answer) - expected) < 1e-6",
    ),
    _equal("sign_ignored", "return abs(number_form(answer)) == abs(expected)"),
    _equal(
        "nan_equals_nan",
        "return repr(number_form(answer)) == repr(expected) or number_form(answer) == expected",
    ),
    _equal("zeros_differ", "return number_form(answer).hex() == expected.hex()"),
    _equal(
        "floor",
        "return number_form(answer) == expected or (math.isfinite(number_form(answer)) and math.floor(number_form(answer)) == expected)",
    ),
    _number(
        "number_or_same_text",
        "return _same_part(answer, ground_truth) or string_form(answer) == string_form(ground_truth)",
    ),
    _number(
        "number_anywhere",
        "return any(_same_part(word, ground_truth) for word in answer.split() or [answer])",
    ),
    # How lists are split and compared
    _split("semicolon_splits_nothing", 'return text.split(",")'),
    _split("comma_splits_nothing", 'return text.split(";")'),
    _split("one_separator_per_list", 'return text.split(";" if ";" in text else ",")'),
    _split("comma_and_space_only", 'return re.split("[,;] ", text)'),
    _split("runs_of_separators", 'return re.split("[,;]+", text)'),
    _split(
        "empty_parts_dropped", 'return [part for part in re.split("[,;]", text) if part.strip()]'
    ),
    _split("parts_trimmed", 'return [part.strip() for part in re.split("[,;]", text)]'),
    _split("newline_splits", 'return re.split("[,;\\n]", text)'),
    _split("and_splits", 'return re.split("[,;]| and ", text)'),
    _split("fullwidth_comma_splits", 'return re.split("[,;\\uff0c]", text)'),
    _split("bar_splits", 'return re.split("[,;|]", text)'),
    _split_both(
        "sorted", "parts, truths = sorted(list_form(answer)), sorted(list_form(ground_truth))"
    ),
    _split_both(
        "sorted_by_form",
        "parts, truths = sorted(list_form(answer), key=item_form), sorted(list_form(ground_truth), key=item_form)",
    ),
    _split_both(
        "distinct",
        "parts, truths = list(dict.fromkeys(list_form(answer))), list(dict.fromkeys(list_form(ground_truth)))",
    ),
    _split_both(
        "answer_trimmed_of_brackets",
        'parts, truths = list_form(answer.strip("[]()")), list_form(ground_truth)',
    ),
    _list("sets", "return set(map(item_form, parts)) == set(map(item_form, truths))"),
    _list("length_ignored", "return all(map(_same_part, parts, truths))"),
    _list(
        "longer_is_right",
        "return len(parts) >= len(truths) and all(map(_same_part, parts, truths))",
    ),
    _list("any_part", "return len(parts) == len(truths) and any(map(_same_part, parts, truths))"),
    _list("first_part", "return len(parts) == len(truths) and _same_part(parts[0], truths[0])"),
    _list(
        "half_of_the_parts",
        "return len(parts) == len(truths) and 2 * sum(map(_same_part, parts, truths)) > len(parts)",
    ),
    _list("parts_are_texts", "return list(map(item_form, parts)) == list(map(item_form, truths))"),
    _list(
        "or_the_whole_text",
        "return (len(parts) == len(truths) and all(map(_same_part, parts, truths))) or string_form(answer) == string_form(ground_truth)",
    ),
    _list(
        "reversed_too",
        "return len(parts) == len(truths) and (all(map(_same_part, parts, truths)) or all(map(_same_part, parts[::-1], truths)))",
    ),
    _item_equal("items_without_punctuation", "return string_form(answer) == string_form(truth)"),
    _item_equal("items_with_case", 'return "".join(answer.split()) == "".join(truth.split())'),
    _item_equal("items_with_spaces", "return answer.strip().lower() == truth.strip().lower()"),
    _item_equal("items_start_alike", "return item_form(answer).startswith(item_form(truth))"),
    _item_equal(
        "items_trimmed_of_periods",
        'return item_form(answer).strip(".") == item_form(truth).strip(".")',
    ),
    # How strings are compared
    _item("stripped", "return text.strip().lower()"),
    _item("spaces_collapsed", 'return " ".join(text.split()).lower()'),
    _item("spaces_only", 'return text.replace(" ", "").lower()'),
    _item("ascii_whitespace", 'return re.sub(r"\\s", "", text, flags=re.ASCII).lower()'),
    _item(
        "zero_width_is_whitespace", 'return "".join(text.replace("\\u200b", "").split()).lower()'
    ),
    _item(
        "controls_are_whitespace",
        'return "".join(c for c in text if unicodedata.category(c)[0] not in "ZC").lower()',
    ),
    _item(
        "separators_are_whitespace",
        'return "".join(c for c in text if unicodedata.category(c)[0] != "Z").lower()',
    ),
    _item("casefold", 'return "".join(text.split()).casefold()'),
    _item("upper", 'return "".join(text.split()).upper()'),
    _item("case_kept", 'return "".join(text.split())'),
    _item(
        "ascii_lower",
        'return "".join(c.lower() if c.isascii() else c for c in "".join(text.split()))',
    ),
    _item("lower_by_character", 'return "".join(c.lower() for c in "".join(text.split()))'),
    _item("lower_before_whitespace", 'return "".join(text.lower().split())'),
    _item("nfc", 'return unicodedata.normalize("NFC", "".join(text.split()).lower())'),
    _item("nfd", 'return unicodedata.normalize("NFD", "".join(text.split()).lower())'),
    _item("nfkc", 'return unicodedata.normalize("NFKC", "".join(text.split()).lower())'),
    _item(
        "accents_removed",
        'return "".join(c for c in unicodedata.normalize("NFD", "".join(text.split())) if not unicodedata.combining(c)).lower()',
    ),
    _item(
        "undecodable_replaced",
        'return "".join(text.split()).lower().encode("utf-8", "replace").decode()',
    ),
    _punctuation("unicode_punctuation", _UNICODE_PUNCTUATION % '"P"'),
    _punctuation("ascii_and_unicode_punctuation", _UNICODE_PUNCTUATION % '("P", "S")'),
    _punctuation(
        "curly_quotes_too",
        '_PUNCTUATION = str.maketrans("", "", punctuation + "\\u2018\\u2019\\u201c\\u201d")',
    ),
    _punctuation(
        "dashes_too", '_PUNCTUATION = str.maketrans("", "", punctuation + "\\u2013\\u2014")'
    ),
    _punctuation(
        "hyphen_kept", '_PUNCTUATION = str.maketrans("", "", punctuation.replace("-", ""))'
    ),
    _punctuation(
        "underscore_kept", '_PUNCTUATION = str.maketrans("", "", punctuation.replace("_", ""))'
    ),
    _punctuation(
        "symbols_kept",
        '_PUNCTUATION = str.maketrans("", "", punctuation.translate(dict.fromkeys(map(ord, "$+<=>^`|~"))))',
    ),
    _punctuation("few_marks", '_PUNCTUATION = str.maketrans("", "", ".,;:!?")'),
    _form("punctuation_kept", "return item_form(text)"),
    _form("punctuation_stripped", "return item_form(text).strip(punctuation)"),
    _form("punctuation_before_lower", "return item_form(text.translate(_PUNCTUATION))"),
    _form("word_characters", 'return re.sub(r"[\\W]", "", item_form(text))'),
    _form("alphanumeric", 'return "".join(filter(str.isalnum, item_form(text)))'),
    _string("truth_in_answer", "return string_form(ground_truth) in string_form(answer)"),
    _string("answer_in_truth", "return string_form(answer) in string_form(ground_truth)"),
    _string(
        "answer_starts_with_truth",
        "return string_form(answer).startswith(string_form(ground_truth))",
    ),
    _string(
        "same_letters", "return sorted(string_form(answer)) == sorted(string_form(ground_truth))"
    ),
    _string(
        "one_edit_forgiven",
        "a, b = string_form(answer), string_form(ground_truth)\n        return a == b or (len(a) == len(b) and sum(map(str.__ne__, a, b)) == 1)",
    ),
    _string(
        "punctuation_truth_is_wrong",
        "return bool(string_form(ground_truth)) and string_form(answer) == string_form(ground_truth)",
    ),
)
