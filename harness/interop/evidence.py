"""What the tape and its wire evidence say together: which bytes were sent, which gave the reply."""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256
from typing import NamedTuple

from harness import exchange
from harness.cassette import ModelEffect, RecordedRequest
from harness.exchange import StoredExchange
from harness.live import wire
from harness.records import ModelRequest
from harness.store import Store


class Evidence(NamedTuple):
    """The HTTP exchanges of one model effect, in order."""

    exchanges: list[StoredExchange]
    final: StoredExchange | None
    """The one that the effect ended with; None when it was not kept or no response came."""

    @property
    def broken(self) -> int:
        """How many exchanges lost their connection, or never had one."""
        return sum(_is_broken(found) for found in self.exchanges)


def evidence_of(store: Store, effect: ModelEffect, what: str) -> Evidence:
    """The evidence that an effect names. DamageError, naming `what`, when it cannot be read."""
    names = (effect.meta or {}).get("wire")
    found = []
    for name in names if isinstance(names, list) else []:
        label = f"the wire evidence {str(name)[:19]} of {what}"
        found.append(exchange.decode(store.get(str(name), label), label))
    attempts = (effect.meta or {}).get("attempts")
    # one that a secret could not be cut out of was withheld: the last may be an earlier one then
    complete = not isinstance(attempts, list) or len(found) >= len(attempts)
    usable = bool(found) and complete and found[-1].method == "POST" and not _is_broken(found[-1])
    return Evidence(found, found[-1] if usable else None)


def _is_broken(found: StoredExchange) -> bool:
    return found.status is None or found.error is not None


def as_request(recorded: RecordedRequest) -> ModelRequest:
    """The request that the tape holds, as the model client takes it."""
    return ModelRequest(recorded.messages, recorded.tools, recorded.params)


class Sent(NamedTuple):
    """A request body, as it may have been sent."""

    data: bytes
    stream: bool
    """Whether it asks for a stream."""


def sent_as(recorded: RecordedRequest, stream: bool, digest: str) -> Sent | None:
    """The body of a recorded request that has this SHA-256 (hex); None when none has.

    `stream`: the run's setting, tried first. The tape does not say whether a stream was asked for
    (a parent may have been recorded otherwise) and with which `stream_options`: some endpoints
    refuse those.
    """
    for sent in spellings(recorded, stream):
        if sha256(sent.data).hexdigest() == digest:
            return sent
    return None


def spellings(recorded: RecordedRequest, stream: bool) -> Iterator[Sent]:
    """The bodies that a recorded request may have been sent as, the likeliest first."""
    request = as_request(recorded)
    for streamed, usage in (
        (stream, True),
        (stream, False),
        (not stream, True),
        (not stream, False),
    ):
        if not (streamed or usage):
            continue
        body = wire.request_body(recorded.model, request, stream=streamed, stream_usage=usage)
        try:
            yield Sent(wire.body_bytes(body), bool(body.get("stream")))
            yield Sent(json.dumps(body).encode(), bool(body.get("stream")))  # httpx before 0.28
        except ValueError:
            return  # no JSON number among the parameters: it cannot have been sent
