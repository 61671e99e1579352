"""A tool server over streamable HTTP that fails in every way: `with HttpServer() as server:`.

The path chooses what happens before a session is there (`/ok`, `/sse`, `/unauthorized`, `/missing`,
`/broken`, `/page`, `/silent`, `/garbage`, `/accepted`, `/away`, `/refuse`); the tools of `/ok` and
`/sse` choose what happens in a call. Replies are JSON, under `/sse` event streams.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.mcp_servers import protocol
from tests.mcp_servers.protocol import Json, text, tool

TOOLS = [
    tool("slow", seconds="number"),
    *(
        tool(name)
        for name in (
            "hello", "fail", "headers", "huge", "drop", "half", "cut", "status500", "garbage",
            "page", "refused", "forget", "stop", "parts", "odd", "leave",
        )
    ),
]  # fmt: skip


class HttpServer:
    """Serves on a free port of this machine until the end of the block, or the tool `stop`."""

    def __init__(self) -> None:
        self.deleted: list[str] = []
        """Sessions that clients ended."""
        self.headers: list[dict[str, str]] = []
        """Headers of every POST, names in lower case."""
        self.sessions: set[str] = set()
        self._http = _Http(("127.0.0.1", 0), _Handler)
        self._http.server = self
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}/{path}"

    def stop(self) -> None:
        """Stop listening and cut every connection."""
        self._http.shutdown()
        self._http.server_close()
        self._http.cut()

    def __enter__(self) -> HttpServer:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    server: HttpServer

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._connections: set[socket.socket] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._connections.add(request)
        super().process_request(request, client_address)

    def cut(self) -> None:
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Broken connections are what this server is for."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def owner(self) -> HttpServer:
        http = self.server
        assert isinstance(http, _Http)
        return http.server

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:  # no stream of the server's own messages
        self.plain(405, "no such stream")

    def do_DELETE(self) -> None:
        self.owner.deleted.append(self.headers["mcp-session-id"])
        self.plain(200, "")

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.owner.headers.append({key.lower(): value for key, value in self.headers.items()})
        path = self.path.strip("/").partition("?")[0]
        at_start: dict[str, Callable[[], None]] = {
            "unauthorized": lambda: self.plain(401, "who are you?"),
            "missing": lambda: self.plain(404, "no such page"),
            "broken": lambda: self.plain(500, "a bug"),
            "page": lambda: self.plain(200, "<html>hello</html>", "text/html"),
            "garbage": lambda: self.plain(200, "{no json", "application/json"),
            "accepted": lambda: self.plain(202, ""),
            "silent": lambda: time.sleep(600),
            "away": self.redirect,
            "refuse": lambda: self.answer(protocol.failure(request, -32602, "not with you")),
        }
        if path in at_start:
            at_start[path]()
        elif "id" not in request:
            self.plain(202, "")
        elif request["method"] == "initialize":
            session = f"session-{len(self.owner.sessions)}"
            self.owner.sessions.add(session)
            reply = protocol.result(request, protocol.initialized(request))
            self.answer(reply, session=session)
        elif self.headers["mcp-session-id"] not in self.owner.sessions:
            self.plain(404, "no such session")
        elif request["method"] == "tools/list":
            self.answer(protocol.result(request, {"tools": TOOLS}))
        elif request["method"] == "tools/call":
            self.call(request)
        elif request["method"] == "ping":
            self.answer(protocol.result(request, {}))
        else:
            self.answer(protocol.failure(request, -32601, "unknown method"))

    def call(self, request: Json) -> None:
        name = request["params"]["name"]
        arguments = request["params"].get("arguments") or {}
        if name == "hello":
            self.answer(protocol.result(request, text("hello")))
        elif name == "leave":  # as servers do with connections that are idle for long
            self.answer(protocol.result(request, text("bye")))
            self.connection.shutdown(socket.SHUT_RDWR)
        elif name == "fail":
            self.answer(protocol.result(request, text("there is no such page", error=True)))
        elif name == "headers":
            self.answer(protocol.result(request, text(json.dumps(self.owner.headers[-1]))))
        elif name == "huge":
            self.answer(protocol.result(request, text("a" * 3_000_000)))
        elif name == "parts":
            self.answer(protocol.result(request, {"content": protocol.PARTS}))
        elif name == "slow":
            time.sleep(arguments["seconds"])
            self.answer(protocol.result(request, text("at last")))
        elif name == "odd":
            self.send(protocol.odd(request))
        elif name == "refused":
            self.answer(protocol.failure(request, -32000, "not today"))
        elif name == "status500":
            self.plain(500, "a bug")
        elif name == "garbage":
            self.plain(200, "{no json", "application/json")
        elif name == "page":
            self.plain(200, "<html>hello</html>", "text/html")
        elif name == "drop":
            self.connection.shutdown(socket.SHUT_RDWR)
        elif name == "half":
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", "100")
            self.end_headers()
            self.wfile.write(b'{"jsonrpc":')
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
        elif name == "cut":
            self.plain(200, ": nothing comes\n\n", "text/event-stream")
        elif name == "forget":
            self.owner.sessions.clear()
            self.plain(404, "no such session")
        elif name == "stop":
            self.owner.stop()
        else:
            self.answer(protocol.failure(request, -32602, f"Unknown tool: {name}"))

    def answer(self, reply: Json, *, session: str | None = None) -> None:
        self.send(json.dumps(reply), session=session)

    def send(self, body: str, *, session: str | None = None) -> None:
        more = {"mcp-session-id": session} if session else {}
        if self.path.startswith("/sse"):
            self.plain(200, f"event: message\ndata: {body}\n\n", "text/event-stream", more)
        else:
            self.plain(200, body, "application/json", more)

    def redirect(self) -> None:
        self.plain(307, "", more={"location": "http://localhost:1/elsewhere"})

    def plain(
        self, status: int, body: str, kind: str = "text/plain", more: dict[str, str] | None = None
    ) -> None:
        data = body.encode()
        self.send_response(status)
        for name, value in {"content-type": kind, **(more or {})}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
