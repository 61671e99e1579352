"""A stream of server-sent events → the JSON values that its events bring.

By the rules of the HTML standard, which the SDK's own reader keeps only in part: it loses the first
event behind a byte order mark, and takes an event without data (a keep-alive, a `retry:` line) for
a broken one.
"""

from __future__ import annotations

import codecs
import contextlib
import io
import json
from collections.abc import Iterable, Iterator

from harness.records import JSON

END_MARK = "[DONE]"
_decoder = codecs.getincrementaldecoder("utf-8-sig")


def values(chunks: Iterable[bytes]) -> Iterator[JSON]:
    """The values, up to the end mark; what comes behind it is not waited for.

    Raises ValueError for an event that is no JSON, and for bytes that are no UTF-8. An event that
    the stream ended in is given if it is whole, and else left out.
    """
    data: list[str] = []
    for line in _lines(chunks):
        if line:
            field, _, value = line.partition(":")
            if field == "data":
                data.append(value.removeprefix(" "))
            continue
        text, data = "\n".join(data), []
        if text.startswith(END_MARK):
            return
        if text.strip():
            yield json.loads(text)
    with contextlib.suppress(ValueError):
        yield json.loads("\n".join(data))


def _lines(chunks: Iterable[bytes]) -> Iterator[str]:
    """Lines without their ends, which are LF, CR LF or CR and may be cut anywhere."""
    decoder = io.IncrementalNewlineDecoder(_decoder(), translate=True)
    pieces: list[str] = []  # of a line that has not ended: joined once, for it may be long
    for chunk in chunks:
        first, *more = decoder.decode(chunk).split("\n")
        pieces.append(first)
        for line in more:
            yield "".join(pieces)
            pieces = [line]
    rest = "".join(pieces) + decoder.decode(b"", final=True)
    if rest:
        yield from rest.split("\n")
