"""No sockets while a sample is replayed: a replay that needs one is none."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

REFUSED = frozenset(
    {
        "socket.__new__",
        "socket.bind",
        "socket.connect",
        "socket.getaddrinfo",
        "socket.gethostbyaddr",
        "socket.gethostbyname",
        "socket.getnameinfo",
        "socket.sendmsg",
        "socket.sendto",
    }
)
"""Audit events (https://docs.python.org/3/library/audit_events.html) that reach out."""

_UNIX = 1  # AF_UNIX: asyncio makes a pair of these for itself; they may be made, not connected


class SocketBlockedError(RuntimeError):
    """A socket was asked for while a sample was replayed."""


class _Guard:
    """Refuses sockets between `begin` and `end`, in all threads.

    An audit hook patches nothing, and sees what patching would miss: names that were imported
    earlier, sockets that are open already, `_socket` itself. It stays once it is there; at rest it
    is one comparison.
    """

    def __init__(self) -> None:
        self._refused: list[str] | None = None
        self._installed = False

    def begin(self) -> list[str]:
        """From now on; the list gets what was refused, for a loop may swallow the exception."""
        if not self._installed:
            self._installed = True
            sys.addaudithook(self._audit)
        self._refused = []
        return self._refused

    def end(self) -> None:
        """As it was before."""
        self._refused = None

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        refused = self._refused
        if refused is None or event not in REFUSED:
            return
        if event == "socket.__new__" and args[1] == _UNIX:
            return
        where = next((arg for arg in args if isinstance(arg, str | bytes | tuple)), None)
        told = event if where is None else f"{event} {where!r}"
        refused.append(told)
        raise SocketBlockedError(f"{told}: a replay needs no network, and gets none")


_guard = _Guard()


@contextmanager
def no_sockets() -> Iterator[list[str]]:
    """Blocks sockets. Gives the list of what was refused, each with where it was headed."""
    try:
        yield _guard.begin()
    finally:
        _guard.end()
