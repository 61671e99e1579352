"""The plain part of a YAML settings file, without a YAML library.

EvalScope writes its settings as block mappings and lists of scalars. That much is read here; what
is more (texts over several lines, flow collections, lists of mappings) is left out. Nothing is ever
built from a tag: a file that holds one is refused.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from harness.errors import DataError
from harness.interop.reading import read_file

MAX_SETTINGS = 4 << 20
"""Bytes of a settings file."""
_DEPTH = 20
_LINE = re.compile(r"( {0,200})(?:(- +)|([\w.-]+|'[^']*'|\"[^\"]*\"):(?: +|$))(.*)")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,17})(?:\.\d{1,17})?(?:e[+-]?\d{1,2})?")
_WORDS = {"null": None, "~": None, "": None, "true": True, "false": False}


class _Line(NamedTuple):
    indent: int
    key: str | None
    """None for an item of a list."""
    value: str


def read_settings(path: Path) -> dict[str, Any]:
    """Mappings by key, lists of scalars, scalars. DataError for a file that cannot be used."""
    try:
        text = read_file(path, MAX_SETTINGS).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise DataError(f"{path} is no UTF-8 text") from None
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if match := _LINE.fullmatch(line.rstrip()):
            value = match[4].strip()
            if value.startswith("!"):
                raise DataError(f"{path}, line {number}: a YAML tag ({value[:40]!r}) is not read")
            key = match[3].strip("'\"") if match[3] else None
            found.append(_Line(len(match[1]), key, value))
    value, _ = _block(found, 0, 0) if found else ({}, 0)
    return value if isinstance(value, dict) else {}


def _block(lines: list[_Line], at: int, depth: int) -> tuple[Any, int]:
    """The mapping or list that begins on a line, and the line behind it."""
    indent, is_list = lines[at].indent, lines[at].key is None
    items: list[Any] = []
    values: dict[str, Any] = {}
    while at < len(lines) and lines[at].indent >= indent:
        line = lines[at]
        if line.indent == indent and (line.key is None) != is_list:
            break
        at += 1
        if line.indent > indent:  # goes on with what is not read
            continue
        if line.key is None:
            items.append(_scalar(line.value))
        elif line.value or at == len(lines) or depth == _DEPTH:
            values[line.key] = _scalar(line.value)
        elif lines[at].indent > indent or (lines[at].indent == indent and lines[at].key is None):
            values[line.key], at = _block(lines, at, depth + 1)
        else:
            values[line.key] = None
    return items if is_list else values, at


def _scalar(text: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    if _NUMBER.fullmatch(text):
        return json.loads(text)
    if len(text) > 1 and text[0] == text[-1] == "'":
        return text[1:-1].replace("''", "'")
    if text[0] == '"':
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return None
    return text
