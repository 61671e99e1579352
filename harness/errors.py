"""Every exception that the project raises on purpose, and the exit status each one means.

    HarnessError                     1   anything below; a finding unless it says otherwise
    ├── UsageError                   2   options, configuration or data that cannot be used
    │   └── DataError                2   a data set or an input file that cannot be used
    ├── LackError                    3   the environment lacks something (Docker, image, key, …)
    ├── Finding                      1   the tool worked and found something wrong
    │   ├── DamageError              1   a stored file is not what it was when it was written
    │   └── DivergenceError          1   a replayed loop asked for what the cassette does not hold
    └── SampleError                  4   one sample ended in error; the others go on
        ├── ModelError                   endpoint: retries exhausted, wrong key, 4xx
        ├── SandboxError                 container lost, daemon gone, memory limit of the container
        ├── ToolServerError              an MCP server that failed, not a tool error
        ├── LimitError                   a limit on time or tokens was reached
        ├── SecretError                  a request was about to carry a secret
        └── AgentError                   the agent's own code raised

`kind` of a SampleError is written into the cassette and is raised again by replay.
"""

from __future__ import annotations

from typing import ClassVar


class HarnessError(Exception):
    """Base of all: `message` says what happened and where, `hint` the next command."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  try: {self.hint}" if self.hint else self.message


class UsageError(HarnessError):
    """Options, configuration or names that cannot be used as given."""

    exit_code = 2


class DataError(UsageError):
    """A data set or an input file that cannot be used; names the file and the row."""


class LackError(HarnessError):
    """The environment lacks something; the hint is the command that mends it."""

    exit_code = 3


class Finding(HarnessError):
    """The tool did its work, and what it found is bad news."""


class DamageError(Finding):
    """A stored file does not hold what its name or its record promises. Never treated as a miss."""


class DivergenceError(Finding):
    """During replay the loop asked for something that the cassette does not hold at that place."""


class SampleError(HarnessError):
    """One sample cannot go on. It is sealed with this `kind` and message; other samples go on."""

    exit_code = 4
    kind: ClassVar[str] = "error"

    @staticmethod
    def of_kind(kind: str, message: str) -> SampleError:
        """The exception for a recorded `kind`; an unknown kind is kept as plain text."""
        for cls in (
            ModelError,
            SandboxError,
            ToolServerError,
            LimitError,
            SecretError,
            AgentError,
        ):
            if cls.kind == kind:
                return cls(message)
        return SampleError(message if kind == SampleError.kind else f"{kind}: {message}")


class ModelError(SampleError):
    """The endpoint gave no reply that counts: retries exhausted, wrong key, another 4xx."""

    kind = "model"
    unreachable = False
    """Nobody has ever answered at the endpoint: no other sample would fare better."""


class SandboxError(SampleError):
    """The sandbox is gone or cannot be used any more."""

    kind = "sandbox"


class ToolServerError(SampleError):
    """An MCP server could not be started, died, or broke the protocol."""

    kind = "tool"


class LimitError(SampleError):
    """A limit that the user set for the sample or the run was reached."""

    kind = "limit"


class SecretError(SampleError):
    """A request was about to carry a secret out of the harness; it was not sent."""

    kind = "secret"


class AgentError(SampleError):
    """The agent's own code raised an exception."""

    kind = "agent"


class Interrupted(BaseException):
    """The user asked to stop. Not an Exception, so that no agent's handler keeps it."""
