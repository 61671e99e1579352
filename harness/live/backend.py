"""The live side of a run: one model client, one sandbox engine, one world per sample."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from harness.live.model import Model
from harness.live.sandbox import Engine, Sandbox, SandboxConfig, engine_for
from harness.records import BashRequest, ModelRequest, Reply, Request, Sample, ValueRequest
from harness.runfile import RunSettings


class LiveWorld:
    """One sample's outside world: the run's model, the sample's own sandbox."""

    tools: Sequence[dict[str, Any]] = ()
    servers: Mapping[str, str] = {}

    def __init__(self, model: Model, sandbox: Sandbox, closed: Callable[[LiveWorld], None]) -> None:
        self._model, self._sandbox, self._closed = model, sandbox, closed
        self._meta: dict[str, Any] | None = None

    def perform(self, request: Request) -> Reply:
        """Ask the model or the sandbox; a SampleError when the sample cannot go on."""
        began, started = datetime.now(UTC), time.monotonic()
        self._meta = None
        meta: dict[str, Any] = {}
        try:
            if isinstance(request, ModelRequest):
                reply, meta = self._model.complete(request)
                return reply
            if isinstance(request, BashRequest):
                return self._sandbox.run(request.command, request.timeout)
            if isinstance(request, ValueRequest):
                return request.make()
            raise LookupError(f"no server {request.server!r}")  # schemas name only known servers
        finally:
            seconds = round(time.monotonic() - started, 4)
            stamp = began.isoformat(timespec="milliseconds").replace("+00:00", "Z")
            self._meta = {"at": stamp, "seconds": seconds, **meta}

    def take_meta(self) -> dict[str, Any] | None:
        """When the last request was performed, how long it took, what the endpoint said of it."""
        meta, self._meta = self._meta, None
        return meta

    def close(self) -> None:
        """Remove the sandbox."""
        self._closed(self)
        self._sandbox.close()


class Backend:
    """Everything live of one run; checked once, before the first request that costs."""

    def __init__(
        self,
        run: str,
        settings: RunSettings,
        *,
        api_url: str | None,
        api_key: str | None,
        progress: Callable[[str], None],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Raises LackError when Docker, the image or a package is not there."""
        sandbox = msgspec.convert(settings.sandbox, SandboxConfig)
        self._engine: Engine = engine_for(sandbox, run=run)
        identity = self._engine.preflight(progress)
        self.image: dict[str, Any] | None = msgspec.to_builtins(identity) if identity else None
        """Reference, id and RootFS layers of the sandbox's image."""
        http = dict(settings.transport)
        self._model = Model(
            settings.loop.model,
            api_url=api_url,
            api_key=api_key,
            stream=settings.stream,
            sleep=sleep,
            **{key: http[key] for key in ("timeout", "retries", "retry_interval") if key in http},
        )
        self._open: set[LiveWorld] = set()
        self._lock = threading.Lock()

    def world(self, sample: Sample, attachment: Path | None) -> LiveWorld:
        """Start the sandbox of one sample."""
        world = LiveWorld(self._model, self._engine.start(sample, attachment), self._forget)
        with self._lock:
            self._open.add(world)
        return world

    def _forget(self, world: LiveWorld) -> None:
        with self._lock:
            self._open.discard(world)

    def abort(self) -> None:
        """Remove every sandbox now; commands in flight fail."""
        with self._lock:
            worlds = list(self._open)
        for world in worlds:
            with contextlib.suppress(Exception):  # the others still have to go
                world.close()

    def close(self) -> None:
        self.abort()
        self._model.close()
        self._engine.close()
