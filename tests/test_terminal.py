"""Texts of strangers reach a terminal only as text."""

from __future__ import annotations

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.terminal import columns, printable

BIDI = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


def test_no_control_character_surrogate_or_bidi_override_passes() -> None:
    for code in range(sys.maxunicode + 1):
        char = chr(code)
        category = unicodedata.category(char)
        if category in ("Cc", "Cs", "Zl", "Zp") or unicodedata.bidirectional(char) in BIDI:
            assert printable(char).isascii(), hex(code)
            assert printable(char).isprintable(), hex(code)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("a\x9b31mb", "a\\x9b31mb"),
        ("line\r\nnext\t", "line\\r\\nnext\\t"),
        ("\u202egpj.exe", "\\u202egpj.exe"),
        ("42\u200b", "42\\u200b"),
        ("\ud800", "\\ud800"),
        ("\U000e0041", "\\U000e0041"),
        ("C:\\new", "C:\\new"),
        ("\u00e9\u4e2d\U0001f468\u200d\U0001f469 \u06a9\u200c\u0648", None),
    ],
)
def test_escapes(text: str, shown: str | None) -> None:
    assert printable(text) == (text if shown is None else shown)


def test_kept_characters_are_kept() -> None:
    assert printable("a\n\tb\x1b", keep="\n\t") == "a\n\tb\\x1b"


@given(st.text(st.characters()))
def test_what_is_printable_stays_and_can_be_encoded(text: str) -> None:
    shown = printable(text)
    shown.encode()
    assert printable(shown) == shown


def test_columns() -> None:
    assert [columns(text) for text in ("abc", "\u4e2d\u6587", "e\u0301", "")] == [3, 4, 1, 0]
