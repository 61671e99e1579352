"""A response that an endpoint could have sent for a recorded reply, where the real one is gone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from harness.records import JSON, ModelReply


class Response(NamedTuple):
    """An HTTP response."""

    status: int
    headers: dict[str, str]
    body: bytes


def synthesise(
    reply: ModelReply, *, id: str, model: str, created: int = 0, stream: bool = False
) -> Response:
    """The response that our client reads as that reply. ASCII throughout."""
    if reply == ModelReply(error="context_exceeded"):
        return _refused(
            "This model's maximum context length is exceeded.", "context_length_exceeded"
        )
    if reply == ModelReply(error="refused"):
        return _refused("The content was filtered.", "content_filter")
    head = {"id": id, "created": created, "model": model}
    usage = {
        "prompt_tokens": reply.usage.input_tokens,
        "completion_tokens": reply.usage.output_tokens,
        "total_tokens": reply.usage.input_tokens + reply.usage.output_tokens,
    }
    message = _message(reply)
    if not stream:
        choice = {"index": 0, "message": message, "finish_reason": reply.finish_reason}
        kind = {"object": "chat.completion"}
        return _json(200, {**head, **kind, "choices": [choice], "usage": usage})
    deltas: list[JSON] = []
    if message is not None:
        calls = message.pop("tool_calls", [])
        deltas = [message]
        deltas += [{"tool_calls": [{"index": at, **call}]} for at, call in enumerate(calls)]
    choices = [[{"index": 0, "delta": delta, "finish_reason": None}] for delta in deltas]
    last: JSON = {} if message is not None else None
    choices.append([{"index": 0, "delta": last, "finish_reason": reply.finish_reason}])
    kind = {"object": "chat.completion.chunk"}
    chunks: list[JSON] = [{**head, **kind, "choices": choice} for choice in choices]
    chunks.append({**head, **kind, "choices": [], "usage": usage})
    events = [json.dumps(chunk) for chunk in chunks] + ["[DONE]"]
    body = "".join(f"data: {event}\n\n" for event in events)
    return Response(200, {"content-type": "text/event-stream"}, body.encode())


def _message(reply: ModelReply) -> dict[str, JSON] | None:
    """The assistant's message; None where there was none at all, which reads as a refusal."""
    filtered = reply.finish_reason == "content_filter" and reply.content is None
    if reply.error == "refused" and reply.refusal is None and not filtered:
        return None
    message: dict[str, JSON] = {"role": "assistant", "content": reply.content}
    if reply.refusal is not None:
        message["refusal"] = reply.refusal
    if reply.reasoning is not None:
        message["reasoning_content"] = reply.reasoning
    if reply.tool_calls:
        message["tool_calls"] = [call.openai() for call in reply.tool_calls]
    return message


def _refused(message: str, code: str) -> Response:
    error = {"message": message, "type": "invalid_request_error", "code": code}
    return _json(400, {"error": error})


def _json(status: int, body: Mapping[str, Any]) -> Response:
    return Response(status, {"content-type": "application/json"}, json.dumps(body).encode())
