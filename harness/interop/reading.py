"""Other tools' JSON, read without trust: bounded in size, typed, every error in one line.

A file may come from a stranger. Only the fields that are named in a type are kept, so that what
fills the rest of a line costs nothing; what is of another type than it should be is refused.
"""

from __future__ import annotations

import codecs
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgspec

from harness.errors import DataError, LackError

MAX_RECORD = 64 << 20
"""Bytes of one line, one member of an archive or one sample."""

T = TypeVar("T")


def decode(data: bytes | msgspec.Raw, kind: type[T], what: str, *, limit: int = MAX_RECORD) -> T:
    """JSON of a known shape. DataError naming `what` and the place for anything else.

    Lone surrogates become U+FFFD and NaN and infinities null: some writers produce them, and no
    reader of JSON takes them.
    """
    if isinstance(data, bytes) and len(data) > limit:
        raise DataError(f"{what} is larger than {limit >> 20} MiB; it is not read")
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        raise DataError(f"{what}: {error}") from None
    except RecursionError:
        raise DataError(f"{what} is nested too deeply") from None
    except (msgspec.DecodeError, ValueError) as error:
        first = error
    try:
        return msgspec.json.decode(_mended(bytes(data)), type=kind)
    except msgspec.ValidationError as error:
        raise DataError(f"{what}: {error}") from None
    except RecursionError:
        raise DataError(f"{what} is nested too deeply") from None
    except (msgspec.DecodeError, ValueError):
        raise DataError(f"{what} is no JSON: {first}") from None


# a string without its end is taken too: else each quote in it would be tried again
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|NaN|-?Infinity', re.DOTALL)
_LONE = re.compile(
    rb"(?<!\\)((?:\\\\)*+)(?:(\\u[dD][89abAB]..\\u[dD][c-fC-F]..)|\\u[dD][89a-fA-F]..)"
)


def _mended(data: bytes) -> bytes:
    """The text with what JSON does not have replaced."""

    def mend(match: re.Match[bytes]) -> bytes:
        token = match[0]
        if not token.startswith(b'"'):
            return b"null"
        return _LONE.sub(lambda found: found[1] + (found[2] or rb"\ufffd"), token)

    return _TOKEN.sub(mend, data)


NOTHING = msgspec.Raw(b"null")
"""The default of a field whose shape is left open."""


MAX_OPEN = 4 << 20
"""Bytes of a value whose shape is left open: made to, it takes fifty times that in memory."""


def plain(raw: msgspec.Raw, what: str) -> Any:
    """A value of any shape."""
    if memoryview(raw).nbytes > MAX_OPEN:
        raise DataError(f"{what}: a value (of arguments, say) is larger than {MAX_OPEN >> 20} MiB")
    return decode(raw, object, what)


def open_file(path: Path) -> BinaryIO:
    """A regular file, opened for reading. DataError for what is none, LackError for no access."""
    try:
        # a named pipe would wait for ever
        file = os.open(
            path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        )
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise DataError(f"{path} is no regular file")
        return os.fdopen(file, "rb")
    except PermissionError as error:
        raise LackError(f"{path} cannot be read: {error.strerror}") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error


def read_file(path: Path, limit: int = MAX_RECORD) -> bytes:
    """A whole file of at most so many bytes."""
    try:
        with open_file(path) as file:
            data = file.read(min(os.fstat(file.fileno()).st_size, limit) + 1)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error
    if len(data) > limit:
        raise DataError(f"{path} is larger than {limit >> 20} MiB; it is not read")
    return data


def lines(path: Path, notes: list[str]) -> Iterator[tuple[str, bytes]]:
    """The lines of a file that are not blank, each with what to call it in an error.

    A last line that breaks off is what a killed writer leaves: it is left out, and a note says so.
    """
    try:
        with open_file(path) as file:
            number = 0
            while line := file.readline(MAX_RECORD + 1):
                number += 1
                what = f"{path}, line {number}"
                if len(line) > MAX_RECORD:
                    raise DataError(f"{what} is longer than {MAX_RECORD >> 20} MiB; it is not read")
                if number == 1:
                    line = line.removeprefix(codecs.BOM_UTF8)  # some tools put it there
                if not line.endswith(b"\n") and _breaks_off(line):
                    note = f"{what} breaks off, as of a writer that was killed; it is left out"
                    notes += [] if note in notes else [note]
                elif line.strip():
                    yield what, line
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error


def _breaks_off(line: bytes) -> bool:
    try:
        decode(line, msgspec.Raw, "")
    except DataError as error:
        return bool(line.strip()) and "truncated" in error.message
    return False
