"""The long proof: draw pairs until enough distinct ones got the same verdict from all scorers.

    python scripts/prove_scorer.py --pairs 1000000

Compares ours with both published ports of the leaderboard's scorer (``fetch_reference.py`` brings
them) over the pairs of ``tests/scorer_pairs.py``. A pair counts once, however often it is drawn.
Prints a summary on stdout, progress on stderr. Exit status: 0 without a disagreement; 1 with one,
which is printed in its smallest form; 3 when the references are missing.
"""

import argparse
import platform
import sys
import time
from collections import Counter
from itertools import count
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.reference_scorer import REFERENCES, ReferenceMissing, references
from tests.scorer_pairs import FAMILIES, agree

ROUND = 40_000
"""Pairs in one hypothesis run: its memory grows with each, so many runs with one seed each."""


def main() -> int:
    parser = argparse.ArgumentParser(description="Prove the scorer against its references.")
    parser.add_argument("--pairs", type=int, default=1_000_000, help="distinct pairs to compare")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first round")
    options = parser.parse_args()
    try:
        references()
    except ReferenceMissing as error:
        print(error, file=sys.stderr)
        return 3

    started = time.process_time()
    drawn: Counter[str] = Counter()
    right: Counter[str] = Counter()
    seen: dict[str, set[int]] = {kind: set() for kind in FAMILIES}
    for number in count(options.seed):
        for kind in FAMILIES:
            try:
                tally = agree(kind, ROUND, seed_value=number, seen=seen[kind])
            except AssertionError as error:
                print(f"DISAGREEMENT in {kind}, --seed {number}: {error}")
                return 1
            drawn[kind] += tally.drawn
            right[kind] += tally.right
        distinct = sum(map(len, seen.values()))
        print(f"seed {number}: {distinct:,} distinct pairs agree", file=sys.stderr, flush=True)
        if distinct >= options.pairs:
            break

    print(f"ours against {', '.join(port.requirement for port in REFERENCES.values())}")
    print(f"Python {platform.python_version()}, seeds {options.seed} to {number}")
    print(f"{'kind':10}{'drawn':>12}{'distinct':>12}{'right':>8}")
    for kind in FAMILIES:
        share = right[kind] / drawn[kind]
        print(f"{kind:10}{drawn[kind]:>12,}{len(seen[kind]):>12,}{share:>8.1%}")
    share = right.total() / drawn.total()
    print(f"{'all':10}{drawn.total():>12,}{distinct:>12,}{share:>8.1%}")
    print(f"disagreements: 0   ({time.process_time() - started:.0f} s of CPU)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
