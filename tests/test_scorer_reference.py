"""Ours against the leaderboard's scorer: equal verdicts, and equal normal forms one by one.

Here some 96,000 pairs, over 30,000 of them distinct; the long form is
``python scripts/prove_scorer.py --pairs 1000000``. The reference comes from wheels outside the
repository (`tests.reference_scorer`); where it is missing these tests fail with the command that
fetches it.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings

from harness.scorer import (
    answer_kind,
    item_form,
    list_form,
    number_form,
    question_scorer,
    string_form,
    truth_number,
)
from tests import scorer_pairs, spellings
from tests.reference_scorer import COMMAND, REFERENCES, ReferenceMissing, load, references
from tests.test_scorer import CASES, load_rows

ROOT = Path(__file__).parent.parent
PAIRS_EACH = 24_000
TEXTS_EACH = 2_500
EVERY_CHARACTER = range(sys.maxunicode + 1)

many_texts = settings(
    max_examples=TEXTS_EACH,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("kind", scorer_pairs.FAMILIES)
def test_every_drawn_pair_gets_the_references_verdict(
    kind: str, record_property: Callable[[str, object], None]
) -> None:
    tally = scorer_pairs.agree(kind, PAIRS_EACH)
    record_property("drawn", tally.drawn)
    record_property("distinct", tally.distinct)
    record_property("share_right", round(tally.share_right, 3))
    print(f"{kind}: {tally.drawn} pairs, {tally.distinct} distinct, {tally.share_right:.0%} right")
    assert tally.drawn >= PAIRS_EACH
    assert tally.distinct > 5_000
    assert 0.2 <= tally.share_right <= 0.8, "one verdict is too rare to be tested"


def test_the_written_cases_are_the_references_verdicts_too() -> None:
    for port in references():
        for name, truth, answer, right in [*CASES, *load_rows()]:
            assert port.question_scorer(answer, truth) is right, (name, truth, answer)


def test_a_wrong_scorer_is_found_by_the_drawn_pairs() -> None:
    """The comparison can fail: a scorer that forgives one character more is caught."""

    def forgiving(answer: str | None, truth: str) -> bool:
        return question_scorer(answer and answer.replace("\u200b", ""), truth)

    with pytest.raises(AssertionError, match="ours: "):
        scorer_pairs.agree("strings", PAIRS_EACH, forgiving)


@many_texts
@given(spellings.texts)
@example("$1,0%0_0 ")
@example("nan")
def test_number_form_is_the_references(text: str) -> None:
    for port in references():
        assert _bits(number_form(text)) == _bits(port.number(text))


@many_texts
@given(spellings.texts)
@example("")
@example(",;, ;")
def test_list_form_is_the_references(text: str) -> None:
    for port in references():
        assert list_form(text) == port.split(text)


@many_texts
@given(spellings.texts)
@example("\u03a3\u0391.\u03a3 .")
def test_item_form_is_the_references(text: str) -> None:
    for port in references():
        assert item_form(text) == port.with_punctuation(text)


@many_texts
@given(spellings.texts)
@example("\u03a3\u0391\u03a3.\u03a3 !")
def test_string_form_is_the_references(text: str) -> None:
    for port in references():
        assert string_form(text) == port.without_punctuation(text)


def test_every_character_in_every_form() -> None:
    """Exhaustive: each of the 1,114,112 code points, surrogates included, between two letters."""
    port = references()[0]
    for first in range(0, len(EVERY_CHARACTER), 4096):
        text = "".join(f"a{chr(code)}\u03a3" for code in EVERY_CHARACTER[first : first + 4096])
        assert list_form(text) == port.split(text)
        assert item_form(text) == port.with_punctuation(text)
        assert string_form(text) == port.without_punctuation(text)


def test_every_character_in_a_number() -> None:
    """Exhaustive: each code point before and after a digit."""
    port = references()[0]
    for code in EVERY_CHARACTER:
        text = f"{chr(code)}1{chr(code)}"
        assert _bits(number_form(text)) == _bits(port.number(text)), hex(code)


@many_texts
@given(scorer_pairs.PAIRS["wild"])
def test_no_input_raises_and_the_truth_alone_selects_the_rule(pair: tuple[str | None, str]) -> None:
    answer, truth = pair
    assert isinstance(question_scorer(answer, truth), bool)
    assert (answer_kind(truth) == "number") is (truth_number(truth) is not None)
    if answer_kind(truth) == "string":
        assert list_form(truth) == [truth]


def test_none_is_read_as_the_text_none() -> None:
    for port in references():
        for truth in ("None", "none", "N.o,ne", "a, b", "42", "inf", "", "NONE!"):
            verdicts = {port.question_scorer(answer, truth) for answer in (None, "None")}
            assert verdicts == {question_scorer(None, truth)}


def test_a_missing_reference_is_a_failure_that_names_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(ReferenceMissing, match=f"not on this machine: run  {COMMAND}"):
        load("evalscope")
    damaged = tmp_path / "gaia-harness" / "reference" / REFERENCES["evalscope"].wheel
    damaged.parent.mkdir(parents=True)
    damaged.write_bytes(b"something else")
    with pytest.raises(ReferenceMissing, match=f"damaged: run  {COMMAND}"):
        load("evalscope")


def test_fetching_again_needs_no_network_and_a_damaged_wheel_is_not_accepted(
    tmp_path: Path,
) -> None:
    references()
    offline = {**os.environ, "PIP_NO_INDEX": "1"}
    fetch = [sys.executable, str(ROOT / "scripts" / "fetch_reference.py")]
    again = subprocess.run(fetch, env=offline, capture_output=True, text=True, check=False)
    assert again.returncode == 0
    assert again.stdout.count("present") == len(REFERENCES)

    folder = tmp_path / "gaia-harness" / "reference"
    folder.mkdir(parents=True)
    wheel = folder / REFERENCES["evalscope"].wheel
    wheel.write_bytes(b"something else")
    environment = {**offline, "XDG_CACHE_HOME": str(tmp_path)}
    broken = subprocess.run(fetch, env=environment, capture_output=True, text=True, check=False)
    assert broken.returncode == 3
    assert "could not download evalscope==1.14.1" in broken.stderr
    assert [path.name for path in folder.iterdir()] == [wheel.name]


def _bits(value: float) -> str:
    """A float so that NaN equals itself and -0.0 differs from 0.0."""
    return value.hex()
