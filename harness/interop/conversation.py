"""A conversation as EvalScope and inspect keep it, turned into effects.

Both tools keep the same kind of messages: EvalScope's were made after inspect's. A model turn is an
assistant's message; what was asked for it are the messages before it, as far as they tell. A tool's
message is the result of a call, if the call was run: one that the tool refused is no effect, as it
is none in a recording of ours.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from harness.answers import answer_text
from harness.dataset import Dataset
from harness.errors import DataError
from harness.interop.imported import MAX_EFFECTS, ImportedEffect
from harness.interop.reading import NOTHING, plain
from harness.records import (
    BashReply,
    BashRequest,
    Failure,
    Frozen,
    History,
    ModelReply,
    ModelRequest,
    Outcome,
    ToolCall,
    ToolReply,
    ToolRequest,
    Usage,
    assistant_message,
)

# -------------------------------------------------------------------------------------- their shape


class Part(msgspec.Struct):
    """One part of a content that is a list."""

    type: str = "text"
    text: str | None = None
    reasoning: str | None = None


class Function(msgspec.Struct):
    """The function of a call, as EvalScope nests it."""

    name: str
    arguments: msgspec.Raw = NOTHING


class Call(msgspec.Struct):
    """A tool call; `function` is a name in inspect and an object in EvalScope."""

    function: str | Function
    id: str = ""
    arguments: msgspec.Raw = NOTHING
    parse_error: str | None = None

    @property
    def name(self) -> str:
        """The tool's name."""
        return self.function if isinstance(self.function, str) else self.function.name


class ToolError(msgspec.Struct):
    """Why a tool gave no result."""

    message: str = ""
    type: str | None = None


class Perf(msgspec.Struct):
    """Figures that EvalScope puts on a message; seconds."""

    latency: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None


class Message(msgspec.Struct):
    """A chat message."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str | list[str | Part] | None = None
    id: str | None = None
    reasoning: str | None = None
    tool_calls: list[Call] | None = None
    tool_call_id: str | list[str] | None = None
    function: str | None = None
    error: ToolError | None = None
    perf_metrics: Perf | None = None


QUESTION = "Here is the question:\n\n"
"""What stands before the question in EvalScope's prompt, and in inspect's."""

# ------------------------------------------------------------------------------------------ reading

ARGUMENTS = "the exact text of tool arguments"
MEDIA = "images and other media in messages"

_PARSE_ERROR = re.compile(
    r"Error parsing the following tool call arguments:\n\n(.*)\n\nError details: ", re.DOTALL
)
_BROKEN = re.compile(
    r"execution failed: |cannot connect to the docker daemon|fetching server api version|"
    r"no such container|container \S* ?is not running|is not running$|"
    r"(?:failed|unable) to (?:start|create|initiali[sz]e|build|pull)\b.*"
    r"(?:sandbox|container|docker|image)|"
    r"sandbox\b.*\b(?:not found|failed|unavailable|not available|does not exist)|"
    r"requires an agentenvironment|(?:404|409|500) (?:client|server) error|\[error\]|"
    r"no module named 'ms_enclave'|docker\.errors",
    re.IGNORECASE,
)
_NOT_RUN = ("parsing", "approval", "cancelled")
"""Errors of a call that no tool was run for."""
_UNKNOWN_TOOL = re.compile(r"Tool '?.*'? (?:is not registered|not found)")
_BAD_ARGUMENT = re.compile(r"float\(\) argument|could not convert string|invalid arguments", re.I)


class Turn(NamedTuple):
    """What a tool keeps of a model turn beside the message."""

    usage: Usage = Usage()
    finish_reason: str | None = None
    meta: dict[str, Any] | None = None
    arguments: Sequence[str] = ()
    """The calls' arguments exactly as they came, where they were kept."""


class Talk:
    """One sample's conversation, read to its end."""

    def __init__(
        self,
        messages: Sequence[Message],
        *,
        what: str,
        model: str,
        tools: Sequence[Any] = (),
        params: dict[str, Any] | None = None,
        timeout: float = 180.0,
        server: str = "",
        submit: str = "submit",
        runs_unparsed: bool = False,
        turn: Callable[[Message], Turn] = lambda message: Turn(),
        bash: Callable[[Message, str, ToolError | None], BashReply | None],
        resolve: Callable[[str], str] = lambda text: text,
    ) -> None:
        """`what` names the place in errors; `bash` reads a command's result, None where it was not
        run; `resolve` looks up texts that are kept elsewhere; `server` stands for the tools whose
        server is not known; `submit` is the tool that ends the loop; `runs_unparsed`: calls whose
        arguments could not be parsed were run."""
        if len(messages) > MAX_EFFECTS:
            raise DataError(f"{what} has more than {MAX_EFFECTS} messages")
        self.effects: list[ImportedEffect] = []
        self.missing: set[str] = set()
        self.submitted: str | None = None
        """The answer of the submit call that ended the loop: the first one of its turn."""
        self.last: ModelReply | None = None
        """The last turn."""
        self.broken: list[str] = []
        """What was said by a sandbox that did not work, command by command."""
        self.worked = 0
        """Commands that a sandbox ran."""
        self._what, self._model, self._server, self._submit = what, model, server, submit
        self._runs_unparsed = runs_unparsed
        self._timeout, self._turn, self._bash, self._resolve = timeout, turn, bash, resolve
        self._tools = Frozen([self._resolved(tool) for tool in tools])
        self._params = Frozen(params or {})
        self._history = History()
        self._open: list[tuple[ToolCall, Any]] = []
        self._lost = False  # whether arguments of this turn are not known at all
        self._submits = True  # whether a submit call of this turn would be its first
        for message in messages:
            if message.role == "assistant":
                self._assistant(message)
            elif message.role == "tool":
                self._result(message)
            else:
                self._say({"role": message.role, "content": self._text(message)})

    @property
    def sandbox_failed(self) -> str | None:
        """The first thing that was said of a sandbox that never ran a command; None if one did."""
        return self.broken[0] if self.broken and not self.worked else None

    def _say(self, message: dict[str, Any]) -> None:
        self._history = self._history.append(message)

    def _text(self, message: Message) -> str:
        content = message.content
        if not isinstance(content, list):
            return self._resolve(content or "")
        texts = []
        for part in content:
            if isinstance(part, str):
                texts.append(self._resolve(part))
            elif part.text is not None:
                texts.append(self._resolve(part.text))
            elif part.type != "reasoning":
                self.missing.add(MEDIA)
                texts.append(f"[{part.type[:40]}]")
        return "\n".join(texts)

    def _reasoning(self, message: Message) -> str | None:
        found = [message.reasoning] if message.reasoning else []
        if isinstance(message.content, list):
            found += [p.reasoning for p in message.content if isinstance(p, Part) and p.reasoning]
        return "\n".join(self._resolve(text) for text in found) or None

    def _assistant(self, message: Message) -> None:
        turn = self._turn(message)
        self._open, self._lost, self._submits = [], False, True
        for number, call in enumerate(message.tool_calls or ()):
            exact = turn.arguments[number] if number < len(turn.arguments) else None
            self._open.append(self._call(call, exact))
        reply = ModelReply(
            content=self._text(message),
            tool_calls=tuple(call for call, _ in self._open),
            reasoning=self._reasoning(message),
            finish_reason=_FINISHED.get(turn.finish_reason or "", turn.finish_reason) or None,
            usage=turn.usage,
            error=None if self._open else _ENDED.get(turn.finish_reason or ""),
        )
        request = ModelRequest(self._history, self._tools, self._params)
        meta = {**(turn.meta or {}), **({"lost": "arguments"} if self._lost else {})}
        self.effects.append(ImportedEffect(request, reply, meta=meta or None, model=self._model))
        self.last = reply
        self._say(assistant_message(reply))

    def _call(self, call: Call, exact: str | None) -> tuple[ToolCall, Any]:
        """A call as it came, as far as that is known, and its arguments as a value."""
        raw = call.arguments if isinstance(call.function, str) else call.function.arguments
        value = self._resolved(plain(raw, self._what))
        if isinstance(value, str):  # as they came: the text is exact
            text, value = value, _as_object(value)
            exact = exact if exact is not None or value is None else text
        else:
            text = msgspec.json.encode(value if value is not None else {}).decode()
        if call.parse_error is not None:
            value = None  # what stands there then is not what the model wrote
            found = _PARSE_ERROR.match(self._resolve(call.parse_error))
            self._lost = self._lost or found is None
            text = found[1] if found else text
        if exact is not None:
            text = self._resolve(exact)
        else:
            self.missing.add(ARGUMENTS)
        came = ToolCall(call.id, call.name, text)
        if call.name == self._submit and self._submits and isinstance(value, dict):
            answer = value.get("answer")
            self.submitted = None if answer is None else answer_text(answer)
            self._submits = False
        return came, value

    def _resolved(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._resolve(value)
        if isinstance(value, dict):
            return {self._resolve(key): self._resolved(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._resolved(item) for item in value]
        return value

    def _result(self, message: Message) -> None:
        """A tool's message: an effect if the call was run, and a message in any case."""
        text, error = self._text(message), message.error
        if error is not None:
            error = ToolError(self._resolve(error.message), error.type)
        call, arguments = self._called(message)
        shown = text or (error.message if error else "")
        if call is not None and call.name != self._submit:
            effect = self._effect(call, arguments, message, text, error)
            if effect is not None:
                self.effects.append(effect)
        id = call.id if call else message.tool_call_id
        self._say({"role": "tool", "tool_call_id": str(id or ""), "content": shown})

    def _called(self, message: Message) -> tuple[ToolCall | None, Any]:
        """The open call that a result belongs to: by its id, which need not be the only one."""
        for index, (call, arguments) in enumerate(self._open):
            if call.id == message.tool_call_id:
                del self._open[index]
                return call, arguments
        return None, None

    def _effect(
        self,
        call: ToolCall,
        arguments: Any,
        message: Message,
        text: str,
        error: ToolError | None,
    ) -> ImportedEffect | None:
        if error is not None and error.type in _NOT_RUN:
            return None
        if not isinstance(arguments, dict):
            if not self._runs_unparsed:
                return None
            arguments = {}
        if call.name == "bash":
            if broken := self._is_broken(text, error):
                self.broken.append(error.message if error and error.message else text)
            reply = None if broken and error else self._bash(message, text, error)
            if reply is None:
                return None
            self.worked += not broken
            command = arguments.get("command", arguments.get("cmd"))
            request = BashRequest(
                command if isinstance(command, str) else "",
                _seconds(arguments.get("timeout")) or self._timeout,
            )
            return ImportedEffect(request, reply)
        if error is not None and _UNKNOWN_TOOL.match(error.message):
            return None
        given = ToolReply(text or (error.message if error else ""), error is not None)
        return ImportedEffect(ToolRequest(self._server, call.name, arguments), given)

    def _is_broken(self, text: str, error: ToolError | None) -> bool:
        """Whether a command had no sandbox to run in."""
        if error is None:
            return len(text) < 2_000 and bool(_BROKEN.match(text.removeprefix("[stderr]\n")))
        if error.type == "sandbox_unavailable":
            return True
        if error.type == "unknown":
            return not _BAD_ARGUMENT.search(error.message)
        return bool(error.type == "permission" and _BROKEN.search(error.message))


def _as_object(text: str) -> dict[str, Any] | None:
    """Arguments that were kept as a text; None where that is no JSON object."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        return None


def _seconds(timeout: Any) -> float | None:
    """A command's timeout as the model gave it; EvalScope takes a text that is a number."""
    try:
        found = float(timeout) if isinstance(timeout, str | int | float) else 0.0
    except (ValueError, OverflowError):
        return None
    return found if 0 < found < 1e9 else None


_FINISHED = {"max_tokens": "length", "model_length": "length", "unknown": ""}
_ENDED = {"model_length": "context_exceeded", "content_filter": "refused"}


# ------------------------------------------------------------------------------------------ samples


def question_of(prompt: str) -> str:
    """The question, without what the tools' prompt puts before it."""
    return prompt.partition(QUESTION)[2] or prompt


def by_question(dataset: Dataset, prompt: str) -> str | None:
    """The task id of the one sample whose question the prompt holds."""
    found = [i.sample.task_id for i in dataset.items if i.sample.question.strip() in prompt]
    return found[0] if len(found) == 1 else None


def ended(
    talk: Talk, answer: str | None, *, stopped: bool, tool: str
) -> tuple[Outcome, str | None, list[str]]:
    """How a sample ended whose loop raised no error: outcome, why there is no answer, what was
    decided about that. `answer` is what the tool scored; `stopped`: the loop came to its limit.
    """
    if talk.last is None:
        return failed("model", f"{tool} kept no turn of the model"), None, []
    if (said := talk.sandbox_failed) is not None:
        return failed("sandbox", f"no command was ever run: {said}"), None, []
    if answer is None:
        answer = talk.submitted if talk.submitted is not None else talk.last.content
    if talk.submitted is not None:
        notes = []
        if answer is not None and answer != talk.submitted:
            notes = [f"the answer is the text that {tool} scored, not the one that was submitted"]
        return Outcome(status="ok", answer=answer), None, notes
    if (error := talk.last.error) is not None:
        told = "the context was exceeded" if error == "context_exceeded" else "the model refused"
        return Outcome(status="ok"), error, [f"{told}: what came is no answer"]
    if stopped and talk.last.tool_calls:
        note = "stopped at its limit: the text beside the last tool call is no answer"
        return Outcome(status="ok"), None, [note]
    if not answer:
        return Outcome(status="ok"), None, ["nothing was submitted"]
    note = f"nothing was submitted: the answer is the last text, as {tool} scored it"
    return Outcome(status="ok", answer=answer), None, [note]


def failed(kind: str, message: str) -> Outcome:
    """A sample that ended in an error of this kind."""
    return Outcome(status="error", failure=Failure(kind, " ".join(message.split())[:1000]))
