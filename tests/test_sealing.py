"""A sealed key says what the official rules say, and shows no truth."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import sealing
from harness.errors import DamageError
from harness.scorer import question_scorer

CASES = json.loads((Path(__file__).parent / "data" / "scorer_cases.json").read_text())


@pytest.fixture(autouse=True)
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cost of a guess is no part of what is tested."""
    monkeypatch.setattr(sealing, "COST", 2)


def sealed_says(answer: str | None, truth: str) -> bool:
    key = sealing.decode(sealing.encode(sealing.seal({"t": truth})), "the key")
    found = key.find("t")
    assert found is not None
    return sealing.SealedKey(truths=key.truths, cost=2).is_right(found, answer)


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["group"]))
def test_every_known_case(case: dict[str, object]) -> None:
    answer, truth = case["answer"], str(case["truth"])
    if truth.strip() == "?":
        return
    assert answer is None or isinstance(answer, str)
    assert sealed_says(answer, truth) == case["expected"]


PARTS = st.sampled_from(
    [
        "1",
        "1.0",
        "-0",
        "0",
        "inf",
        "nan",
        "1e400",
        "banana",
        " B ",
        "b",
        "",
        "$5",
        "5",
        "St. L",
        "None",
    ]
)
TEXTS = st.lists(PARTS, min_size=1, max_size=3).flatmap(
    lambda parts: st.sampled_from([",", "; ", ", "]).map(lambda mark: mark.join(parts))
)


@given(TEXTS | st.none(), TEXTS)
@settings(max_examples=300)
def test_it_agrees_with_the_scorer(answer: str | None, truth: str) -> None:
    sealing.COST = 2
    assert sealed_says(answer, truth) == question_scorer(answer, truth)


def test_no_truth_stands_in_it() -> None:
    truths = {"a": "Marie Curie", "b": "1234567", "c": "alpha, beta", "d": "?"}
    data = sealing.encode(sealing.seal(truths))
    for word in (b"Marie", b"marie", b"curie", b"1234567", b"alpha", b"beta"):
        assert word not in data
    again = sealing.encode(sealing.seal(truths))
    assert data != again  # a salt of its own, each time


def test_withheld_truths_stay_withheld() -> None:
    assert not sealed_says("", "?")
    assert not sealed_says("?", " ? ")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[" * 100_000,
        b'{"format":"other","version":1,"truths":[]}',
        b'{"format":"gaia-harness-key","version":2,"truths":[]}',
        b'{"format":"gaia-harness-key","version":1,"cost":99999999999,"truths":[]}',
        b'{"format":"gaia-harness-key","version":1,"truths":[{"task_id":"a","kind":"x","salt":"",'
        b'"hash":""}]}',
        b'{"format":"gaia-harness-key","version":1,"truths":[{"task_id":"a","kind":"list","salt":"z",'
        b'"hash":""}]}',
    ],
)
def test_what_is_no_key_is_damage(data: bytes) -> None:
    with pytest.raises(DamageError):
        sealing.decode(data, "the key")
