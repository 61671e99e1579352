"""A tool server on this machine: its process, what it started, and its streams.

The SDK's own transport hands out no process id, leaves a group alone whose leader obeyed, and
loses a call whose reply holds half of a surrogate pair. Here the process group is the harness's
own from the start, every process that the server starts is known by a mark in its environment
(on Linux, also those that left the group), and all of them are gone a few seconds after `end`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import uuid
from collections import deque
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.mcp_config import MCPServerConfigStdio

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.shared.message import SessionMessage

    FromServer = MemoryObjectReceiveStream[SessionMessage | Exception]
    ToServer = MemoryObjectSendStream[SessionMessage]

MARK = "GAIA_HARNESS_SERVER"
"""Variable that every process of a server has, with a value of its own for each start."""

GRACE = 1.0
"""Seconds that a server has after its standard input was closed, and again after SIGTERM."""
KILL_SECONDS = 2.0
"""Seconds in which SIGKILL is sent again to what is still there."""
MESSAGE_LIMIT = 32 << 20
"""Bytes of one message from a server; longer ones end the session."""
STDERR_TAIL = 8192
"""Bytes of standard error that are kept, the last ones."""
JUNK_LIMIT = 64 << 10
"""Bytes that a server may print to stdout before its first message without being given up."""

# what a server is given of the harness's own environment: no key of the run is among these
_INHERITED = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "LANGUAGE", "TZ", "TMPDIR",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "XDG_RUNTIME_DIR",
)  # fmt: skip


def environment(config: MCPServerConfigStdio) -> dict[str, str]:
    """The variables of a server: a few of the harness's own, then those of its configuration."""
    own = {
        name: value
        for name, value in os.environ.items()
        if name in _INHERITED or name.startswith("LC_")
    }
    return {**own, **config.env}


class ServerProcess:
    """A started server; `end` must be called, whatever became of it."""

    def __init__(self, process: asyncio.subprocess.Process, mark: str) -> None:
        self._process = process
        self._mark = mark.encode()
        self._stderr = b""
        self._tail = asyncio.create_task(self._read_stderr())
        self._watch = asyncio.create_task(self._watch_exit())
        self._ending: asyncio.Task[None] | None = None
        self.lost = asyncio.Event()
        """Set once the server ended the conversation: it is gone, or useless."""
        self.signalled = False
        """Whether the harness had to send signals to a server that ran."""
        self.fault: str | None = None
        """What the server did wrong, where it was given up for that."""
        self.junk: deque[str] = deque(maxlen=3)
        """The last lines on stdout that were no protocol messages."""

    @classmethod
    async def start(cls, config: MCPServerConfigStdio) -> ServerProcess:
        """Start the server's command in a session of its own; OSError when that fails."""
        mark = f"{MARK}={uuid.uuid4().hex}"
        name, _, value = mark.partition("=")
        process = await asyncio.create_subprocess_exec(
            config.command,
            *config.args,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**environment(config), name: value},
            cwd=config.cwd,
            start_new_session=True,
            limit=MESSAGE_LIMIT,
        )
        return cls(process, mark)

    @property
    def exit_status(self) -> int | None:
        """Negative: the signal that ended it. None while it runs."""
        return self._process.returncode

    @property
    def stderr(self) -> str:
        """The end of what the server wrote to standard error."""
        return self._stderr.decode("utf-8", "replace")

    async def _read_stderr(self) -> None:
        assert self._process.stderr is not None
        while chunk := await self._process.stderr.read(65536):
            self._stderr = (self._stderr + chunk)[-STDERR_TAIL:]

    async def _watch_exit(self) -> None:
        """Notice the end of a server whose children keep its streams open."""
        while self._process.returncode is None:
            await asyncio.sleep(0.1)
        await asyncio.sleep(0.5)  # what it said last is read by then
        self._lose()

    # ------------------------------------------------------------------------------- messages

    @contextlib.asynccontextmanager
    async def streams(self) -> AsyncIterator[tuple[FromServer, ToServer]]:
        """What a session of the SDK reads from and writes to."""
        import anyio

        to_session, from_server = anyio.create_memory_object_stream[Any](0)
        to_server, from_session = anyio.create_memory_object_stream[Any](0)
        async with anyio.create_task_group() as group:
            group.start_soon(self._read, to_session)
            group.start_soon(self._write, from_session)
            try:
                yield from_server, to_server
            finally:
                group.cancel_scope.cancel()
                for stream in (to_session, from_server, to_server, from_session):
                    stream.close()

    async def _read(self, to_session: MemoryObjectSendStream[Any]) -> None:
        import anyio
        from mcp.shared.message import SessionMessage

        try:
            async for message in self._messages():
                await to_session.send(SessionMessage(message))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return  # nobody listens any more
        self._lose()
        to_session.close()  # whoever waits for a reply learns now that there will be none

    async def _messages(self) -> AsyncIterator[Any]:
        """Protocol messages from stdout until it ends; other lines are kept apart."""
        assert self._process.stdout is not None
        junk: int | None = 0
        while True:
            try:
                line = await self._process.stdout.readline()
            except ValueError:
                self.fault = f"it sent a line of more than {MESSAGE_LIMIT >> 20} MiB"
                return
            except OSError:
                return
            if not line:
                return
            message = _parse(line)
            if message is not None:
                junk = None
                yield message
            elif line.strip():
                self.junk.append(line[:200].decode("utf-8", "replace").strip())
                await asyncio.sleep(0)  # a flood must not keep the other sessions waiting
                if junk is not None and (junk := junk + len(line)) > JUNK_LIMIT:
                    self.fault = "it printed much to stdout, but no protocol message"
                    return

    async def _write(self, from_session: MemoryObjectReceiveStream[SessionMessage]) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        try:
            async for item in from_session:
                text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                stdin.write(text.encode() + b"\n")
                await stdin.drain()
        except OSError:
            self._lose()

    def _lose(self) -> None:
        self.lost.set()
        self._begin_end()  # what is left of it goes at once

    # -------------------------------------------------------------------------------- the end

    async def end(self) -> None:
        """End the server and all that it started; returns when they are gone, or after 4 s."""
        await asyncio.shield(self._begin_end())

    def _begin_end(self) -> asyncio.Task[None]:
        self._ending = self._ending or asyncio.create_task(self._end())
        return self._ending

    async def _end(self) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        stdin.close()
        if not await self._gone(GRACE):
            self._signal(signal.SIGTERM)
            if not await self._gone(GRACE):
                loop = asyncio.get_running_loop()
                deadline = loop.time() + KILL_SECONDS
                # again, for what was forked while the processes were counted
                while loop.time() < deadline:
                    self._signal(signal.SIGKILL)
                    if await self._gone(0.2):
                        break
        await asyncio.wait({self._tail}, timeout=0.2)  # all that it said is read by then
        self._tail.cancel()
        self._watch.cancel()
        # closed by nothing public; left open, it complains when the loop is gone
        transport = getattr(self._process, "_transport", None)
        if transport is not None:
            with contextlib.suppress(OSError):
                transport.close()

    async def _gone(self, seconds: float) -> bool:
        """Whether nothing of the server is alive any more, within the given time."""
        loop = asyncio.get_running_loop()
        deadline, pause = loop.time() + seconds, 0.01
        while self._process.returncode is None or any(True for _ in self._alive()):
            if loop.time() >= deadline:
                return False
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, 0.1)
        return True

    def _signal(self, number: int) -> None:
        self.signalled |= self._process.returncode is None
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, number)
        for pid in self._alive():
            with contextlib.suppress(OSError):
                os.kill(pid, number)

    def _alive(self) -> Iterator[int]:
        """Processes of the server's group, and those with its mark; zombies are none."""
        leader = self._process.pid
        if not Path("/proc/self/stat").exists():  # macOS: the group is all that can be asked for
            with contextlib.suppress(OSError):
                os.killpg(leader, 0)
                yield leader
            return
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            try:
                stat = Path("/proc", entry, "stat").read_bytes()
                state, _, group = stat[stat.rindex(b")") + 2 :].split(maxsplit=3)[:3]
                if state in b"ZX":
                    continue
                if int(group) == leader or self._marked(entry):
                    yield int(entry)
            except (OSError, ValueError):
                continue

    def _marked(self, pid: str) -> bool:
        return self._mark in Path("/proc", pid, "environ").read_bytes().split(b"\0")


def _parse(line: bytes) -> Any:
    """The protocol message of a line, or None."""
    from mcp_types import jsonrpc_message_adapter

    line = line.strip()
    if not line.startswith(b"{"):
        return None
    try:
        return jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        pass
    try:
        value = _whole(json.loads(line.decode("utf-8", "replace")))
        return jsonrpc_message_adapter.validate_python(value, by_name=False)
    except (ValueError, RecursionError):
        return None


def _whole(value: Any) -> Any:
    """The value with U+FFFD for each half of a surrogate pair."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_whole(item) for item in value]
    if isinstance(value, dict):
        return {_whole(key): _whole(item) for key, item in value.items()}
    return value
