"""`--sandbox local`: commands run on this machine, as this user. UNSAFE.

Nothing here protects the machine: a command may read, change and delete whatever the user can,
use the network, and take all memory. It is for models and questions that one trusts, where Docker
cannot be had. What it does give: a temporary folder per sample, a clean environment, and the same
replies as a container (see `sandbox.py`).

- `/workspace` and `/shared_files` do not exist on a host; in the text of a command, and there only,
  they are replaced by the sample's own folders.
- A timed-out command is killed with its process group and, on Linux, with everything that carries
  its mark in its environment, whatever session it is in. What clears its environment escapes.
- Memory, processor and process limits are not applied; to switch the network off is refused.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import re
import secrets
import selectors
import shutil
import signal
import subprocess
import tempfile
import termios
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from harness.errors import LackError, SandboxError, UsageError
from harness.live.attachment import copy_alone
from harness.live.capture import Capture
from harness.live.inside import ARGUMENT_LIMIT, long_command
from harness.live.owner import clean_scratch, scratch_folder
from harness.live.sandbox import Progress, SandboxConfig, command_bytes, refusal
from harness.records import BashReply, Sample

_MARK = "GAIA_HARNESS_COMMAND"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/homebrew/bin"
_OURS = re.compile(r"(?<![\w./-])/(workspace|shared_files)(?![\w.-])")
_LOOK = 0.02
"""Seconds between two looks whether the command has ended while others hold its pipes."""
_KILL = 10.0
"""Seconds for killed processes to be gone."""


class LocalEngine:
    """Makes `LocalSandbox`es."""

    def __init__(self, config: SandboxConfig, *, run: str) -> None:
        if not config.network:
            raise UsageError(
                "--sandbox local cannot switch the network off",
                hint="--sandbox docker, or leave out --no-network",
            )
        self._config = config
        self._open: set[LocalSandbox] = set()
        self._lock = threading.Lock()
        self._closed = False

    def preflight(self, progress: Progress) -> None:
        """LackError where there is no bash; warns that nothing is protected."""
        if os.name != "posix" or shutil.which("bash") is None:
            raise LackError("--sandbox local needs bash", hint="--sandbox docker")
        clean_scratch()
        progress("UNSAFE: --sandbox local runs the model's commands on this machine, as you")

    def start(self, sample: Sample, attachment: Path | None) -> LocalSandbox:
        folder = scratch_folder()
        try:
            if attachment is not None and sample.file_name:
                copy_alone(attachment, sample.file_name, folder / "shared_files")
            sandbox = LocalSandbox(folder, self._config, self._forget)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        with self._lock:
            self._open.add(sandbox)
            closed = self._closed
        if closed:
            sandbox.close()
            raise SandboxError("sandbox was closed")
        return sandbox

    def close(self) -> None:
        with self._lock:
            self._closed = True
            sandboxes = list(self._open)
        for sandbox in sandboxes:
            sandbox.close()

    def _forget(self, sandbox: LocalSandbox) -> None:
        with self._lock:
            self._open.discard(sandbox)


class LocalSandbox:
    """A temporary folder and the processes that were started in it."""

    image = None

    def __init__(
        self, folder: Path, config: SandboxConfig, on_close: Callable[[LocalSandbox], None]
    ) -> None:
        self.folder = folder
        """Holds `workspace`, `shared_files` and `home`; removed by `close`."""
        self._capture_bytes = config.capture_bytes
        self._on_close = on_close
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._token = secrets.token_hex(8)
        self._commands = 0

    def run(self, command: str, timeout: float) -> BashReply:
        refused = refusal(command)
        with self._lock:
            if self._closed.is_set():
                raise SandboxError("sandbox was closed")
            if refused:
                return refused
            try:
                reply = self._run(self._localised(command), timeout)
            except OSError as error:
                raise SandboxError(f"sandbox lost: {error.strerror or error}") from error
            if self._closed.is_set():
                raise SandboxError("sandbox was closed")
            return reply

    def close(self) -> None:
        if self._closed.is_set():
            return
        self._closed.set()
        _kill_marked(f"{self._token}.")
        shutil.rmtree(self.folder, ignore_errors=True)
        self._on_close(self)

    def _localised(self, command: str) -> bytes:
        """The command with our two folders where they really are."""
        return command_bytes(_OURS.sub(lambda found: f"{self.folder}/{found[1]}", command))

    def _run(self, command: bytes, timeout: float) -> BashReply:
        self._commands += 1
        mark = f"{self._token}.{self._commands}."
        with _started(command, self.folder, mark) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            streams = {
                process.stdout: Capture(self._capture_bytes),
                process.stderr: Capture(self._capture_bytes),
            }
            timed_out = not _read(process, streams, time.monotonic() + timeout)
            if timed_out:
                _kill(process, mark)
                _read(process, streams, time.monotonic() + _KILL)
            for stream, capture in streams.items():
                _take_what_is_there(stream, capture)
        (stdout, lost_out), (stderr, lost_err) = (c.result() for c in streams.values())
        code = process.returncode if process.returncode >= 0 else 128 - process.returncode
        return BashReply(
            stdout, stderr, None if timed_out else code, timed_out, lost_out + lost_err
        )


@contextlib.contextmanager
def _started(command: bytes, folder: Path, mark: str) -> Iterator[subprocess.Popen[bytes]]:
    """The running command; afterwards its pipes are emptied by a thread until nobody has them."""
    for name in ("workspace", "home"):
        (folder / name).mkdir(exist_ok=True)
    environment = {
        "HOME": str(folder / "home"),
        "LANG": "C.UTF-8",
        "PATH": _PATH,
        "PYTHONHASHSEED": "0",
        "TERM": "dumb",
        _MARK: mark,
    }
    with tempfile.TemporaryFile() as text:
        arguments: list[str | bytes] = ["bash", "-c", command]
        if len(command) >= ARGUMENT_LIMIT:
            text.write(command)
            text.seek(0)
            arguments[2] = long_command(text.fileno())
        process = subprocess.Popen(
            arguments,
            cwd=folder / "workspace",
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
            pass_fds=(text.fileno(),) if len(command) >= ARGUMENT_LIMIT else (),
        )
    try:
        yield process
    except BaseException:
        _kill(process, mark)
        raise
    finally:
        for stream in (process.stdout, process.stderr):
            threading.Thread(target=_discard, args=(stream,), daemon=True).start()


def _read(
    process: subprocess.Popen[bytes], streams: dict[IO[bytes], Capture], deadline: float
) -> bool:
    """Read until the command's own process has ended; False when the deadline came first."""
    with selectors.DefaultSelector() as selector:
        for stream, capture in streams.items():
            selector.register(stream, selectors.EVENT_READ, capture)
        while time.monotonic() < deadline:
            if process.poll() is not None:
                return True
            if not selector.get_map():
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.0, deadline - time.monotonic()))
                continue
            for key, _ in selector.select(_LOOK):
                data = os.read(key.fd, 1 << 16)
                key.data.feed(data)
                if not data:
                    selector.unregister(key.fileobj)
    return process.poll() is not None


def _take_what_is_there(stream: IO[bytes], capture: Capture) -> None:
    """What is in the pipe now, and no more: a child may go on writing for ever."""
    waiting = array.array("i", [0])
    fcntl.ioctl(stream, termios.FIONREAD, waiting)
    left = waiting[0]
    while left > 0:
        data = os.read(stream.fileno(), left)
        if not data:
            return
        capture.feed(data)
        left -= len(data)


def _discard(stream: IO[bytes]) -> None:
    with stream, contextlib.suppress(OSError):
        while os.read(stream.fileno(), 1 << 16):
            pass


def _kill(process: subprocess.Popen[bytes], mark: str) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    _kill_marked(mark)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_KILL)


def _kill_marked(mark: str) -> None:
    """Kill every process with that mark (a whole one, or what marks begin with); Linux only.

    They are stopped first, until no new one turns up, so that none can fork its way out.
    """
    stopped: set[int] = set()
    limit = time.monotonic() + _KILL
    while time.monotonic() < limit:
        found = set(_marked(mark)) - stopped
        if not found:
            break
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGSTOP)
        stopped |= found
    for pid in stopped:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _marked(mark: str) -> Iterator[int]:
    wanted = f"\0{_MARK}={mark}".encode()
    for folder in Path("/proc").glob("[1-9]*"):
        with contextlib.suppress(OSError):
            if wanted in b"\0" + (folder / "environ").read_bytes():
                yield int(folder.name)
