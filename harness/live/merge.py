"""Our own merger: a whole chat completion, or the chunks of a streamed one, to one `ModelReply`.

Endpoints that call themselves OpenAI-compatible differ in the details: tool-call entries without
an index, with everybody's index 0, with empty ids on continuations, contents made of parts, usage
in an extra chunk. The rules for all of that stand here and nowhere else, work on plain dicts, and
give the same reply for the streamed and the whole form. Two principles: an empty string is an
absent value, and what came is kept as it came (ids, argument texts, finish reasons).

Nothing here raises on odd input: what cannot be read is left out or kept in `details`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any, NamedTuple

from harness.records import JSON, ModelReply, ToolCall, Usage

_HEAD = {"id": "response_id", **{k: k for k in ("model", "created", "system_fingerprint")}}
_HEAD["service_tier"] = "service_tier"
# how providers say that a filter made the end: OpenAI and Azure, Bedrock, Zhipu, Anthropic, Gemini
_BLOCKED = {"content_filter", "content_filtered", "guardrail_intervened", "sensitive", "refusal"}
_BLOCKED |= {"safety", "prohibited_content", "blocklist", "recitation", "spii"}
_DEEPEST = 64  # levels of a foreign value that metadata keeps


class Merged(NamedTuple):
    """A reply, and what is known about it that the agent loop cannot see."""

    reply: ModelReply
    details: dict[str, JSON]
    """`response_id`, `model`, `created`, `system_fingerprint`, `service_tier`; `usage` as the
    endpoint gave it, `cached_tokens` and `reasoning_tokens` out of it; `unknown_parts` of the
    content; `tool_call_extras`: fields of calls that no record has a place for, by position.
    Only what came is there."""


def from_completion(body: Mapping[str, JSON]) -> Merged:
    """The reply in the body of a chat completion that was not streamed."""
    reply = _Assembly()
    reply.head(body)
    choices = _mappings(body.get("choices"))
    if choices:
        reply.choice(choices[0])
        message = choices[0].get("message")
        if isinstance(message, Mapping):
            reply.message(message)
            for entry in _mappings(message.get("tool_calls")):
                reply.open_call(entry)
    return reply.result()


class StreamMerger:
    """Takes the chunks of one streamed completion in order; `result()` is the reply so far.

    `done` tells whether the endpoint said why it stopped. A stream that ended without that (and
    without its end mark) was cut, and its result is not a reply.
    """

    def __init__(self) -> None:
        self.done = False
        self._reply = _Assembly()
        self._index: JSON = None  # of the choice that is followed: the first one seen

    def feed(self, chunk: Mapping[str, JSON]) -> None:
        """Adds one chunk; chunks without choices bring usage or metadata."""
        self._reply.head(chunk)
        for choice in _mappings(chunk.get("choices")):
            index = choice.get("index") or 0
            if self._index is None:
                self._index = index
            if index != self._index:
                continue
            self._reply.choice(choice)
            delta = choice.get("delta")
            if delta is None:
                delta = choice.get("message")
            if isinstance(delta, Mapping):
                self._reply.message(delta)
                for entry in _mappings(delta.get("tool_calls")):
                    self._reply.continue_call(entry)
            self.done = self.done or self._reply.finish_reason is not None

    def result(self) -> Merged:
        """The reply made of all chunks so far."""
        return self._reply.result()


class _Call:
    """One tool call while its pieces come in."""

    def __init__(self, index: float | None) -> None:
        self.index = index
        self.id = ""
        self.name = ""
        self.pieces: list[str] = []
        self.extras: dict[str, JSON] = {}

    def add(self, entry: Mapping[str, JSON]) -> None:
        function = entry.get("function")
        function = function if isinstance(function, Mapping) else {}
        self.id = self.id or _word(entry.get("id"))
        self.name = self.name or _word(function.get("name"))
        self.pieces.append(_arguments(function.get("arguments")))
        for key, value in entry.items():
            if key not in ("index", "id", "type", "function") and value is not None:
                self.extras[key] = value
        for key, value in function.items():
            if key not in ("name", "arguments") and value is not None:
                self.extras[f"function.{key}"] = value

    @property
    def arguments(self) -> str:
        return "".join(self.pieces)

    def complete(self) -> bool:
        """Whether the arguments so far are one JSON object."""
        try:
            return isinstance(json.loads(self.arguments), dict)
        except (ValueError, RecursionError):
            return False


class _Assembly:
    """What has been read of one reply."""

    def __init__(self) -> None:
        self.finish_reason: str | None = None
        self._spoke = False  # there was a message at all
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._thinking: list[str] = []  # reasoning that came as parts of the content
        self._refusal: list[str] = []
        self._calls: list[_Call] = []
        self._function_call = _Call(None)  # the field that tool_calls replaced
        self._usage: Mapping[str, JSON] = {}
        self._unknown_parts: list[JSON] = []
        self._details: dict[str, JSON] = {}

    def head(self, body: Mapping[str, JSON]) -> None:
        """Takes what stands around the choices."""
        for key, name in _HEAD.items():
            if body.get(key) and name not in self._details:
                self._details[name] = body[key]
        self._take_usage(body.get("usage"))
        if isinstance(groq := body.get("x_groq"), Mapping):
            self._take_usage(groq.get("usage"))

    def choice(self, choice: Mapping[str, JSON]) -> None:
        """Takes what stands beside the message."""
        self.finish_reason = _word(choice.get("finish_reason")) or self.finish_reason
        self._take_usage(choice.get("usage"))  # some put it here in the last chunk

    def message(self, message: Mapping[str, JSON]) -> None:
        """Takes a message, or a piece of one, except its tool calls."""
        self._spoke = True
        self._take_content(message.get("content"))
        # some send the same text under both names
        for key in ("reasoning_content", "reasoning"):
            if isinstance(text := message.get(key), str) and text:
                self._reasoning.append(text)
                break
        self._refusal.append(_word(message.get("refusal")))
        if isinstance(legacy := message.get("function_call"), Mapping):
            self._function_call.add({"function": legacy})

    def open_call(self, entry: Mapping[str, JSON], index: float | None = None) -> None:
        call = _Call(index)
        call.add(entry)
        self._calls.append(call)

    def continue_call(self, entry: Mapping[str, JSON]) -> None:
        """Adds an entry of a streamed `tool_calls` to the call that it belongs to."""
        index = entry.get("index")
        index = index if isinstance(index, int | float) else None
        call = self._call_of(entry, index)
        if call is None:
            self.open_call(entry, index)
        else:
            if call.index is None:
                call.index = index
            call.add(entry)

    def _call_of(self, entry: Mapping[str, JSON], index: float | None) -> _Call | None:
        """The open call that an entry continues; None when it starts one."""
        id_ = _word(entry.get("id"))
        function = entry.get("function")
        function = function if isinstance(function, Mapping) else {}
        name = _word(function.get("name"))
        # an index is believed first; then an id; then the call that was spoken of last
        candidates = self._calls[::-1]
        if index is not None:
            candidates = [c for c in candidates if c.index == index] or [
                c for c in candidates[:1] if c.index is None
            ]
        same = [c for c in candidates if id_ and c.id == id_]
        call = next(iter(same or candidates), None)
        if call is None:
            return None
        arguments = _arguments(function.get("arguments"))
        if index is not None and call.name and arguments and not name and not call.complete():
            return call  # older vLLM makes up an id for each piece: no call begins without a name
        if not same and (
            (id_ and call.id)  # another id: another call, whatever the index says
            or (id_ and index is None)  # the open call never had an id, and this one has
            or (name and name != call.name and call.name)
            or (name and index is None and not id_ and call.complete())
        ):
            return None
        if name and arguments.lstrip().startswith("{") and call.complete():
            return None  # a second whole call under the same index or id
        return call

    def result(self) -> Merged:
        content = "".join(self._content) or None
        refusal = "".join(self._refusal) or None
        # an id alone is no call: some send one beside a text, or behind the last piece
        calls = [call for call in self._calls if call.name or call.arguments]
        if not calls and self._function_call.name:
            calls = [self._function_call]
        indices = [call.index for call in calls if call.index is not None]
        if len(set(indices)) == len(calls):
            calls = sorted(calls, key=lambda call: call.index or 0)
        blocked = (self.finish_reason or "").lower() in _BLOCKED and content is None
        reply = ModelReply(
            content=content,
            tool_calls=_named(calls),
            reasoning="".join(self._reasoning + self._thinking) or None,
            refusal=refusal,
            finish_reason=self.finish_reason,
            usage=Usage(
                _count(self._usage, "prompt_tokens", "input_tokens"),
                _count(self._usage, "completion_tokens", "output_tokens"),
            ),
            error="refused" if not self._spoke or refusal or blocked else None,
        )
        details = dict(self._details)
        if self._usage:
            details["usage"] = dict(self._usage)
            details.update(_usage_details(self._usage))
        if self._unknown_parts:
            details["unknown_parts"] = list(self._unknown_parts)
        if extras := {str(n): call.extras for n, call in enumerate(calls) if call.extras}:
            details["tool_call_extras"] = extras
        return Merged(reply, _storable(details))

    def _take_usage(self, usage: JSON) -> None:
        # where every chunk has a running total, the last one counts
        if isinstance(usage, Mapping) and usage:
            self._usage = usage

    def _take_content(self, content: JSON) -> None:
        if isinstance(content, str):
            self._content.append(content)
        elif content is not None:
            for part in content if isinstance(content, list) else [content]:
                self._take_part(part)

    def _take_part(self, part: JSON) -> None:
        if isinstance(part, str):
            self._content.append(part)
            return
        kind = part.get("type", "text") if isinstance(part, Mapping) else None
        if kind in ("text", "output_text") and isinstance(part.get("text"), str):
            self._content.append(part["text"])
        elif kind == "refusal" and isinstance(part.get("refusal"), str):
            self._refusal.append(part["refusal"])
        elif kind in ("thinking", "reasoning") and (thought := _thought(part)) is not None:
            self._thinking.append(thought)
        elif part is not None:
            self._unknown_parts.append(part)


def _thought(part: Mapping[str, JSON]) -> str | None:
    """The text of a thinking part: a string, or a list of text parts, under one of three names."""
    for key in ("thinking", "reasoning", "text"):
        value = part.get(key)
        if isinstance(value, str):
            return value
        if isinstance(value, list):
            return "".join(_word(piece.get("text")) for piece in _mappings(value))
    return None


def _named(calls: Iterable[_Call]) -> tuple[ToolCall, ...]:
    """The calls as records; one without an id gets `call_<n>`, n from 1, free in this reply."""
    calls = list(calls)
    taken = {call.id for call in calls}
    named = []
    for number, call in enumerate(calls, start=1):
        id_, n = call.id, number
        while not id_:
            if (candidate := f"call_{n}") not in taken:
                id_ = candidate
            n += 1
        taken.add(id_)
        named.append(ToolCall(id_, call.name, call.arguments))
    return tuple(named)


def _arguments(value: JSON) -> str:
    """Argument text as it came; a value that is no text becomes compact JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _word(value: JSON) -> str:
    """A short text field; absent, null and empty are the same, a number is written out."""
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else ""


def _mappings(value: JSON) -> list[Mapping[str, Any]]:
    """The objects in a list; an object alone counts as a list of one."""
    if isinstance(value, Mapping):
        return [value]
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def _storable(value: JSON, depth: int = _DEEPEST) -> Any:
    """A foreign value as any record can hold it: numbers that JSON has none for become text, and
    nesting ends somewhere."""
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    if not isinstance(value, Mapping | list):
        return value
    if not depth:
        return "(nested too deeply)"
    if isinstance(value, list):
        return [_storable(item, depth - 1) for item in value]
    return {key: _storable(item, depth - 1) for key, item in value.items()}


def _count(usage: Mapping[str, JSON], *names: str) -> int:
    """The first of the named token counts that is a number, else 0."""
    for name in names:
        value = usage.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 2**53:
            return int(value)
    return 0


def _usage_details(usage: Mapping[str, JSON]) -> dict[str, int]:
    def inner(*names: str) -> Mapping[str, JSON]:
        return next((usage[n] for n in names if isinstance(usage.get(n), Mapping)), {})

    found = {
        "cached_tokens": _count(
            {**usage, **inner("prompt_tokens_details", "input_tokens_details")},
            "cached_tokens",
            "prompt_cache_hit_tokens",
        ),
        "reasoning_tokens": _count(
            {**usage, **inner("completion_tokens_details", "output_tokens_details")},
            "reasoning_tokens",
        ),
    }
    return {name: count for name, count in found.items() if count}
