"""An interpreter that has nothing but what the base install brings."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.live.line import ROOT, environment

BASE = ("click", "msgspec")


def base_folder(folder: Path) -> Path:
    """A folder of links to the package and its two requirements, for an interpreter without site-
    packages (`python -S`): nothing else can be imported there."""
    folder.mkdir()
    (folder / "harness").symlink_to(ROOT / "harness")
    for name in BASE:
        found = importlib.util.find_spec(name)
        assert found is not None
        assert found.origin is not None
        (folder / name).symlink_to(Path(found.origin).parent)
    return folder


def base_python(
    folder: Path, *args: str, cwd: Path | None = None, variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run that interpreter with the folder as its only place for packages."""
    return subprocess.run(
        [sys.executable, "-S", *args],
        capture_output=True,
        text=True,
        timeout=120,
        env={**environment(**(variables or {})), "PYTHONPATH": os.fspath(folder)},
        cwd=cwd,
        check=False,
    )
