"""The tool servers of a run, called from ordinary threads.

One background thread with an event loop holds all sessions; each sample's thread waits for its
own call. Without `shared`, a sample has a session of its own with each server, started when the
sample first calls one of its tools: many samples never do.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import CancelledError, Future
from typing import TYPE_CHECKING, Any, TypeVar

from harness.errors import LackError, ToolServerError
from harness.live.mcp_connection import Connection, Lost, be_quiet
from harness.live.mcp_tools import entries_of, refuse_clashes
from harness.mcp_config import MCPServerConfig, check_names
from harness.records import ToolReply

if TYPE_CHECKING:
    from mcp.types import Tool

T = TypeVar("T")


class ToolServers:
    """The servers of one run. `close` ends every session and every process that was started."""

    def __init__(
        self, configs: Sequence[MCPServerConfig], *, progress: Callable[[str], None]
    ) -> None:
        """Starts nothing yet. UsageError when two servers have one name; LackError when the
        package `mcp` is not there."""
        check_names(configs)
        try:
            import mcp.types  # noqa: F401
            from mcp.client.streamable_http import streamable_http_client  # noqa: F401
        except ImportError as error:
            raise LackError(
                f"MCP servers need the package mcp, version 2.3 or later ({error})",
                hint="pip install 'gaia-harness[mcp]'",
            ) from None
        be_quiet()
        self._configs = {config.name: config for config in configs}
        self._progress = progress
        self._tools: list[dict[str, Any]] | None = None
        self._loop = _Loop()
        self._closing = False
        self._open: set[Connection] = set()
        self._shared: dict[str, Connection] = {}
        self._sharing = {config.name: asyncio.Lock() for config in configs}
        # each start has the machine nearly for itself, so that its timeout means something
        self._starting = asyncio.Semaphore(max(4, os.cpu_count() or 1))
        atexit.register(self.close)

    def list_tools(self) -> list[dict[str, Any]]:
        """The tools that the model may use: name, server, and schema as for a chat completion.

        Read once per run, all servers at the same time; sorted by server and name. LackError when
        a server cannot be started or asked; UsageError for a name that is taken, that no endpoint
        accepts, or that is on an allow-list and not offered.
        """
        if self._tools is None:
            self._progress(f"MCP: asking {', '.join(sorted(self._configs))} for tools")
            offered = self._run(self._list())
            entries = [
                entry
                for name in sorted(offered)
                for entry in entries_of(self._configs[name], offered[name])
            ]
            refuse_clashes(entries)
            for name in sorted(offered):
                names = [entry["name"] for entry in entries if entry["server"] == name]
                self._progress(f"MCP: {name}: {', '.join(names) or 'no tools'}")
            self._tools = entries
        return self._tools

    def open(self, sample_key: str) -> ToolSession:
        """The sessions of one sample and epoch, which `sample_key` names; starts none of them."""
        return ToolSession(self, sample_key)

    def close(self) -> None:
        """End everything, at once; calls in flight end with ToolServerError. May be repeated."""
        self._closing = True
        self._loop.stop(self._close_all)
        atexit.unregister(self.close)

    # --------------------------------------------------------------------- in the loop's thread

    async def _list(self) -> dict[str, list[Tool]]:
        names = list(self._configs)
        results = await asyncio.gather(
            *(self._offered(self._configs[name]) for name in names), return_exceptions=True
        )
        problems: list[str] = []
        found: dict[str, list[Tool]] = {}
        for name, result in zip(names, results, strict=True):
            if isinstance(result, list):
                found[name] = result
            elif isinstance(result, Lost):
                problems.append(f"MCP server {name!r} cannot be used: {result}")
            else:
                raise result
        if problems:
            raise LackError(
                "\n".join(problems),
                hint="start the server by hand, or ask it, and see what it says",
            )
        return found

    async def _offered(self, config: MCPServerConfig) -> list[Tool]:
        if config.shared:
            return await (await self._share(config)).tools()
        connection = await self._connect(config)
        try:
            return await connection.tools()
        finally:
            await self._disconnect(connection)

    async def _connect(self, config: MCPServerConfig) -> Connection:
        if self._closing:
            raise Lost("the run is ending")
        connection = Connection(config)
        self._open.add(connection)
        try:
            async with self._starting:
                await connection.start()
        except BaseException:
            await self._disconnect(connection)
            raise
        return connection

    async def _share(self, config: MCPServerConfig) -> Connection:
        """The run's session with a shared server; a new one where the last one has died."""
        async with self._sharing[config.name]:
            connection = self._shared.get(config.name)
            if connection is None or not connection.usable:
                if connection is not None:
                    await self._disconnect(connection)
                connection = self._shared[config.name] = await self._connect(config)
            return connection

    async def _disconnect(self, connection: Connection) -> None:
        await connection.close()
        self._open.discard(connection)

    async def _close_all(self) -> None:
        await asyncio.gather(*map(self._disconnect, list(self._open)), return_exceptions=True)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return self._loop.run(work)
        except CancelledError:
            raise ToolServerError("the run's MCP servers were closed") from None


class ToolSession:
    """One sample's way to the run's servers. Calls must not overlap."""

    def __init__(self, servers: ToolServers, sample_key: str) -> None:
        self.sample_key = sample_key
        self._servers = servers
        self._connections: dict[str, Connection] = {}
        self._closed = False

    def call(self, server: str, name: str, arguments: dict[str, Any]) -> ToolReply:
        """Call one tool and wait for its result, from any thread.

        What the model can see and go on from is a reply with `is_error`: the tool's own error, an
        unknown tool, one that is not on the allow-list, a timeout. ToolServerError ends the
        sample: the server cannot be started, died, or cannot be used any more.
        """
        config = self._servers._configs.get(server)
        if config is None:
            raise ToolServerError(f"the run has no MCP server {server!r}")
        if config.tools is not None and name not in config.tools:
            return ToolReply(f"the tool {name!r} is not offered", is_error=True)
        try:
            return self._servers._run(self._call(config, name, arguments))
        except Lost as error:
            raise ToolServerError(f"MCP server {server!r} failed: {error}") from None

    def close(self) -> None:
        """End the sessions that are this sample's own. May be repeated."""
        with contextlib.suppress(ToolServerError):  # all were ended with the run
            self._servers._run(self._close())

    async def _call(
        self, config: MCPServerConfig, name: str, arguments: dict[str, Any]
    ) -> ToolReply:
        connection = self._connections.get(config.name)
        if connection is None:
            start = self._servers._share if config.shared else self._servers._connect
            connection = self._connections[config.name] = await start(config)
            if self._closed:  # meanwhile, by another thread
                await self._close()
                raise Lost("the session was closed")
        return await connection.call(name, arguments)

    async def _close(self) -> None:
        self._closed = True
        own = [c for c in self._connections.values() if not c.config.shared]
        await asyncio.gather(*map(self._servers._disconnect, own))


# -------------------------------------------------------------------------------- the thread


class _Loop:
    """An event loop in a thread of its own, started when it is first needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._last: Future[None] | None = None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine, which is cancelled when the caller is interrupted.

        CancelledError when the loop was stopped.
        """
        with self._lock:
            if self._last is not None:
                work.close()
                raise CancelledError
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name="mcp", daemon=True
                )
                self._thread.start()
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def stop(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `last`, cancel what is left, end the thread. May be repeated, if interrupted."""
        with self._lock:
            if self._loop is None or self._thread is None:
                self._last = Future()
                self._last.set_result(None)
                return
            if self._last is None:
                work = self._finish(last())
                self._last = asyncio.run_coroutine_threadsafe(work, self._loop)
        self._last.result()
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(5)
        if not self._thread.is_alive():
            self._loop.close()

    async def _finish(self, last: Coroutine[Any, Any, None]) -> None:
        await last
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=1)
