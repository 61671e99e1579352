"""Wire evidence as the store keeps it: one object per HTTP exchange with the model endpoint.

JSON; the response's body as text where it is UTF-8, else as base64. The request's body is not
kept (it would grow with the square of a sample's length): its SHA-256 is, and the body can be
rebuilt from the tape.
"""

from __future__ import annotations

import base64
import binascii
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
    except (msgspec.MsgspecError, RecursionError, binascii.Error) as error:
        raise DamageError(f"{what} is damaged: {error}") from None
    if found.format != FORMAT or found.version != VERSION:
        version = json.dumps([found.format[:40], found.version])
        raise DamageError(f"{what} is no wire evidence of version {VERSION}: {version}")
    return found
