"""The frozen values that cross the seam: samples, settings, requests, replies, outcomes.

Everything here is plain data. A request knows its digest; the digest is computed from the values
that the loop handed over and is never read from a tape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from math import isfinite
from typing import Any, ClassVar, Literal, overload

import msgspec

from harness import canonical

JSON = Any
Message = Mapping[str, Any]

# Parts of a model request that a replay can be told to look at (`--match-on`).
MATCH_PARTS = ("model", "messages", "tools", "params")


# --------------------------------------------------------------------------- sample and settings


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One GAIA question as the loop sees it. The truth is never part of it."""

    task_id: str
    question: str
    level: int
    file_name: str = ""
    """Name under /shared_files, empty when the question has no attachment."""
    attachment: str | None = None
    """`sha256:…` of the attachment's bytes."""
    epoch: int = 1


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent loop may read. Recorded with the run and given again on replay."""

    model: str = ""
    params: dict[str, Any] = {}
    """Generation parameters that go into every model request (temperature, seed, …)."""
    max_steps: int = 50
    """Model turns at most."""
    command_timeout: float = 180.0
    """Seconds for one bash command."""
    max_output_chars: int = 16_000
    """Characters of one tool output that the model is shown; the middle is cut beyond that."""
    context_limit: int | None = None
    """Tokens (by the stated estimate) that the history should stay below; None: no shortening."""
    prompt_template: str | None = None
    """The user's first message with `{question}` and `{file}`; None: the built-in one."""
    send_reasoning: bool = False
    """Whether `reasoning_content` is sent back with the assistant's messages."""


# ------------------------------------------------------------------------------------- histories


class History(Sequence[Message]):
    """An immutable list of chat messages that shares its past with the list it was made from.

    Each node holds one message, its digest and the chain digest of all messages so far, so that
    appending costs what the new message costs, however long the history is.
    """

    __slots__ = ("_length", "chain", "message", "message_digest", "parent")

    parent: History | None
    message: Message
    message_digest: bytes
    chain: bytes

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        """A history of the given messages; `History()` is the empty one."""
        tail: History | None = None
        last: Message | None = None
        for message in messages:
            if last is not None:
                tail = _node(tail or _EMPTY, last)
            last = message
        if last is None:
            self.parent, self.message, self.message_digest = None, {}, b""
            self.chain, self._length = _ROOT, 0
        else:
            self._fill(tail or _EMPTY, last)

    def _fill(self, parent: History, message: Message, digest: bytes | None = None) -> None:
        self.parent, self.message = parent, message
        self.message_digest = digest or sha256(canonical.message_bytes(message)).digest()
        self.chain = sha256(parent.chain + self.message_digest).digest()
        self._length = parent._length + 1

    @classmethod
    def of(cls, messages: Iterable[Message]) -> History:
        """The value itself if it is a history, else a history of plain, copied messages."""
        if isinstance(messages, History):
            return messages
        return cls(_object(message, "a message") for message in messages)

    def append(self, *messages: Message) -> History:
        """A new history with the messages behind this one's. They must not be changed later."""
        node = self
        for message in messages:
            node = _node(node, message)
        return node

    def adopt(self, node: History) -> History:
        """`append(node.message)`, without digesting that message once more."""
        return _node(self, node.message, node.message_digest)

    def nodes(self, start: int = 0) -> list[History]:
        """One node per message, first to last; from the message of that index on."""
        found: list[History] = []
        node: History | None = self
        while node is not None and node._length > start:
            found.append(node)
            node = node.parent
        found.reverse()
        return found

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Message]:
        return (node.message for node in self.nodes())

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | Sequence[Message]:
        if index == -1 and self._length:
            return self.message
        return [node.message for node in self.nodes()][index]

    def __eq__(self, other: object) -> bool:
        return self.chain == other.chain if isinstance(other, History) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.chain)

    def __repr__(self) -> str:
        return f"History({list(self)!r})"


_ROOT = sha256(b"gaia-harness/1").digest()
_EMPTY = History()


def _node(parent: History, message: Message, digest: bytes | None = None) -> History:
    node = History.__new__(History)
    node._fill(parent, message, digest)
    return node


class Frozen:
    """A JSON value with its canonical bytes and digest, computed once."""

    __slots__ = ("canonical", "digest", "value")

    def __init__(self, value: JSON) -> None:
        self.value = value
        self.canonical = canonical.dumps(value)
        self.digest = sha256(self.canonical).hexdigest()


def plain(value: JSON) -> JSON:
    """A copy made of dicts, lists and scalars; tool calls become OpenAI-shaped dicts."""
    if type(value) in _SCALARS:
        return value
    if isinstance(value, ToolCall):
        return value.openai()
    if isinstance(value, Mapping):
        return {plain(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    # a text of some template engine, a number of some array library: nothing can write those down
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__index__(value)
    if isinstance(value, float):
        return float.__float__(value)
    return value


_SCALARS = frozenset({str, int, float, bool, type(None)})


def _object(value: Any, what: str) -> dict[str, JSON]:
    """A plain copy of a JSON object; TypeError for anything else."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{what} must be a dict, not {type(value).__name__}")
    return plain(value)  # type: ignore[no-any-return]


def _text(value: Any, what: str) -> str:
    """The text itself, of class `str`; TypeError for anything else."""
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a str, not {type(value).__name__}")
    return str.__str__(value)


# -------------------------------------------------------------------------------------- requests


class ModelRequest:
    """One chat completion. `messages` are OpenAI-shaped; the model's name is the run's.

    What is no JSON is refused here, by TypeError or ValueError, as in the other requests: one that
    could not be written down must not be performed.

    Plain lists and dicts are copied and frozen; a `History`, and tools or params wrapped in
    `Frozen`, are taken as they are, so that a long sample costs no more per step than a short one.
    """

    kind: ClassVar[Literal["model"]] = "model"
    __slots__ = ("_params", "_tools", "messages")

    def __init__(
        self,
        messages: Iterable[Message],
        tools: Sequence[JSON] | Frozen = (),
        params: Mapping[str, JSON] | Frozen | None = None,
    ) -> None:
        self.messages = History.of(messages)
        if not isinstance(tools, Frozen):
            tools = Frozen([_object(tool, "a tool's schema") for tool in tools])
        if not isinstance(params, Frozen):
            params = Frozen(_object({} if params is None else params, "params"))
        self._tools, self._params = tools, params

    @property
    def tools(self) -> list[JSON]:
        """Tool schemas as sent to the endpoint."""
        return list(self._tools.value)

    @property
    def params(self) -> dict[str, JSON]:
        """Generation parameters."""
        return dict(self._params.value)

    @property
    def tools_digest(self) -> str:
        """Hex SHA-256 of the list of tool schemas."""
        return self._tools.digest

    @property
    def params_canonical(self) -> bytes:
        """Canonical JSON of the generation parameters."""
        return self._params.canonical

    def digest(self, model: str) -> str:
        """Hex SHA-256 over kind, model, params, the tools' digest and the history's digest."""
        # canonical JSON, spelled out: only `messages` changes from step to step
        body = b'{"kind":"model","messages":"%b","model":%b,"params":%b,"tools":"%b"}' % (
            self.messages.chain.hex().encode(),
            canonical.text_bytes(model),
            self._params.canonical,
            self._tools.digest.encode(),
        )
        return sha256(body).hexdigest()

    def __repr__(self) -> str:
        return f"ModelRequest({len(self.messages)} messages, {len(self._tools.value)} tools)"


class BashRequest(msgspec.Struct, frozen=True):
    """One command for the sample's sandbox; `timeout` in seconds."""

    kind: ClassVar[Literal["bash"]] = "bash"
    command: str
    timeout: float = 180.0

    def __post_init__(self) -> None:
        if type(self.command) is not str:
            msgspec.structs.force_setattr(self, "command", _text(self.command, "command"))
        if type(self.timeout) is not float:
            msgspec.structs.force_setattr(self, "timeout", float(self.timeout))
        if not isfinite(self.timeout):
            raise ValueError(f"timeout must be a number of seconds, not {self.timeout}")

    def digest(self, model: str = "") -> str:
        # canonical JSON, spelled out
        body = b'{"command":%b,"kind":"bash","timeout":%b}' % (
            canonical.text_bytes(self.command),
            canonical.number_bytes(float(self.timeout)),
        )
        return sha256(body).hexdigest()


class ToolRequest(msgspec.Struct, frozen=True):
    """One call of an MCP server's tool; `arguments` is a JSON object."""

    kind: ClassVar[Literal["tool"]] = "tool"
    server: str
    name: str
    arguments: dict[str, JSON] = {}

    def __post_init__(self) -> None:
        for field, value in (
            ("server", _text(self.server, "server")),
            ("name", _text(self.name, "name")),
            ("arguments", _object(self.arguments, "arguments")),
        ):
            msgspec.structs.force_setattr(self, field, value)

    def digest(self, model: str = "") -> str:
        return canonical.digest(
            {
                "arguments": self.arguments,
                "kind": "tool",
                "name": self.name,
                "server": self.server,
            }
        )


class ValueRequest(msgspec.Struct, frozen=True):
    """A value of a user loop's own clock, randomness or I/O: `make()` is called while recording."""

    kind: ClassVar[Literal["value"]] = "value"
    name: str
    make: Callable[[], JSON]

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "name", _text(self.name, "name"))

    def digest(self, model: str = "") -> str:
        return canonical.digest({"kind": "value", "name": self.name})


Request = ModelRequest | BashRequest | ToolRequest | ValueRequest


# --------------------------------------------------------------------------------------- replies


class ToolCall(msgspec.Struct, frozen=True):
    """A call that the model asked for; id and arguments are kept exactly as they came.

    Reads as an OpenAI object too: `call["function"]["name"]`, `call.function.arguments`.
    """

    id: str
    name: str
    arguments: str
    """The argument text; not always valid JSON."""

    @property
    def function(self) -> ToolCall:
        """Itself, so that it reads as an OpenAI object."""
        return self

    def openai(self) -> dict[str, JSON]:
        """The call as it stands in a chat message."""
        return {
            "id": self.id,
            "type": "function",
            "function": {"name": self.name, "arguments": self.arguments},
        }

    def __getitem__(self, key: str) -> JSON:
        return self.openai()[key]

    @classmethod
    def of(cls, value: ToolCall | Mapping[str, JSON]) -> ToolCall:
        """From itself, or from an OpenAI-shaped dict."""
        if isinstance(value, ToolCall):
            return value
        function = value.get("function", value)
        arguments = function["arguments"]
        if not isinstance(arguments, str):
            arguments = canonical.dumps(arguments).decode()
        return cls(value["id"], function["name"], arguments)


class Usage(msgspec.Struct, frozen=True):
    """Tokens of one model reply, as the endpoint counted them."""

    input_tokens: int = 0
    output_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens, self.output_tokens + other.output_tokens
        )


class ModelReply(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the loop can read of a chat completion. Ids, timing and cost are metadata."""

    content: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    reasoning: str | None = None
    refusal: str | None = None
    finish_reason: str | None = None
    usage: Usage = Usage()
    error: str | None = None
    """`context_exceeded` or `refused` when the endpoint's answer was that, else None."""

    def __post_init__(self) -> None:
        # accept lists and OpenAI-shaped dicts from hand-written worlds
        calls = self.tool_calls
        if type(calls) is not tuple or any(type(call) is not ToolCall for call in calls):
            fixed = tuple(ToolCall.of(call) for call in calls or ())
            msgspec.structs.force_setattr(self, "tool_calls", fixed)


class BashReply(msgspec.Struct, frozen=True):
    """Result of one command. A timeout and a non-zero exit are results, not errors."""

    stdout: bytes = b""
    stderr: bytes = b""
    exit_code: int | None = 0
    """None when the command was stopped at its timeout."""
    timed_out: bool = False
    omitted: int = 0
    """Bytes of both streams that were left out between the kept heads and tails."""


class ToolReply(msgspec.Struct, frozen=True, omit_defaults=True):
    """Result of one MCP call; `is_error` is the tool's own word."""

    content: str
    is_error: bool = False


# ModelReply, BashReply, ToolReply, or any JSON value: what comes back depends on the request
Reply = Any


def assistant_message(reply: ModelReply, *, reasoning: bool = False) -> dict[str, JSON]:
    """The chat message that stands for a reply in the history.

    Part of the cassette format: a history may refer to "the message of the reply on line N".
    """
    message: dict[str, JSON] = {"role": "assistant", "content": reply.content or ""}
    if reasoning and reply.reasoning is not None:
        message["reasoning_content"] = reply.reasoning
    if reply.tool_calls:
        message["tool_calls"] = [call.openai() for call in reply.tool_calls]
    return message


_encode_sorted = msgspec.json.Encoder(order="sorted").encode


def reply_digest(reply: Reply) -> bytes:
    """SHA-256 of exactly what the loop can read of a reply."""
    if type(reply) is BashReply:
        # the streams by their own digests: they are long, and need no JSON form for this
        body = b'{"exit_code":%b,"omitted":%d,"stderr":"%b","stdout":"%b","timed_out":%b}' % (
            b"null" if reply.exit_code is None else b"%d" % reply.exit_code,
            reply.omitted,
            sha256(reply.stderr).hexdigest().encode(),
            sha256(reply.stdout).hexdigest().encode(),
            b"true" if reply.timed_out else b"false",
        )
        return sha256(body).digest()
    if isinstance(reply, ModelReply | ToolReply):
        try:
            return sha256(_encode_sorted(reply)).digest()
        except UnicodeEncodeError:
            return sha256(canonical.dumps(_builtins(reply))).digest()
    return sha256(canonical.dumps(reply)).digest()


def _builtins(value: JSON) -> JSON:
    return msgspec.to_builtins(value, order="sorted")


# -------------------------------------------------------------------------------------- outcomes


class Failure(msgspec.Struct, frozen=True):
    """Why a sample ended in error: a kind of `SampleError` and its message."""

    kind: str
    message: str


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How one attempt at a sample ended."""

    status: Literal["ok", "error"]
    answer: str | None = None
    failure: Failure | None = None


Verdict = Literal[
    "right",
    "wrong",
    "no_answer",
    "context_exceeded",
    "refused",
    "error",
    "missing",
    "unscored",
]
VERDICTS: tuple[Verdict, ...] = (
    "right",
    "wrong",
    "no_answer",
    "context_exceeded",
    "refused",
    "error",
    "missing",
    "unscored",
)


class TrajectoryHash:
    """Folds effects into the trajectory digest, in order, over a whole parent chain."""

    __slots__ = ("_state",)

    def __init__(self) -> None:
        self._state = sha256(b"gaia-harness-trajectory/1")

    def add(self, request_digest: str, reply: bytes) -> None:
        """One effect: its request's hex digest and `reply_digest` (or a failure's digest)."""
        self._state.update(bytes.fromhex(request_digest))
        self._state.update(reply)

    def result(self, outcome: Outcome) -> str:
        """Hex digest over the effects so far, then status, answer and the failure's kind."""
        state = self._state.copy()
        end: dict[str, JSON] = {"answer": outcome.answer, "status": outcome.status}
        if outcome.failure:
            end["error"] = outcome.failure.kind
        state.update(canonical.dumps(end))
        return state.hexdigest()


def failure_digest(failure: Failure) -> bytes:
    """Stands where a reply's digest would, for an effect that ended the sample."""
    return sha256(canonical.dumps({"error": failure.kind})).digest()
