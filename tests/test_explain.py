"""The classes of wrong answers: one row a class and more, and what must hold for any answer."""

import ast
import re
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness import explain as explain_module
from harness import scorer
from harness.explain import HINTS, MAX_LENGTH, WINNABLE, explain
from harness.rewrites import REWRITES
from harness.scorer import question_scorer
from tests.scorer_pairs import PAIRS, Pair
from tests.test_scorer import CASES, load_rows

ROWS: dict[str, list[tuple[str | None, str]]] = {
    "no_answer": [(None, "Paris"), (None, "None"), (None, "inf")],
    "right": [("42.0", "42"), ("paris", "Paris"), ("banana", "inf"), ("", "!")],
    "empty_answer": [("", "42"), (" \n\t", "Paris"), ("\u2003", "a, b")],
    "lookalike": [
        *[
            ("\u22125", "-5"),
            ("\u00b2", "2"),
            ("\u201cParis\u201d x", '"Paris" x'),
            ("42\u200b", "42"),
        ],
        *[
            ("P\u0430ris", "Paris"),
            ("a\uff0cb", "a, b"),
            ("Zu\u0308rich", "Z\u00fcrich"),
            ("\uff15", "$5"),
        ],
        *[("O\u2019Neil, x", "O'Neil, x"), ("a\u2013b, c", "a-b, c"), ("\ufb01sh", "fish")],
    ],
    "accents": [
        ("Zurich", "Z\u00fcrich"),
        ("caf\u00e9, b", "cafe, b"),
        ("Sao Paulo", "S\u00e3o Paulo"),
    ],
    "letter_case": [("STRASSE", "Stra\u00dfe"), ("a, GROSS", "a, gro\u00df")],
    "number_word": [
        *[("five", "5"), ("5", "five"), ("Twenty-one", "21"), ("one hundred and five", "105")],
        *[("1.5 million", "1500000"), ("two, three", "2, 3"), ("17 thousand", "17000")],
        *[("two thousand three hundred and four", "2304"), ("3 cats", "three cats")],
    ],
    "separators_in_number": [
        *[
            ("1 000", "1000"),
            ("1.000", "1000"),
            ("1'000", "1000"),
            ("1000", "1,000"),
            ("3,5", "3.5"),
        ],
        *[("1,000, 2,000", "1000, 2000"), ("1.000.000", "1000000"), ("10000, 5", "10,000, 5")],
    ],
    "list_separator": [
        *[("a and b", "a, b"), ("a\nb", "a, b"), ("- a\n- b", "a, b"), ("1. a\n2. b", "a, b")],
        *[
            ("a, b, and c", "a, b, c"),
            ("a / b", "a; b"),
            ("a | b & c", "a, b, c"),
            ("1 and 2", "1, 2"),
        ],
        ("a\u3001b", "a, b"),
    ],
    "article": [("The Beatles", "Beatles"), ("cat", "a cat"), ("the cat, dog", "cat, the dog")],
    "punctuation": [
        *[("St Louis, MO", "St. Louis, MO"), ("a, b.", "a, b"), ("[a, b]", "a, b"), ("(42)", "42")],
        *[("**42**", "42"), ("'a', 'b'", "a, b"), ("(1, 2)", "1, 2"), ("42!", "42"), ("`7`", "7")],
    ],
    "unit": [
        *[
            ("5 km", "5"),
            ("5", "5 km"),
            ("EUR 5", "5"),
            ("\u00a35", "5"),
            ("5 miles per hour", "5"),
        ],
        *[
            ("42 people", "42"),
            ("5\u00b0C", "5"),
            ("5 m, 6 m", "5, 6"),
            ("12 km/h.", "12"),
            ("7", "7 m^2"),
        ],
    ],
    "scale": [("17000", "17"), ("17", "17000000"), ("50%", "0.5"), ("2500", "2.5")],
    "rounding": [("3.14159", "3.14"), ("3.1", "3.14"), ("100.4", "100"), ("1.26, 2", "1.3, 2")],
    "order": [("b, a", "a, b"), ("3; 1;2.0", "1, 2, 3"), ("a, b, a", "a, a, b")],
    "extra_words": [
        *[("The capital of France is Paris.", "Paris"), ("about 42 of them", "42")],
        *[("The answer is 42.", "42"), ("Option B", "B"), ("Paris, France", "Paris")],
        *[
            ("The items are a, b", "a, b"),
            ("12:30 pm", "12:30"),
            ("It was -3.5 in the end", "-3.5"),
        ],
    ],
    "several_forms": [
        *[("the five km", "5"), ("MO, St Louis", "St. Louis, MO"), ("b and a", "a, b")],
        *[("The STRASSE", "Stra\u00dfe"), ("twelve people", "12")],
    ],
    "missing_words": [("Darwin", "Charles Darwin"), ("Charles", "Charles Darwin")],
    "wrong_kind": [
        *[("Paris", "42"), ("42", "Paris"), ("1, 2", "3"), ("banana", "1, 2"), ("2, not 3", "3")],
        *[
            ("between 41 and 42", "42"),
            ("1/2", "0.5"),
            ("1/2", "12"),
            ("1 and 2", "12"),
            ("6 or 7", "6"),
        ],
        *[("5 or more", "5"), ("banana", "1e305"), ("B12", "12"), ("3 of 4", "3")],
    ],
    "wrong_length": [("a, b, c", "a, b"), ("a", "a, b"), ("a, b", "a, b,"), ("1, 2, 3", "1, 2")],
    "plainly_wrong": [
        *[("., -", "!, ?"), ("x", "\uff49nf"), ("42", "Catch 22"), ("a dog", "A")],
        ("so many other words " * 6 + "and Paris", "Paris"),
        *[("London", "Paris"), ("43", "42"), ("x, y", "a, b"), ("not Paris", "Paris"), ("-5", "5")],
        *[
            ("Paris or London", "Paris"),
            ("5 miles", "5 km"),
            ("1,234", "3"),
            ("0", "0.3"),
            ("x", "?"),
        ],
        *[("anything but Paris", "Paris"), ("a dog", "b"), ("5.5", "5.4")],
    ],
}


@pytest.mark.parametrize(
    ("label", "answer", "truth"),
    [(label, answer, truth) for label, pairs in ROWS.items() for answer, truth in pairs],
    ids=ascii,
)
def test_a_wrong_answer_gets_its_label(label: str, answer: str | None, truth: str) -> None:
    found = explain(answer, truth)
    assert found.label == label
    assert found.winnable is (label in WINNABLE)
    if label == "several_forms":
        assert found.hint.startswith(HINTS[label])
    else:
        assert found.hint == HINTS[label]


def test_every_label_has_a_row_and_a_hint() -> None:
    assert set(ROWS) == set(HINTS)
    assert set(REWRITES) | {"several_forms"} == WINNABLE


def test_the_docs_name_every_label_in_the_order_in_which_they_are_tried() -> None:
    docs = Path(__file__).parent.parent / "docs" / "scoring.md"
    labels = re.findall(r"^\| `([a-z_]+)` \|", docs.read_text("utf-8").partition("## Why")[2], re.M)
    assert sorted(labels) == sorted(HINTS)
    assert [label for label in labels if label in REWRITES] == list(REWRITES)


def test_two_forms_are_named_in_the_hint() -> None:
    assert explain("b and a", "a, b").hint.endswith("list_separator and order.")


def test_the_label_of_every_written_case_agrees_with_its_verdict() -> None:
    for _, truth, answer, right in [*CASES, *load_rows()]:
        if answer is not None:
            assert (explain(answer, truth).label == "right") is right, (answer, truth)


@settings(deadline=None, database=None, suppress_health_check=list(HealthCheck), max_examples=400)
@given(st.sampled_from(list(PAIRS)).flatmap(PAIRS.__getitem__))
def test_any_pair_gets_one_label_always_the_same(pair: Pair) -> None:
    answer, truth = pair
    found = explain(answer, truth)
    assert found.label in HINTS
    assert found == explain(answer, truth)
    if answer is not None:
        assert (found.label == "right") is question_scorer(answer, truth)
        assert (found.label == "empty_answer") <= (not answer.strip())


@pytest.mark.parametrize(
    "answer",
    ["1" * 10**6, "five " * 10**5, "1," * 10**5, "(" * 10**6, "5 x " * 200, "9" * MAX_LENGTH],
)
@pytest.mark.parametrize("truth", ["42", "a, b", "Paris", "5 km"])
def test_a_long_answer_takes_no_long_time(answer: str, truth: str) -> None:
    start = time.process_time()
    assert explain(answer, truth).label in HINTS
    assert time.process_time() - start < 5


def test_huge_exponents_are_no_huge_texts() -> None:
    for answer in ("1e999999999 million", "1e999999999", "-1e-999999999 km", "1e400"):
        for truth in ("42", "1e-999999999 m", "0.001", "1e9999999, 2"):
            assert explain(answer, truth).label in HINTS


def test_no_verdict_is_made_of_it() -> None:
    """The scorer knows nothing of labels, and an explanation holds no figure."""
    assert "explain" not in Path(scorer.__file__).read_text("utf-8")
    assert explain("a", "b")._fields == ("label", "hint")
    tree = ast.parse(Path(explain_module.__file__).read_text("utf-8"))
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    own = {module for module in modules if module and module.startswith("harness")}
    assert own == {"harness.rewrites", "harness.scorer"}
