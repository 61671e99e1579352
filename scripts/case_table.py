#!/usr/bin/env python3
"""Which test covers which field report: writes docs/cases.md; --check fails when one has none.

A report's id (A01, C13, …) stands in the name, docstring, parameters or body of the tests that
cover it.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "docs" / "cases.md"
COUNTS = {"A": 14, "B": 11, "C": 16, "D": 18, "E": 19, "F": 12, "G": 2}
SUBJECTS = {
    "A": "scorer",
    "B": "data set and submission",
    "C": "Docker sandbox",
    "D": "model client and agent loop",
    "E": "record and replay",
    "F": "runs, resume, report",
    "G": "MCP",
}
_ID = re.compile(r"(?<![A-Za-z0-9])([A-G])(\d\d)(?!\d)")


def ids() -> list[str]:
    """All reports, in order."""
    return [f"{group}{n:02}" for group, count in COUNTS.items() for n in range(1, count + 1)]


def covering() -> dict[str, list[str]]:
    """Tests by report."""
    known = set(ids())
    found: dict[str, list[str]] = {name: [] for name in ids()}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        source = path.read_text(encoding="utf-8")
        lines = source.splitlines()
        for node in ast.walk(ast.parse(source)):
            if not isinstance(node, ast.FunctionDef) or not node.name.startswith("test"):
                continue
            first = min([node.lineno, *(deco.lineno for deco in node.decorator_list)])
            while first > 1 and lines[first - 2].lstrip().startswith("#"):
                first -= 1
            text = "\n".join(lines[first - 1 : node.end_lineno])
            name = f"{path.relative_to(ROOT).as_posix()}::{node.name}"
            in_name = {a.upper() + n for a, n in re.findall(r"_([a-g])(\d\d)(?=_|$)", node.name)}
            for report in sorted((_named(text) | in_name) & known):
                found[report].append(name)
            lines[first - 1 : node.end_lineno] = [""] * len(lines[first - 1 : node.end_lineno])
        # what stands outside of every test: tables of cases that several tests run through
        for report in sorted(_named("\n".join(lines)) & known):
            found[report].append(path.relative_to(ROOT).as_posix())
    return found


def _named(text: str) -> set[str]:
    return {group + digits for group, digits in _ID.findall(text)}


def table(found: dict[str, list[str]]) -> str:
    """The page."""
    lines = [
        "# Field reports and their tests",
        "",
        "What people who do this job reported, and the tests that hold the right behaviour.",
        "Made by `scripts/case_table.py`; `.ci/run` fails when a report has no test.",
    ]
    for group, subject in SUBJECTS.items():
        lines += ["", f"## {group}: {subject}", "", "| report | tests |", "|---|---|"]
        for report in ids():
            if report.startswith(group):
                lines.append(f"| {report} | {'<br>'.join(f'`{t}`' for t in found[report])} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail on gaps")
    options = parser.parse_args()
    found = covering()
    missing = [report for report, tests in found.items() if not tests]
    if missing:
        print(f"no test names these reports: {', '.join(missing)}", file=sys.stderr)
    if options.check:
        stale = not TABLE.exists() or TABLE.read_text(encoding="utf-8") != table(found)
        if stale:
            print("docs/cases.md is stale: run scripts/case_table.py", file=sys.stderr)
        return int(bool(missing) or stale)
    TABLE.write_text(table(found), encoding="utf-8")
    return int(bool(missing))


if __name__ == "__main__":
    sys.exit(main())
