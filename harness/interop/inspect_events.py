"""What the events of an inspect sample add to its messages.

Replies as the model gave them, tokens, times, exact arguments, tool schemas, exit codes. Events
differ from version to version, and what cannot be read of them is passed over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from harness.errors import DataError
from harness.interop.conversation import Message, ToolError, Turn
from harness.interop.reading import NOTHING, decode, plain
from harness.records import BashReply, Usage

T = TypeVar("T")


class Tokens(msgspec.Struct):
    """Tokens of one call, or of all."""

    input_tokens: int = 0
    output_tokens: int = 0
    input_tokens_cache_write: int | None = None
    input_tokens_cache_read: int | None = None

    @property
    def ours(self) -> Usage:
        """As an endpoint counts: inspect leaves cached tokens out of the input."""
        cached = (self.input_tokens_cache_write or 0) + (self.input_tokens_cache_read or 0)
        return Usage(max(self.input_tokens + cached, 0), max(self.output_tokens, 0))


class Choice(msgspec.Struct):
    """One reply of a model."""

    message: Message | None = None
    stop_reason: str | None = None


class Output(msgspec.Struct):
    """What a model call gave, or a sample."""

    choices: list[Choice] = []
    completion: str | None = None
    usage: Tokens | None = None
    error: str | None = None


class Event(msgspec.Struct):
    """One event; its kind is in `event`."""

    event: str = ""
    id: msgspec.Raw = NOTHING
    output: msgspec.Raw = NOTHING
    tools: msgspec.Raw = NOTHING
    call: msgspec.Raw = NOTHING
    working_time: float | None = None
    message_id: str | None = None
    action: str | None = None
    result: msgspec.Raw = NOTHING
    error: msgspec.Raw = NOTHING
    type: msgspec.Raw = NOTHING
    span_id: str | None = None


class _Exact(msgspec.Struct):
    arguments: str = ""


class _ExactCall(msgspec.Struct):
    function: _Exact = msgspec.field(default_factory=_Exact)


class _ExactMessage(msgspec.Struct):
    tool_calls: list[_ExactCall] | None = None


class _ExactChoice(msgspec.Struct):
    message: _ExactMessage = msgspec.field(default_factory=_ExactMessage)


class _Response(msgspec.Struct):
    choices: list[_ExactChoice] = []


class _ModelCall(msgspec.Struct):
    response: _Response | None = None


class _Tool(msgspec.Struct):
    name: str
    description: str = ""
    parameters: msgspec.Raw = NOTHING


class Events:
    """The events of one sample, read to the end."""

    def __init__(
        self, events: Sequence[Event], messages: Sequence[Message], output: Output | None, what: str
    ) -> None:
        """`what` names the place in errors."""
        self.tools: list[dict[str, Any]] = []
        """The tools that the model was offered, as schemas."""
        self._what = what
        self._turns: dict[str, tuple[Event, Output]] = {}
        for event in events:
            if event.event == "model":
                self._model(event)
        self._exits = self._exit_codes(events)
        self.messages = self._said(messages, output)
        """The conversation, each reply as the model gave it."""
        turns = [m for m in self.messages if m.role == "assistant"]
        spoken = {m.id for m in turns}
        self.others = len(set(self._turns) - spoken) if None not in spoken else 0
        """Model calls whose reply is no message of the conversation."""
        self._last, self._output = (turns[-1] if turns else None), output

    def _exit_codes(self, events: Iterable[Event]) -> dict[str, int]:
        """Of commands, by the id of the tool's message or, in older logs, of its call.

        Calls of one turn run at once, and their events mix: the span that a command ran in tells
        whose it is. Where there are no spans, only the one tool that was begun can have run it.
        """
        spans, begun, waiting = dict[str, str](), "", list[str]()
        exits, calls = dict[str, int](), Counter[str]()
        for event in events:
            if event.event == "span_begin":
                begun = event.span_id or "" if bytes(event.type) == b'"tool"' else ""
            elif event.event == "model":
                waiting = []
            elif event.event == "tool":
                tool = event.message_id or self._read(event.id, str) or ""
                calls[tool] += 1
                if begun:
                    spans[begun], begun = tool, ""
                waiting = [*(one for one in waiting if one not in exits), tool]
            elif event.event == "sandbox" and event.action == "exec":
                only = waiting[0] if len(waiting) == 1 else ""
                tool = spans.get(event.span_id, "") if event.span_id else only
                code = self._read(event.result, int)
                if code is not None:
                    exits[tool] = code
        return {tool: code for tool, code in exits.items() if calls[tool] == 1}

    def _said(self, messages: Sequence[Message], output: Output | None) -> list[Message]:
        """An agent may change its messages when it ends: `react` takes the call of its submit tool
        out, and appends the answer to the text. An overflow may be no message at all."""
        said = {id: given.choices[0].message for id, (_, given) in self._turns.items()}
        found = [said.get(message.id or "") or message for message in messages]
        last = output.choices[0].message if output and output.choices else None
        if last is not None and last.id in said and last.id not in {m.id for m in found}:
            found.append(said[last.id] or last)
        return found

    def _read(self, raw: msgspec.Raw, kind: type[T]) -> T | None:
        try:
            return decode(raw, kind, self._what)
        except DataError:
            return None

    def _model(self, event: Event) -> None:
        output = self._read(event.output, Output)
        message = output.choices[0].message if output and output.choices else None
        if output is None or message is None or message.id is None or bytes(event.error) != b"null":
            return
        self._turns[message.id] = event, output
        if not self.tools:
            for tool in self._read(event.tools, list[_Tool]) or ():
                function = {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": plain(tool.parameters, self._what),
                }
                self.tools.append({"type": "function", "function": function})

    def turn(self, message: Message) -> Turn:
        """Usage, reason of the end, time and exact arguments of one turn."""
        event, output = self._turns.get(message.id or "", (None, None))
        if output is None and message is self._last:
            output = self._output
        if output is None:
            return Turn()
        reason = output.choices[0].stop_reason if output.choices else None
        meta: dict[str, Any] | None = None
        exact: tuple[str, ...] = ()
        if event is not None:
            if event.working_time is not None:
                meta = {"seconds": round(event.working_time, 6)}
            call = self._read(event.call, _ModelCall)
            if call is not None and call.response is not None and call.response.choices:
                calls = call.response.choices[0].message.tool_calls or []
                exact = tuple(call.function.arguments for call in calls)
        if len(exact) != len(message.tool_calls or ()):
            exact = ()
        return Turn(output.usage.ours if output.usage else Usage(), reason, meta, exact)

    def bash(self, message: Message, text: str, error: ToolError | None) -> BashReply | None:
        """The result of a command: both streams in one text."""
        if error is not None and error.type not in ("timeout", *_RAN):
            return None
        output = text.encode("utf-8", "surrogatepass")
        if error is not None and error.type == "timeout":
            return BashReply(output, exit_code=None, timed_out=True)
        names = (message.id, message.tool_call_id)
        code = next((self._exits[name] for name in names if name in self._exits), None)
        return BashReply(output, exit_code=code)


_RAN = ("unicode_decode", "limit", "output_limit")
"""Errors of a command that was run, whose output could not be given."""
