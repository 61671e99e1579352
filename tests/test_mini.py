"""The packaged data set `mini`: its truths, its layout, and that it can be written again."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openpyxl
import pytest

import harness
from harness.scorer import answer_kind

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"
MINI = Path(harness.__file__).parent / "data" / "mini"
SPLIT = Path("2023") / "validation"


def run(script: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPTS / script), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def rows(home: Path = MINI) -> list[dict[str, Any]]:
    lines = (home / SPLIT / "metadata.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def contents(home: Path) -> dict[str, bytes]:
    files = (path for path in (home / SPLIT).iterdir() if path.is_file())
    return {path.name: path.read_bytes() for path in files}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(MINI, tmp_path / "mini"))


def change_row(home: Path, number: int, values: dict[str, object]) -> str:
    """Overwrite columns of one row; returns its id."""
    changed = rows(home)
    changed[number] |= values
    text = "".join(json.dumps(row) + "\n" for row in changed)
    (home / SPLIT / "metadata.jsonl").write_text(text, encoding="utf-8")
    return str(changed[number]["task_id"])


def test_every_truth_is_found_again_from_the_attachments() -> None:
    done = run("check_mini.py")
    assert (done.returncode, done.stderr) == (0, "")
    assert "confirmed" in done.stdout


def test_the_committed_files_are_what_the_script_writes(tmp_path: Path) -> None:
    for folder in (tmp_path / "one", tmp_path / "two"):
        assert run("make_mini.py", "--into", folder).returncode == 0
        assert contents(folder) == contents(MINI)


def test_levels_kinds_and_attachments() -> None:
    every = rows()
    assert Counter(row["Level"] for row in every) == {1: 10, 2: 10, 3: 6}
    assert all(type(row["Level"]) is int for row in every)
    assert len({row["task_id"] for row in every}) == len(every)
    truths = [row["Final answer"] for row in every]
    assert Counter(map(answer_kind, truths)) == {"number": 12, "list": 7, "string": 7}
    assert sum(not truth.isascii() for truth in truths) >= 3
    assert "24.15" in truths
    names = [row["file_name"] for row in every if row["file_name"]]
    assert 2 * len(names) >= len(every)
    assert {name.rpartition(".")[2] for name in names} == {
        *("csv", "docx", "json", "pdf", "png", "pptx", "py", "txt", "wav", "xlsx", "zip")
    }
    for row in every:
        file = row["file_name"]
        assert row["file_path"] == (f"2023/validation/{file}" if file else "")
        assert not file or (MINI / row["file_path"]).stat().st_size < 40_000
    assert sum(map(len, contents(MINI).values())) < 300_000


def test_spreadsheets_open_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        books = {path.stem: openpyxl.load_workbook(path) for path in MINI.rglob("*.xlsx")}
    titles = [book.sheetnames for book in books.values()]
    assert sorted(titles) == [["Plan", "Rates"], ["Stock", "Prices", "Legend"]]
    (plan,) = [book for book in books.values() if "Plan" in book.sheetnames]
    assert plan["Plan"]["E7"].value == "=SUM(E2:E6)"


def wrong_truth(home: Path) -> str:
    return change_row(home, 3, {"Final answer": "15"})


def missing_file(home: Path) -> str:
    (home / rows(home)[0]["file_path"]).unlink()
    return "missing"


def text_level(home: Path) -> str:
    change_row(home, 5, {"Level": "1"})
    return "the level is '1'"


def broken_level(home: Path) -> str:
    change_row(home, 5, {"Level": 1.0})
    return "the level is 1.0"


def doubled_id(home: Path) -> str:
    return change_row(home, 2, {"task_id": rows(home)[3]["task_id"]}) + ": 2 rows"


def other_byte(home: Path) -> str:
    path = next((home / SPLIT).glob("*.docx"))
    path.write_bytes(path.read_bytes() + b"\0")
    return f"{path.name}: not what make_mini writes"


def no_rows(home: Path) -> str:
    (home / SPLIT / "metadata.jsonl").unlink()
    return "metadata.jsonl: cannot be read"


@pytest.mark.parametrize(
    "damage", [wrong_truth, missing_file, text_level, broken_level, doubled_id, other_byte, no_rows]
)
def test_the_check_names_what_is_wrong(copy: Path, damage: Callable[[Path], str]) -> None:
    wanted = damage(copy)
    done = run("check_mini.py", copy)
    assert done.returncode == 1
    assert wanted in done.stderr
    assert "Traceback" not in done.stderr
