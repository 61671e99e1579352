"""Canonical JSON and digests.

Canonical form: RFC 8785 (JCS), with two additions for values that it does not cover: a lone
surrogate is written as `\\udxxx` (lower case), and an integer beyond 2^53 is written in full.
Surrogates that form a pair are one character, as they are in JSON text.
"""

from __future__ import annotations

from hashlib import sha256
from json.encoder import encode_basestring
from math import isfinite
from typing import Any, Literal

import msgspec


class _Function(msgspec.Struct, forbid_unknown_fields=True):
    arguments: str
    name: str


class _Call(msgspec.Struct, forbid_unknown_fields=True):
    function: _Function
    id: str
    type: Literal["function"]


class _Message(msgspec.Struct, forbid_unknown_fields=True):
    """The chat messages that are made of strings only; fields stand in canonical (sorted) order."""

    content: str | msgspec.UnsetType | None = msgspec.UNSET
    reasoning_content: str | msgspec.UnsetType = msgspec.UNSET
    refusal: str | msgspec.UnsetType | None = msgspec.UNSET
    role: str | msgspec.UnsetType = msgspec.UNSET
    tool_call_id: str | msgspec.UnsetType = msgspec.UNSET
    tool_calls: list[_Call] | msgspec.UnsetType = msgspec.UNSET


_encode = msgspec.json.Encoder().encode


def dumps(value: Any) -> bytes:
    """Canonical bytes of a JSON value (dict, list, tuple, str, int, float, bool, None).

    Raises ValueError for what JSON cannot hold (NaN, infinities, keys that are no strings, other
    types) and for nesting deeper than the interpreter's stack.
    """
    out: list[str] = []
    try:
        _write(value, out.append)
    except RecursionError:
        raise ValueError("the value is nested too deeply") from None
    text = "".join(out)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return join_pairs(text).encode("utf-8", "backslashreplace")


def message_bytes(message: Any) -> bytes:
    """`dumps(message)`, faster for a chat message that holds nothing but strings.

    msgspec writes strings as RFC 8785 does (a property test holds the two together); numbers and
    key order are where encoders differ, and the strict type above lets neither through.
    """
    try:
        return _encode(msgspec.convert(message, _Message))
    except (msgspec.ValidationError, UnicodeEncodeError):
        return dumps(message)


def text_bytes(text: str) -> bytes:
    """`dumps(text)`, faster."""
    try:
        return _encode(text)
    except UnicodeEncodeError:
        return dumps(text)


_numbers: dict[float, bytes] = {}


def number_bytes(number: float) -> bytes:
    """`dumps(number)`, remembered: the same few numbers come again and again."""
    found = _numbers.get(number)
    if found is None:
        if len(_numbers) > 64:
            _numbers.clear()
        found = _numbers[number] = dumps(number)
    return found


def digest(value: Any) -> str:
    """Hex SHA-256 of the canonical bytes."""
    return sha256(dumps(value)).hexdigest()


def join_pairs(text: str) -> str:
    """The same text with each high and low surrogate that stand side by side made one character."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _write(value: Any, put: Any) -> None:
    if isinstance(value, str):
        put(encode_basestring(value))
    elif value is None:
        put("null")
    elif value is True:
        put("true")
    elif value is False:
        put("false")
    elif isinstance(value, int):
        put(int.__repr__(value))
    elif isinstance(value, float):
        put(_number(value))
    elif isinstance(value, dict):
        put("{")
        comma = ""
        for key in _sorted_keys(value):
            put(f"{comma}{encode_basestring(key)}:")
            comma = ","
            _write(value[key], put)
        put("}")
    elif isinstance(value, list | tuple):
        put("[")
        comma = ""
        for item in value:
            put(comma)
            comma = ","
            _write(item, put)
        put("]")
    else:
        raise ValueError(f"a value of type {type(value).__name__} is no JSON")


def _sorted_keys(value: dict[Any, Any]) -> list[str]:
    try:
        if "".join(value).isascii():  # then all orders agree, and Python's is the fastest
            return sorted(value)
    except TypeError:
        pass  # it is told below
    for key in value:
        if not isinstance(key, str):
            raise ValueError(f"an object's key must be a string, not {type(key).__name__}")
    # RFC 8785 sorts by UTF-16 code units, which differs from Python's order beyond U+FFFF
    return sorted(value, key=lambda key: key.encode("utf-16-be", "surrogatepass"))


def _number(value: float) -> str:
    """ECMAScript's Number::toString, from the same shortest digits that `repr` finds."""
    if not isfinite(value):
        raise ValueError(f"{value!r} is no JSON number")
    if value == 0:
        return "0"
    sign = "-" if value < 0 else ""
    mantissa, _, exponent = float.__repr__(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    # the value is 0.DIGITS x 10^point
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0")
    if len(digits) <= point <= 21:
        return sign + digits + "0" * (point - len(digits))
    if 0 < point <= 21:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    tail = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{tail}e{point - 1:+d}"
