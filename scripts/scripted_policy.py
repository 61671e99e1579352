#!/usr/bin/env python3
"""A scripted policy that plays a language model over HTTP. It is no language model.

    python scripts/scripted_policy.py --port 0

It answers the OpenAI-compatible `POST /v1/chat/completions` (whole and streamed), for the model
`scripted-policy`, with the hand-written moves of `scripted_moves`: the sample is known by the
question in the first user message, the step by the model's turns in the history, and some moves
take what the last tool results say. So the server keeps no state: the same request always gets
the same reply. `system_fingerprint` says `scripted` in every reply.

Also `GET /v1/models`, and `GET /count` for how many completions were served. The first line on
stdout is the port. With `--flaky`, one step is answered once by 429 and `Retry-After: 0`; with
`--broken TASK_ID:STEP`, that sample is answered by 500 from that step on, for good.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from mini_source.task import Task
from scripted_moves import next_move, task_of
from scripted_moves.moves import Message, Move, step_of

MODEL = "scripted-policy"
FINGERPRINT = "scripted: hand-written moves, no language model"
EPOCH = 1_700_000_000  # `created` is counted from here, so that it depends on the step alone
FLAKY_STEP = ("trams", 1)

Json = dict[str, Any]


class Refused(Exception):
    """A request that gets an error reply: HTTP status, code, message and headers."""

    def __init__(self, status: int, code: str, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status, self.code, self.headers = status, code, headers

    def body(self) -> Json:
        kinds = {429: "rate_limit_error", 500: "server_error"}
        kind = kinds.get(self.status, "invalid_request_error")
        where = "messages" if self.code == "context_length_exceeded" else None
        return {
            "error": {"message": str(self), "type": kind, "param": where, "code": self.code},
        }


def size(text: str) -> int:
    """A token count that depends on the text alone: a quarter of its bytes."""
    return -(-len(text.encode("utf-8", "surrogatepass")) // 4)


def completion(task: Task, messages: Sequence[Message], tools: object) -> Json:
    """The whole reply to this history; raises Refused where the context has run over."""
    step, move = step_of(messages), next_move(task, messages)
    asked = size(json.dumps([list(messages), tools]))
    if move.overflow:
        raise Refused(
            400,
            "context_length_exceeded",
            f"The history takes about {asked} tokens, and the script lets the context of "
            f"{MODEL} end here.",
        )
    name = f"{task.task_id[:8]}-{step}"
    message = reply_message(move, name)
    told = size(json.dumps(message, ensure_ascii=False))
    return {
        "id": f"chatcmpl-scripted-{name}",
        "object": "chat.completion",
        "created": EPOCH + step,
        "model": MODEL,
        "system_fingerprint": FINGERPRINT,
        "choices": [
            {
                "index": 0,
                "message": message,
                "logprobs": None,
                "finish_reason": move.finish or ("tool_calls" if move.calls else "stop"),
            }
        ],
        "usage": {"prompt_tokens": asked, "completion_tokens": told, "total_tokens": asked + told},
    }


def reply_message(move: Move, name: str) -> Json:
    """The move as an assistant message."""
    message: Json = {
        "role": "assistant",
        "content": move.text or None,
        "refusal": move.refusal or None,
    }
    if move.reasoning:
        message["reasoning_content"] = move.reasoning
    if move.calls:
        message["tool_calls"] = [
            {
                "id": f"call-{name}-{place}",
                "type": "function",
                "function": {"name": call.tool, "arguments": call.text()},
            }
            for place, call in enumerate(move.calls, 1)
        ]
    return message


def pieces(text: str) -> Iterator[str]:
    """A text in about four parts, at places that mean nothing."""
    width = max(5, len(text) // 4 + 1)
    yield from (text[i : i + width] for i in range(0, len(text), width))


def deltas(message: Json) -> Iterator[Json]:
    """The message in the small parts of a stream, tool-call arguments split, too."""
    yield {"role": "assistant", "content": ""}
    for key in ("reasoning_content", "content", "refusal"):
        yield from ({key: piece} for piece in pieces(message.get(key) or ""))
    for index, call in enumerate(message.get("tool_calls", [])):
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        head = call | {"index": index, "function": {"name": name, "arguments": ""}}
        yield {"tool_calls": [head]}
        for piece in pieces(arguments):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def chunks(whole: Json, with_usage: bool) -> Iterator[Json]:
    """The reply as the chunks of a stream."""
    (choice,) = whole["choices"]
    frame = {k: v for k, v in whole.items() if k != "usage"} | {"object": "chat.completion.chunk"}
    usage: Json = {"usage": None} if with_usage else {}
    for delta in deltas(choice["message"]):
        part = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
        yield frame | usage | {"choices": [part]}
    end = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": choice["finish_reason"]}
    yield frame | usage | {"choices": [end]}
    if with_usage:
        yield frame | {"choices": [], "usage": whole["usage"]}


class PolicyServer(ThreadingHTTPServer):
    """The server, with its counters; they are for tests and change no reply but the flaky one.

    `broken`: by task id, the step from which on a sample is answered by 500.
    """

    daemon_threads = True

    def __init__(
        self,
        address: tuple[str, int],
        flaky: bool,
        log: Path | None,
        delay: float = 0.0,
        broken: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(address, Handler)
        self.flaky, self.log, self.delay, self.broken = flaky, log, delay, broken or {}
        self.lock = threading.Lock()
        self.served = self.refused = 0

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that closes a connection early is no error; anything else is reported."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)

    def note(self, status: int, **what: object) -> None:
        """Count a completion request and write it to the log."""
        with self.lock:
            if status == 200:
                self.served += 1
            else:
                self.refused += 1
            if self.log:
                with self.log.open("a", encoding="utf-8") as out:
                    out.write(json.dumps({"status": status, **what}) + "\n")

    def stumbles(self, task: Task, step: int) -> bool:
        """Whether this request gets the one 429 of a flaky server."""
        with self.lock:
            hit = self.flaky and (task.key, step) == FLAKY_STEP
            self.flaky = self.flaky and not hit
            return hit


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # a stream is many small writes
    server: PolicyServer

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: stdout holds the port, and --log the requests."""

    def do_GET(self) -> None:
        if self.path == "/v1/models":
            model = {"id": MODEL, "object": "model", "created": EPOCH, "owned_by": "scripted"}
            self.answer(200, {"object": "list", "data": [model]})
        elif self.path == "/count":
            self.answer(200, {"completions": self.server.served, "errors": self.server.refused})
        else:
            self.answer(404, Refused(404, "not_found", f"no such path: {self.path}").body())

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        seen: Json = {}
        try:
            if self.path != "/v1/chat/completions":
                raise Refused(404, "not_found", f"no such path: {self.path}")
            request = parsed(body)
            task = sample_of(request)
            messages: list[Message] = request["messages"]
            step = step_of(messages)
            streamed = bool(request.get("stream"))
            seen = {"task_id": task.task_id, "step": step, "stream": streamed}
            if self.server.stumbles(task, step):
                headers = {"Retry-After": "0"}
                raise Refused(429, "rate_limit_exceeded", "Once, on purpose: try again.", **headers)
            if step >= self.server.broken.get(task.task_id, step + 1):
                raise Refused(500, "server_error", "Broken on purpose, for good.")
            whole = completion(task, messages, request.get("tools"))
        except Refused as refused:
            self.server.note(refused.status, **seen, code=refused.code)
            self.answer(refused.status, refused.body(), refused.headers)
            return
        self.server.note(200, **seen, id=whole["id"])
        time.sleep(self.server.delay)
        if request.get("stream"):
            options = request.get("stream_options") or {}
            self.stream(chunks(whole, bool(options.get("include_usage"))))
        else:
            self.answer(200, whole)

    def answer(self, status: int, body: Json, headers: Mapping[str, str] | None = None) -> None:
        data = json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogatepass")
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def stream(self, parts: Iterator[Json]) -> None:
        """Server-sent events, each in two network chunks, cut anywhere, even inside a letter."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        events = [json.dumps(part, ensure_ascii=False) for part in parts] + ["[DONE]"]
        for event in events:
            data = f"data: {event}\n\n".encode("utf-8", "surrogatepass")
            middle = len(data) // 2
            for piece in (data[:middle], data[middle:]):
                self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
                self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")


def parsed(body: bytes) -> Json:
    """The request, checked as far as the policy needs it."""
    try:
        request = json.loads(body)
    except ValueError as error:
        raise Refused(400, "invalid_json", f"the request is no JSON: {error}") from error
    messages = request.get("messages") if isinstance(request, dict) else None
    if not isinstance(messages, list) or not all(isinstance(m, dict) for m in messages):
        raise Refused(400, "invalid_messages", "`messages` must be a list of messages")
    if request.get("model") != MODEL:
        problem = f"there is no model {request.get('model')!r} here, only {MODEL!r}"
        raise Refused(404, "model_not_found", problem)
    return dict(request)


def sample_of(request: Json) -> Task:
    """The sample that the request is about."""
    task = task_of(request["messages"])
    if task is None:
        problem = "the first user message holds no question of `mini`: this server is scripted"
        raise Refused(400, "unknown_sample", problem)
    return task


def place(text: str) -> tuple[str, int]:
    """`TASK_ID:STEP` apart."""
    task_id, _, step = text.rpartition(":")
    return task_id, int(step)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 (the default): any free port")
    parser.add_argument("--port-file", type=Path, help="write the port there, too")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds before each reply")
    parser.add_argument("--log", type=Path, help="append one JSON line for each request")
    parser.add_argument("--flaky", action="store_true", help="answer one step once by 429")
    parser.add_argument(
        "--broken",
        type=place,
        action="append",
        default=[],
        metavar="TASK_ID:STEP",
        help="answer this sample by 500 from this step (0: the first) on; repeatable",
    )
    options = parser.parse_args()
    address, broken = (options.host, options.port), dict(options.broken)
    with PolicyServer(address, options.flaky, options.log, options.delay, broken) as server:
        port = server.server_address[1]
        if options.port_file:
            fresh = options.port_file.with_name(f"{options.port_file.name}.{os.getpid()}")
            fresh.write_text(f"{port}\n")
            fresh.replace(options.port_file)
        print(port, flush=True)
        print(f"scripted_policy: {MODEL} at http://{options.host}:{port}/v1", file=sys.stderr)
        with contextlib.suppress(KeyboardInterrupt):
            signal.signal(signal.SIGTERM, signal.default_int_handler)
            server.serve_forever(poll_interval=0.1)


if __name__ == "__main__":
    main()
