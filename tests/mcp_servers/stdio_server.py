"""A tool server over standard streams: `python stdio_server.py MODE`.

Modes: `ok`; at the start `silent`, `exit`, `crash`, `junk`, `flood`, `long-line`, `refuse`,
`banner`, `closes-stdout`; in its tool list `pages`, `endless`, `bash-name`, `dotted-name`,
`no-object`, `no-list`; at the end `stubborn` (ignores the end of its input and SIGTERM, as does a
child of it), `escaped` (leaves a child in a session of its own), `leaves-child` (obeys, its child
does not).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.mcp_servers import protocol
from tests.mcp_servers.protocol import Json, text, tool

TOOLS = [
    tool("slow", seconds="number"),
    tool("echo", text="string"),
    tool("count"),
    *(
        tool(name)
        for name in (
            "fail", "huge", "odd", "parts", "empty", "structured", "broken", "refused", "chatter",
            "die", "killed", "mute", "environment", "folder", "process", "complain",
        )
    ),
]  # fmt: skip

CHILD = "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"


def main(mode: str) -> None:
    start(mode)
    count = 0
    for line in sys.stdin:
        request = json.loads(line)
        method = request["method"]
        if "id" not in request:
            continue
        if method == "initialize":
            if mode == "refuse":
                say(protocol.failure(request, -32602, "not with you"))
            else:
                say(protocol.result(request, protocol.initialized(request)))
        elif method == "tools/list":
            say(listing(mode, request))
        elif method == "tools/call":
            count += 1
            call(request, count)
        else:
            say(protocol.failure(request, -32601, "unknown method"))
    if mode == "stubborn":
        time.sleep(600)


def start(mode: str) -> None:
    if mode == "silent":
        print("waiting for something", file=sys.stderr, flush=True)
        time.sleep(600)
    if mode == "exit":
        print("no such database: /nowhere", file=sys.stderr, flush=True)
        sys.exit(3)
    if mode == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if mode == "junk":
        print("Welcome to my server!", flush=True)
        time.sleep(600)
    if mode == "banner":
        print("Welcome to my server!\n", flush=True)
    if mode == "long-line":
        while True:
            sys.stdout.write("{" * (1 << 20))
    while mode == "flood":
        print("y")
    if mode == "closes-stdout":
        os.close(1)
        time.sleep(600)
    if mode in ("stubborn", "leaves-child"):
        if mode == "stubborn":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        subprocess.Popen([sys.executable, "-c", CHILD])
    if mode == "escaped":
        subprocess.Popen(
            [sys.executable, "-c", CHILD],
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )


def say(message: Json) -> None:
    write(json.dumps(message))


def write(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def listing(mode: str, request: Json) -> Json:
    cursor = (request.get("params") or {}).get("cursor")
    if mode == "no-list":
        return protocol.failure(request, -32601, "unknown method")
    if mode == "endless":
        return protocol.result(request, {"tools": [], "nextCursor": "again"})
    if mode == "pages":
        page = int(cursor or 0)
        found: Json = {"tools": TOOLS[page * 5 : page * 5 + 5]}
        if (page + 1) * 5 < len(TOOLS):
            found["nextCursor"] = str(page + 1)
        return protocol.result(request, found)
    more = {
        "bash-name": [tool("bash")],
        "dotted-name": [tool("web.search")],
        "no-object": [{"name": "list", "inputSchema": {"type": "array"}}],
        "nan-schema": [{"name": "nan", "inputSchema": {"type": "object", "maximum": float("nan")}}],
    }
    return protocol.result(request, {"tools": [*TOOLS, *more.get(mode, [])]})


def call(request: Json, count: int) -> None:
    name = request["params"]["name"]
    arguments = request["params"].get("arguments") or {}
    results: dict[str, Any] = {
        "echo": lambda: text(arguments["text"]),
        "count": lambda: text(str(count)),
        "fail": lambda: text("there is no such page", error=True),
        "huge": lambda: text("a" * 3_000_000 + "é" + "b" * 3_000_000),
        "parts": lambda: {"content": protocol.PARTS},
        "empty": lambda: {"content": []},
        "structured": lambda: {"content": [], "structuredContent": {"n": 1, "s": "é"}},
        "broken": lambda: {"content": "no list"},
        "environment": lambda: text(json.dumps(dict(os.environ))),
        "folder": lambda: text(os.getcwd()),
        "process": lambda: text(str(os.getpid())),
    }
    if name in results:
        say(protocol.result(request, results[name]()))
    elif name == "slow":
        time.sleep(arguments["seconds"])
        say(protocol.result(request, text("at last")))
    elif name == "odd":
        write(protocol.odd(request))
    elif name == "refused":
        say(protocol.failure(request, -32000, "not today"))
    elif name == "chatter":
        write("I am working on it")
        write('{"not": "a message"}')
        say(protocol.result(request, text("done")))
    elif name == "complain":
        print("c" * 100_000 + " the last words", file=sys.stderr, flush=True)
        os._exit(7)
    elif name == "die":
        print("a bug in line 5", file=sys.stderr, flush=True)
        os._exit(7)
    elif name == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif name == "mute":
        os.close(1)
        time.sleep(600)
    else:
        say(protocol.failure(request, -32602, f"Unknown tool: {name}"))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "ok")
