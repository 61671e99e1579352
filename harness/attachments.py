"""The files that questions come with, found by folder and name; no name leads anywhere else."""

from __future__ import annotations

import hashlib
from pathlib import Path, PureWindowsPath

from harness.errors import DataError
from harness.metadata import refuse_pointer


class Attachments:
    """The attachments of one split, which stand in its folder beside the metadata."""

    def __init__(self, root: Path, folder: Path) -> None:
        """`root`: the data set's; links may lead to any place in it."""
        self._folder = folder
        self._allowed = [root.resolve()]
        if root.parent.name == "snapshots":
            # huggingface_hub's cache: the files of a snapshot are links to blobs beside it, or in
            # one store for all data sets
            repository = root.parent.parent.resolve()
            self._allowed += [repository / "blobs", repository.parent / "blobs"]
        # of the other split as well: its answers are answers, too
        metadata = [*folder.glob("metadata*"), *folder.parent.glob("*/metadata*")]
        self._keys = {_identity(path) for path in metadata if path.exists()}

    def find(self, name: str, place: str) -> Path | None:
        """The real file, links followed; None if there is nothing of that name.

        Raises DataError, beginning with `place`, for a name that is no plain file name, or that
        stands for something else than a file of the data set which holds no answers.
        """
        # a drive (`C:x`) counts on every system: a data set is good on all of them or on none
        if name in (".", "..") or set(name) & set("/\\\0") or PureWindowsPath(name).drive:
            raise DataError(f"{place} has file_name {name!r}; only a plain name is allowed")
        try:
            real = (self._folder / name).resolve(strict=True)
            identity = _identity(real)
        except FileNotFoundError:
            return None
        except (OSError, RuntimeError, ValueError):  # too long, a loop of links, not encodable
            raise DataError(
                f"{place} has file_name {name!r:.300}, which cannot be opened"
            ) from None
        if not any(real.is_relative_to(folder) for folder in self._allowed):
            raise DataError(f"{place}: {name!r} is a link that leads out of the data set")
        if identity in self._keys:
            raise DataError(f"{place}: {name!r} is the metadata, which holds the answers")
        if not real.is_file():
            kind = "a folder" if real.is_dir() else "no regular file"
            raise DataError(f"{place}: the attachment {name!r} is {kind}")
        return real


def file_digest(path: Path) -> str:
    """`sha256:…` of a file of any size. Raises DataError if it cannot be read."""
    refuse_pointer(path)
    try:
        with path.open("rb") as file:
            return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error


def _identity(path: Path) -> tuple[int, int]:
    info = path.stat()
    return info.st_dev, info.st_ino
