"""Where a store keeps its bytes: a folder on disk, or memory. Both behave alike, by test.

Names are relative, `/`-separated paths. A write is there whole or not at all, also after a crash.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from harness.errors import DamageError, LackError, UsageError

MAX_FILE = 512 << 20
"""Bytes of the largest file that is read: a bound on memory against damaged or hostile stores."""

TEMPORARY = ".tmp"

_serial = itertools.count()  # two threads that write one file must not share a temporary one


class Appender(Protocol):
    """An open file that only grows."""

    def append(self, data: bytes, *, durable: bool) -> None:
        """Write behind the end; with `durable`, return only when it is on the disk."""

    def close(self) -> None: ...


class Files(Protocol):
    """Named files; see the module's text."""

    def label(self, name: str) -> str:
        """What to call the file in a message."""

    def exists(self, name: str) -> bool:
        """Whether anything has that name, also what is no regular file."""

    def read(self, name: str) -> bytes:
        """The bytes; FileNotFoundError when there is no such file."""

    def write(self, name: str, data: bytes) -> None:
        """Create or replace atomically and durably."""

    def remove(self, name: str) -> None:
        """Remove if there."""

    def listing(self, folder: str) -> list[str]:
        """Names of all files below the folder, sorted; temporary files are left out."""

    def sweep(self) -> None:
        """Remove temporary files that dead processes left; only while nobody else writes."""

    def append(self, name: str, *, size: int | None = None) -> Appender:
        """Open for appending, cut to at most `size` bytes first if given."""

    def lock(self, name: str, *, exclusive: bool) -> contextlib.AbstractContextManager[None]:
        """Hold a lock; UsageError at once when another process holds it."""


class Memory:
    """Files in a dict, gone with the process."""

    def __init__(self) -> None:
        self._files: dict[str, bytes] = {}
        self._locks: dict[str, int] = {}

    def label(self, name: str) -> str:
        return f"memory:{name}"

    def exists(self, name: str) -> bool:
        return name in self._files

    def read(self, name: str) -> bytes:
        try:
            return self._files[name]
        except KeyError:
            raise FileNotFoundError(name) from None

    def write(self, name: str, data: bytes) -> None:
        self._files[name] = bytes(data)

    def remove(self, name: str) -> None:
        self._files.pop(name, None)

    def listing(self, folder: str) -> list[str]:
        names = [name for name in self._files if name.startswith(folder + "/")]
        return sorted(name for name in names if not name.endswith(TEMPORARY))

    def sweep(self) -> None:
        for name in [name for name in self._files if _is_temporary(name.rpartition("/")[2])]:
            del self._files[name]

    def append(self, name: str, *, size: int | None = None) -> Appender:
        self._files[name] = self._files.get(name, b"")[:size]
        return _MemoryAppender(self._files, name)

    @contextlib.contextmanager
    def lock(self, name: str, *, exclusive: bool) -> Iterator[None]:
        held = self._locks.get(name, 0)
        if held < 0 or (exclusive and held):
            raise UsageError(f"{self.label(name)} is in use")
        self._locks[name] = -1 if exclusive else held + 1
        try:
            yield
        finally:
            self._locks[name] = 0 if exclusive else self._locks[name] - 1


class _MemoryAppender:
    def __init__(self, files: dict[str, bytes], name: str) -> None:
        self._files, self._name = files, name

    def append(self, data: bytes, *, durable: bool) -> None:
        self._files[self._name] += data

    def close(self) -> None:
        pass


class Folder:
    """Files below one folder. Nothing is created before the first write.

    A link among the folders below it is refused: a store may come from a stranger, and what is
    read, written and removed here must be inside of it.
    """

    def __init__(self, root: Path) -> None:
        self._given = root
        with contextlib.suppress(OSError):  # there may be no current folder; then it is not needed
            root = root.absolute()  # a user's loop may change the current folder
        self.root = root

    def label(self, name: str) -> str:
        return str(self._given / name)

    def _path(self, name: str) -> Path:
        """Where a file is; DamageError when a folder on the way is a link."""
        at = str(self.root)
        for part in name.split("/")[:-1]:
            at = f"{at}/{part}"
            if os.path.islink(at):
                raise DamageError(f"{at} is a link; it is not followed")
        return self.root / name

    def exists(self, name: str) -> bool:
        path = self._path(name)
        try:
            os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise _cannot_read(path, error) from None
        return True

    def read(self, name: str) -> bytes:
        path = self._path(name)
        try:
            fd = _open(path, os.O_RDONLY)
            try:
                size = os.fstat(fd).st_size
                if size > MAX_FILE:
                    raise DamageError(f"{path} is larger than {MAX_FILE >> 20} MiB; it is not read")
                chunks = []
                while chunk := os.read(fd, max(size, 1 << 16)):
                    chunks.append(chunk)
            finally:
                os.close(fd)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise _cannot_read(path, error) from None
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def write(self, name: str, data: bytes) -> None:
        path = self._path(name)
        temporary = path.with_name(f".{path.name}.{os.getpid()}-{next(_serial)}{TEMPORARY}")
        try:
            self._make_folder(path.parent)
            try:
                with open(_open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(temporary, path)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
            _sync_folder(path.parent)
        except OSError as error:
            raise _cannot_write(path, error) from error

    def remove(self, name: str) -> None:
        path = self._path(name)
        try:
            path.unlink(missing_ok=True)
            if path.parent.is_dir():
                _sync_folder(path.parent)
        except OSError as error:
            raise _cannot_write(path, error) from error

    def listing(self, folder: str) -> list[str]:
        found: list[str] = []
        top = self._path(f"{folder}/")  # the folder itself must be no link either
        for at, _, names in os.walk(top, onerror=_cannot_list):
            base = Path(at).relative_to(self.root).as_posix()
            found += [f"{base}/{name}" for name in names if not name.endswith(TEMPORARY)]
        return sorted(found)

    def sweep(self) -> None:
        for at, _, names in os.walk(self.root, onerror=_cannot_list):
            for path in [Path(at, name) for name in names if _is_temporary(name)]:
                try:
                    path.unlink(missing_ok=True)
                except OSError as error:
                    raise _cannot_write(path, error) from error

    def append(self, name: str, *, size: int | None = None) -> Appender:
        path = self._path(name)
        try:
            self._make_folder(path.parent)
            return _FileAppender(path, size)
        except OSError as error:
            raise _cannot_write(path, error) from error

    @contextlib.contextmanager
    def lock(self, name: str, *, exclusive: bool) -> Iterator[None]:
        try:
            import fcntl
        except ImportError:
            raise LackError(
                "recording needs file locks, which this system lacks (Linux and macOS have them)"
            ) from None
        path = self._path(name)
        try:
            self._make_folder(path.parent)
            file = open(_open(path, _APPEND), "ab")  # noqa: SIM115 - held for as long as the lock
        except OSError as error:
            raise _cannot_write(path, error) from error
        with file:
            kind = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
            try:
                fcntl.flock(file, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UsageError(f"{path} is locked: another harness process uses it") from None
            except OSError as error:
                raise LackError(
                    f"{path} cannot be locked: {_reason(error)}",
                    hint="record into a folder on a local disk: --store DIR",
                ) from error
            yield

    def _make_folder(self, folder: Path) -> None:
        if folder.is_dir():
            return
        missing = [folder]
        while not missing[-1].parent.is_dir():
            missing.append(missing[-1].parent)
        for path in reversed(missing):
            try:
                path.mkdir(exist_ok=True)
            except FileExistsError:  # it is a file, or a link to nowhere
                raise NotADirectoryError(errno.ENOTDIR, f"{path} is no folder") from None
            _sync_folder(path.parent)


class _FileAppender:
    def __init__(self, path: Path, size: int | None) -> None:
        new = not path.exists()
        self._path = path
        self._file = open(_open(path, _APPEND), "ab", buffering=0)  # noqa: SIM115 - see close()
        if size is not None and size < os.fstat(self._file.fileno()).st_size:
            self._file.truncate(size)
        if new:
            _sync_folder(path.parent)

    def append(self, data: bytes, *, durable: bool) -> None:
        try:
            view = memoryview(data)
            while view:
                view = view[self._file.write(view) :]
            if durable:
                os.fsync(self._file.fileno())
        except OSError as error:
            raise _cannot_write(self._path, error) from error

    def close(self) -> None:
        self._file.close()


_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND


def _open(path: Path, flags: int) -> int:
    """A file descriptor of a regular file; DamageError when it is another kind of thing.

    A store may come from a stranger: no links out of it, no pipes that never end.
    """
    more = (getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"))
    try:
        fd = os.open(path, flags | sum(more), 0o666)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise
        raise DamageError(f"{path} is not a regular file") from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise DamageError(f"{path} is not a regular file")
    return fd


def _is_temporary(name: str) -> bool:
    return name.startswith(".") and name.endswith(TEMPORARY)


def _cannot_list(error: OSError) -> None:
    # a folder that cannot be looked into is not an empty one
    if not isinstance(error, FileNotFoundError):
        raise _cannot_read(error.filename, error) from None


def _cannot_read(path: Path | str, error: OSError) -> DamageError:
    return DamageError(f"{path} cannot be read: {_reason(error)}")


def _cannot_write(path: Path, error: OSError) -> LackError:
    return LackError(
        f"{path} cannot be written: {_reason(error)}; what was recorded before is kept",
        hint="free or open the disk, then run the same command again: it continues",
    )


def _reason(error: OSError) -> str:
    return error.strerror or type(error).__name__


def _sync_folder(folder: Path) -> None:
    if os.name == "nt":  # folders cannot be opened there
        return
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
