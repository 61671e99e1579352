"""Zip archives from strangers: members one at a time, bounded, whatever the archive says of itself.

Members are compressed with deflate or, as inspect does it, with Zstandard (method 93), which the
zip library of Python before 3.14 does not know.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from pathlib import Path
from typing import BinaryIO

from harness.errors import DataError, LackError
from harness.interop.reading import MAX_RECORD, open_file

ZSTD = 93
MAX_DIRECTORY = 16 << 20
"""Bytes of the list of members: some 150,000 of them."""
MAX_TOTAL = 8 << 30
"""Bytes that may be unpacked in all."""

_END = b"PK\x05\x06"
_END64 = b"PK\x06\x06"
_STEP = 256  # bytes that are unpacked at once: they become at most some MiB
_WINDOW = 128 << 20  # what `zstd --ultra` uses at most; more is made to take memory


class Archive:
    """A zip file, opened for reading."""

    def __init__(self, path: Path) -> None:
        """DataError when it is no zip file, is cut off, or holds names that lead outside."""
        self._path = path
        self._file = open_file(path)
        self._left = MAX_TOTAL
        try:
            _check_directory(self._file, path)
            self._zip = zipfile.ZipFile(self._file)
            # of two members of one name the later one counts: it was written to replace the other
            self._members = {info.filename: info for info in self._zip.infolist()}
        except (
            OSError, ValueError, RuntimeError, EOFError, NotImplementedError, struct.error,
            zipfile.BadZipFile,
        ) as error:  # fmt: skip
            self._file.close()
            raise DataError(f"{path} is no zip file, or is cut off: {error}") from None
        except DataError:
            self._file.close()
            raise
        for name in self._members:
            if name.startswith(("/", "\\")) or ".." in name.replace("\\", "/").split("/"):
                self.close()
                raise DataError(f"{path} holds a member whose name leads outside: {name[:80]!r}")

    def close(self) -> None:
        """Let go of the file."""
        self._zip.close()
        self._file.close()

    @property
    def names(self) -> list[str]:
        """The members, in the archive's order."""
        return list(self._members)

    def read(self, name: str, limit: int = MAX_RECORD) -> bytes:
        """A member's bytes, verified. DataError when they are damaged or more than the limit."""
        info = self._members[name]
        what = f"{self._path}, member {name[:200]!r}"
        if info.flag_bits & 1:
            raise DataError(f"{what} is encrypted")
        limit = min(limit, self._left)
        try:
            if info.compress_type == ZSTD:
                data = self._read_zstd(info, limit)
            else:
                with self._zip.open(info) as member:
                    data = member.read(limit + 1)
        except (DataError, LackError):
            raise
        except Exception as error:  # each library has its own, and zlib's are of no one base
            told = str(error) or type(error).__name__
            raise DataError(f"{what} is damaged: {told}") from None
        if len(data) > limit:
            raise DataError(f"{what} unpacks to more than {limit >> 20} MiB; it is not read")
        self._left -= len(data)
        return data

    def _read_zstd(self, info: zipfile.ZipInfo, limit: int) -> bytes:
        self._file.seek(info.header_offset)
        header = self._file.read(30)
        if len(header) != 30 or header[:4] != b"PK\x03\x04":
            raise ValueError("its header is not there")
        name, extra = struct.unpack("<HH", header[26:])
        self._file.seek(info.header_offset + 30 + name + extra)
        packed = self._file.read(min(info.compress_size, limit + 1))
        if len(packed) != info.compress_size:
            raise ValueError("it is cut off, or too long")
        data = read_zstd(packed, min(info.file_size, limit) + 1, str(self._path))
        if len(data) <= limit and zlib.crc32(data) != info.CRC:
            raise ValueError("its checksum is another")
        return data


def read_zstd(packed: bytes, size: int, what: str) -> bytes:
    """At most so many bytes of what was compressed with Zstandard, in one frame or more.

    LackError, naming `what`, without the package; ValueError for what is cut off; for other damage
    the package's own error.
    """
    try:
        import zstandard
    except ImportError:
        raise LackError(
            f"{what} is compressed with Zstandard, which is not installed",
            hint="pip install 'gaia-harness[inspect]'",
        ) from None
    unpacker = zstandard.ZstdDecompressor(max_window_size=_WINDOW)
    data, at = bytearray(), 0
    while at < len(packed) and len(data) < size:
        frame = unpacker.decompressobj()
        while not frame.eof and len(data) < size:
            if at >= len(packed):
                raise ValueError("it is cut off")
            data += frame.decompress(packed[at : at + _STEP])
            at = min(at + _STEP, len(packed))
        at -= len(frame.unused_data)
    return bytes(data[:size])


def _check_directory(file: BinaryIO, path: Path) -> None:
    """Refuse a list of members that would take the memory: the library reads it at once."""
    size = file.seek(0, 2)
    file.seek(max(0, size - (1 << 16) - 1024))
    tail = file.read()
    at = tail.rfind(_END)
    if at < 0 or len(tail) < at + 22:
        raise DataError(f"{path} is no zip file, or is cut off: its list of members is not there")
    length = struct.unpack("<I", tail[at + 12 : at + 16])[0]
    at64 = tail.rfind(_END64, 0, at)
    if length == 0xFFFFFFFF and at64 >= 0 and len(tail) >= at64 + 48:
        length = struct.unpack("<Q", tail[at64 + 40 : at64 + 48])[0]
    if length > MAX_DIRECTORY:
        raise DataError(f"{path}: its list of members has {length} bytes; it is not read")
    file.seek(0)
