"""Wire evidence as the store keeps it: one object per HTTP exchange with the model endpoint.

JSON; the response's body as text where it is UTF-8, else as base64. The request's body is not
kept (it would grow with the square of a sample's length): its SHA-256 is, and the body can be
rebuilt from the tape.
"""

from __future__ import annotations

import base64
import contextlib
import json
from typing import Any

import msgspec

from harness.errors import DamageError

FORMAT = "gaia-harness-wire"
VERSION = 1


class StoredExchange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An exchange as it is written."""

    format: str = ""
    version: int = 0
    method: str
    path: str
    request_sha256: str
    status: int | None = None
    headers: dict[str, str] = {}
    stream: bool = False
    error: str | None = None
    text: str | None = None
    base64: str | None = None

    @property
    def body(self) -> bytes:
        """The response's bytes, transfer and content encoding undone."""
        if self.base64 is not None:
            return base64.b64decode(self.base64)
        return (self.text or "").encode()


def encode(exchange: Any) -> bytes:
    """The bytes of a `harness.live.wire.Exchange`."""
    fields = msgspec.structs.asdict(exchange)
    body: bytes = fields.pop("body")
    try:
        fields["text"] = body.decode()
    except UnicodeDecodeError:
        fields["base64"] = base64.b64encode(body).decode()
    return msgspec.json.encode(StoredExchange(format=FORMAT, version=VERSION, **fields)) + b"\n"


def decode(data: bytes, what: str) -> StoredExchange:
    """An exchange of the store; DamageError, naming `what`, when it is none."""
    try:
        found = msgspec.json.decode(data, type=StoredExchange)
        if found.base64 is not None:
            base64.b64decode(found.base64, validate=True)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise DamageError(f"{what} is damaged: {error}") from None
    if found.format != FORMAT or found.version != VERSION:
        version = json.dumps([found.format[:40], found.version])
        raise DamageError(f"{what} is no wire evidence of version {VERSION}: {version}")
    return found


def texts(data: bytes) -> list[str]:
    """The texts that an encoded exchange's stream brought in pieces, each put together.

    Pieces belong together when they stand in the same place of their events. Raises DamageError
    for what is no exchange.
    """
    found: dict[str, list[str]] = {}
    for line in decode(data, "an exchange").body.splitlines():
        if line.startswith(b"data:"):
            with contextlib.suppress(ValueError, RecursionError):
                _collect(json.loads(line[5:]), "", found)
    return ["".join(pieces) for pieces in found.values()]


def _collect(value: Any, place: str, found: dict[str, list[str]]) -> None:
    if isinstance(value, str):
        found.setdefault(place, []).append(value)
    elif isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            _collect(item, f"{place}/{key}", found)
