"""The connection to a Docker engine, and its errors in our words."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from harness.errors import HarnessError, LackError

Client = Any
"""`docker.APIClient`, which has no types of its own."""

_FIRST_ANSWER = 15
"""Seconds within which an engine must have answered for the first time."""
_ANSWER = 120
"""Seconds for any later answer. Commands are not waited for this way."""


class Connection(msgspec.Struct, frozen=True):
    """An engine that answered, and how to talk to it. Clients are not shared between threads."""

    host: str
    version: str
    options: dict[str, Any]

    def client(self) -> Client:
        """A client of one's own; costs no request."""
        from docker import APIClient

        return APIClient(**self.options, version=self.version, timeout=_ANSWER)


def connect() -> Connection:
    """Reach the engine that DOCKER_HOST, else Docker's current context, else the default names.

    LackError when the package is missing or nothing answers.
    """
    try:
        from docker import APIClient
        from docker.utils import kwargs_from_env
    except ImportError as error:
        raise LackError(
            f"recording in Docker needs the Python package 'docker' ({error})",
            hint="pip install 'gaia-harness[record]'",
        ) from error
    host = os.environ.get("DOCKER_HOST") or _context_host()
    with engine_errors(host, LackError, "the Docker engine cannot be used"):
        options: dict[str, Any] = dict(kwargs_from_env())
        if "base_url" not in options and host != _DEFAULT_HOST:
            options["base_url"] = host
        client = APIClient(**options, version="auto", timeout=_FIRST_ANSWER)
        try:
            client.ping()
        finally:
            client.close()
        return Connection(host, client.api_version, options)


_DEFAULT_HOST = "unix:///var/run/docker.sock"


def _context_host() -> str:
    """Where `docker context use` points to, if to a socket of this machine (Desktop, rootless)."""
    from docker.context import ContextAPI

    try:
        host = ContextAPI.get_current_context().Host
    except Exception:  # a broken ~/.docker: the default is as good a guess
        return _DEFAULT_HOST
    return host if isinstance(host, str) and host.startswith("unix://") else _DEFAULT_HOST


@contextmanager
def engine_errors(
    host: str, kind: type[HarnessError], what: str, hint: str | None = None
) -> Iterator[None]:
    """Raise whatever the SDK or its HTTP library raises as `kind`, with cause and remedy."""
    try:
        yield
    except HarnessError:
        raise
    except Exception as error:
        if not is_engine_error(error):
            raise
        raise kind(f"{what}: {cause(error)} ({host})", hint=hint or _remedy(error)) from error


def is_engine_error(error: BaseException) -> bool:
    """Whether the SDK, its HTTP library or the socket below raised it."""
    from docker.errors import DockerException
    from requests.exceptions import RequestException
    from urllib3.exceptions import HTTPError

    return isinstance(error, DockerException | RequestException | HTTPError | OSError)


def cause(error: BaseException) -> str:
    """One line: what the engine said, or why it could not be reached."""
    explanation = getattr(error, "explanation", None)
    if explanation:
        if isinstance(explanation, bytes):
            explanation = explanation.decode(errors="replace")
        return " ".join(str(explanation).split())
    below = _system_error(error)
    if isinstance(below, FileNotFoundError):
        return "there is no engine at this address"
    if isinstance(below, ConnectionRefusedError):
        return "nothing listens at this address"
    if isinstance(below, PermissionError):
        return "permission denied"
    if isinstance(below, TimeoutError) or "timed out" in str(error):
        return "no answer in time"
    if below is not None and below.strerror:
        return below.strerror
    return " ".join(str(error).split()) or type(error).__name__


def _remedy(error: BaseException) -> str:
    if isinstance(_system_error(error), PermissionError):
        return "add yourself to the group 'docker' and log in again, or set DOCKER_HOST"
    return "start Docker (`docker info` shows whether it runs), or set DOCKER_HOST"


def _system_error(error: BaseException) -> OSError | None:
    """The operating system's own error at the bottom of a chain of wrapped ones.

    The HTTP libraries keep the cause in `args`, in `reason` or as the context.
    """
    from requests.exceptions import RequestException

    todo: list[Any] = [error]
    seen: set[int] = set()
    while todo:
        item = todo.pop()
        if not isinstance(item, BaseException) or id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, OSError) and not isinstance(item, RequestException) and item.errno:
            return item
        todo += [*item.args, getattr(item, "reason", None), item.__cause__, item.__context__]
    return None
