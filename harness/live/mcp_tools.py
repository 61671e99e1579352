"""Tools and results of tool servers, as a chat completion and the loop have them."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from harness.dialogue import BASH_TOOL, SUBMIT_TOOL, cut
from harness.errors import UsageError
from harness.mcp_config import MCPServerConfig
from harness.records import ToolReply

if TYPE_CHECKING:
    from mcp.types import CallToolResult, Tool

CONTENT_LIMIT = 1 << 20
"""Characters of one result that are kept: its beginning and its end."""

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")  # what OpenAI's endpoint takes as a function's name
_OWN = {tool["function"]["name"] for tool in (BASH_TOOL, SUBMIT_TOOL)}


def entries_of(config: MCPServerConfig, offered: list[Tool]) -> list[dict[str, Any]]:
    """The allowed tools of one server, sorted by name; UsageError for what cannot be used."""
    names = {tool.name for tool in offered}
    allowed = names if config.tools is None else set(config.tools)
    if missing := sorted(allowed - names):
        raise UsageError(
            f"MCP server {config.name!r} offers no tool {missing[0]!r}, which its allow-list "
            f"names; it offers {', '.join(sorted(names)) or 'none'}"
        )
    return [
        {"name": tool.name, "server": config.name, "schema": _schema(config.name, tool)}
        for tool in sorted(offered, key=lambda tool: tool.name)
        if tool.name in allowed
    ]


def _schema(server: str, tool: Tool) -> dict[str, Any]:
    """A tool as it goes into a chat completion."""
    if not _NAME.fullmatch(tool.name):
        raise UsageError(
            f"the tool {tool.name!r} of MCP server {server!r} has a name that endpoints refuse "
            "(letters, digits, _ and - only, 64 at most)",
            hint="leave it out: list the others in the server's `tools`",
        )
    # endpoints refuse an object without properties; that it is one, the SDK has checked
    parameters = {"properties": {}, **tool.input_schema}
    try:
        json.dumps(parameters, allow_nan=False)
    except ValueError:
        raise UsageError(
            f"the tool {tool.name!r} of MCP server {server!r} has a schema with a number that is "
            "no JSON (NaN or an infinity)",
            hint="leave it out: list the others in the server's `tools`",
        ) from None
    function = {"name": tool.name, "description": tool.description or "", "parameters": parameters}
    return {"type": "function", "function": function}


def refuse_clashes(entries: list[dict[str, Any]]) -> None:
    """UsageError when two tools have one name, or one has that of a tool of the harness."""
    seen: dict[str, str] = {}
    for entry in entries:
        name, server = entry["name"], entry["server"]
        if name in _OWN:
            other = "the harness's own"
        elif name in seen:
            other = f"MCP server {seen[name]!r}'s"
        else:
            seen[name] = server
            continue
        raise UsageError(
            f"the tool {name!r} of MCP server {server!r} has the same name as one of {other}",
            hint="leave it out: list the others in the server's `tools`",
        )


def reply_of(result: CallToolResult) -> ToolReply:
    """A result as text: text parts as they are, what a model cannot read named in brackets.

    Parts are joined with line feeds. Where there is none, structured content is given as JSON.
    """
    parts = [_part(part) for part in result.content]
    if not parts and result.structured_content is not None:
        parts = [json.dumps(result.structured_content, ensure_ascii=False)]
    text = "\n".join(parts) or "[no output]"
    if len(text) > CONTENT_LIMIT:
        # said at the end, too: that stays when the text is cut again for the model
        note = f"\n[the whole result had {len(text)} characters]"
        text = cut(text, CONTENT_LIMIT) + note
    return ToolReply(text, is_error=bool(result.is_error))


def _part(part: Any) -> str:
    if part.type == "text":
        return str(part.text)
    if part.type in ("image", "audio"):
        return f"[{part.type}: {part.mime_type}, {_size(part.data)} bytes, not shown]"
    if part.type == "resource_link":
        return f"[resource: {part.uri}]"
    resource = part.resource
    if hasattr(resource, "text"):
        return f"[resource: {resource.uri}]\n{resource.text}"
    kind = f"{resource.mime_type}, " if resource.mime_type else ""
    return f"[resource: {resource.uri}, {kind}{_size(resource.blob)} bytes, not shown]"


def _size(base64_text: str) -> int:
    """Bytes that a base64 text stands for."""
    return len(base64_text.rstrip("=")) * 3 // 4
