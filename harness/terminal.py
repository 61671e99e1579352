"""Text from samples, models and files, made fit for a terminal."""

from __future__ import annotations

import os
import re
import sys
from unicodedata import combining, east_asian_width

# C0, DEL, C1 | soft hyphen | Arabic letter mark | zero width space and directional marks (not the
# joiners, which scripts and emoji need) | line separators, bidi embeddings and overrides |
# invisible operators, bidi isolates | lone surrogates | byte order mark | annotations | tags
_UNFIT = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ud800-\udfff\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)


def printable(text: str, *, keep: str = "") -> str:
    r"""The text with every character that could steer a terminal or hide escaped, as `\x1b`.

    That is: control characters (C0, DEL, C1), bidirectional marks and overrides, invisible format
    characters, line separators and lone surrogates. `keep`: characters to leave as they are, such
    as ``"\n\t"``. The rest, backslashes included, is unchanged: this is for reading, not for
    decoding.
    """

    def escape(match: re.Match[str]) -> str:
        char = match.group()
        return char if char in keep else char.encode("unicode_escape").decode()

    return _UNFIT.sub(escape, text)


def printable_json(text: str) -> str:
    r"""JSON text with the same characters as `\u001b`: it is safe to print and means the same.

    Line feeds and tabs, which may stand between values, are left.
    """
    return _UNFIT.sub(_json_escape, text.replace("\r\n", "\n"))


def _json_escape(match: re.Match[str]) -> str:
    char = match.group()
    if char in "\n\t":
        return char
    units = char.encode("utf-16-be", "surrogatepass").hex(" ", 2).split()
    return "".join("\\u" + unit for unit in units)


def tell(line: str) -> None:
    """One line to stderr, at once. Where it cannot be written, it is lost, and so is what follows.

    A log on a full disk, a reader that went away, a terminal that was closed: what is told on the
    way is not worth the work that it is about.
    """
    if sys.stderr is None:  # print would take stdout instead
        return
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:
        silence(sys.stderr.fileno())


def silence(stream: int) -> None:
    """Point a file descriptor at nothing; what Python holds back for it would fail at the exit."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, stream)
    os.close(nothing)


def columns(text: str) -> int:
    """How many columns printable text takes in a terminal: wide characters two, marks none."""
    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)
