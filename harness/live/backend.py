"""The live side of a run: one model client, one sandbox engine, one world per sample."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from harness.errors import LackError, ModelError, ToolServerError
from harness.exchange import encode
from harness.live.model import Model
from harness.live.sandbox import Engine, Sandbox, SandboxConfig, engine_for
from harness.live.wire import Exchange
from harness.mcp_config import MCPServerConfig
from harness.records import BashRequest, ModelRequest, Reply, Request, Sample, ValueRequest
from harness.runfile import RunSettings
from harness.store import sample_key

if TYPE_CHECKING:
    from harness.live.mcp import ToolServers, ToolSession


class LiveWorld:
    """One sample's outside world: the run's model, the sample's own sandbox."""

    tools: Sequence[dict[str, Any]]
    servers: Mapping[str, str]

    def __init__(
        self,
        model: Model,
        sandbox: Sandbox,
        session: ToolSession | None,
        tools: Sequence[dict[str, Any]],
        closed: Callable[[LiveWorld], None],
    ) -> None:
        self._model, self._sandbox, self._session, self._closed = model, sandbox, session, closed
        self.tools = [tool["schema"] for tool in tools]
        self.servers = {tool["name"]: tool["server"] for tool in tools}
        self._meta: dict[str, Any] | None = None

    def perform(self, request: Request) -> Reply:
        """Ask the model or the sandbox; a SampleError when the sample cannot go on, LackError when
        nobody has ever answered at the endpoint."""
        began, started = datetime.now(UTC), time.monotonic()
        self._meta = None
        meta: dict[str, Any] = {}
        exchanges: list[Exchange] = []
        try:
            if isinstance(request, ModelRequest):
                reply, meta = self._model.complete(request, on_exchange=exchanges.append)
                return reply
            if isinstance(request, BashRequest):
                return self._sandbox.run(request.command, request.timeout)
            if isinstance(request, ValueRequest):
                return request.make()
            if self._session is None:
                raise ToolServerError(f"this run has no MCP server {request.server!r}")
            return self._session.call(request.server, request.name, request.arguments)
        except ModelError as error:
            if error.unreachable:
                raise LackError(error.message, hint=error.hint) from None
            raise
        finally:
            seconds = round(time.monotonic() - started, 4)
            stamp = began.isoformat(timespec="milliseconds").replace("+00:00", "Z")
            self._meta = {"at": stamp, "seconds": seconds, **meta}
            if exchanges:
                self._meta["exchanges"] = [encode(exchange) for exchange in exchanges]

    def take_meta(self) -> dict[str, Any] | None:
        """When the last request was performed, how long it took, what the endpoint said of it."""
        meta, self._meta = self._meta, None
        return meta

    def close(self) -> None:
        """Remove the sandbox, end the sample's tool servers."""
        self._closed(self)
        self._sandbox.close()
        if self._session is not None:
            self._session.close()


class Backend:
    """Everything live of one run; checked once, before the first request that costs."""

    def __init__(
        self,
        run: str,
        settings: RunSettings,
        *,
        api_url: str | None,
        api_key: str | None,
        mcp: Sequence[MCPServerConfig] = (),
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
            note=progress,
            **{key: http[key] for key in ("timeout", "retries", "retry_interval") if key in http},
        )
        self._open: set[LiveWorld] = set()
        self._lock = threading.Lock()
        self._servers: ToolServers | None = None
        self.tools: list[dict[str, Any]] = []
        """The MCP tools: name, server, schema; read once."""
        if mcp:
            from harness.live.mcp import ToolServers

            self._servers = ToolServers(mcp, progress=progress)
            try:
                self.tools = self._servers.list_tools()
            except BaseException:
                self.close()
                raise

    def world(self, sample: Sample, attachment: Path | None) -> LiveWorld:
        """Start the sandbox of one sample."""
        sandbox = self._engine.start(sample, attachment)
        session = None
        if self._servers is not None:
            session = self._servers.open(sample_key(sample.task_id, sample.epoch))
        world = LiveWorld(self._model, sandbox, session, self.tools, self._forget)
        with self._lock:
            self._open.add(world)
        return world

    def _forget(self, world: LiveWorld) -> None:
        with self._lock:
            self._open.discard(world)

    def abort(self) -> None:
        """End every tool server and remove every sandbox now; what is in flight there fails."""
        if self._servers is not None:
            self._servers.close()
        with self._lock:
            worlds = list(self._open)
        for world in worlds:
            with contextlib.suppress(Exception):  # the others still have to go
                world.close()

    def close(self) -> None:
        self.abort()
        self._model.close()
        self._engine.close()
