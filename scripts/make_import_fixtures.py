"""Writes the fixtures of the import tests (`tests/import_fixtures.py`): small results as EvalScope
and inspect would write them, over content invented here.

    python scripts/make_import_fixtures.py [FOLDER]
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests import import_fixtures

if __name__ == "__main__":
    import_fixtures.main(Path(sys.argv[1]) if len(sys.argv) > 1 else import_fixtures.FOLDER)
