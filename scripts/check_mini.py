#!/usr/bin/env python3
"""Check the packaged data set `mini`: its layout, its truths, and that it can be made again.

    python scripts/check_mini.py [FOLDER]

Every question is solved from its attachment alone and the result is compared with the stored
truth by the leaderboard's rules. One line per problem on stderr; exit status 0 or 1.
"""

from __future__ import annotations

import argparse
import filecmp
import json
import sys
import tempfile
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import make_mini
from mini_solvers import SOLVERS

sys.path.insert(0, str(make_mini.HOME.parent.parent.parent))  # also without an installation

from harness.scorer import answer_kind, question_scorer

COLUMNS = [
    "task_id",
    "Question",
    "Level",
    "Final answer",
    "file_name",
    "file_path",
    "Annotator Metadata",
]
NOTES = [
    "Steps",
    "Number of steps",
    "How long did this take?",
    "Tools",
    "Number of tools",
]
ENDINGS = {"xlsx", "csv", "pdf", "docx", "pptx", "png", "wav", "zip", "json", "py", "txt"}
LARGEST_FILE, LARGEST_SET = 40_000, 300_000


def problems(home: Path) -> Iterator[str]:
    """Everything that is wrong with the data set below `home`, in words."""
    split = home / make_mini.SPLIT
    try:
        lines = (split / "metadata.jsonl").read_text(encoding="utf-8").splitlines()
        rows: list[dict[str, Any]] = [json.loads(line) for line in lines]
    except (OSError, ValueError) as error:
        yield f"{split / 'metadata.jsonl'}: cannot be read: {error}"
        return
    for row in rows:
        for problem in row_problems(row, split):
            yield f"{row.get('task_id', '?')}: {problem}"
    yield from set_problems(rows, split)
    yield from regeneration_problems(home)


def row_problems(row: dict[str, Any], split: Path) -> Iterator[str]:
    """Layout of one row, and its truth against its solver."""
    if list(row) != COLUMNS:
        yield f"columns are {list(row)}, wanted {COLUMNS}"
        return
    if str(uuid.UUID(row["task_id"])) != row["task_id"]:
        yield "the id is no lower-case UUID"
    if type(row["Level"]) is not int or row["Level"] not in (1, 2, 3):
        yield f"the level is {row['Level']!r}, wanted 1, 2 or 3"
    notes = row["Annotator Metadata"]
    if list(notes) != NOTES or not all(isinstance(note, str) for note in notes.values()):
        yield f"the annotator's metadata are not texts under {NOTES}"
    name = row["file_name"]
    if row["file_path"] != (f"{make_mini.SPLIT}/{name}" if name else ""):
        yield f"the file path {row['file_path']!r} does not belong to the file name {name!r}"
    file = split / name
    if name and not file.is_file():
        yield f"the attachment {name} is missing"
        return
    if name and (file.stem != row["task_id"] or file.stat().st_size > LARGEST_FILE):
        yield f"the attachment {name} has another stem than the id, or over {LARGEST_FILE} bytes"
    if bool(name) is not ("attached" in row["Question"]):
        yield "the question speaks of an attachment and has none, or the other way round"
    found = [solver for phrase, solver in SOLVERS.items() if phrase in row["Question"]]
    if len(found) != 1:
        yield f"{len(found)} solvers fit the question, wanted one"
        return
    try:
        answer = found[0](row["Question"], file)
    except Exception as error:  # a damaged attachment breaks a solver in any way
        yield f"its solver {found[0].__name__} fails: {type(error).__name__}: {error}"
        return
    if not question_scorer(answer, row["Final answer"]):
        yield f"its solver finds {answer!r}, the truth is {row['Final answer']!r}"


def set_problems(rows: list[dict[str, Any]], split: Path) -> Iterator[str]:
    """What must hold for all rows together."""
    ids = Counter(row.get("task_id") for row in rows)
    yield from (f"{name}: {count} rows have this id" for name, count in ids.items() if count > 1)
    levels = Counter(row.get("Level") for row in rows)
    if not 24 <= len(rows) <= 27 or min(levels[level] for level in (1, 2, 3)) < 5:
        yield f"{len(rows)} questions in levels {dict(levels)}: wanted 24 to 27, 5 of each level"
    names = [str(row["file_name"]) for row in rows if row.get("file_name")]
    if len(names) * 2 < len(rows):
        yield f"only {len(names)} of {len(rows)} questions have an attachment"
    if lacking := ENDINGS - {name.rpartition(".")[2] for name in names}:
        yield f"no attachment of type {', '.join(sorted(lacking))}"
    kinds = Counter(answer_kind(str(row.get("Final answer"))) for row in rows)
    yield from (f"only {n} truths are of kind {kind}" for kind, n in kinds.items() if n < 4)
    if len(kinds) != 3:
        yield f"truths are only of kind {', '.join(sorted(kinds))}"
    there = {path.name for path in split.iterdir() if path.is_file()}
    if extra := there - set(names) - {"metadata.jsonl"}:
        yield f"files that no question names: {', '.join(sorted(extra))}"
    size = sum(path.stat().st_size for path in split.iterdir() if path.is_file())
    if size > LARGEST_SET:
        yield f"the set has {size} bytes, more than {LARGEST_SET}"


def regeneration_problems(home: Path) -> Iterator[str]:
    """Where a fresh run of make_mini gives other bytes than the stored ones."""
    with tempfile.TemporaryDirectory() as fresh:
        make_mini.write(Path(fresh))
        made, stored = Path(fresh) / make_mini.SPLIT, home / make_mini.SPLIT
        names = sorted({path.name for path in (*made.iterdir(), *stored.iterdir())})
        _, differing, unreadable = filecmp.cmpfiles(made, stored, names, shallow=False)
        for name in differing + unreadable:
            if name != "__pycache__":
                yield f"{name}: not what make_mini writes (python scripts/make_mini.py)"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", default=make_mini.HOME)
    home: Path = parser.parse_args().folder
    found = list(problems(home))
    for problem in found:
        print(f"check_mini: {problem}", file=sys.stderr)
    if not found:
        print(f"check_mini: every truth of {home.name} is confirmed, its layout holds")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
