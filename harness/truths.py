"""Where truths are found again: the data set given, the packaged one, the user's cache folder.

The store never holds truths. What `remember` keeps is private to the user, holds no question, and
is named by the data set's digest, which every run file records. No place here is a network.
"""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from harness.dataset import MINI, Dataset, load
from harness.errors import DamageError, DataError, LackError, UsageError

FORMAT = "gaia-harness-truths"
VERSION = 1

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def cache_folder() -> Path:
    """`$HARNESS_CACHE`, else `gaia-harness` in the system's place for a user's caches.

    That is `%LOCALAPPDATA%` on Windows, else `$XDG_CACHE_HOME`, else `~/.cache`. Raises LackError
    where there is neither a variable nor a home.
    """
    if own := os.environ.get("HARNESS_CACHE"):
        return Path(own)
    shared = os.environ.get("LOCALAPPDATA" if os.name == "nt" else "XDG_CACHE_HOME", "")
    if os.path.isabs(shared):  # the XDG specification says to ignore a relative one
        return Path(shared, "gaia-harness")
    try:
        return Path.home() / ".cache" / "gaia-harness"
    except RuntimeError:
        raise LackError(
            "no cache folder: this user has no home", hint="set HARNESS_CACHE to a folder"
        ) from None


def remember(dataset: Dataset) -> Path:
    """Keep the truths of a data set for later scoring; the file, readable by its owner only.

    The latest data set of one digest wins. Raises LackError when the folder cannot be written.
    """
    path = _path(dataset.digest)
    data = _encode(dataset)
    try:
        if path.is_file() and path.read_bytes() == data:
            return path
        path.parent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        _replace(path, data)
    except OSError as error:
        raise LackError(
            f"{path}: the truths cannot be kept for later scoring: {error.strerror or error}",
            hint="set HARNESS_CACHE to a folder that can be written",
        ) from error
    return path


def find(digest: str, *, dataset: Dataset | None = None) -> dict[str, str] | None:
    """Truths by task id (`?` where withheld) for the data set of this digest; None if not found.

    A data set that is given must be the one asked for, else UsageError. Raises DamageError for a
    damaged file in the cache, whose truths are not used.
    """
    if not _DIGEST.fullmatch(digest):
        raise DataError(f"{digest!r:.100} is no data-set digest")
    if dataset is not None:
        if dataset.digest != digest:
            raise UsageError(
                f"the data set {dataset.id!r} ({dataset.split}) is not the one that was recorded:"
                f" its digest is {dataset.digest}, the run's is {digest}"
            )
        return _truths(dataset)
    for source in (_packaged, _cached):  # in this order; a sealed key would be the next
        found = source(digest)
        if found is not None:
            return found
    return None


def _truths(dataset: Dataset) -> dict[str, str]:
    return {item.sample.task_id: item.truth for item in dataset.items}


@functools.cache
def _mini() -> Dataset:
    return load(MINI)


def _packaged(digest: str) -> dict[str, str] | None:
    mini = _mini()
    return _truths(mini) if mini.digest == digest else None


def _cached(digest: str) -> dict[str, str] | None:
    try:
        path = _path(digest)
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise LackError(
            f"{path} cannot be read: {error.strerror}", hint=f"chmod u+r {path}"
        ) from error
    except LackError:  # no home, so no cache
        return None
    return _decode(path, digest, data)


def _path(digest: str) -> Path:
    return cache_folder() / "truths" / f"{digest.removeprefix('sha256:')}.jsonl"


# -------------------------------------------------------------------------------------- the format


def _encode(dataset: Dataset) -> bytes:
    """A first line that vouches for the rest, then one line per sample."""
    rows = "".join(
        json.dumps(
            {"task_id": item.sample.task_id, "truth": item.truth, "level": item.sample.level}
        )
        + "\n"
        for item in dataset.items
    ).encode()
    head = {
        "format": FORMAT,
        "version": VERSION,
        "id": dataset.id,
        "split": dataset.split,
        "dataset": dataset.digest,
        # the data set's digest leaves the truths out
        "sha256": sha256(rows).hexdigest(),
    }
    return json.dumps(head).encode() + b"\n" + rows


def _decode(path: Path, digest: str, data: bytes) -> dict[str, str]:
    first, _, rows = data.partition(b"\n")
    try:
        head = json.loads(first)
    except (ValueError, RecursionError):
        head = None
    if not isinstance(head, Mapping) or head.get("format") != FORMAT:
        raise _damage(path, "it does not begin like a file of truths")
    if head.get("version") != VERSION:
        raise DataError(
            f"{path} has version {head.get('version')!r:.20}; this harness reads {VERSION}"
        )
    if head.get("dataset") != digest:
        raise _damage(path, f"it is of another data set, {head.get('dataset')!r:.100}")
    if head.get("sha256") != sha256(rows).hexdigest():
        raise _damage(path, "its rows are not those that were written")
    try:
        lines: list[dict[str, Any]] = [json.loads(line) for line in rows.splitlines()]
        return {str(line["task_id"]): str(line["truth"]) for line in lines}
    except (ValueError, RecursionError, LookupError, TypeError):
        raise _damage(path, "its rows are no truths") from None


def _damage(path: Path, what: str) -> DamageError:
    return DamageError(
        f"{path} is damaged and not used: {what}",
        hint="delete that file and name the data set by --dataset",
    )


def _replace(path: Path, data: bytes) -> None:
    """Put the file there whole or not at all, also after a crash."""
    import tempfile  # slow to load, and readers need none

    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.stem, suffix=".tmp")  # 0600
    try:
        with open(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    if os.name != "nt":  # folders cannot be opened there
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
