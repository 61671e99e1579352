"""A folder in GAIA's layout → samples, their truths and one digest over what the loop can see."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from harness import canonical, metadata
from harness.attachments import Attachments, file_digest
from harness.errors import DataError, UsageError
from harness.metadata import Row
from harness.records import Sample

MINI = Path(__file__).parent / "data" / "mini"
"""The packaged data set."""

UNKNOWN = "?"
"""The truth of a sample whose truth is withheld."""

SPLITS = ("validation", "test")

_PLACEHOLDER = "0-0-0-0-0"
_OFFICIAL_COUNTS = {"validation": (53, 86, 26), "test": (93, 159, 49)}


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """A sample with what the loop must not see: its truth and where its attachment lies."""

    sample: Sample
    """Epoch 1."""
    truth: str
    """`?` where it is withheld."""
    path: Path | None
    """The attachment's real file, links followed; None when there is none, or it is missing."""
    subset: str
    """`2023_level1` to `2023_level3`."""

    @property
    def missing_file(self) -> bool:
        """The sample has an attachment that is not there (see `allow_missing_files`)."""
        return bool(self.sample.file_name) and self.path is None

    def __repr__(self) -> str:  # in a log or a traceback, neither question nor truth
        return f"Item({self.sample.task_id!r}, {self.subset!r})"


class Dataset(msgspec.Struct, frozen=True, kw_only=True):
    """One split."""

    id: str
    revision: str | None
    split: str
    digest: str
    """`sha256:…` over task id, question, level, file name and attachment digest of all samples.

    Independent of layout, hub, row order and truths.
    """
    items: tuple[Item, ...]
    """In the order of their task ids."""
    warnings: tuple[str, ...] = ()


def load(
    root: Path,
    *,
    split: str = "validation",
    id: str | None = None,
    revision: str | None = None,
    allow_missing_files: bool = False,
) -> Dataset:
    """Read one split below `root` (or `root` itself, where that is a folder `2023/<split>`).

    `id` and `revision` say where the folder came from; by default the id is the folder's name.
    With `allow_missing_files`, a sample whose attachment is absent is kept and warned about.

    Raises DataError for data that cannot be used, naming the file and the row; UsageError for a
    split that does not exist; LackError when Parquet has to be read and pyarrow is not installed.
    """
    root, folder = _split_folder(root, split)
    files = metadata.sources(folder)
    attachments = Attachments(root, folder)
    items: dict[str, Item] = {}
    for row in (row for file in files for row in metadata.rows(file)):
        task_id = _text(row, "task_id")
        if task_id == _PLACEHOLDER:
            continue
        if task_id in items:
            raise DataError(f"{row.place}: task_id {task_id!r} is there twice")
        items[task_id] = _item(row, task_id, split, attachments)
    if not items:
        raise DataError(
            f"no samples: {', '.join(map(str, files))} holds none (looked for"
            f" {folder / 'metadata.jsonl'} and {folder / 'metadata.parquet'})"
        )
    ordered = tuple(items[task_id] for task_id in sorted(items))
    missing = [item.sample.task_id for item in ordered if item.missing_file]
    if missing and not allow_missing_files:
        raise DataError(
            f"{folder}: {len(missing)} of {len(ordered)} samples lack their attachment:"
            f" {', '.join(map(repr, missing))}",
            hint="fetch the data set again, files included",
        )
    id = (root.name or "local") if id is None else id
    return Dataset(
        id=id,
        revision=revision,
        split=split,
        digest=_digest(ordered),
        items=ordered,
        warnings=(*_missing_warning(missing), *_count_warning(id, split, ordered)),
    )


def select(
    dataset: Dataset,
    *,
    subsets: Iterable[str] = (),
    task_ids: Iterable[str] = (),
    limit: int | None = None,
    shuffle_seed: int | None = None,
) -> tuple[Item, ...]:
    """The items to run, filtered first and limited last; no filter selects all.

    `limit` counts samples of the whole selection. The order is that of the task ids or, with a
    seed, of SHA-256(seed, task id): either way the rows' order in the source has no say, and the
    items left by a narrower filter keep their order. Raises UsageError for unknown names.
    """
    items = dataset.items
    if wanted := set(subsets):
        known = sorted({item.subset for item in items})
        for name in sorted(wanted.difference(known)):
            raise UsageError(
                f"{dataset.id} has no subset {name!r}; the nearest is {_nearest(name, known)!r}"
            )
        items = tuple(item for item in items if item.subset in wanted)
    if wanted := set(task_ids):
        known = [item.sample.task_id for item in items]
        for name in sorted(wanted.difference(known)):
            elsewhere = any(item.sample.task_id == name for item in dataset.items)
            problem = "is in none of the chosen subsets" if elsewhere else "is not there"
            raise UsageError(
                f"{dataset.id}: task id {name!r} {problem}; the nearest is"
                f" {_nearest(name, known)!r}"
            )
        items = tuple(item for item in items if item.sample.task_id in wanted)
    if limit is not None and limit != int(limit):
        raise UsageError(f"a limit is a number of samples, not a share of them: {limit}")
    if limit is not None and limit < 1:
        raise UsageError(f"a limit of {limit} samples selects nothing; the least is 1")
    if shuffle_seed is not None:
        items = tuple(sorted(items, key=lambda item: _draw(shuffle_seed, item.sample.task_id)))
    return items[:limit]


def selection_digest(items: Iterable[Item]) -> str:
    """`sha256:…` over the selected task ids in any order: runs can be compared where it agrees."""
    return f"sha256:{canonical.digest(sorted(item.sample.task_id for item in items))}"


def selection_note(dataset: Dataset, items: tuple[Item, ...], filters: str = "") -> str:
    """One line for reports: how many of the split were run, by which filters, and the list's hash.

    `filters` is the text of the options given, such as `--subset 2023_level1 --limit 5`.
    """
    by = f" by {filters}" if filters else ""
    count, whole = len(items), len(dataset.items)
    return f"{count} of {whole} samples selected{by}; list {selection_digest(items)}"


def _split_folder(root: Path, split: str) -> tuple[Path, Path]:
    """The data set's root and the folder of the split."""
    if split not in SPLITS:
        raise UsageError(f"no split {split!r}; there are {' and '.join(SPLITS)}")
    root = Path(os.path.abspath(root))
    if root.parent.name != "2023" or root.name not in SPLITS:
        return root, root / "2023" / split
    if root.name != split:
        raise UsageError(
            f"{root} is the split {root.name!r}, and {split!r} was asked for",
            hint=f"--split {root.name}",
        )
    return root.parent.parent, root


def _item(row: Row, task_id: str, split: str, attachments: Attachments) -> Item:
    level = _level(row, task_id)
    name = _file_name(row)
    path = attachments.find(name, f"{row.place}: sample {task_id!r}") if name else None
    return Item(
        sample=Sample(
            task_id=task_id,
            question=_text(row, "Question"),
            level=level,
            file_name=name,
            attachment=file_digest(path) if path else None,
        ),
        truth=_truth(row, split),
        path=path,
        subset=f"2023_level{level}",
    )


# ----------------------------------------------------------------------------------------- columns


def _value(row: Row, column: str) -> Any:
    if column not in row.values:
        there = ", ".join(repr(name) for name in row.values)
        raise DataError(f"{row.place}: no column {column!r}; there are {there or 'none'}")
    value = row.values[column]
    return None if value != value else value  # NaN is how pandas writes a gap


def _text(row: Row, column: str) -> str:
    value = _value(row, column)
    if not isinstance(value, str) or not value.strip():
        found = "an empty text" if isinstance(value, str) else _type(value)
        raise DataError(f"{row.place}: {column!r} must be a text, not {found}")
    return value


def _level(row: Row, task_id: str) -> int:
    """1, 2 or 3: a number, its text, or the float that a table with gaps makes of it."""
    value = _value(row, "Level")
    if isinstance(value, int | float) and not isinstance(value, bool) and value in (1, 2, 3):
        return int(value)
    if isinstance(value, str) and value in ("1", "2", "3"):
        return int(value)
    raise DataError(f"{row.place}: sample {task_id!r} has level {value!r:.40}, not 1, 2 or 3")


def _truth(row: Row, split: str) -> str:
    withheld = split == "test" and (
        "Final answer" not in row.values or _value(row, "Final answer") in (None, "")
    )
    if withheld:
        return UNKNOWN
    try:
        truth = _text(row, "Final answer")
    except DataError as error:
        raise DataError(
            error.message, hint=f'quote it; write "{UNKNOWN}" where the answer is not known'
        ) from None
    return UNKNOWN if truth.strip() == UNKNOWN else truth


def _file_name(row: Row) -> str:
    value = _value(row, "file_name")
    if value is not None and not isinstance(value, str):
        raise DataError(f"{row.place}: 'file_name' must be a text, not {_type(value)}")
    return value or ""


def _type(value: object) -> str:
    return "null" if value is None else type(value).__name__


# -------------------------------------------------------------------------------------------- rest


def _digest(items: tuple[Item, ...]) -> str:
    rows = [
        {
            "attachment": item.sample.attachment,
            "file_name": item.sample.file_name,
            "level": item.sample.level,
            "question": item.sample.question,
            "task_id": item.sample.task_id,
        }
        for item in items
    ]
    return f"sha256:{canonical.digest(rows)}"


def _missing_warning(missing: list[str]) -> list[str]:
    return [f"attachment missing, sample kept: {', '.join(map(repr, missing))}"] if missing else []


def _count_warning(id: str, split: str, items: tuple[Item, ...]) -> list[str]:
    """Whether a data set that is called GAIA (`gaia-benchmark/GAIA`, a folder `GAIA`) is whole."""
    counts = Counter(item.sample.level for item in items)
    found, official = tuple(counts[level] for level in (1, 2, 3)), _OFFICIAL_COUNTS[split]
    if id.rsplit("/")[-1].lower() != "gaia" or found == official:
        return []
    there, expected = ("/".join(map(str, numbers)) for numbers in (found, official))
    return [f"{id}, {split}: {there} samples at levels 1/2/3, where GAIA has {expected}"]


def _draw(seed: int, task_id: str) -> bytes:
    return hashlib.sha256(f"{seed}\n{task_id}".encode("utf-8", "surrogatepass")).digest()


def _nearest(name: str, known: list[str]) -> str:
    """The known name that was most likely meant; an abbreviation counts as near."""
    begins = [other for other in known if name and other.startswith(name)]
    import difflib  # only a wrong name needs it

    return (begins or difflib.get_close_matches(name, known, n=1, cutoff=0))[0]
