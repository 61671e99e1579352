"""What the model is told: prompts, tool schemas, tool results, and how long they may be.

All texts are the project's own; the answer format is the benchmark's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, NamedTuple

import msgspec

from harness.answers import parse_arguments
from harness.records import (
    BashReply,
    Frozen,
    History,
    ModelReply,
    ModelRequest,
    Sample,
    Settings,
    ToolCall,
    assistant_message,
)

SYSTEM_PROMPT = """\
You answer one question by working in a Linux sandbox.

Work in small steps: say briefly what you want to find out, call a tool, read its result, go on. \
Check an important result by a second way before you rely on it. When you know the answer, call \
submit; that ends the task, and only what you submit counts.

Form of the answer:
- a number: digits only, no thousands separators, no unit or symbol unless the question asks for it;
- a word or phrase: as few words as possible, no articles, no abbreviations;
- a list: the items separated by commas, each in the form above, in the order that is asked for."""

USER_TEMPLATE = "{question}\n\n{file}"
FILE_NOTE = "The file that belongs to the question is /shared_files/{name} (read-only)."

REMINDER = (
    "Your last message called no tool. Call bash to work on, or submit with the final answer."
)
REMINDERS = 2
"""Reminders in a row before the sample ends without an answer."""

BASH_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "bash",
        "description": (
            "Run a bash command in the sandbox; returns what it printed and, if it failed, its "
            "exit code. Each command starts in a new shell in /workspace: files stay, and so do "
            "background processes, but the working directory and variables do not. Standard input "
            "is empty. A command that takes too long is stopped; long output is cut in the middle."
        ),
        "parameters": {
            "type": "object",
            "properties": {
                "command": {"type": "string", "description": "The command line or script to run."}
            },
            "required": ["command"],
            "additionalProperties": False,
        },
    },
}

SUBMIT_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "submit",
        "description": "Submit the final answer and end the task. Only the first one counts.",
        "parameters": {
            "type": "object",
            "properties": {
                "answer": {"type": "string", "description": "The answer alone, in the stated form."}
            },
            "required": ["answer"],
            "additionalProperties": False,
        },
    },
}


MAX_DIGITS = 600
"""Of a whole number among a tool server's arguments; floats end at 309."""


class Call(NamedTuple):
    """A tool call that can be run, or the error that goes back to the model instead."""

    id: str
    name: str
    arguments: dict[str, Any]
    error: str | None = None


class Dialogue:
    """One sample's conversation: an immutable history, replaced as it grows."""

    def __init__(
        self, sample: Sample, settings: Settings, more_tools: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        """`more_tools`: schemas of the MCP servers' tools."""
        self._settings = settings
        self._tools = Frozen([BASH_TOOL, SUBMIT_TOOL, *more_tools])
        self._params = Frozen(settings.params)
        self._names = [tool["function"]["name"] for tool in self._tools.value]
        self._tokens = estimate_tokens(self._tools.canonical.decode())
        self._history = History()
        self._seen = 0  # messages at the beginning that shortening has done with
        self._shorten_at = (settings.context_limit or 0) * 0.9
        self._say({"role": "system", "content": SYSTEM_PROMPT})
        self._say({"role": "user", "content": user_prompt(sample, settings.prompt_template)})

    def request(self) -> ModelRequest:
        """The next request; the oldest outputs are shortened first if the history grew too long."""
        limit = self._settings.context_limit
        if limit is not None and self._tokens > self._shorten_at:
            excess = self._tokens - int(limit * 0.6)
            self._history, saved, self._seen = shorten(self._history, excess, self._seen)
            self._tokens -= saved
            # where too little could be saved, trying again at every step would be in vain
            self._shorten_at = max(limit * 0.9, self._tokens + limit * 0.1)
        return ModelRequest(self._history, self._tools, self._params)

    def hear(self, reply: ModelReply) -> list[Call]:
        """Take a reply into the history; its calls, parsed."""
        calls = [self._parse(call, reply.finish_reason) for call in reply.tool_calls]
        message = assistant_message(reply, reasoning=self._settings.send_reasoning)
        for call, shown in zip(reply.tool_calls, message.get("tool_calls", ()), strict=False):
            # endpoints reject a history with an odd name, or arguments that are no JSON object
            shown["function"]["name"] = sendable_name(call.name)
            shown["function"]["arguments"] = sendable(call.arguments)
        self._say(message)
        return calls

    def remind(self) -> None:
        """Ask a model that called nothing to go on."""
        self._say({"role": "user", "content": REMINDER})

    def answer(self, call: Call, text: str) -> None:
        """The result of one call."""
        self._say({"role": "tool", "tool_call_id": call.id, "content": text})

    def _say(self, message: dict[str, Any]) -> None:
        self._history = self._history.append(message)
        if self._settings.context_limit is not None:
            self._tokens += message_tokens(message)

    def _parse(self, call: ToolCall, finish_reason: str | None) -> Call:
        if call.name not in self._names:
            known = ", ".join(self._names)
            return Call(call.id, call.name, {}, f"there is no tool {call.name!r}; tools: {known}")
        try:
            arguments = _only_texts(call.arguments)
            if arguments is None:
                arguments = {} if _is_empty(call.arguments) else parse_arguments(call.arguments)
        except ValueError as error:
            if finish_reason == "length":
                problem = "the call was cut off at the token limit; make it shorter"
            else:
                problem = f"the arguments are {error}"
            return Call(call.id, call.name, {}, problem)
        if not isinstance(arguments, dict):
            return Call(call.id, call.name, {}, "the arguments must be a JSON object")
        needed = {"bash": "command", "submit": "answer"}.get(call.name)
        if needed is not None and needed not in arguments:
            return Call(call.id, call.name, {}, f"the argument {needed!r} is missing")
        if call.name == "bash" and type(arguments["command"]) is not str:
            return Call(call.id, call.name, {}, "the argument 'command' must be a string")
        if needed is None and arguments:
            try:  # a tool server is given numbers, not their spelling
                arguments = _strict(call.arguments)
            except ValueError as error:
                return Call(call.id, call.name, {}, f"the arguments are no valid JSON ({error})")
        return Call(call.id, call.name, arguments)


def error_text(problem: str) -> str:
    """How a call that could not be run is reported to the model."""
    return f"[not run: {problem}]"


def user_prompt(sample: Sample, template: str | None) -> str:
    """The first user message. `{question}` and `{file}` are filled in once, whatever they hold."""
    note = FILE_NOTE.replace("{name}", sample.file_name) if sample.file_name else ""
    values = {"{question}": sample.question, "{file}": note}
    text = USER_TEMPLATE if template is None else template
    return re.sub(r"\{question\}|\{file\}", lambda match: values[match[0]], text).strip()


def sendable(arguments: str) -> str:
    """Tool-call arguments as they may stand in a history: always a JSON object."""
    if _only_texts(arguments) is not None:
        return arguments
    if _is_empty(arguments):
        return "{}"
    try:
        parse_arguments(arguments)
        if isinstance(_strict(arguments), dict):
            return arguments
    except ValueError:
        pass
    return json.dumps({"unparsed": arguments})


def sendable_name(name: str) -> str:
    """A tool's name as it may stand in a history, whatever the model made up: 1 to 64 letters,
    digits, `_` and `-`."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:64] or "_"


_texts = msgspec.json.Decoder(dict[str, str]).decode


def _only_texts(arguments: str) -> dict[str, Any] | None:
    """The arguments if they are an object of strings, as nearly all are: nothing to check there."""
    try:
        return _texts(arguments)
    except (msgspec.MsgspecError, UnicodeEncodeError):
        return None


def _is_empty(arguments: str) -> bool:
    """How endpoints spell a call without arguments, other than `{}`."""
    return arguments.strip() in ("", "null")


def _strict(arguments: str) -> Any:
    """The value of JSON text as RFC 8259 has it: without NaN, infinities, overflow."""

    def refuse(name: str) -> float:
        raise ValueError(f"{name} is no JSON number")

    def finite(text: str) -> float:
        return value if isfinite(value := float(text)) else refuse(text)

    def whole(text: str) -> int:
        # Python's own limit can be set otherwise from outside, and its message changes
        return int(text) if len(text) <= MAX_DIGITS else int(refuse(f"a {len(text)}-digit number"))

    return json.loads(arguments, parse_constant=refuse, parse_float=finite, parse_int=whole)


# -------------------------------------------------------------------------------- tool results

# ECMA-48: CSI … final byte; OSC and friends up to BEL or ST; other two-character sequences; and
# the escape character alone, so that what is left cannot form a new sequence
_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])?"
)


def bash_text(reply: BashReply, timeout: float, limit: int) -> str:
    """A command's result as the model sees it: at most `limit` characters of output, then notes.

    Bytes that are no UTF-8 become U+FFFD; terminal escapes go, and of a line that was overwritten
    with carriage returns the last state stays; then the middle is cut out.
    """
    text = clean(reply.stdout.decode("utf-8", "replace"))
    if reply.stderr:
        errors = clean(reply.stderr.decode("utf-8", "replace"))
        newline = "" if not text or text.endswith("\n") else "\n"
        text = f"{text}{newline}[stderr]\n{errors}"
    text = cut(text, limit, reply.omitted)
    notes = []
    if reply.timed_out:
        notes.append(f"[stopped: still running after {timeout:g} s]")
    elif reply.exit_code:
        notes.append(f"[exit code {reply.exit_code}]")
    elif not text:
        notes.append("[no output]")
    if text and notes and not text.endswith("\n"):
        text += "\n"
    return text + "".join(notes)


def clean(text: str) -> str:
    """Without terminal escapes and overwritten progress lines."""
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    if "\r" in text:
        lines = text.split("\n")
        text = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)
    return text


def cut(text: str, limit: int, omitted: int = 0) -> str:
    """At most `limit` characters of a text, head and tail, the bytes between them counted.

    `omitted` bytes were already left out in the middle when the output was captured.
    """
    if len(text) <= limit:
        if not omitted:
            return text
        limit = len(text)
    head, tail = text[: limit - limit // 2], text[len(text) - limit // 2 :]
    middle = text[len(head) : len(text) - len(tail)]
    count = len(middle.encode("utf-8", "surrogatepass")) + omitted
    return f"{head}\n[... {count} bytes left out here ...]\n{tail}"


# ------------------------------------------------------------------------------ long histories

SHORTENED = 400
"""Characters that stay of a tool result when the history is shortened."""


def estimate_tokens(text: str) -> int:
    """The stated estimate: one token for every three bytes of UTF-8, rounded up."""
    return -(-len(text.encode("utf-8", "surrogatepass")) // 3)


def message_tokens(message: Mapping[str, Any]) -> int:
    """Estimate for one message: its texts and its calls, and four for the frame."""
    count = 4 + estimate_tokens(str(message.get("content") or ""))
    count += estimate_tokens(str(message.get("reasoning_content") or ""))
    for call in message.get("tool_calls") or ():
        count += 8 + estimate_tokens(call["function"]["name"] + call["function"]["arguments"])
    return count


def shorten(history: History, excess: int, start: int = 0) -> tuple[History, int, int]:
    """The history with its oldest tool results cut until `excess` tokens are saved, if they can be.

    Returns it with the tokens saved and the number of messages that need not be looked at again:
    the next call's `start`. The newest result is left whole.
    """
    nodes = history.nodes(start)
    results = [i for i, node in enumerate(nodes) if node.message["role"] == "tool"]
    changed: dict[int, dict[str, Any]] = {}
    saved = seen = 0
    for index in results[:-1]:
        if saved >= excess:
            break
        seen = index + 1
        message = nodes[index].message
        text = message["content"]
        if len(text) <= 2 * SHORTENED:
            continue
        changed[index] = {**message, "content": cut(text, SHORTENED)}
        saved += message_tokens(message) - message_tokens(changed[index])
    if not changed:
        return history, 0, start + seen
    first = min(changed)
    kept = nodes[first].parent or History()
    for index in range(first, len(nodes)):
        new = changed.get(index)
        kept = kept.adopt(nodes[index]) if new is None else kept.append(new)
    return kept, saved, start + seen
