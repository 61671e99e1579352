"""Runs with wire evidence, without anything live; and evidence that somebody changed."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from harness import exchange
from harness.cassette import ModelEffect, decode_lines, encode_line
from harness.interop.synthetic import synthesise
from harness.live import wire
from harness.live.wire import Exchange
from harness.records import ModelReply, ModelRequest, Reply, Request, Sample
from harness.runfile import read_run, write_run
from harness.store import Store
from harness.world import ScriptedWorld
from tests.scripted import Backend, Policy, counting


class WiredWorld(ScriptedWorld):
    """A scripted world whose model replies come with the exchange that they would have had."""

    def __init__(self, policy: Callable[[Request], Reply], stream: bool) -> None:
        super().__init__(policy)
        self.stream = stream
        self.meta: dict[str, Any] | None = None

    def perform(self, request: Request) -> Reply:
        reply = super().perform(request)
        self.meta = None
        if isinstance(request, ModelRequest) and isinstance(reply, ModelReply):
            found = exchanged(request, reply, self.stream)
            self.meta = {
                "response_id": "cmpl-7",
                "model": "scripted",
                "attempts": [{"status": found.status, "waited": 0.0}],
                "exchanges": [exchange.encode(found)],
            }
        return reply

    def take_meta(self) -> dict[str, Any] | None:
        meta, self.meta = self.meta, None
        return meta

    def close(self) -> None:
        pass


def exchanged(request: ModelRequest, reply: ModelReply, stream: bool = False) -> Exchange:
    """The exchange in which an endpoint would have given a reply to the model `scripted`."""
    body = wire.body_bytes(wire.request_body("scripted", request, stream=stream))
    response = synthesise(reply, id="cmpl-7", model="scripted", stream=stream)
    return Exchange(
        method="POST",
        path="/v1/chat/completions",
        request_sha256=sha256(body).hexdigest(),
        status=response.status,
        headers=response.headers,
        body=response.body,
        stream=stream,
    )


class WiredBackend(Backend):
    """Gives every sample a world with evidence."""

    def __init__(self, policy: Policy = counting, *, stream: bool = False) -> None:
        super().__init__(policy)
        self.stream = stream

    def world(self, sample: Sample, attachment: Path | None) -> Any:
        scripted = super().world(sample, attachment)
        return WiredWorld(scripted.perform, self.stream)


def change_meta(
    store: Store, run: str, task_id: str, step: int, change: Callable[[dict[str, Any]], None]
) -> None:
    """Change the metadata of a sample's n-th model turn, and seal everything again.

    Metadata is outside all digests of requests and trajectories: the store stays consistent.
    """
    found = read_run(store, run)
    entry = found.entry(task_id, 1)
    assert entry is not None
    assert entry.cassette is not None
    lines = decode_lines(store.get(entry.cassette), "a cassette")
    turns = [at for at, line in enumerate(lines) if isinstance(line, ModelEffect)]
    line = lines[turns[step - 1]]
    assert isinstance(line, ModelEffect)
    assert line.meta is not None
    change(line.meta)
    entry.cassette = store.put(b"".join(map(encode_line, lines)))
    write_run(store, found)


def change_evidence(
    store: Store, run: str, task_id: str, step: int, change: Callable[[bytes], bytes]
) -> None:
    """Change the bytes of the last exchange of a sample's n-th model turn, consistently."""

    def changed(meta: dict[str, Any]) -> None:
        before = store.get(meta["wire"][-1])
        after = change(before)
        assert after != before
        meta["wire"][-1] = store.put(after)

    change_meta(store, run, task_id, step, changed)


def with_fields(**fields: Any) -> Callable[[bytes], bytes]:
    """A change: these fields of the stored exchange are others."""

    def change(data: bytes) -> bytes:
        return msgspec.json.encode({**msgspec.json.decode(data), **fields})

    return change
