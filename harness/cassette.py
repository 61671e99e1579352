"""Cassettes: the lines they are made of, and how they are read.

A cassette is JSON Lines. Lines are numbered from 1; a child that continues another cassette numbers
on from the parent's last line that it kept, so that a chain reads as one file. In order:

    cassette   version, the sample as the loop saw it, settings, image, parent
    tools      a list of tool schemas, when a request first uses it
    message    a chat message, when a request first uses it
    model | bash | tool | value     one effect: request, its digest, reply, metadata
    resumed    the recording was interrupted here and went on
    end        status, answer, trajectory digest, totals

Nothing stands twice. A model request is written as splices `[start, delete, [refs]]` against the
request before it, applied one after the other; a ref is the number of a message line, of a model
line (the assistant message made of its reply), or `[line, "reasoning"]` (the same with its
reasoning). A message's text may be given in parts, each a string or `[line, stream, from, to]`:
characters of an earlier output or message. An output that was seen before is `{"line", "stream"}`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from math import isfinite
from typing import Any, Literal, NamedTuple

import msgspec

from harness.errors import DamageError
from harness.files import MAX_FILE
from harness.records import (
    BashReply,
    Failure,
    ModelReply,
    Outcome,
    Reply,
    Sample,
    ToolReply,
    Usage,
    assistant_message,
)
from harness.store import Store

FORMAT = "gaia-harness-cassette"
VERSION = 1

Ref = int | tuple[int, Literal["reasoning"]]
Part = str | tuple[int, str, int, int]


class Line(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=True):
    """One line of a cassette."""


class Parent(msgspec.Struct, frozen=True):
    """The place that a child continues: so many lines and effects of that cassette."""

    cassette: str
    lines: int
    effects: int


class Agent(msgspec.Struct, frozen=True):
    """The loop that was recorded: `module:name` and the SHA-256 of its module's source."""

    name: str
    source: str


class Header(Line, frozen=True, kw_only=True, tag="cassette"):
    """First line: provenance. What governs a replay is the run file."""

    format: str
    version: int
    sample: Sample
    agent: Agent
    settings: dict[str, Any] = {}
    image: dict[str, Any] | None = None
    harness: str = ""
    parent: Parent | None = None


class Tools(Line, frozen=True, kw_only=True, tag="tools"):
    """A list of tool schemas, where a request first uses it."""

    tools: list[dict[str, Any]]


class MessageLine(Line, frozen=True, kw_only=True, tag="message"):
    """A chat message, where a request first uses it."""

    message: dict[str, Any]
    content: list[Part] | None = None
    """Its text in parts, where it is made of earlier texts; `message` lacks it then."""


class ModelTape(msgspec.Struct, frozen=True, omit_defaults=True):
    """A model request; model, tools and params only where they differ from the one before."""

    splices: list[tuple[int, int, list[Ref]]]
    model: str | None = None
    params: dict[str, Any] | None = None
    tools: int | None = None


class BashTape(msgspec.Struct, frozen=True):
    """A command and its timeout in seconds."""

    command: str
    timeout: float


class ToolTape(msgspec.Struct, frozen=True):
    """A call of a server's tool."""

    server: str
    name: str
    arguments: dict[str, Any]


class ValueTape(msgspec.Struct, frozen=True):
    """A value's name; it was made by the loop's own code."""

    name: str


class Stored(msgspec.Struct, frozen=True, omit_defaults=True):
    """Bytes that are no UTF-8 text, or an output that an earlier line holds."""

    base64: str | None = None
    line: int | None = None
    stream: str = "stdout"


class BashResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """`BashReply`, with its streams as text where they are text."""

    stdout: str | Stored = ""
    stderr: str | Stored = ""
    exit_code: int | None = 0
    timed_out: bool = False
    omitted: int = 0


class ToolResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """`ToolReply`."""

    content: str | Stored
    is_error: bool = False


class Effect(Line, frozen=True, kw_only=True):
    """One request and its reply, or the failure that ended the sample there."""

    digest: str
    failure: Failure | None = None
    meta: dict[str, Any] | None = None


class ModelEffect(Effect, frozen=True, kw_only=True, tag="model"):
    """A chat completion."""

    request: ModelTape
    reply: ModelReply | None = None


class BashEffect(Effect, frozen=True, kw_only=True, tag="bash"):
    """A command in the sandbox."""

    request: BashTape
    reply: BashResult | None = None


class ToolEffect(Effect, frozen=True, kw_only=True, tag="tool"):
    """A call of an MCP server's tool."""

    request: ToolTape
    reply: ToolResult | None = None


class ValueEffect(Effect, frozen=True, kw_only=True, tag="value"):
    """A value of a user loop's own; any JSON."""

    request: ValueTape
    reply: Any = None


class Resumed(Line, frozen=True, kw_only=True, tag="resumed"):
    """The recording was interrupted here; drift is what rebuilding the sandbox found."""

    maybe_paid: int = 0
    drift: list[dict[str, Any]] = []


class Intent(Line, frozen=True, kw_only=True, tag="intent"):
    """Only in journals, and not numbered: a request that costs is about to be sent."""

    effect: int
    digest: str


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """Counts over the whole chain."""

    model: int = 0
    bash: int = 0
    tool: int = 0
    value: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    maybe_paid: int = 0
    """Requests that were sent when the process died, whose replies never came."""


class End(Line, frozen=True, kw_only=True, tag="end"):
    """Last line: all that scoring needs."""

    status: Literal["ok", "error"]
    answer: str | None = None
    failure: Failure | None = None
    last_error: str | None = None
    """`error` of the last model reply: why there is no answer, when it is set."""
    trajectory: str
    totals: Totals
    replayable: bool = True
    report: dict[str, Any] | None = None
    """Why the loop does not follow its own cassette, when it does not."""

    @property
    def outcome(self) -> Outcome:
        """Status, answer and failure."""
        return Outcome(status=self.status, answer=self.answer, failure=self.failure)


AnyLine = (
    Header
    | Tools
    | MessageLine
    | ModelEffect
    | BashEffect
    | ToolEffect
    | ValueEffect
    | Resumed
    | Intent
    | End
)
AnyEffect = ModelEffect | BashEffect | ToolEffect | ValueEffect

_FIRST = b'{"type":"cassette","format":"%b","version":%d,' % (FORMAT.encode(), VERSION)
"""How a cassette of this version begins."""

_decoder = msgspec.json.Decoder(AnyLine)
_encode = msgspec.json.Encoder().encode


def encode_line(line: Line) -> bytes:
    """One line with its line end."""
    try:
        return _encode(line) + b"\n"
    except UnicodeEncodeError:  # a lone surrogate: only the standard library writes those
        text = json.dumps(msgspec.to_builtins(line), separators=(",", ":"))
        return text.encode() + b"\n"


def decode_lines(data: bytes, what: str) -> list[AnyLine]:
    """All lines; DamageError naming the first that is none."""
    try:
        return _decoder.decode_lines(data)
    except (msgspec.MsgspecError, RecursionError):
        pass
    _refuse_version(data, what)
    lines = data.removesuffix(b"\n").split(b"\n")
    return [_decode_line(line, number, what) for number, line in enumerate(lines, 1)]


def _refuse_version(data: bytes, what: str) -> None:
    """A cassette of another version is refused by name, whatever its lines look like."""
    try:
        first = json.loads(data[: data.find(b"\n") + 1] or data)
    except (ValueError, RecursionError):
        return
    if isinstance(first, dict) and first.get("format") == FORMAT:
        _check_version(first.get("version"), what)


def _check_version(version: object, what: str) -> None:
    if version != VERSION:
        raise DamageError(f"{what} is of cassette version {version}; this program reads {VERSION}")


def _decode_line(line: bytes, number: int, what: str) -> AnyLine:
    try:
        return _decoder.decode(line)
    except (msgspec.MsgspecError, RecursionError) as error:
        cause: Exception = error
    try:  # again for lone surrogates, which only the standard library reads
        value = json.loads(line, parse_constant=_number, parse_float=_number)
        found: AnyLine = msgspec.convert(value, AnyLine)
        return found
    except (ValueError, RecursionError):
        raise DamageError(f"{what} is damaged: line {number}: {cause}") from None


def _number(text: str) -> float:
    if not isfinite(value := float(text)):
        raise ValueError(f"{text} is no JSON number")
    return value


class RecordedRequest(NamedTuple):
    """A model request as it was recorded."""

    model: str
    params: dict[str, Any]
    tools: list[dict[str, Any]]
    messages: list[dict[str, Any]]


class Tape:
    """The lines of a cassette, or of a journal, with those of its parents before them."""

    def __init__(self, lines: Sequence[AnyLine], what: str) -> None:
        self.lines = lines
        self.what = what
        self.effects: list[AnyEffect] = [line for line in lines if isinstance(line, Effect)]
        self._texts: dict[int, str] = {}  # of messages in parts, by line, once put together
        self._unfolded = self._length = 0  # the last line looked at for them; their characters
        self.end: End | None = None
        if lines and isinstance(lines[-1], End):
            self.end = lines[-1]

    @property
    def header(self) -> Header:
        """The newest header: of the child, where there are parents."""
        for line in reversed(self.lines):
            if isinstance(line, Header):
                return line
        raise DamageError(f"{self.what} is damaged: it has no first line")

    def kept(self, effects: int) -> int:
        """How many lines come up to and with the n-th effect (n = 0: the header alone)."""
        if effects == 0:
            return 1
        last = self.effects[effects - 1]
        return next(number for number, line in enumerate(self.lines, 1) if line is last)

    def prefix(self, effects: int) -> Tape:
        """The tape up to and with its n-th effect."""
        return Tape(self.lines[: self.kept(effects)], self.what)

    # ----------------------------------------------------------------------- what replies hold

    def reply(self, effect: AnyEffect) -> Reply:
        """The reply of an effect, as the loop saw it; None where it failed."""
        if isinstance(effect, BashEffect) and effect.reply is not None:
            result = effect.reply
            return BashReply(
                self._stream(result.stdout),
                self._stream(result.stderr),
                result.exit_code,
                result.timed_out,
                result.omitted,
            )
        if isinstance(effect, ToolEffect) and effect.reply is not None:
            return ToolReply(self._text(effect.reply.content), effect.reply.is_error)
        if effect.reply is None and effect.failure is None and not isinstance(effect, ValueEffect):
            raise DamageError(f"{self.what} is damaged: an effect has no reply")
        return effect.reply

    def _stream(self, value: str | Stored) -> bytes:
        if type(value) is str:
            return value.encode("utf-8", "surrogatepass")
        assert isinstance(value, Stored)
        if value.base64 is not None:
            try:
                return base64.b64decode(value.base64, validate=True)
            except ValueError:
                raise DamageError(f"{self.what} is damaged: an output is no base64") from None
        return self._stream(self._source(value))

    def _source(self, value: Stored) -> str | Stored:
        line = self._line(value.line)
        if isinstance(line, BashEffect) and line.reply is not None:
            found = line.reply.stderr if value.stream == "stderr" else line.reply.stdout
        elif isinstance(line, ToolEffect) and line.reply is not None:
            found = line.reply.content
        else:
            raise DamageError(f"{self.what} is damaged: line {value.line} holds no output")
        if isinstance(found, Stored) and found.base64 is None:
            raise DamageError(f"{self.what} is damaged: line {value.line} holds no output itself")
        return found

    def _text(self, value: str | Stored) -> str:
        if isinstance(value, Stored) and value.base64 is None:
            value = self._source(value)
        if isinstance(value, str):
            return value
        return self._stream(value).decode("utf-8", "replace")

    def _line(self, number: int | None) -> AnyLine:
        if number is None or not 0 < number <= len(self.lines):
            raise DamageError(f"{self.what} is damaged: it refers to line {number}, which is not")
        return self.lines[number - 1]

    # --------------------------------------------------------------------- what requests held

    def message(self, ref: Ref, before: int | None = None) -> dict[str, Any]:
        """The chat message that a ref stands for; on line `before`, it must be an earlier one."""
        number, reasoning = (ref, False) if isinstance(ref, int) else (ref[0], True)
        if before is not None and number >= before:
            raise DamageError(f"{self.what} is damaged: line {before} refers to a later line")
        line = self._line(number)
        if isinstance(line, ModelEffect) and line.reply is not None:
            return assistant_message(line.reply, reasoning=reasoning)
        if not isinstance(line, MessageLine):
            raise DamageError(f"{self.what} is damaged: line {number} holds no message")
        if line.content is None:
            return line.message
        self._unfold(number)
        return {**line.message, "content": self._texts[number]}

    def _unfold(self, last: int) -> None:
        """Put the texts of all messages up to a line together, in order: each is made of earlier
        ones, so none waits for another. What unfolds to more than any file may hold is refused."""
        for number in range(self._unfolded + 1, last + 1):
            line = self.lines[number - 1]
            if not isinstance(line, MessageLine) or line.content is None:
                continue
            parts = []
            for part in line.content:
                text = part if isinstance(part, str) else self._slice(part, number)
                self._length += len(text)
                if self._length > MAX_FILE:
                    raise DamageError(
                        f"{self.what} is damaged: its texts unfold to more than is read"
                    )
                parts.append(text)
            self._texts[number] = "".join(parts)
        self._unfolded = max(self._unfolded, last)

    def _slice(self, part: tuple[int, str, int, int], before: int) -> str:
        """Characters of an earlier line's text."""
        number, stream, start, stop = part
        if number >= before:
            raise DamageError(f"{self.what} is damaged: line {before} refers to a later line")
        line = self._line(number)
        if isinstance(line, MessageLine):
            text = self._texts.get(number)
            text = str(line.message.get("content", "")) if text is None else text
        else:
            text = self._text(Stored(line=number, stream=stream))
        return text[start:stop]

    def requests(self) -> Iterator[tuple[int, RecordedRequest]]:
        """Every model request in order, with the index of its effect."""
        messages: list[dict[str, Any]] = []
        model, params, tools = "", {}, []  # type: str, dict[str, Any], list[dict[str, Any]]
        index = -1
        for number, effect in enumerate(self.lines, 1):
            index += isinstance(effect, Effect)
            if not isinstance(effect, ModelEffect):
                continue
            request = effect.request
            for start, delete, refs in request.splices:
                if not 0 <= start <= len(messages) or delete < 0:
                    raise DamageError(f"{self.what} is damaged: a splice lies outside the history")
                messages[start : start + delete] = [self.message(ref, number) for ref in refs]
            if request.model is not None:
                model = request.model
            if request.params is not None:
                params = request.params
            if request.tools is not None:
                line = self._line(request.tools)
                if not isinstance(line, Tools):
                    raise DamageError(f"{self.what} is damaged: line {request.tools} has no tools")
                tools = line.tools
            yield index, RecordedRequest(model, params, tools, list(messages))

    def request(self, index: int) -> RecordedRequest:
        """The model request of one effect."""
        for at, request in self.requests():
            if at == index:
                return request
        raise DamageError(f"{self.what}: effect {index + 1} is no model request")

    def parents(self) -> list[str]:
        """Names of the cassettes that this one continues."""
        return [
            line.parent.cassette for line in self.lines if isinstance(line, Header) and line.parent
        ]

    def drift(self) -> list[dict[str, Any]]:
        """What differed when the sandbox was rebuilt, over the whole chain."""
        return [item for line in self.lines if isinstance(line, Resumed) for item in line.drift]

    def usage(self) -> Usage:
        """Tokens of all model replies on the tape."""
        found = [e.reply.usage for e in self.effects if isinstance(e, ModelEffect) and e.reply]
        return Usage(sum(u.input_tokens for u in found), sum(u.output_tokens for u in found))


def read_cassette(store: Store, name: str, what: str) -> Tape:
    """A sealed cassette with its parents, each verified. `what` names run and sample in errors."""
    chain: list[tuple[list[AnyLine], Parent | None]] = []
    seen: set[str] = set()
    at: str | None = name
    while at is not None:
        if at in seen:
            raise DamageError(f"{what} is damaged: its parents form a circle")
        seen.add(at)
        lines = decode_lines(store.get(at, what), what)
        header = check_header(lines, what)
        if not isinstance(lines[-1], End):
            raise DamageError(f"{what} is damaged: its last line is missing")
        chain.append((lines, header.parent))
        at = header.parent.cassette if header.parent else None
    combined = chain[-1][0]
    for lines, parent in reversed(chain[:-1]):
        assert parent is not None
        if not 0 < parent.lines < len(combined):
            raise DamageError(f"{what} is damaged: its parent has no line {parent.lines}")
        combined[parent.lines :] = lines
    return Tape(combined, what)


def check_header(lines: Sequence[AnyLine], what: str) -> Header:
    """The first line; DamageError when it is none of ours, by name when its version is unknown."""
    if not lines or not isinstance(lines[0], Header) or lines[0].format != FORMAT:
        raise DamageError(f"{what} is damaged: its first line is no cassette header")
    _check_version(lines[0].version, what)
    return lines[0]


def read_end(store: Store, name: str, what: str) -> End:
    """Only the last line of a cassette (status, answer, totals), after verifying its bytes."""
    data = store.get(name, what).rstrip(b"\n")
    if not data.startswith(_FIRST):
        _refuse_version(data, what)
    lines = decode_lines(data[data.rfind(b"\n") + 1 :], what)
    if len(lines) != 1 or not isinstance(lines[0], End):
        raise DamageError(f"{what} is damaged: its last line is missing")
    return lines[0]
