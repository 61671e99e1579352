"""One sample's container, as the agent's commands see it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import datetime

from harness.errors import SandboxError
from harness.live.docker_client import Connection, cause, is_engine_error
from harness.live.docker_exec import Ended, run_command
from harness.live.inside import END_ALL, END_NEWEST
from harness.live.sandbox import (
    ImageIdentity,
    SandboxConfig,
    command_bytes,
    refusal,
    with_note,
)
from harness.records import BashReply

_ATTEMPTS = 4
"""How often a command that did not begin is tried."""
_PAUSE = 0.3
"""Seconds between attempts: longer than process 1 needs to collect what has died."""
_DYING = 1.0
"""Seconds for the engine to notice that a container has died."""


class DockerSandbox:
    """A running container that is removed by `close`. Made by `DockerEngine.start`.

    See `sandbox.py` for what holds for every sandbox. Here, besides:

    - A command that cannot be started (`OCI runtime exec failed`: the process limit is used up,
      by a fork bomb in the background for instance) has not run, so it is tried again; from the
      third attempt on, every process in the container is ended first, and the reply says so.
    - Processes killed at the memory limit are told from an exit 137 by the kernel's own count.
    - When the agent kills the shell that watches over its command (`kill -9 -1`), the reply has
      exit code 137 and says so; what is left of the command is ended, and processes of earlier
      commands with it if their shells were killed too.
    """

    def __init__(
        self,
        connection: Connection,
        container: str,
        image: ImageIdentity,
        config: SandboxConfig,
        on_close: Callable[[DockerSandbox], None],
    ) -> None:
        self.container = container
        """The container's id."""
        self._image = image
        self._connection = connection
        self._client = connection.client()
        self._config = config
        self._on_close = on_close
        self._lock = threading.Lock()
        self._lost: str | None = None
        self._started: str | None = None
        """When the container was started, as its engine says."""
        self._closed = threading.Event()
        self._memory_kills = 0

    @property
    def image(self) -> ImageIdentity:
        return self._image

    def run(self, command: str, timeout: float) -> BashReply:
        refused = refusal(command)
        with self._lock:
            try:
                if self._lost or self._closed.is_set():
                    raise SandboxError(self._lost or "sandbox was closed")
                return refused or self._run(command_bytes(command), timeout)
            except SandboxError as error:
                self._lost = error.message
                raise
            except Exception as error:
                if not is_engine_error(error):
                    raise
                self._lost = self._why(error)
                raise SandboxError(self._lost) from error

    def close(self) -> None:
        if self._closed.is_set():
            return
        self._closed.set()
        client = self._connection.client()  # the other one may be in use by a thread in `run`
        try:
            client.remove_container(self.container, force=True, v=True)
        except Exception as error:  # gone already, or no engine: `harness clean` finds the rest
            if not is_engine_error(error):
                raise
        finally:
            client.close()
        try:
            self._on_close(self)
        except Exception as error:
            if not is_engine_error(error):
                raise

    def _run(self, command: bytes, timeout: float) -> BashReply:
        self._check()  # restarted, it would run the command as if nothing had been lost
        ended, notes = self._begin(command, timeout)
        code, kills = ended.exit_code, ended.memory_kills
        if kills is None:  # timed out, or its end was not seen
            self._check(_DYING if not ended.timed_out else 0)
            if not ended.timed_out:
                code = 137
                self._client.kill(self.container, END_NEWEST)
                notes.append("the shell of this command was killed; what was left of it was ended")
            kills = self._attempt(b"", _DYING).memory_kills
        if kills is not None and kills > self._memory_kills:
            notes.append(self._memory_note(kills - self._memory_kills))
            self._memory_kills = kills
        stderr = ended.stderr
        for note in notes:
            stderr = with_note(stderr, note)
        return BashReply(ended.stdout, stderr, code, ended.timed_out, ended.omitted)

    def _begin(self, command: bytes, timeout: float) -> tuple[Ended, list[str]]:
        """Run the command once, after as many attempts as it takes until it begins."""
        notes: list[str] = []
        for attempt in range(_ATTEMPTS):
            if attempt:
                time.sleep(_PAUSE)
            if attempt > 1:
                self._client.kill(self.container, END_ALL)
                notes = ["no process could be started before all that were running were ended"]
                time.sleep(_PAUSE)
            ended = self._attempt(command, timeout)
            if ended.began:
                return ended, notes
            self._check()
        said = ended.engine_said or "no answer"
        raise SandboxError(f"sandbox lost: no process can be started in it: {said}")

    def _attempt(self, command: bytes, timeout: float) -> Ended:
        return run_command(
            self._client,
            self.container,
            command,
            timeout,
            self._config.capture_bytes,
            self._check,
        )

    def _memory_note(self, count: int) -> str:
        processes = "1 process" if count == 1 else f"{count} processes"
        if self._config.memory is None:
            return f"killed: the host ran out of memory ({processes})"
        return f"killed: memory limit of {self._config.memory} ({processes})"

    def _check(self, patience: float = 0) -> None:
        """SandboxError unless the container runs, and still does after `patience` seconds."""
        limit = time.monotonic() + patience
        while True:
            died = self._death()
            if died:
                raise SandboxError(died)
            if time.monotonic() >= limit:
                return
            time.sleep(0.1)

    def _why(self, error: Exception) -> str:
        """The cause of an error of the engine's, for the sample's record."""
        if self._closed.is_set():
            return "sandbox was closed"
        limit = time.monotonic() + _DYING
        while time.monotonic() < limit:
            try:
                died = self._death()
            except Exception as again:
                if not is_engine_error(again):
                    raise
                return f"sandbox lost: the Docker engine does not answer any more: {cause(again)}"
            if died:
                return died
            time.sleep(0.1)
        return f"sandbox lost: {cause(error)}"

    def _death(self) -> str | None:
        """What ended the container, None while it runs."""
        from docker.errors import NotFound

        if self._closed.is_set():
            return "sandbox was closed"
        try:
            state = self._client.inspect_container(self.container)["State"]
        except NotFound:
            return "sandbox died: its container was removed"
        if state.get("Paused"):
            return "sandbox lost: its container was paused"
        if state["Running"]:
            self._started = self._started or state["StartedAt"]
            if state["StartedAt"] != self._started:
                return "sandbox died: its container was restarted"
            return None
        code = state.get("ExitCode")
        if state.get("OOMKilled") or (code == 137 and self._memory_event(state["FinishedAt"])):
            if self._config.memory is None:
                return "sandbox died: OOM (the host ran out of memory)"
            return f"sandbox died: OOM (memory limit of {self._config.memory})"
        how = "was killed" if code == 137 else "ended"
        return f"sandbox died: its container {how} (exit {code})"

    def _memory_event(self, finished: str) -> bool:
        """Whether the engine's log says that the memory limit was reached.

        Its state of the container does not when it learned of the death first, which is seen in
        one of fifty.
        """
        until = int(datetime.fromisoformat(finished).timestamp()) + 3  # by the engine's own clock
        only = {"container": self.container, "event": "oom"}
        try:
            return bool(list(self._client.events(since=1, until=until, filters=only, decode=True)))
        except Exception as error:  # an engine without a log
            if not is_engine_error(error):
                raise
            return False
