"""The rows of a GAIA split's metadata, whichever of the two layouts the folder has.

    metadata.jsonl                                      until October 2025; Level is a number
    metadata.parquet, metadata.level{1,2,3}.parquet     since then; Level is a string

When both are there, `metadata.jsonl` alone is read: that needs no pyarrow, and the data set's
digest says which rows were used. `metadata.parquet` holds all levels; the files by level are read
only where it is absent.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from harness.errors import DataError, LackError

COLUMNS = ("task_id", "Question", "Level", "Final answer", "file_name")
"""Columns that are read. `file_path` is not: it has held paths of other people's machines."""

_LFS_POINTER = b"version https://git-lfs.github.com/spec/"


class Row(NamedTuple):
    """One row as it stands in the file; nothing is checked yet."""

    place: str
    """File and line (or row), for messages."""
    values: dict[str, Any]


def sources(folder: Path) -> list[Path]:
    """The metadata files to read in the folder of a split.

    Raises DataError, with the paths looked for, when there is none.
    """
    jsonl, parquet = folder / "metadata.jsonl", folder / "metadata.parquet"
    levels = [folder / f"metadata.level{level}.parquet" for level in (1, 2, 3)]
    try:
        for files in ([jsonl], [parquet], levels):
            if found := [path for path in files if path.is_file()]:
                return found
    except OSError as error:
        raise _unreadable(folder, error) from error
    raise DataError(f"no samples: neither {jsonl} nor {parquet} is there")


def rows(path: Path) -> Iterator[Row]:
    """The rows of one metadata file, in its order.

    Raises DataError (with file and line) for what cannot be read, LackError without pyarrow.
    """
    refuse_pointer(path)
    return _parquet_rows(path) if path.suffix == ".parquet" else _json_rows(path)


def refuse_pointer(path: Path) -> None:
    """DataError for the stand-in that a `git clone` without LFS leaves, or an unreadable file."""
    try:
        with path.open("rb") as file:
            head = file.read(len(_LFS_POINTER))
    except OSError as error:
        raise _unreadable(path, error) from error
    if head == _LFS_POINTER:
        raise DataError(f"{path} is a Git LFS pointer, not the file itself", hint="git lfs pull")


def _json_rows(path: Path) -> Iterator[Row]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise _unreadable(path, error) from error
    encoding = json.detect_encoding(data)  # UTF-8, UTF-16 or UTF-32, with or without a BOM
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        good = data[: error.start].decode(encoding, "replace")
        raise DataError(
            f"{path}, line {good.count(chr(10)) + 1}: not valid {encoding.upper()}"
        ) from None
    # split at line feeds only: U+2028 and its like may stand in a JSON string
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            place = f"{path}, line {number}"
            yield Row(place, _json_object(line, place))


def _json_object(line: str, place: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except json.JSONDecodeError as error:
        raise DataError(f"{place}: not valid JSON ({error.msg}, column {error.colno})") from None
    except (ValueError, RecursionError):
        raise DataError(f"{place}: a number too long or nesting too deep to read") from None
    if not isinstance(value, dict):
        raise DataError(f"{place}: a JSON object per line was expected")
    return value


def _parquet_rows(path: Path) -> Iterator[Row]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise LackError(
            f"{path} can only be read with pyarrow, which is not installed",
            hint="pip install 'gaia-harness[parquet]'",
        ) from None
    try:
        with parquet.ParquetFile(path) as file:
            names = [name for name in COLUMNS if name in file.schema_arrow.names]
            table = file.read(columns=names).to_pylist()
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read as Parquet: {error}") from error
    for number, values in enumerate(table, 1):
        yield Row(f"{path}, row {number}", values)


def _unreadable(path: Path, error: OSError) -> DataError:
    return DataError(f"{path} cannot be read: {error.strerror or type(error).__name__}")
