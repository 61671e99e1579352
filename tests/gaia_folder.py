"""Writes folders in GAIA's layouts, with invented content, for tests."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

LAYOUTS = ("jsonl", "parquet", "levels", "both")


def row(task_id: str, **columns: Any) -> dict[str, Any]:
    """A metadata row; keyword arguments replace columns (`Final_answer` for `Final answer`)."""
    values: dict[str, Any] = {
        "task_id": task_id,
        "Question": f"Which colour has the shed of {task_id}?",
        "Level": 1,
        "Final answer": f"green {task_id}",
        "file_name": "",
        "file_path": "",
        "Annotator Metadata": {"Steps": "1. look"},
    }
    return values | {name.replace("_answer", " answer"): value for name, value in columns.items()}


def write_folder(
    root: Path,
    rows: Sequence[Mapping[str, Any]],
    *,
    layout: str = "jsonl",
    split: str = "validation",
    files: Mapping[str, bytes] | None = None,
) -> Path:
    """Writes the split and returns `root`. Parquet has levels as strings, as the hub has."""
    folder = root / "2023" / split
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in (files or {}).items():
        (folder / name).write_bytes(data)
    if layout in ("jsonl", "both"):
        lines = "".join(json.dumps(values) + "\n" for values in rows)
        (folder / "metadata.jsonl").write_text(lines)
    if layout != "jsonl":
        texts = [{**values, "Level": str(values["Level"])} for values in rows]
        for level in "123":
            part = [values for values in texts if values["Level"] == level]
            write_parquet(folder / f"metadata.level{level}.parquet", part or texts[:0])
        if layout != "levels":
            write_parquet(folder / "metadata.parquet", texts)
    return root


def write_parquet(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    import pyarrow
    from pyarrow import parquet

    parquet.write_table(pyarrow.Table.from_pylist([dict(values) for values in rows]), path)
