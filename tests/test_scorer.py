"""The leaderboard's rules, case by case; `tests.test_scorer_reference` compares with the original.

`CASES` are rows ``(case, truth, answer, right)``. They and ``data/scorer_cases.json`` (facts
computed with a published port of the leaderboard's scorer) are also what the mutation proof uses.
"""

import ast
import json
import math
import re
import time
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import scorer
from harness.scorer import (
    answer_kind,
    item_form,
    list_form,
    number_form,
    question_scorer,
    string_form,
    truth_number,
)

DOCS = Path(__file__).parent.parent / "docs" / "scoring.md"

Case = tuple[str, str, str | None, bool]


def load_rows() -> list[Case]:
    """The recorded facts as cases, named by their group."""
    text = (Path(__file__).parent / "data" / "scorer_cases.json").read_text("utf-8")
    return [
        (row["group"], row["truth"], row["answer"], row["expected"]) for row in json.loads(text)
    ]


def cases(name: str, truth: str, right: list[str | None], wrong: list[str | None]) -> list[Case]:
    """Rows of one truth."""
    return [(name, truth, answer, answer in right) for answer in [*right, *wrong]]


CASES: list[Case] = [
    # A truth with a thousands comma is a list of two numbers.
    *cases(
        "A01", "1,000", ["1,000", "1,0", "1;000", "$1,000", "1.0,0", " 1 , 0e9 "], ["1000", "1"]
    ),
    *cases("A01", "1,000", ["01;$0", "1,00%"], ["1 000", "1,000,", ",1000", "1.000", "1,001"]),
    *cases("A01", "12,500.50", ["12,500.5", "12;0500.5"], ["12500.5", "12,5005"]),
    # The answer to a number is cleaned of three symbols, anywhere; a truth never is.
    *cases(
        "A02", "42", ["4,2", "$42%", "42 %", "42.", ",,42", "4$2", "%4%2%"], ["4 2", "42#", "#42"]
    ),
    *cases(
        "A02", "42", ["+42", "042", "4.2e1", "$ 42"], ["\u00a342", "42\u20ac", "(42)", "42;", ""]
    ),
    *cases(
        "A02", "42", ["420e-1", "42.0"], ["-42", "42,0", "42.1", "forty-two", "0x2a", "42\uff05"]
    ),
    *cases("A02", "-7", ["-7", "$-7", "-$7", "-7%"], ["7", "- 7", "--7", "(7)"]),
    *cases("A02", "50%", ["5.0", "50", "50%", "$50", "5-0"], ["0.5", "50 percent", "5"]),
    *cases("A02", "$5", ["5", "5$", ".5", "$ 5", "5%"], ["5.0", "five", "\uff15"]),
    *cases("A02", "$1,000", ["$1,000", "$1;0", "$ 1,$0"], ["1,000", "1000", "$1000", "1,$1000"]),
    *cases("A02", "1.50", ["1.5", "$1.50", "1.500"], ["1,50", "1.05", "150"]),
    *cases(
        "A02",
        "42",
        [],
        ["**42**", "FINAL ANSWER: 42", "[42]", "42 km", "42k", "= 42", "'42'", "42.."],
    ),
    *cases(
        "A02",
        "42000",
        ["42,000", "4,2,0,0,0"],
        ["42k", "42 thousand", "42.000", "42 000", "42'000"],
    ),
    *cases("A02", "0.5", [".5", "5e-1", "0.5%"], ["50%", "1/2", "0,5", "\u00bd"]),
    *cases("A02", "5", ["5", "$5", "5%"], ["500%", "five", "5th", "V", "[5]", "5\u00b0"]),
    # What cannot be read as a number is +infinity.
    *cases(
        "A03", "inf", ["banana", "", "inf", "1e999", "\u221e", None, "1e400"], ["-inf", "0", "nan"]
    ),
    *cases("A03", "Infinity", ["banana", "infinity", "i n f"], ["-Infinity", "1e308"]),
    *cases("A03", "1e400", ["banana", "1e401", "inf", "x"], ["-1e400", "1e300"]),
    *cases("A03", "+INF", ["anything at all"], ["-inf"]),
    *cases("A03", "-inf", ["-inf", "-Infinity", "-1e400", "-$inf"], ["banana", "inf", "", None]),
    *cases(
        "A03", "x, inf", ["x, banana", "X;", "x,inf", "x, -"], ["x, -inf", "y, banana", "x", "x, 0"]
    ),
    *cases("A03", "inf; 1e999", ["a,b", ","], ["a", "a,b,c", "a, 1"]),
    *cases("A03", "-inf, a", ["-1e999, a"], ["banana, a", ", a"]),
    *cases("A03", "nan", [], ["nan", "NaN", "banana", "inf", "", None]),
    *cases("A03", "nan, 1", [], ["nan, 1", "NaN,1", "x, 1"]),
    # What float() reads is a number, nothing else is.
    *cases("A04", "1_000", ["1000", "1_0_00", "1,000", "1e3"], ["1__000", "_1000", "1000_"]),
    *cases(
        "A04", "42", ["\uff14\uff12", "\u0664\u0662", "4_2", "\u096a2", "\U0001d7d2\U0001d7d0"], []
    ),
    *cases(
        "A04",
        "42",
        [" 42\n", "\u200342\u3000", "\x8542\x0b", "42\xa0"],
        ["42\u200b", "\ufeff42", "\x1f42"],
    ),
    *cases(
        "A04",
        "42",
        [],
        ["\u00b2", "4\u00b2", "\u2463\u2461", "42\u20e3", "4\x002", "\ud80042", "\u4e94"],
    ),
    *cases("A04", "-5", ["-5", "-5.0", "-05"], ["\u22125", "\u20135", "\uff0d5", "5"]),
    *cases("A04", "\uff15", ["5", "\u0665", "5.0"], ["five", ""]),
    *cases("A04", " 5 ", ["5", "5.0"], ["5 5"]),
    *cases("A04", "1_", ["1", "1_", "_1"], ["1.0", "2"]),
    *cases("A04", "5\u200b", ["5\u200b", "5.\u200b"], ["5", "5.0\u200b"]),
    *cases("A04", "\u00b2", ["\u00b2", "(\u00b2)"], ["2", "inf", ""]),
    *cases(
        "A04",
        "0.1",
        [".1", "0.10", "1e-1", "0.1000000000000000001"],
        ["0.1000000000000001", "1/10"],
    ),
    *cases(
        "A04", "0.3", ["0.3", "0.29999999999999999"], ["0.30000000000000004", "0.1+0.2", "0.31"]
    ),
    *cases(
        "A04", "9007199254740993", ["9007199254740992", "9007199254740993.0"], ["9007199254740994"]
    ),
    *cases("A04", "0", ["-0", "0.0", "1e-400", "00", "$0%"], ["", "1e-300", "zero", None]),
    *cases("A04", "1e5", ["100000", "1E+5", "100,000", "1e05"], ["1*10^5", "1e 5"]),
    *cases("A04", "12:30", ["1230", "12.30", "1,2,3,0"], ["12:31"]),
    # The pure rule; that such a truth never gets here is the pipeline's business.
    *cases("A05", "?", ["", "?!", "?", " ", "...", "\u2003-"], ["Paris", None, "0", "\u00bf"]),
    *cases("A05", "-", ["", "--"], ["x"]),
    # No answer is the text "None".
    *cases("A06", "None", [None, "none", " N.o-ne!"], ["nothing", "", "null"]),
    *cases("A06", "Paris", ["paris"], [None]),
    *cases("A06", "42", ["42"], [None]),
    *cases("A06", "a, b", ["A,B"], [None]),
    *cases("A06", "none,", ["None;"], [None]),
    # Strings lose ASCII punctuation, items of a list keep it.
    *cases(
        "A08",
        "St. Louis",
        ["St Louis", "st.louis", "s-t l,o;u_i!s", '"St. Louis"'],
        ["Saint Louis"],
    ),
    *cases(
        "A08", "St. Louis, MO", ["st.louis,mo", "ST. LOUIS; MO"], ["St Louis, MO", "St. Louis MO"]
    ),
    *cases("A08", "a, b", ["a,b", " A ;B\t"], ["a, b.", "'a', 'b'", "a, (b)", "a-, b"]),
    *cases("A08", "1, 2", ["1, 2.", "$1, 2%", "1.0;+2"], ["1, (2)", "1, 2!", "#1, 2"]),
    *cases("A08", "1, b", ["1.0, B", "$1; b"], ["1, b.", "1, $b", "x, b"]),
    *cases("A08", "$5, b", ["$ 5, b"], ["5, b", "$5.0, b"]),
    *cases("A08", "x" + "!\"#$%&'()*+-./:<=>?@[\\]^_`{|}~", ["X", "x", "~x,"], ["xx", ""]),
    # Order, length and an empty tail count; no other separator, no brackets.
    *cases("A09", "a, b", ["a;b", "a,b", "a , b", "A; B"], ["b, a", "a, b,", "[a, b]", "a and b"]),
    *cases(
        "A09",
        "a, b",
        [],
        ["a\uff0cb", "a\nb", "a, a, b", "a", "ab", ",a,b", "a,,b", "", "a,", "b;a"],
    ),
    *cases("A09", "a, b,", ["a,b,", "a;b; "], ["a, b", "a, b,,"]),
    *cases("A09", ",", [",", ";", " , ", "\n;\x85"], ["", ",,", "a,", None]),
    *cases("A09", "a;;b", ["a,,b", "a;,b", "a, ;b"], ["a;b", "a, b", "a;x;b"]),
    *cases("A09", "1;;2", ["1,,2", "1; ;2"], ["1;2", "1;0;2"]),
    *cases(
        "A09", "1, 2, 3", ["1,2,3", "1;2;3.0"], ["3, 2, 1", "1, 2", "123", "1 2 3", "1, 2, 3, 4"]
    ),
    *cases("A09", "5, 10", ["5, 1_0", "05,10.0"], ["10, 5", "5", "5, 10, 10"]),
    *cases("A09", "a, a, b", ["a,a,b"], ["a, b", "b, a, a", "a, b, a"]),
    *cases(
        "A09",
        "1, 2",
        ["1 , 2 ", "\n1,2"],
        ["\x1f1, 2", "[1, 2]", "1, 2;", "1 and 2", "1|2", "2, 1"],
    ),
    *cases("A09", "a, a", ["a;a"], ["a", "a, b", "b, a"]),
    *cases("A09", "x|y", ["xy", "x-y", "x, y"], ["y|x", "x;;z"]),
    *cases("A09", "a\nb", ["ab", "a.b", "a,b"], ["b\na"]),
    # Whitespace goes, then letters are lowered, then ASCII punctuation goes. Nothing else happens.
    *cases("A10", "Stra\u00dfe", ["STRA\u00dfE", "stra\u1e9ee"], ["STRASSE", "strasse"]),
    *cases("A10", "caf\u00e9", ["CAF\u00c9", "ca f\u00e9"], ["cafe\u0301", "cafe"]),
    *cases("A10", "\ufb01sh", ["\ufb01 SH"], ["fish", "FISH"]),
    *cases("A10", "\uff21bc", ["\uff41BC"], ["abc"]),
    *cases("A10", "\u212b", ["\u00c5", "\u00e5"], ["A\u030a"]),
    *cases("A10", "a\u2019b", ["A\u2019B"], ["ab", "a'b"]),
    *cases("A10", "a\u2013b", ["a \u2013 b"], ["ab", "a-b"]),
    *cases("A10", "a\u00b7b", [], ["ab"]),
    *cases("A10", "\u00abyes\u00bb", ["\u00ab yes \u00bb!"], ["yes"]),
    *cases(
        "A10",
        "sea gull",
        ["seagull", "S\u00a0e\u2003a\u3000gull", "sea\x85gull", "sea\x1fgull"],
        [],
    ),
    *cases(
        "A10",
        "sea gull",
        ["sea\u2028gull\x0b"],
        ["sea\u200bgull", "sea\u180egull", "sea\u2800gull"],
    ),
    *cases("A10", "a b, c", ["ab,c", "a\u2003\nB,\x1cc"], ["a\u200bb, c", "a\xadb, c"]),
    *cases("A10", "\u0130", ["i\u0307", "\u0130"], ["i", "I", "\u0131"]),
    *cases("A10", "\u017f", ["\u017f"], ["s", "S"]),
    *cases("A10", "\u212a", ["k", "K"], []),
    # A final sigma: whitespace must be gone before lower(), punctuation must still be there.
    *cases(
        "A10",
        "\u039f\u0394\u039f\u03a3",
        ["\u03bf\u03b4\u03bf\u03c2"],
        ["\u03bf\u03b4\u03bf\u03c3"],
    ),
    *cases(
        "A10",
        "\u0391\u03a3 \u0391",
        ["\u03b1\u03c3\u03b1", "\u0391\u03a3\u0391"],
        ["\u03b1\u03c2\u03b1"],
    ),
    *cases(
        "A10",
        "\u0391\u03a3-\u0391",
        ["\u03b1\u03c2\u03b1"],
        ["\u03b1\u03c3\u03b1", "\u0391\u03a3\u0391"],
    ),
    *cases("A10", "\u0391\u03a3 -", ["\u03b1\u03c2"], ["\u03b1\u03c3"]),
    *cases("A10", "\u0391\u03a3 \u0391, b", ["\u03b1\u03c3\u03b1, b"], ["\u03b1\u03c2\u03b1, b"]),
    *cases("A10", "x\ud800", ["X \ud800"], ["x", "x\ud801", "x?"]),
    *cases("A10", "the sea", ["The Sea", "thesea"], ["sea", "a sea"]),
    *cases("A10", "x_y-z", ["xyz", "X-Y_Z", "x y z"], ["xy"]),
    *cases("A10", "x + y", ["xy", "x<y", "x=y", "x^y", "x`y", "x|y~"], ["x\u00d7y", "x\u2212y"]),
    *cases("A10", "five", ["Five"], ["5"]),
    *cases("A10", "A1", ["a1", "a-1"], ["a\uff11", "a\u00b9"]),
    # A part of the truth, or a text that holds it, is not the truth.
    *cases("A11", "1985", ["1985", "1,985"], ["5", "85", "in 1985", "1985 1985", "19855"]),
    *cases("A11", "Rome, Italy", ["rome,italy"], ["a", "Rome", "Italy", "Rome, Italy, Europe"]),
    *cases("A11", "3", ["3"], ["2, not 3", "3 or 4", "3 apples", "3;"]),
    *cases("A11", "Paris", ["P aris"], ["Paris, France", "the Paris", "It is Paris.", "Pari"]),
    # Nearly right is wrong.
    *cases("A12", "Parisian", ["parisian", "Paris ian"], ["Paris ian x", "Parisians", "Parisien"]),
    *cases("A12", "100", ["1e2"], ["99.9999999", "100.0000001", "one hundred"]),
    *cases("A12", "a, b, c, d", ["a,b,c,d"], ["a, b, c, e", "a, b, c"]),
    *cases("A12", "True", ["true"], ["yes", "1"]),
]


def _id(case: Case) -> str:
    name, truth, answer, _ = case
    return ascii(f"{name} {truth} <- {answer}")


@pytest.mark.parametrize("case", load_rows(), ids=_id)
def test_recorded_fact(case: Case) -> None:
    _, truth, answer, right = case
    assert question_scorer(answer, truth) is right


@pytest.mark.parametrize("case", CASES, ids=_id)
def test_case(case: Case) -> None:
    """A01 to A06 and A08 to A12; A07 is in `tests.test_answers`."""
    _, truth, answer, right = case
    assert question_scorer(answer, truth) is right


def test_the_facts_are_all_there() -> None:
    rows = load_rows()
    assert len(rows) == 239
    assert 0.3 < sum(right for *_, right in rows) / len(rows) < 0.7


@pytest.mark.parametrize(
    ("truth", "kind"),
    [
        *[
            (truth, "number")
            for truth in ("42", "1e5", " 7 ", "inf", "nan", "1_0", "\u0664", "-.5")
        ],
        *[(truth, "list") for truth in ("1,000", "a, b", ";", "a;", "$1,000", "1;2", "nan,")],
        *[
            (truth, "string")
            for truth in ("$5", "50%", "", "?", "Paris", "1 2", "a\uff0cb", "1__0")
        ],
    ],
)
def test_the_truth_selects_the_rule(truth: str, kind: str) -> None:
    assert answer_kind(truth) == kind


def test_the_forms() -> None:
    """What each rule compares, in one place."""
    assert number_form(" $1,2%3.50 ") == 123.5
    assert number_form("12 apples") == math.inf
    assert math.isnan(number_form("$nan"))
    assert truth_number("$5") is None
    assert truth_number("1e400") == math.inf
    assert list_form("a; b,,c ") == ["a", " b", "", "c "]
    assert list_form("") == [""]
    assert item_form(" St.\u2003Louis\n") == "st.louis"
    assert string_form(" St.\u2003Louis\n") == "stlouis"
    assert string_form("\u00bfS\u00ed!") == "\u00bfs\u00ed"


def test_the_surprises_in_the_docs_are_true() -> None:
    """Each row of the table: truth, answer (none in backticks is a blank one), verdict."""
    table = re.findall(r"^\| `(.+?)` \| (.+?) \| (right|wrong) \|", DOCS.read_text("utf-8"), re.M)
    assert len(table) == 21
    for truth, cell, verdict in table:
        answer = re.search(r"`(.+?)`", cell)
        right = question_scorer(answer[1] if answer else "", truth)
        assert right is (verdict == "right"), (truth, cell)


texts = st.text(st.characters(exclude_categories=()))
plain_texts = texts.filter(lambda text: answer_kind(text) == "string")


@given(texts)
def test_a_truth_is_right_for_itself_unless_it_is_nan_or_is_cleaned(truth: str) -> None:
    number = truth_number(truth)
    parts = [truth_number(part) for part in list_form(truth)]
    has_nan = (number is not None and math.isnan(number)) or any(
        part is not None and math.isnan(part) for part in parts
    )
    assert question_scorer(truth, truth) is not has_nan


@given(plain_texts, texts)
def test_strings_and_items_are_compared_both_ways_alike(truth: str, answer: str) -> None:
    if answer_kind(answer) == "string":
        assert question_scorer(answer, truth) is question_scorer(truth, answer)


@given(st.floats(allow_nan=False))
def test_every_float_is_read_exactly(value: float) -> None:
    assert question_scorer(repr(value), repr(value))
    if math.isfinite(value):
        assert not question_scorer(repr(math.nextafter(value, math.inf)), repr(value))


@given(st.integers(0, 10**30), st.sampled_from("$%,"), st.integers(0, 30))
def test_symbols_anywhere_in_the_answer_change_nothing(value: int, symbol: str, at: int) -> None:
    text = str(value)
    assert question_scorer(text[:at] + symbol + text[at:], text)


@given(st.lists(plain_texts, min_size=2), st.data())
def test_a_list_is_right_place_by_place(parts: list[str], data: st.DataObject) -> None:
    separators = st.sampled_from(",;")
    truth = "".join(part + data.draw(separators) for part in parts)
    answer = "".join(part.swapcase().swapcase() + data.draw(separators) for part in parts)
    same = [item_form(part.swapcase().swapcase()) == item_form(part) for part in parts]
    assert question_scorer(answer, truth) is all(same)
    assert not question_scorer(answer + ",", truth)


def test_whitespace_is_what_unicode_calls_so() -> None:
    """Separators of categories Z plus the control characters that end lines or fields."""
    controls = "\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f\x85"
    for code in range(0x110000):
        character = chr(code)
        space = unicodedata.category(character).startswith("Z") or character in controls
        assert (item_form(character) == "") is space, hex(code)


def test_it_stands_alone_and_is_fast() -> None:
    """Nothing of the project is imported, and a whole validation split takes next to no time."""
    tree = ast.parse(Path(scorer.__file__).read_text("utf-8"))
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported == {"string", "typing"}
    assert not any(isinstance(node, ast.Import) for node in ast.walk(tree))
    rows = (load_rows() * 2)[:165]
    fastest = math.inf
    for _ in range(20):
        start = time.perf_counter()
        for _, truth, answer, _ in rows:
            question_scorer(answer, truth)
        fastest = min(fastest, time.perf_counter() - start)
    assert fastest < 0.005
