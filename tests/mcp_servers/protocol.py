"""What the hand-written servers have in common: replies of the protocol, and harmless tools."""

from __future__ import annotations

import json
from typing import Any

Json = dict[str, Any]


def initialized(request: Json) -> Json:
    """The reply to `initialize`."""
    return {
        "protocolVersion": request["params"]["protocolVersion"],
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "hand-written", "version": "1"},
    }


def tool(name: str, **properties: str) -> Json:
    """A tool's entry; `properties` are argument names with their JSON types."""
    return {
        "name": name,
        "description": f"the tool {name}",
        "inputSchema": {
            "type": "object",
            "properties": {key: {"type": kind} for key, kind in properties.items()},
        },
    }


def text(*texts: str, error: bool = False) -> Json:
    """A tool's result of text parts."""
    parts = [{"type": "text", "text": item} for item in texts]
    return {"content": parts, "isError": True} if error else {"content": parts}


def result(request: Json, value: Any) -> Json:
    return {"jsonrpc": "2.0", "id": request["id"], "result": value}


def failure(request: Json, code: int, message: str) -> Json:
    return {"jsonrpc": "2.0", "id": request["id"], "error": {"code": code, "message": message}}


PARTS: list[Json] = [
    {"type": "text", "text": "before"},
    {"type": "image", "data": "QUJDRA==", "mimeType": "image/png"},
    {"type": "audio", "data": "QUJD", "mimeType": "audio/wav"},
    {"type": "resource", "resource": {"uri": "note://1", "text": "a note"}},
    {
        "type": "resource",
        "resource": {"uri": "file:///x.bin", "blob": "QUI=", "mimeType": "application/zip"},
    },
    {"type": "resource_link", "uri": "https://example.org/page", "name": "page"},
    {"type": "text", "text": "behind"},
]
"""One part of each kind that a result can have."""

_ODD_TEXT = r"half \ud800 nul \u0000 escape \u001b[31m pair \ud83d\ude00 line\r\n \u2028 end"


def odd(request: Json) -> str:
    """A reply, as JSON text, with everything that a text can hold and some that it cannot."""
    reply = json.dumps(result(request, text("TEXT")))
    return reply.replace("TEXT", _ODD_TEXT)
