"""A tool server built with the SDK: `python sdk_server.py stdio`, or `http PORT`."""

from __future__ import annotations

import asyncio
import sys

from mcp.server import MCPServer

server = MCPServer("made-with-the-sdk")
calls = 0


@server.tool()
def add(a: int, b: int) -> int:
    """The sum of two numbers."""
    return a + b


@server.tool()
async def slow(seconds: float) -> str:
    """Takes its time."""
    await asyncio.sleep(seconds)
    return "at last"


@server.tool()
def fail() -> str:
    """Raises an exception."""
    raise ValueError("a bug in the tool")


@server.tool()
def count() -> int:
    """How often this process was asked."""
    global calls
    calls += 1
    return calls


if __name__ == "__main__":
    if sys.argv[1] == "http":
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]))
    else:
        server.run("stdio")
