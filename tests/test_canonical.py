"""Canonical JSON: RFC 8785 with `rfc8785` as the oracle, and what the project adds to it."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from harness import canonical
from tests.json_values import clean_texts, messages, texts, values


@given(values(clean_texts))
def test_agrees_with_rfc8785(value: Any) -> None:
    assert canonical.dumps(value) == rfc8785.dumps(value)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_agree_with_rfc8785(number: float) -> None:
    assert canonical.dumps(number) == canonical.number_bytes(number) == rfc8785.dumps(number)


@given(values())
def test_reads_back(value: Any) -> None:
    """JSON text of the value, whatever it holds; pairs of surrogates come back as one character."""
    data = canonical.dumps(value)
    assert canonical.dumps(json.loads(data)) == data


@given(messages())
def test_the_fast_path_for_messages_gives_the_same_bytes(message: dict[str, Any]) -> None:
    assert canonical.message_bytes(message) == canonical.dumps(message)


@given(texts)
def test_the_fast_path_for_texts_gives_the_same_bytes(text: str) -> None:
    message = {"role": "user", "content": text}
    assert canonical.message_bytes(message) == canonical.dumps(message)
    assert canonical.text_bytes(text) == canonical.dumps(text)


@pytest.mark.parametrize(
    "content", [1, 1.0, -0.0, True, 1e16, math.pi, 2**60, ["x"], {"a": 1}, None]
)
def test_the_fast_path_lets_no_number_through(content: Any) -> None:
    message = {"role": "user", "content": content}
    assert canonical.message_bytes(message) == canonical.dumps(message)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("\ud800", b'"\\ud800"'),
        ("x\udfff", b'"x\\udfff"'),
        ("\ud83d\ude00", '"\U0001f600"'.encode()),
        (2**53 + 1, b"9007199254740993"),
        (10**30, b"1" + b"0" * 30),
        ({"\U0001f600": 1, "\ufb33": 2}, '{"\U0001f600":1,"\ufb33":2}'.encode()),
        ("\x00\x1f\x7f\u2028", '"\\u0000\\u001f\x7f\u2028"'.encode()),
        (-0.0, b"0"),
        ((1, "a"), b'[1,"a"]'),
    ],
)
def test_what_the_project_adds(value: Any, expected: bytes) -> None:
    assert canonical.dumps(value) == expected


def _deep() -> list[Any]:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf, {1: 2}, {None: 1}, b"x", {1, 2}, object(), _deep()]
)
def test_what_is_no_json_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"no JSON|key must be|nested too deeply"):
        canonical.dumps(value)
