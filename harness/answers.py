"""From the arguments of a submit call to the text that is scored and exported.

The scorer compares text, and a number's spelling can decide: against a truth ``$1.50``, which is
a string, ``1.50`` is right and ``1.5`` wrong. So numbers are kept as they were written.
"""

import json
import re
from typing import Any

MAX_DEPTH = 100
"""How deep arguments may be nested. Our own bound, because Python's depends on the caller's stack
and on its version, and a replay has to refuse exactly what the recording refused."""

_JSON_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)


class NumberLiteral(str):
    """A JSON number as it was written: ``1.50``, ``1e400``, a million digits; also ``NaN``.

    A text for all purposes; ``float()`` or ``int()`` give its value.
    """

    __slots__ = ()


# made once: json.loads with hooks would make one at each call
_DECODER = json.JSONDecoder(
    parse_int=NumberLiteral, parse_float=NumberLiteral, parse_constant=NumberLiteral
)


def parse_arguments(text: str) -> Any:
    """The JSON value of a tool call's arguments, numbers as `NumberLiteral`.

    ``NaN``, ``Infinity`` and ``-Infinity`` pass as literals, the last of duplicate keys wins, lone
    surrogates survive. Raises ValueError, with a message that is the same for every version of
    Python (it may be shown to the model), for what is not JSON or is nested deeper than
    `MAX_DEPTH`.
    """
    if text.count("[") + text.count("{") > MAX_DEPTH and _depth(text) > MAX_DEPTH:
        raise ValueError(f"nested more than {MAX_DEPTH} deep")
    try:
        return _DECODER.decode(text)
    except ValueError as error:
        raise ValueError("not valid JSON") from error


def answer_text(value: object) -> str | None:
    """A submitted JSON value as the text that is scored; None (``null``) is no answer.

    A string stays as it is, a number keeps its literal, booleans are ``true`` and ``false``, the
    items of a list are joined by ``", "``, an object becomes compact JSON. Inside a list, ``null``
    is the text ``null``. Raises TypeError for what is no JSON value.
    """
    if value is None:
        return None
    if isinstance(value, str):
        return str(value)
    if isinstance(value, list | tuple):
        return ", ".join("null" if item is None else answer_text(item) or "" for item in value)
    return _compact(value)


def _compact(value: object) -> str:
    """JSON without spaces, letters unescaped, number literals as they were."""
    if isinstance(value, NumberLiteral):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{_key(key)}:{_compact(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_compact, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise TypeError(f"an object's keys are strings, not {type(key).__name__}")
    return json.dumps(key, ensure_ascii=False)


def _depth(text: str) -> int:
    depth = deepest = 0
    for mark in re.findall(r"[\[\]{}]", _JSON_STRING.sub("", text)):
        depth += 1 if mark in "[{" else -1
        deepest = max(deepest, depth)
    return deepest
