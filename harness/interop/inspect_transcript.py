"""A tape as inspect's messages and events."""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256
from itertools import takewhile
from typing import Any

from harness.cassette import BashEffect, ModelEffect, Tape, ToolEffect
from harness.dialogue import sendable
from harness.records import BashReply, ModelReply, ToolCall, ToolReply, Usage, assistant_message
from harness.runfile import Entry

NO_TIME = "1970-01-01T00:00:00+00:00"
_STOPPED = {"length": "max_tokens", "tool_calls": "tool_calls", "stop": "stop",
            "content_filter": "content_filter"}  # fmt: skip
_TYPES = ("string", "integer", "number", "boolean", "array", "object", "null")
_RANGE = tuple[int, int]


def identifier(*parts: object) -> str:
    """A name that is always the same for the same thing."""
    return sha256("\0".join(map(str, parts)).encode("utf-8", "surrogatepass")).hexdigest()[:22]


class Transcript:
    """A tape as inspect's messages and events; messages that events share stand once, in a pool."""

    def __init__(self, entry: Entry, tape: Tape, model: str) -> None:
        self._key, self._tape, self._model = (entry.task_id, entry.epoch), tape, model
        self.events: list[dict[str, Any]] = []
        self.pool: list[dict[str, Any]] = []
        self.messages: list[dict[str, Any]] = []
        """The conversation as the last request had it, with the reply to it."""
        self.times: list[str] = []
        self._places: dict[str, int] = {}
        self._calls: dict[str, ToolCall] = {}  # of the latest turn, by id
        self._refused: set[str] = set()  # results of calls that were not run
        self._said: dict[str, dict[str, Any]] = {}  # a reply's message, as later requests have it
        self._ran: list[tuple[BashEffect | ToolEffect, dict[str, Any]]] = []  # with their events
        self._last: tuple[dict[str, Any], ModelReply] | None = None
        requests = tape.requests()
        for number, effect in enumerate(tape.effects):
            meta = effect.meta or {}
            at = meta.get("at")
            time = at.replace("Z", "+00:00") if isinstance(at, str) else None
            self.times += [time] if time else []
            common = {
                "uuid": identifier(*self._key, number),
                "timestamp": time or NO_TIME,
                "working_start": 0.0,
            }
            seconds = meta.get("seconds")
            if isinstance(seconds, int | float):
                common["working_time"] = seconds
            if isinstance(effect, ModelEffect):
                recorded = next(request for index, request in requests if index == number)
                self._model_event(effect, recorded.messages, recorded.tools, common)
            elif effect.failure is None and isinstance(effect, BashEffect | ToolEffect):
                self._tool_events(effect, common)
        calls: tuple[ToolCall, ...] = self._last[1].tool_calls if self._last else ()
        for call in calls:  # no request tells of their results
            if self._ran and _is_of(call, self._ran[0][0]):
                event = self._ran.pop(0)[1]
                message = {"role": "tool", "tool_call_id": call.id, "content": event["result"]}
                self.messages.append(self._message(message))
                event["message_id"] = self.messages[-1]["id"]

    def _find_refused(self, messages: list[dict[str, Any]]) -> None:
        """Among the results of the latest turn, those of calls that were not run."""
        results = takewhile(lambda message: message.get("role") == "tool", reversed(messages))
        for message in list(results)[::-1]:
            call = self._calls.get(str(message.get("tool_call_id")))
            if call is None or call.name == "submit":
                continue
            if self._ran and _is_of(call, self._ran[0][0]):
                self._ran.pop(0)[1]["message_id"] = self._message(message)["id"]
            else:
                self._refused.add(json.dumps(message))

    def _model_event(
        self,
        effect: ModelEffect,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]],
        common: dict[str, Any],
    ) -> None:
        self._find_refused(messages)
        shown = [self._message(message) for message in messages]
        self.messages, self._ran = shown, []
        output: dict[str, Any] = {"model": self._model, "choices": [], "completion": ""}
        if effect.reply is not None:
            reply = effect.reply
            said = self._message(assistant_message(reply), reply)
            self.messages = [*shown, said]
            for reasoning in (False, True):
                later = assistant_message(reply, reasoning=reasoning)
                for call in later.get("tool_calls", ()):
                    call["function"]["arguments"] = sendable(call["function"]["arguments"])
                self._said[json.dumps(later)] = said
            output["choices"] = [{"message": said, "stop_reason": _stop_reason(reply)}]
            output["completion"] = reply.content or ""
            output["usage"] = tokens(reply.usage)
            self._last = said, reply
            self._calls = {call.id: call for call in reply.tool_calls}
        event = {
            "event": "model",
            **common,
            "model": self._model,
            "input": [],
            "input_refs": self._refs(shown),
            "tools": [_tool(tool) for tool in tools],
            "tool_choice": "auto",
            "config": {},
            "output": output,
        }
        if effect.reply is not None and effect.reply.tool_calls:  # messages hold values only
            exact = {"tool_calls": [call.openai() for call in effect.reply.tool_calls]}
            event["call"] = {"request": {}, "response": {"choices": [{"message": exact}]}}
        if effect.failure is not None:
            event["error"] = effect.failure.message
        self.events.append(event)

    def _refs(self, messages: list[dict[str, Any]]) -> list[_RANGE]:
        """The messages as ranges of the pool."""
        ranges: list[_RANGE] = []
        for message in messages:
            place = self._places.get(message["id"])
            if place is None:
                place = self._places[message["id"]] = len(self.pool)
                self.pool.append(message)
            if ranges and ranges[-1][1] == place:
                ranges[-1] = (ranges[-1][0], place + 1)
            else:
                ranges.append((place, place + 1))
        return ranges

    def _message(self, message: dict[str, Any], reply: ModelReply | None = None) -> dict[str, Any]:
        key = json.dumps(message)
        if reply is None and key in self._said:
            return self._said[key]
        role, content = message.get("role"), message.get("content") or ""
        found: dict[str, Any] = {"role": role, "content": content}
        reasoning = reply.reasoning if reply else message.get("reasoning_content")
        if role == "assistant":
            if reasoning:
                parts = [{"type": "reasoning", "reasoning": reasoning}]
                found["content"] = [*parts, {"type": "text", "text": content}]
            found |= {"source": "generate", "model": self._model}
            calls = [_call(call) for call in message.get("tool_calls") or ()]
            if calls:
                found["tool_calls"] = calls
        elif role == "tool":
            id = str(message.get("tool_call_id", ""))
            call = self._calls.get(id)
            found |= {"tool_call_id": id, "function": call.name if call else None}
            if key in self._refused:
                found["error"] = {"type": "parsing", "message": content}
        return {"id": identifier(*self._key, key), **found}

    def _tool_events(self, effect: BashEffect | ToolEffect, common: dict[str, Any]) -> None:
        reply = self._tape.reply(effect)
        error = None
        if isinstance(effect, BashEffect):
            assert isinstance(reply, BashReply)
            name, arguments = "bash", {"command": effect.request.command}
            result = (reply.stdout + reply.stderr).decode("utf-8", "replace")
            if reply.timed_out:
                error = {"type": "timeout", "message": "the command was stopped at its timeout"}
        else:
            assert isinstance(reply, ToolReply)
            name, arguments = effect.request.name, effect.request.arguments
            result = reply.content
            if reply.is_error:
                error = {"type": "unknown", "message": reply.content}
        event = {
            "event": "tool",
            **common,
            "id": common["uuid"],
            "function": name,
            "arguments": arguments,
            "result": result,
            "error": error,
        }
        self._ran.append((effect, event))
        self.events.append(event)
        if isinstance(effect, BashEffect):
            exit_code = reply.exit_code
            self.events.append(
                {
                    "event": "sandbox",
                    "uuid": identifier(common["uuid"], "sandbox"),
                    "timestamp": common["timestamp"],
                    "working_start": 0.0,
                    "action": "exec",
                    "cmd": effect.request.command,
                    "options": {"timeout": effect.request.timeout},
                    "result": exit_code,
                    "output": result,
                }
            )

    def output(self, answer: str | None) -> dict[str, Any]:
        """The sample's output: its completion is the answer, and nothing else is one."""
        found: dict[str, Any] = {"model": self._model, "choices": [], "completion": answer or ""}
        if self._last is not None and answer:
            said, reply = self._last
            found["choices"] = [{"message": said, "stop_reason": _stop_reason(reply)}]
            found["usage"] = tokens(reply.usage)
        return found


def _is_of(call: ToolCall, effect: BashEffect | ToolEffect) -> bool:
    """Whether an effect is what came of a call."""
    if isinstance(effect, ToolEffect):
        return effect.request.name == call.name
    arguments = _call(call.openai())["arguments"]
    command = arguments.get("command", arguments.get("cmd", ""))
    return call.name == "bash" and (command or "") == effect.request.command


def _stop_reason(reply: ModelReply) -> str:
    if reply.error == "context_exceeded":
        return "model_length"
    if reply.error == "refused":
        return "content_filter"
    return _STOPPED.get(reply.finish_reason or "", "unknown")


def _call(call: dict[str, Any]) -> dict[str, Any]:
    """A tool call; its arguments are an object there, or an error says that they are none."""
    function = call["function"]
    found = {"id": call["id"], "function": function["name"], "type": "function", "arguments": {}}
    try:
        arguments = json.loads(function["arguments"], parse_constant=str)
        json.dumps(arguments, allow_nan=False)
    except (ValueError, RecursionError):
        arguments = None
    if isinstance(arguments, dict):
        return {**found, "arguments": arguments}
    return {**found, "parse_error": f"the arguments are no JSON object: {function['arguments']}"}


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    """A tool's schema, as far as inspect's own knows such schemas."""
    function = tool.get("function")
    function = function if isinstance(function, dict) else {}
    parameters = function.get("parameters")
    parameters = parameters if isinstance(parameters, dict) else {}
    return {
        "name": str(function.get("name", "")),
        "description": str(function.get("description", "")),
        "parameters": {
            "type": "object",
            "properties": dict(_properties(parameters.get("properties"))),
            "required": [name for name in _list(parameters.get("required")) if type(name) is str],
            "additionalProperties": False,
        },
    }


def _properties(found: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, schema in found.items() if isinstance(found, dict) else ():
        kind = schema.get("type") if isinstance(schema, dict) else None
        told = schema.get("description") if isinstance(schema, dict) else None
        yield (
            str(name),
            {
                **({"type": kind} if kind in _TYPES else {}),
                **({"description": told} if isinstance(told, str) else {}),
            },
        )


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def tokens(usage: Usage) -> dict[str, int]:
    """Tokens as inspect writes them."""
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }
