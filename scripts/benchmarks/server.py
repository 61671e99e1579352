"""The workload as an OpenAI-compatible endpoint on this machine, for peers and live recordings.

    python -m benchmarks.server SAMPLES STEPS [--delay SECONDS] [--command COMMAND]

The sample is known by the question in the first user message, the step by the assistant's turns.
The first line on stdout is the port; it ends with its standard input.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from benchmarks.workload import Workload


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, workload: Workload, delay: float) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.bodies, self.delay = workload.bodies, delay


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: stdout holds the port."""

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        messages: list[Mapping[str, Any]] = request["messages"]
        question = next(m["content"] for m in messages if m["role"] == "user")
        found = re.search(r"Task (\d{5})\.", question)
        assert found is not None
        step = sum(message["role"] == "assistant" for message in messages)
        body = self.server.bodies[int(found[1])][step]
        time.sleep(self.server.delay)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("x-request-id", f"req_{found[1]}_{step}")
        self.end_headers()
        self.wfile.write(body)


@contextlib.contextmanager
def serving(
    samples: int, steps: int, *, env: Mapping[str, str], delay: float = 0.0, command: str = ""
) -> Iterator[int]:
    """The server in a process of its own; its port."""
    given = [str(samples), str(steps), "--delay", str(delay), "--command", command]
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.server", *given],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dict(env),
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.stdin.close()
        process.wait(10)
        process.stdout.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("samples", type=int)
    parser.add_argument("steps", type=int)
    parser.add_argument("--delay", type=float, default=0.0)
    parser.add_argument("--command", default="", help="in place of the invented ones")
    options = parser.parse_args()
    workload = Workload(options.samples, options.steps, options.command or None)
    with _Server(workload, options.delay) as server:
        print(server.server_address[1], flush=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        sys.stdin.read()
        os._exit(0)  # connections may still be open


if __name__ == "__main__":
    main()
