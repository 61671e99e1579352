"""A sealed answer key: verdicts by the official rules, computed from hashes that show no truth.

For each sample the key holds which rule its truth selects, for a list the kinds of its parts, a
salt, and a slow hash (scrypt) of the form in which the rules compare. What that resists and what
not stands in docs/scoring.md.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from harness.errors import DamageError, LackError
from harness.scorer import (
    answer_kind,
    item_form,
    list_form,
    number_form,
    string_form,
    truth_number,
)

FORMAT = "gaia-harness-key"
VERSION = 1
COST, BLOCK, LANES = 1 << 15, 8, 1
"""scrypt's n, r and p: 32 MiB of memory and about 0.1 s for each guess."""

Kind = Literal["number", "list", "string", "withheld"]


class SealedTruth(msgspec.Struct, frozen=True, kw_only=True):
    """One sample's truth, sealed."""

    task_id: str
    kind: Kind
    parts: str = ""
    """For a list: `n` for each part that is a number, `s` for each that is not."""
    salt: str
    hash: str


class SealedKey(msgspec.Struct, frozen=True, kw_only=True):
    """The sealed truths of a run's samples."""

    format: str = FORMAT
    version: int = VERSION
    cost: int = COST
    truths: list[SealedTruth]

    def find(self, task_id: str) -> SealedTruth | None:
        """The sealed truth of a sample, if it is in the key."""
        return next((sealed for sealed in self.truths if sealed.task_id == task_id), None)

    def is_right(self, sealed: SealedTruth, answer: str | None) -> bool:
        """What `question_scorer` would say of the answer. Slow on purpose."""
        form = _answer_form(sealed, "None" if answer is None else answer)
        if form is None:
            return False
        found = _slow_hash(sealed.task_id, form, bytes.fromhex(sealed.salt), self.cost)
        return hmac.compare_digest(found, sealed.hash)


def seal(truths: Mapping[str, str]) -> SealedKey:
    """A key for truths by task id (`?` where withheld)."""
    return SealedKey(
        cost=COST, truths=[_seal(task_id, truths[task_id]) for task_id in sorted(truths)]
    )


def encode(key: SealedKey) -> bytes:
    """The key as an object of the store."""
    return msgspec.json.encode(key) + b"\n"


def decode(data: bytes, what: str) -> SealedKey:
    """A key of the store; DamageError, naming `what`, when it is none."""
    try:
        key = msgspec.json.decode(data, type=SealedKey)
        for sealed in key.truths:
            bytes.fromhex(sealed.salt)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise DamageError(f"{what} is damaged: {error}") from None
    # a hostile cost must not take the machine's memory
    if key.format != FORMAT or key.version != VERSION or not 2 <= key.cost <= 1 << 17:
        raise DamageError(f"{what} is no sealed key of version {VERSION}")
    return key


def _seal(task_id: str, truth: str) -> SealedTruth:
    salt = os.urandom(16)
    kind: Kind = "withheld" if truth.strip() == "?" else answer_kind(truth)
    parts = list_form(truth) if kind == "list" else [truth]
    numbers = [truth_number(part) for part in parts]
    if kind == "withheld" or any(number is not None and number != number for number in numbers):
        form = os.urandom(32).hex()  # nothing equals it, as nothing equals NaN
    elif kind == "string":
        form = string_form(truth)
    else:
        form = _joined(
            item_form(part) if number is None else _number(number)
            for part, number in zip(parts, numbers, strict=True)
        )
    pattern = "".join("s" if number is None else "n" for number in numbers)
    return SealedTruth(
        task_id=task_id,
        kind=kind,
        parts=pattern if kind == "list" else "",
        salt=salt.hex(),
        hash=_slow_hash(task_id, form, salt, COST),
    )


def _answer_form(sealed: SealedTruth, answer: str) -> str | None:
    """The answer in the form that was sealed; None when it cannot be right."""
    if sealed.kind == "withheld":
        return None
    if sealed.kind == "string":
        return string_form(answer)
    if sealed.kind == "number":
        return _joined([_number(number_form(answer))])
    parts = list_form(answer)
    if len(parts) != len(sealed.parts):
        return None
    return _joined(
        _number(number_form(part)) if kind == "n" else item_form(part)
        for part, kind in zip(parts, sealed.parts, strict=True)
    )


def _number(value: float) -> str:
    return repr(value + 0.0)  # -0.0 and 0.0 are equal


def _joined(parts: Iterable[str]) -> str:
    return "\x1f".join(parts)


def _slow_hash(task_id: str, form: str, salt: bytes, cost: int) -> str:
    if not hasattr(hashlib, "scrypt"):
        raise LackError("this Python's OpenSSL has no scrypt, which sealed keys need")
    text = f"{FORMAT}\0{task_id}\0{form}".encode("utf-8", "surrogatepass")
    memory = 256 * cost * BLOCK + (1 << 20)
    return hashlib.scrypt(text, salt=salt, n=cost, r=BLOCK, p=LANES, maxmem=memory, dklen=32).hex()
