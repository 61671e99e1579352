"""One command in a running container: its two streams, its end, its time limit.

Speaks the protocol of `inside.py` over the hijacked connection of a `docker exec`. The stream is
parsed by hand because every layer above it waits for the end of the stream, which a background
child can hold back for ever, and knows no time limit.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from harness.errors import SandboxError
from harness.live.capture import Capture
from harness.live.docker_client import Client, cause
from harness.live.inside import COMMAND, END_ALL, END_NEWEST

_START = 60.0
"""Seconds for the command to begin: the engine is slow, or bash tries in vain to fork."""
_LOOK = 2.0
"""Seconds of silence after which the engine is asked whether the command still runs."""
_KILL = 15.0
"""Seconds for killed processes to be gone."""


class Ended(msgspec.Struct, frozen=True):
    """What came of one attempt."""

    stdout: bytes
    stderr: bytes
    omitted: int
    began: bool
    """False: nothing of the command was run, another attempt is safe."""
    timed_out: bool
    exit_code: int | None
    """None when it timed out, or when its end was not seen: what watched over it was killed."""
    memory_kills: int | None
    """Processes of the container killed for memory since it was made; None: not known."""
    engine_said: str
    """What stood where the command's output would have begun, such as `OCI runtime exec failed`."""


def run_command(
    api: Client,
    container: str,
    command: bytes,
    timeout: float,
    capture_bytes: int,
    check: Callable[[], object],
) -> Ended:
    """Run it in `container`, whose process 1 is `inside.INIT`, for `timeout` seconds at most.

    Whatever the SDK raises comes through. SandboxError when processes cannot be killed; `check`
    is called while that takes long, and may raise a better one.
    """
    from docker.errors import APIError

    nonce = secrets.token_hex(8).encode()
    try:
        exec_id = api.exec_create(container, ["bash"], stdin=True, workdir="/")["Id"]
        stream = api.exec_start(exec_id, socket=True)
    except APIError as error:
        return Ended(b"", b"", 0, False, False, None, None, cause(error))
    sock = getattr(stream, "_sock", stream)
    watch = _Watch(api, container, exec_id, timeout, check)
    out, err = _Output(nonce, capture_bytes), _Output(nonce, capture_bytes, began=True)
    try:
        _send(sock, COMMAND.encode() + b"%b %d\n" % (nonce, len(command)) + command)
        frames = _Frames()
        for data in watch.chunks(sock):
            for kind, piece in frames.split(data):
                (err if kind == 2 else out).feed(piece)
            if out.began:
                watch.begun()
            if out.ended and err.ended and not watch.killing:
                break
    finally:
        _close(stream, sock)
    (stdout, lost_out), (stderr, lost_err) = out.result(), err.result()
    code, kills = out.ending() if out.ended and err.ended else (None, None)
    return Ended(
        stdout,
        stderr,
        lost_out + lost_err,
        began=out.began,
        timed_out=out.began and watch.killing,
        exit_code=None if watch.killing else code,
        memory_kills=kills,
        engine_said=" ".join(out.before.decode(errors="replace").split()),
    )


class _Watch:
    """The clock of one command. Reads its connection and kills it when the time has come."""

    def __init__(
        self,
        api: Client,
        container: str,
        exec_id: str,
        timeout: float,
        check: Callable[[], object],
    ) -> None:
        self.killing = False
        self._check = check
        self._api, self._container, self._exec, self._timeout = api, container, exec_id, timeout
        self._began = False
        self._deadline = time.monotonic() + _START

    def begun(self) -> None:
        """The command has begun: its time runs from here."""
        if not self._began:
            self._began = True
            if not self.killing:
                self._deadline = time.monotonic() + self._timeout

    def chunks(self, sock: Any) -> Iterator[bytes]:
        """What arrives, until the stream ends or the engine says that the command has.

        While processes are being killed it goes on reading: a pipe that nobody empties holds
        up the engine.
        """
        signals = iter((END_NEWEST, END_ALL))
        while True:
            left = self._deadline - time.monotonic()
            if left <= 0:
                signal = next(signals, None)
                if signal is None:
                    raise SandboxError("sandbox lost: its processes could not be killed")
                self._api.kill(self._container, signal)
                self.killing, left = True, _KILL
                self._deadline = time.monotonic() + left
            sock.settimeout(min(left, _LOOK))
            try:
                data = sock.recv(1 << 18)
            except TimeoutError:
                if self.killing:
                    self._check()
                elif not self._api.exec_inspect(self._exec)["Running"]:
                    return
                continue
            except OSError:  # reset: the container, the engine or the network is gone
                return
            if not data:
                return
            yield data


class _Frames:
    """Splits the engine's multiplexed stream: 8 bytes of header (kind, length), then data."""

    def __init__(self) -> None:
        self._header = b""
        self._kind = self._left = 0

    def split(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Pieces of the two streams (1 and 2), as far as they are in `data`."""
        at = 0
        while at < len(data):
            if self._left:
                piece = data[at : at + self._left]
                self._left -= len(piece)
                at += len(piece)
                yield self._kind, piece
            else:
                need = 8 - len(self._header)
                self._header += data[at : at + need]
                at += need
                if len(self._header) == 8:
                    self._kind = self._header[0]
                    self._left = int.from_bytes(self._header[4:], "big")
                    self._header = b""


class _Output:
    """One stream of a command: what stood before it, the command's own bytes, how it ended."""

    def __init__(self, nonce: bytes, capture_bytes: int, *, began: bool = False) -> None:
        self.began = began
        self.ended = False
        self.before = b""
        self._after = b""
        self._is_stdout = not began
        self._nonce = nonce
        self._pending = b""  # may be the start of a nonce
        self._capture = Capture(capture_bytes)

    def feed(self, data: bytes) -> None:
        """The next bytes."""
        data = self._pending + data
        self._pending = b""
        if not self.began:
            before, found, data = data.partition(self._nonce)
            if not found:
                self._pending = before
                self.before = before[:4096]
                return
            self.began = True
        if self._after == b"":
            text, found, data = data.partition(self._nonce)
            if not found:
                keep = len(self._nonce) - 1
                self._pending = text[-keep:]
                self._capture.feed(text[:-keep])
                return
            self._capture.feed(text)
            self._after = b" "
        if not self.ended:
            self._after += data[:64]
            self.ended = not self._is_stdout or b"\n" in self._after

    def ending(self) -> tuple[int, int]:
        """Exit code and processes killed for memory so far; only once stdout has ended."""
        code, kills = self._after.split(b"\n")[0].split()
        return int(code), int(kills)

    def result(self) -> tuple[bytes, int]:
        """The kept bytes of the command and how many were left out."""
        if self.began and not self._after:
            self._capture.feed(self._pending)
            self._pending = b""
        return self._capture.result()


def _send(sock: Any, data: bytes) -> None:
    sock.settimeout(_START)
    try:
        sock.sendall(data)
    except OSError:  # what came instead of a running bash is in the stream
        return


def _close(stream: Any, sock: Any) -> None:
    for thing in (getattr(stream, "_response", None), stream, sock):
        try:
            if thing is not None:
                thing.close()
        except OSError:
            continue
