"""Keeping secrets out: replies are redacted at the seam, requests that carry one are refused.

A secret is searched for as it is, URL-encoded, escaped as in JSON, and in base64 at its three
alignments (either alphabet, in one line or several), when it has at least 12 characters. Shorter
ones cannot be told from ordinary text and are left alone.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from typing import Any

import msgspec

from harness.errors import DamageError, SecretError
from harness.exchange import texts
from harness.records import (
    BashReply,
    BashRequest,
    History,
    ModelReply,
    ModelRequest,
    Reply,
    Request,
    ToolReply,
    ToolRequest,
)

MARK = "[secret removed]"
SHORTEST = 12


class Redactor:
    """Finds the given secrets in texts, bytes and JSON values of one sample."""

    def __init__(self, secrets: Iterable[str]) -> None:
        known = {secret for secret in secrets if len(secret) >= SHORTEST}
        longest_first = sorted(known, key=lambda secret: (-len(secret), secret))
        pattern = "|".join(form for secret in longest_first for form in _patterns(secret))
        self._text = re.compile(pattern) if known else None
        self._bytes = re.compile(pattern.encode("utf-8", "surrogatepass")) if known else None
        self._checked: set[bytes] = set()  # histories whose messages were found clean

    def text(self, text: str) -> str:
        """The text with every secret in it replaced by `MARK`."""
        return self._text.sub(MARK, text) if self._text else text

    def data(self, data: bytes) -> bytes:
        """The same for bytes."""
        return self._bytes.sub(MARK.encode(), data) if self._bytes else data

    def exchange(self, data: bytes) -> bytes | None:
        """An encoded HTTP exchange; None for one that cannot be cleaned: a secret stands within
        base64, or came in pieces of a stream, where no replacement in the bytes would find it."""
        if self._text is None:
            return data
        clean = self.data(data)
        try:
            pieces = texts(clean)
        except DamageError:
            return None
        return None if any(map(self._text.search, pieces)) else clean

    def json(self, value: Any) -> Any:
        """The value with every string in it redacted, keys included."""
        if self._text is None:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.json(key): self.json(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.json(item) for item in value]
        return value

    def reply(self, reply: Reply) -> Reply:
        """The reply as the loop and the tape may see it."""
        if self._text is None:
            return reply
        if isinstance(reply, BashReply):
            return BashReply(
                self.data(reply.stdout), self.data(reply.stderr),
                reply.exit_code, reply.timed_out, reply.omitted,
            )  # fmt: skip
        if isinstance(reply, ModelReply | ToolReply):
            value = self.json(msgspec.to_builtins(reply))
            return msgspec.convert(value, type(reply))
        return self.json(reply)

    def check(self, request: Request) -> None:
        """SecretError, naming the place, when a request would carry a secret outside."""
        if self._text is None:
            return
        if isinstance(request, ModelRequest):
            node: History | None = request.messages
            clean: list[bytes] = []
            while node is not None and len(node) and node.chain not in self._checked:
                self._refuse(node.message, f"messages[{len(node) - 1}]")
                clean.append(node.chain)
                node = node.parent
            self._checked.update(clean)
            self._refuse(request.params, "params")
            self._refuse(request.tools, "tools")
        elif isinstance(request, BashRequest):
            self._refuse(request.command, "command")
        elif isinstance(request, ToolRequest):
            self._refuse(request.server, "server")
            self._refuse(request.name, "name")
            self._refuse(request.arguments, "arguments")
        else:
            self._refuse(request.name, "name")

    def find(self, value: Any, place: str) -> str | None:
        """Where in a JSON value a secret stands, as `place.key[0]`; None where there is none."""
        if self._text is None:
            return None
        if isinstance(value, str):
            return place if self._text.search(value) else None
        if isinstance(value, dict):
            for key, item in value.items():
                if found := self.find(key, place) or self.find(item, f"{place}.{key}"):
                    return found
        elif isinstance(value, list | tuple):
            for index, item in enumerate(value):
                if found := self.find(item, f"{place}[{index}]"):
                    return found
        return None

    def _refuse(self, value: Any, place: str) -> None:
        if found := self.find(value, place):
            raise SecretError(
                f"a request was about to carry a secret of this run at {found}; it was not sent"
            )


def _patterns(secret: str) -> list[str]:
    """Regular expressions for the spellings under which a secret can stand in a text."""
    rest = "".join("(?:" + "|".join(_spellings(char)) + ")" for char in secret[1:])
    # the first character outside a group: that is what the search is fast by
    found = [first + rest for first in _spellings(secret[0])]
    raw = secret.encode("utf-8", "surrogatepass")
    for shift in range(3):
        # the characters that the secret alone decides, whatever stands before and behind it
        padded = base64.b64encode(b"\0" * shift + raw).decode().rstrip("=")
        start = -(-shift * 8 // 6)
        length = (shift + len(raw)) * 8 // 6 - start
        inner = padded[start : start + length]
        # in either alphabet, and broken into lines anywhere, as `base64` prints it
        found.append(_LINE_END.join(_ALPHABETS.get(char, char) for char in inner))
    return found


_ALPHABETS = {"+": "[+-]", "/": "[/_]"}
_LINE_END = r"(?:(?:\r|\\+r)?(?:\n|\\+n))?"  # as it is, or escaped: in JSON, in JSON within JSON


def _spellings(char: str) -> list[str]:
    """A character as it is, URL-encoded, in JSON: which ones are, encoders do not agree on."""
    percent = "%" + char.encode("utf-8", "surrogatepass").hex("%")
    units = char.encode("utf-16-be", "surrogatepass").hex(" ", 2).split()
    escaped = "".join(r"\\+u" + unit for unit in units)
    found = [re.escape(char), _any_case(percent), _any_case(escaped)]
    if char == " ":
        found.append("[+]")
    elif char in '"\\/':
        found.append(r"\\+" + re.escape(char))
    return found


def _any_case(digits: str) -> str:
    return re.sub("[a-f]", lambda match: f"[{match[0]}{match[0].upper()}]", digits)
