"""A TCP port of this machine that leads to a socket of the file system, as a remote engine's."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager


def _pump(source: socket.socket, target: socket.socket) -> None:
    """Copy until the source ends; the other direction goes on, as hijacked connections need."""
    try:
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        source.close()
        target.close()


@contextmanager
def tcp_port(path: str) -> Iterator[int]:
    """The port; connections that are open at the end are the clients' to close."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            engine = socket.socket(socket.AF_UNIX)
            engine.connect(path)
            for pair in ((client, engine), (engine, client)):
                threading.Thread(target=_pump, args=pair, daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.close()
