"""The short form of the mutation proof: each wrong rewrite of the scorer dies of a written case."""

import subprocess
import sys
from pathlib import Path

import pytest

from harness.scorer import question_scorer
from tests.scorer_mutants import MUTANTS, Mutant, MutantDoesNotFit
from tests.test_scorer import CASES, load_rows

SCRIPT = Path(__file__).parent.parent / "scripts" / "mutate_scorer.py"


def test_the_script_kills_every_mutant() -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--short"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith(f"{len(MUTANTS)} mutants, {len(MUTANTS)} killed\n")


def test_there_are_many_and_no_two_alike() -> None:
    assert len(MUTANTS) >= 130
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    assert len({mutant.source() for mutant in MUTANTS}) == len(MUTANTS)


def test_a_rewrite_that_changes_nothing_would_survive() -> None:
    """The proof can fail: an equivalent rewrite passes every case."""
    same = Mutant("regular_expression", (('"".join(text.split())', 're.sub(r"\\s", "", text)'),))
    assert same.source() != Mutant("unchanged", ()).source()
    scorer = same.scorer()
    for _, truth, answer, right in [*CASES, *load_rows()]:
        assert scorer(answer, truth) is right is question_scorer(answer, truth)


def test_a_mutant_that_no_longer_fits_says_so() -> None:
    with pytest.raises(MutantDoesNotFit, match="lost: 0 times in"):
        Mutant("lost", (("no such text", ""),)).source()
