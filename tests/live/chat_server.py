"""A small OpenAI-compatible server whose replies come from a function, over real HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Decide = Callable[[dict[str, Any]], dict[str, Any]]
"""From the request's JSON to the assistant's message."""


def call(name: str, id: str = "call_1", **arguments: Any) -> dict[str, Any]:
    """A tool call of an assistant's message."""
    return {
        "id": id,
        "type": "function",
        "function": {"name": name, "arguments": json.dumps(arguments)},
    }


def says(content: str | None, *calls: dict[str, Any]) -> dict[str, Any]:
    """An assistant's message."""
    message: dict[str, Any] = {"role": "assistant", "content": content}
    return {**message, "tool_calls": list(calls)} if calls else message


class ChatServer(ThreadingHTTPServer):
    """Keeps every request that it was sent."""

    daemon_threads = True

    def __init__(self, decide: Decide) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.decide = decide
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class _Handler(BaseHTTPRequestHandler):
    server: ChatServer

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.requests.append(request)
        self.server.headers.append({key.lower(): value for key, value in self.headers.items()})
        message = self.server.decide(request)
        finish = "tool_calls" if message.get("tool_calls") else "stop"
        body = {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": request["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": finish}],
            "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
        }
        data = json.dumps(body).encode()
        kind = "application/json"
        if request.get("stream"):
            delta = {
                **message,
                "tool_calls": [
                    {"index": i, **c} for i, c in enumerate(message.get("tool_calls", ()))
                ],
            }
            chunk = {**body, "object": "chat.completion.chunk"}
            chunk["choices"] = [{"index": 0, "delta": delta, "finish_reason": finish}]
            data = b"data: " + json.dumps(chunk).encode() + b"\n\ndata: [DONE]\n\n"
            kind = "text/event-stream"
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def chat_server(decide: Decide) -> Iterator[ChatServer]:
    """A running server."""
    server = ChatServer(decide)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
