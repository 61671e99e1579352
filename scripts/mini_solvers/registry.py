"""Where solvers are entered, each under a phrase of its question."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

Solver = Callable[[str, Path], str]
SOLVERS: dict[str, Solver] = {}


def solves(phrase: str) -> Callable[[Solver], Solver]:
    """Register the solver of the one question that holds `phrase`."""

    def add(solver: Solver) -> Solver:
        SOLVERS[phrase] = solver
        return solver

    return add
