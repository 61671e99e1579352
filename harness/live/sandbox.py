"""What a sandbox is, for those who use one, and the way to the two kinds that exist.

    engine = engine_for(SandboxConfig(), run="demo")
    engine.preflight(print)                      # LackError before anything is paid for
    sandbox = engine.start(sample, attachment)   # one per sample and epoch
    reply = sandbox.run("ls /shared_files", 180.0)
    sandbox.close(); engine.close()              # both may be called twice, and from any thread

The rules that both kinds keep:

- A command is one `bash -c` in `/workspace`, with its standard input at end-of-file. Files and
  background processes stay for later commands; `cd`, `export` and shell options do not.
- A non-zero exit, a signal, a timeout, an unknown program: a `BashReply`. A sandbox that cannot
  run commands any more: `SandboxError`, from then on for every command, never a silent restart.
- A timeout is decided by the harness's own clock. What the command wrote until then is kept,
  `exit_code` is None, and nothing that has started since the command began is left running.
  Processes that earlier commands left in the background stay.
- The command is over when its bash is, not when its last child closes the pipe. What such
  children write later is in no reply.
- Bytes are kept as they came, the streams apart; of a stream longer than `capture_bytes` the first
  and the last half are kept, cut between characters of UTF-8, and `omitted` counts the rest.
- What the sandbox itself has to say is a line of stderr that starts with `[sandbox]`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from harness.errors import UsageError
from harness.records import BashReply, Sample

Progress = Callable[[str], None]
"""Takes one plain line about what is going on."""


class SandboxConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How commands are run. The limits hold for each container; `local` has none."""

    kind: Literal["docker", "local"] = "docker"
    image: str = "python:3.11"
    network: bool = True
    """Most GAIA questions need the network. `local` cannot switch it off."""
    memory: str | None = "4g"
    """A whole number and b, k, m or g. Swap is not given on top. None: no limit."""
    cpus: float | None = None
    """Processors' worth of time; None: what the machine has."""
    pids_limit: int | None = 512
    """Processes and threads at once; a fork bomb ends here and not at the host. None: no limit."""
    capture_bytes: int = 1 << 20
    """Bytes of each output stream that a reply keeps: half from its start, half from its end."""


class ImageIdentity(msgspec.Struct, frozen=True):
    """Which image the containers were made from, beyond a tag that may move."""

    reference: str
    """As the user wrote it."""
    id: str
    """The engine's id of the image's configuration, `sha256:…`."""
    layers: tuple[str, ...]
    """Digests of the unpacked layers, lowest first: equal on every engine."""


class Sandbox(Protocol):
    """The place where the commands of one sample run. Calls of `run` are served one by one."""

    @property
    def image(self) -> ImageIdentity | None:
        """The image, None where there is none."""

    def run(self, command: str, timeout: float) -> BashReply:
        """The result of one command; `timeout` in seconds. SandboxError when the place is gone."""

    def close(self) -> None:
        """Remove it with all that runs in it. Raises nothing and may be called during `run`."""


class Engine(Protocol):
    """Makes sandboxes; serves several threads at once."""

    def preflight(self, progress: Progress) -> ImageIdentity | None:
        """Make sure that `start` will work. LackError or UsageError says what is in the way."""

    def start(self, sample: Sample, attachment: Path | None) -> Sandbox:
        """A fresh sandbox with `attachment` at `/shared_files/<file_name>`, read-only.

        SandboxError when it cannot be made.
        """

    def close(self) -> None:
        """Close every sandbox that is still open; none can be started afterwards."""


def engine_for(config: SandboxConfig, *, run: str) -> Engine:
    """The engine for a configuration. `run` names the run in whatever the engine leaves behind.

    Reaches nothing yet. UsageError for settings that no engine can keep.
    """
    if config.capture_bytes < 2:
        raise UsageError(f"capture_bytes must be at least 2, not {config.capture_bytes}")
    if config.kind == "local":
        from harness.live.local_sandbox import LocalEngine

        return LocalEngine(config, run=run)
    from harness.live.docker_engine import DockerEngine

    return DockerEngine(config, run=run)


def command_bytes(command: str) -> bytes:
    """The command as bash gets it. Lone surrogates, which have no UTF-8, keep their three bytes."""
    return command.encode("utf-8", "surrogatepass")


def refusal(command: str) -> BashReply | None:
    """The reply to a command that bash cannot be given, or None. Such a command is never run."""
    if "\0" not in command:
        return None
    said = with_note(b"", "not run: the command holds a NUL character, which bash cannot take")
    return BashReply(stderr=said, exit_code=126)


def with_note(stderr: bytes, note: str) -> bytes:
    """`stderr` with one line of the sandbox's own behind it."""
    gap = b"" if not stderr or stderr.endswith(b"\n") else b"\n"
    return b"%b%b[sandbox] %b\n" % (stderr, gap, note.encode())
