"""How long an endpoint told us to wait: by header, by a field of its error, or in its own words."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any

from harness.records import JSON

_UNIT = r"(?:milliseconds?|ms|seconds?|secs?|s|minutes?|mins?|m|hours?|h|days?|d)(?![a-z])"
_DURATION = re.compile(rf"([\d.]+)\s*({_UNIT})", re.IGNORECASE)
_TOLD_IN_WORDS = re.compile(
    r"(?:try again|retry|wait)\s+(?:in\s+|after\s+|for\s+)?(?:about\s+)?"
    rf"((?:[\d.]+\s*{_UNIT}\s*)+)",
    re.IGNORECASE,
)
_TOLD_FIELDS = {"retry_after": 1.0, "retry_after_seconds": 1.0, "retry_after_ms": 0.001}


def told_wait(headers: Mapping[str, str], tree: JSON, words: str) -> float | None:
    """Seconds that the endpoint told to wait, from headers, fields or words; None if it did not.

    Headers win: `retry-after-ms`, then `retry-after` as seconds or as a date, which is read
    against the response's own `date` so that a wrong clock does not matter. A time that is over
    is no word at all.
    """
    lower = {name.lower(): value for name, value in headers.items()}
    found = _number(lower.get("retry-after-ms"))
    seconds = None if found is None else found / 1000
    if seconds is None:
        seconds = _number(lower.get("retry-after", "").removesuffix("s"))
    if seconds is None and (date := _date(lower.get("retry-after"))) is not None:
        now = _date(lower.get("date"))
        seconds = date - (time.time() if now is None else now)
    if seconds is None:
        seconds = _told_in_fields(tree)
    if seconds is None and (found_words := _TOLD_IN_WORDS.search(words)):
        seconds = _duration(found_words[1])
    return round(seconds, 3) if seconds is not None and seconds > 0 else None


def _number(value: Any) -> float | None:
    text = str(value).strip() if value is not None and not isinstance(value, bool) else ""
    return float(text) if re.fullmatch(r"\d+(\.\d*)?", text) else None


def _date(value: str | None) -> float | None:
    try:
        date = parsedate_to_datetime(value) if value else None
    except (ValueError, OverflowError):
        return None
    if date is not None and date.tzinfo is None:  # "-0000": UTC without saying so
        date = date.replace(tzinfo=UTC)
    return date.timestamp() if date else None


def _duration(text: str) -> float | None:
    """Seconds in `20s`, `350 ms`, `1m30s`, `2 minutes`."""
    total, found = 0.0, False
    for number, unit in _DURATION.findall(text):
        if (value := _number(number)) is None:
            continue
        unit = unit.lower()
        factor = 0.001 if unit.startswith("mil") or unit == "ms" else 1.0
        factor = (
            {"m": 60.0, "h": 3600.0, "d": 86400.0}.get(unit[0], 1.0) if factor == 1.0 else factor
        )
        total, found = total + value * factor, True
    return total if found else None


def _told_in_fields(tree: JSON, depth: int = 5) -> float | None:
    if isinstance(tree, list):
        items: Any = enumerate(tree[:50])
    elif isinstance(tree, Mapping):
        items = tree.items()
    else:
        return None
    for key, value in items:
        if (factor := _TOLD_FIELDS.get(key)) and (number := _number(value)) is not None:
            return number * factor
        if key in ("retryDelay", "retry_after") and isinstance(value, str):
            return _duration(value)
        if depth and (found := _told_in_fields(value, depth - 1)) is not None:
            return found
    return None
