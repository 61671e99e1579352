"""A bounded view of an unbounded stream of bytes."""

from __future__ import annotations


class Capture:
    """Keeps the first and the last half of a stream; holds at most twice that in memory."""

    def __init__(self, limit: int) -> None:
        """`limit`: bytes to keep in all."""
        self._tail_size = limit // 2
        self._head_size = limit - self._tail_size
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0

    def feed(self, data: bytes) -> None:
        """The next bytes of the stream."""
        self._total += len(data)
        room = self._head_size - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._tail_size:  # rarely, so that each byte is moved about once
            del self._tail[: -self._tail_size]

    def result(self) -> tuple[bytes, int]:
        """Head and tail put together, and how many bytes between them were left out.

        Where something was left out, no UTF-8 sequence is cut in two: the cut moves outwards.
        """
        if self._total <= self._head_size + self._tail_size:
            return bytes(self._head + self._tail), 0
        head, tail = bytes(self._head), bytes(self._tail[-self._tail_size :])
        kept = head[: len(head) - _unfinished(head)] + tail[_continued(tail) :]
        return kept, self._total - len(kept)


def _unfinished(data: bytes) -> int:
    """How many bytes at the end begin a UTF-8 sequence that does not end there (0 to 3)."""
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if byte >= 0xC0:  # a leading byte: 110… needs 2 bytes, 1110… 3, 11110… 4
            needed = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return back if back < needed and byte < 0xF8 else 0
        if byte < 0x80:
            return 0
    return 0


def _continued(data: bytes) -> int:
    """How many bytes at the start continue a UTF-8 sequence that began before (0 to 3)."""
    for i, byte in enumerate(data[:4]):
        if byte & 0xC0 != 0x80:
            return i
    return 0  # four in a row: not UTF-8
