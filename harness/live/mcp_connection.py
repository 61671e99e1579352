"""One session with one tool server: started, asked, closed; all in the event loop's thread.

Foreign exceptions end here: a session that cannot be used any more raises `Lost`, everything else
that can go wrong in a call is a reply that the model sees.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from harness.dialogue import clean
from harness.live.mcp_process import MESSAGE_LIMIT, ServerProcess
from harness.live.mcp_tools import reply_of
from harness.mcp_config import MCPServerConfig, MCPServerConfigStdio, secrets
from harness.mcp_secrets import hide
from harness.records import ToolReply
from harness.redact import Redactor

if TYPE_CHECKING:
    import httpx2
    from mcp import ClientSession
    from mcp.types import Tool

T = TypeVar("T")

CONNECT_SECONDS = 30.0
"""Seconds for opening a connection to an HTTP server."""
PING_SECONDS = 10.0
"""Seconds in which a server must answer a ping to count as usable after a failed call."""
CLOSE_SECONDS = 2.0
"""Seconds for taking leave of a server."""
MOST_PAGES = 1000
"""Pages of a tool list that are read; more of them never end."""


class Lost(Exception):
    """The server cannot be started, or is gone; the text says what was seen of it."""


class Connection:
    """A session; `start` before anything else, `close` in any case."""

    def __init__(self, config: MCPServerConfig) -> None:
        self.config = config
        self._redactor = Redactor(secrets(config))
        self._process: ServerProcess | None = None
        self._spawning: asyncio.Task[None] | None = None
        self._session: ClientSession | None = None
        self._task: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._stop = asyncio.Event()
        self._closed = False
        self._http_status = 0
        """Status of the last HTTP reply."""

    # ---------------------------------------------------------------------------------- life

    async def start(self) -> None:
        """Start or reach the server and shake hands; Lost when it does not come to that."""
        self._task = _task(self._hold())
        ready = _task(self._ready.wait())
        try:
            await asyncio.wait(
                {self._task, ready},
                timeout=self.config.timeout,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if self.usable and self._ready.is_set():
                return
        finally:
            ready.cancel()
        if self._closed:
            raise Lost("the session was closed")
        late = not self._task.done() and not self._gone
        await self.close()
        if late:
            raise self._failed(f"it did not answer `initialize` within {self.config.timeout:g} s")
        raise self._failed(self._why("it ended before it answered `initialize`"))

    async def _hold(self) -> None:
        """Keeps the session open; the SDK wants it opened and closed by one task."""
        from mcp import ClientSession
        from mcp.types import Implementation

        from harness import __version__

        me = Implementation(name="gaia-harness", version=__version__)
        async with (
            self._streams() as (read, write),
            ClientSession(read, write, client_info=me) as session,
        ):
            await session.initialize()
            self._session = session
            self._ready.set()
            await self._stop.wait()

    @contextlib.asynccontextmanager
    async def _streams(self) -> AsyncIterator[tuple[Any, Any]]:
        config = self.config
        if isinstance(config, MCPServerConfigStdio):
            # a task of its own: a process that was just started must not be lost to a `cancel`
            self._spawning = _task(self._spawn(config))
            await asyncio.shield(self._spawning)
            assert self._process is not None
            async with self._process.streams() as streams:
                yield streams
            return
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        client = httpx2.AsyncClient(
            headers=dict(config.headers),
            # how long a reply may take is decided by the harness's own clock
            timeout=httpx2.Timeout(CONNECT_SECONDS, read=None),
            event_hooks={"response": [self._note]},
            # no proxy between this machine and itself
            trust_env=urlsplit(config.url).hostname not in ("localhost", "127.0.0.1", "::1"),
        )
        async with (
            client,
            streamable_http_client(
                config.url, http_client=client, max_sse_event_size=MESSAGE_LIMIT
            ) as streams,
        ):
            yield streams

    async def _spawn(self, config: MCPServerConfigStdio) -> None:
        self._process = await ServerProcess.start(config)

    async def _note(self, response: httpx2.Response) -> None:
        if response.request.method == "POST":
            self._http_status = response.status_code

    async def close(self) -> None:
        """End the session, and the server if it is ours; returns within a few seconds."""
        self._closed = True
        self._stop.set()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=CLOSE_SECONDS if self._ready.is_set() else 0)
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=CLOSE_SECONDS)
        if self._spawning is not None:
            await asyncio.wait({self._spawning}, timeout=CLOSE_SECONDS)
        if self._process is not None:
            await self._process.end()

    # ----------------------------------------------------------------------------- condition

    @property
    def usable(self) -> bool:
        """Whether the session is open, as far as can be seen without asking the server."""
        return not (self._closed or self._gone or self._task is None or self._task.done())

    @property
    def _gone(self) -> bool:
        return self._process is not None and self._process.lost.is_set()

    async def _answers(self) -> bool:
        """Whether the server can still be used, after a call that failed."""
        from mcp import MCPError
        from mcp.types import METHOD_NOT_FOUND

        if self._process is not None or not self.usable:
            return self.usable  # of a process of ours the end is seen
        assert self._session is not None
        assert self._task is not None
        ping = _task(self._session.send_ping())
        await _first(ping, self._task, PING_SECONDS)
        if not ping.done() or not self.usable:
            ping.cancel()
            return False
        error = ping.exception()
        # a server that does not know `ping` is there as well
        unknown = isinstance(error, MCPError) and error.code == METHOD_NOT_FOUND
        return error is None or (unknown and self._http_status < 400)

    def _failed(self, problem: str) -> Lost:
        return Lost(self._redactor.text(problem + self._said()))

    def _why(self, ended: str) -> str:
        """What ended the session, in words; `ended`: where nothing better is known."""
        if self._process is not None and self._gone:
            if self._process.fault:
                return self._process.fault
            status = self._process.exit_status
            if status is None or self._process.signalled:
                return "it closed its stdout"
            return f"{ended} ({f'exit status {status}' if status >= 0 else f'signal {-status}'})"
        task = self._task
        if task is not None and task.done() and not task.cancelled() and task.exception():
            return self._words(task.exception())
        if self._http_status >= 400:
            return f"it answers with HTTP status {self._http_status}"
        return ended

    def _words(self, error: BaseException | None) -> str:
        """An exception of the SDK or of what is below it, in words."""
        from mcp import MCPError
        from mcp.types import PARSE_ERROR
        from pydantic import ValidationError

        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        config = self.config
        if isinstance(error, OSError) and isinstance(config, MCPServerConfigStdio):
            if config.cwd is not None and error.filename == config.cwd:
                return f"its folder {config.cwd!r} cannot be used: {error.strerror}"
            return f"its command {config.command!r} cannot be run: {error.strerror}"
        if self._http_status >= 400:
            said = f" ({error.message})" if isinstance(error, MCPError) else ""
            advice = "; look at its headers" if self._http_status in (401, 403) else ""
            return f"it answers with HTTP status {self._http_status}{said}{advice}"
        if isinstance(error, ValidationError):
            return "its reply breaks the protocol"
        if isinstance(error, MCPError):
            if error.code == PARSE_ERROR:
                return "its reply breaks the protocol"
            return f"{error.message} (MCP error {error.code})"
        if isinstance(config, MCPServerConfigStdio):
            return f"{type(error).__name__}: {error}"
        return f"the connection failed ({type(error).__name__}: {error})"

    def _said(self) -> str:
        """Where the server is and what it printed, for the end of a message."""
        if not isinstance(self.config, MCPServerConfigStdio):
            return f"\n  address: {hide(self.config.url)[0]}"
        if self._process is None:
            return ""
        lines: list[str] = []
        if self._process.junk:
            junk = " | ".join(map(repr, self._process.junk))
            lines.append(f"stdout, which is for protocol messages only, had: {junk}")
        tail = clean(self._process.stderr).strip()
        lines.append("its stderr ends with:" if tail else "its stderr is empty")
        lines += ["  " + line[-300:] for line in tail.split("\n")[-10:] if tail]
        return "".join("\n  " + line for line in lines)

    # ------------------------------------------------------------------------------- requests

    async def tools(self) -> list[Tool]:
        """All tools of the server; Lost when it cannot be asked."""
        from mcp.types import PaginatedRequestParams

        async def read() -> list[Tool]:
            assert self._session is not None
            found: list[Tool] = []
            cursor: str | None = None
            for _ in range(MOST_PAGES):
                page = await self._session.list_tools(
                    params=PaginatedRequestParams(cursor=cursor) if cursor else None
                )
                found += page.tools
                cursor = page.next_cursor
                if not cursor:
                    return found
            raise Lost(f"its tool list has more than {MOST_PAGES} pages")

        assert self._task is not None
        listing = _task(read())
        await _first(listing, self._task, self.config.timeout)
        if not listing.done():
            await _drop(listing)
            late = f"it did not list its tools within {self.config.timeout:g} s"
            raise self._failed(late if self.usable else self._why("it died"))
        error = listing.exception()
        if isinstance(error, Lost):
            raise error
        if error is not None:
            problem = self._words(error) if self.usable else self._why("it died")
            raise self._failed(f"listing its tools failed: {problem}")
        return listing.result()

    async def call(self, name: str, arguments: dict[str, Any]) -> ToolReply:
        """Call a tool; Lost when the server is gone or cannot be used any more.

        A tool's own error, an unknown tool, a reply that breaks the protocol and a call that took
        longer than `call_timeout` are replies: the session can still be used.
        """
        from mcp.types import CallToolRequest, CallToolRequestParams, CallToolResult

        if not self.usable:
            raise await self._lost()
        try:
            json.dumps(arguments, ensure_ascii=False, allow_nan=False).encode()
        except UnicodeError:
            problem = "not sent: the arguments hold half of a surrogate pair"
            return ToolReply(problem, is_error=True)
        except (TypeError, ValueError):
            return ToolReply("not sent: the arguments are no JSON", is_error=True)
        assert self._session is not None
        assert self._task is not None
        request = CallToolRequest(params=CallToolRequestParams(name=name, arguments=arguments))
        # not `call_tool`: that lists the tools again and refuses results over their schema
        asking = _task(self._session.send_request(request, CallToolResult))
        await _first(asking, self._task, self.config.call_timeout)
        if not asking.done():
            await _drop(asking)
            if not self.usable:
                raise await self._lost()
            late = f"no answer within {self.config.call_timeout:g} s; the call was given up"
            return ToolReply(late, is_error=True)
        error = asking.exception()
        if error is None:
            return reply_of(asking.result())
        words = self._words(error)
        if not await self._answers():
            raise await self._lost()
        return ToolReply(words, is_error=True)

    async def _lost(self) -> Lost:
        if self._closed:
            return Lost("the session was closed")
        if self._process is not None:
            await self._process.end()  # by then its exit status and last words are there
        return self._failed(self._why("it died"))


def _task(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """A task whose exception is no news where nobody waits for it any more."""
    task = asyncio.create_task(work)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task


async def _first(work: asyncio.Task[Any], life: asyncio.Task[Any], seconds: float) -> None:
    """Wait until the work is done, the session has ended, or the time is over."""
    await asyncio.wait({work, life}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    if life.done() and not work.done():
        await asyncio.wait({work}, timeout=1)  # it is about to fail, with a better reason


async def _drop(work: asyncio.Task[Any]) -> None:
    """Give up a request; the SDK tells the server so, if it can."""
    work.cancel()
    await asyncio.wait({work}, timeout=1)


def be_quiet() -> None:
    """Keep the SDK's log lines and tracebacks off our stderr, unless logging was set up."""
    for name in ("mcp", "client"):
        logging.getLogger(name).addHandler(logging.NullHandler())
