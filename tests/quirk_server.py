"""A real HTTP server that plays the odd endpoints of `tests/quirks.py`, one by model name.

    python -m tests.quirk_server [PORT]     serves until interrupted and lists the model names

Ask `POST /v1/chat/completions` with a quirk's name as `model`, streamed or not. A quirk is a list
of answers that are played in order; the last one stays. The server keeps what it was asked.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import sys
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.quirks import QUIRKS, Answer


@dataclass(frozen=True)
class Asked:
    """One request that the server got; header names in lower case."""

    path: str
    headers: dict[str, str]
    raw: bytes
    body: dict[str, Any]


class QuirkServer:
    """`with QuirkServer() as server:` serves on a free port of this machine until the end."""

    def __init__(self, port: int = 0) -> None:
        self.asked: list[Asked] = []
        self._played: dict[str, int] = {}
        self._lock = threading.Lock()
        self._http = _Http(("127.0.0.1", port), _Handler)
        self._http.quirks = self
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        """Base address of the API."""
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def __enter__(self) -> QuirkServer:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    def forget(self) -> None:
        """Starts every script again."""
        with self._lock:
            self.asked.clear()
            self._played.clear()

    def answer(self, asked: Asked) -> Answer:
        """The next answer for a request, which is kept."""
        name = str(asked.body.get("model"))
        quirk = QUIRKS.get(name)
        with self._lock:
            self.asked.append(asked)
            number = self._played.get(name, 0)
            self._played[name] = number + 1
        if quirk is None:
            return Answer.error(404, f"no such model: {name}", code="model_not_found")
        if quirk.live is not None:
            return quirk.live(asked.body)
        script = quirk.stream if asked.body.get("stream") else quirk.whole
        return script[min(number, len(script) - 1)]


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    quirks: QuirkServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is part of the game."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Http

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        listed = {"object": "list", "data": [{"id": name, "object": "model"} for name in QUIRKS]}
        self._play(Answer.json(listed))

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self._play(self.server.quirks.answer(Asked(self.path, headers, raw, json.loads(raw))))

    def _play(self, answer: Answer) -> None:
        if answer.end == "reset" and not answer.pieces:
            self._reset()
            return
        time.sleep(answer.delay)
        self.send_response_only(answer.status)
        if "Date" not in answer.headers:
            self.send_header("Date", self.date_time_string())
        sized = answer.end == "whole" and not answer.chunked
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if answer.chunked:
            self.send_header("transfer-encoding", "chunked")
        elif answer.end == "close":
            self.send_header("connection", "close")
        else:
            missing = 0 if sized else 100
            self.send_header("content-length", str(len(b"".join(answer.pieces)) + missing))
        self.end_headers()
        for piece in answer.pieces:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece) if answer.chunked else piece)
            self.wfile.flush()
            time.sleep(answer.pause)
        if answer.end == "whole" and answer.chunked:
            self.wfile.write(b"0\r\n\r\n")
        elif answer.end == "reset":
            self._reset()
        elif answer.end in ("cut", "close"):
            self.close_connection = True

    def _reset(self) -> None:
        self.close_connection = True
        linger = struct.pack("ii", 1, 0)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.connection.close()


if __name__ == "__main__":
    with QuirkServer(int(sys.argv[1]) if len(sys.argv) > 1 else 0) as running:
        print(running.url, *sorted(QUIRKS), sep="\n", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()
