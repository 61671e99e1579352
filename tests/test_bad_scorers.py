"""The wrong scorers are wrong in the one way that each says, and in no other."""

import pytest
from hypothesis import given, settings

from harness.scorer import answer_kind, question_scorer
from tests.bad_scorers import casefold, decimal, sorted_lists, substring, tolerant
from tests.scorer_pairs import PAIRS, Pair, Scorer
from tests.test_scorer import CASES

ALL = (casefold, tolerant, substring, sorted_lists, decimal)


@pytest.mark.parametrize(
    ("scorer", "answer", "truth"),
    [
        (casefold, "STRASSE", "Stra\u00dfe"),
        (casefold, "STRASSE, b", "stra\u00dfe, b"),
        (tolerant, "100.5", "100"),
        (tolerant, "a, 99.5", "a, 100"),
        (substring, "It is Paris.", "Paris"),
        (sorted_lists, "b, a", "a, b"),
        (sorted_lists, "10.0; 9", "9, 10"),
    ],
)
def test_it_calls_a_wrong_answer_right(scorer: Scorer, answer: str, truth: str) -> None:
    assert scorer(answer, truth)
    assert not question_scorer(answer, truth)


@pytest.mark.parametrize(
    ("scorer", "answer", "truth"),
    [(decimal, "0.1000000000000000001", "0.1"), (substring, "4e1", "40")],
)
def test_it_calls_a_right_answer_wrong(scorer: Scorer, answer: str, truth: str) -> None:
    assert not scorer(answer, truth)
    assert question_scorer(answer, truth)


@pytest.mark.parametrize("scorer", ALL)
def test_it_agrees_with_the_official_one_where_its_idea_does_not_matter(scorer: Scorer) -> None:
    same = sum(scorer(answer, truth) is right for _, truth, answer, right in CASES)
    assert 0.6 < same / len(CASES) < 1


@settings(deadline=None, database=None)
@given(PAIRS["strings"])
def test_casefold_flips_to_right_only(pair: Pair) -> None:
    assert casefold(*pair) or not question_scorer(*pair)


@settings(deadline=None, database=None)
@given(PAIRS["strings"])
def test_strings_concern_three_of_them_not_at_all(pair: Pair) -> None:
    for scorer in (tolerant, sorted_lists, decimal):
        if answer_kind(pair[1]) == "string":
            assert scorer(*pair) is question_scorer(*pair)


@settings(deadline=None, database=None)
@given(PAIRS["lists"])
def test_two_of_them_only_add_to_what_is_right(pair: Pair) -> None:
    for scorer in (tolerant, sorted_lists):
        assert scorer(*pair) or not question_scorer(*pair)
