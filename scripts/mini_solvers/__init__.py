"""One solver for each question of `mini`: from the question and its attachment alone.

Nothing is shared with the code that made the data set, and nothing beyond the standard library
is used, so that a solver also shows that its question can be answered in the sandbox.
"""

from . import level1, level2, level3
from .registry import SOLVERS

__all__ = ["SOLVERS", "level1", "level2", "level3"]
