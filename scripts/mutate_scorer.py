"""The mutation proof: every wrong rewrite of the scorer is caught by the tests.

    python scripts/mutate_scorer.py --short     the written cases alone; a second
    python scripts/mutate_scorer.py             also pytest over a changed copy, and drawn pairs

A mutant is the source of ``harness/scorer.py`` with one idea changed (``tests/scorer_mutants.py``).
It dies when a case of ``tests/test_scorer.py`` gets another verdict, or none. The long form also
runs that file with pytest in a copy that holds the mutant, and counts the drawn pairs until the
mutant disagrees with the published ports ("-": not within 64,000; its case tells it).

Prints a table. Exit status: 0; 1 if a mutant survives; 2 if one no longer fits the source, or the
source fails unchanged; 3 when the references are missing.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from harness.scorer import question_scorer
from tests.reference_scorer import ReferenceMissing, references
from tests.scorer_mutants import MUTANTS, SOURCE, Mutant, MutantDoesNotFit, Scorer
from tests.scorer_pairs import FAMILIES, agree
from tests.test_scorer import CASES, load_rows

ROOT = Path(__file__).resolve().parent.parent
SUITE = ("tests/__init__.py", "tests/test_scorer.py", "tests/data/scorer_cases.json")
ROUNDS, ROUND = 4, 4_000


def killing_case(scorer: Scorer) -> str | None:
    """The first written case that the scorer gets wrong, None if there is none."""
    for name, truth, answer, right in [*CASES, *load_rows()]:
        try:
            verdict = scorer(answer, truth)
        except Exception as error:
            return f"{name}: {answer!a} for {truth!a} raises {type(error).__name__}"
        if verdict is not right:
            return f"{name}: {answer!a} for {truth!a} is {'wrong' if right else 'right'} for it"
    return None


def killing_pairs(scorer: Scorer) -> int | None:
    """How many drawn pairs it takes until the scorer disagrees with the references."""
    asked = 0

    def counted(answer: str | None, truth: str) -> bool:
        nonlocal asked
        asked += 1
        return scorer(answer, truth)

    for seed, kind in product(range(ROUNDS), FAMILIES):
        try:
            agree(kind, ROUND, counted, seed_value=seed, shrink=False)
        except Exception:
            return asked
    return None


def passes_pytest(source: str) -> bool:
    """Whether the test file accepts this source in the scorer's place."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "harness"
        package.mkdir()
        (package / "__init__.py").touch()
        (package / "scorer.py").write_text(source, "utf-8")
        for name in SUITE:
            target = Path(folder) / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target)
        # That the scorer imports little would tell every mutant by its imports.
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-x",
            "-q",
            "-k",
            "not stands_alone and not docs",
        ]
        environment = {**os.environ, "PYTHONPATH": folder, "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            [*command, "-p", "no:cacheprovider", "tests/test_scorer.py"],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode not in (0, 1):
        raise MutantDoesNotFit(f"pytest could not run:\n{done.stdout}{done.stderr}")
    return done.returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Show that the tests catch wrong scorers.")
    parser.add_argument("--short", action="store_true", help="the written cases alone")
    short = parser.parse_args().short
    try:
        if (case := killing_case(question_scorer)) is not None:
            raise MutantDoesNotFit(f"the unchanged scorer fails its own cases: {case}")
        if not short:
            references()
            if not passes_pytest(SOURCE.read_text("utf-8")):
                raise MutantDoesNotFit("the unchanged scorer fails its own tests")
        survivors = [mutant.name for mutant in MUTANTS if survives(mutant, short)]
    except MutantDoesNotFit as error:
        print(error, file=sys.stderr)
        return 2
    except ReferenceMissing as error:
        print(error, file=sys.stderr)
        return 3
    print(f"{len(MUTANTS)} mutants, {len(MUTANTS) - len(survivors)} killed")
    if survivors:
        print(f"SURVIVED: {', '.join(survivors)}")
    return 1 if survivors else 0


def survives(mutant: Mutant, short: bool) -> bool:
    """Try one mutant, print its line, say whether any check let it live."""
    scorer = mutant.scorer()
    case = killing_case(scorer)
    if short:
        print(f"{mutant.name:32}{case or 'SURVIVED'}")
        return case is None
    passed = passes_pytest(mutant.source())
    pairs = killing_pairs(scorer)
    pytest = "passes" if passed else "fails"
    print(
        f"{mutant.name:32}pytest {pytest:8}pairs {pairs or '-':<8}{case or 'SURVIVED'}", flush=True
    )
    return passed or case is None


if __name__ == "__main__":
    sys.exit(main())
