"""Journals: a cassette while it is being written.

`TapeWriter` turns effects into lines and remembers what stands where, so that nothing is written
twice. `Journal` puts the lines on the disk in the order that makes paying once possible: an intent
line before a request that costs, the reply before the loop sees it.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from hashlib import sha256
from io import BytesIO
from typing import Any

from harness import canonical
from harness.cassette import (
    AnyLine,
    BashEffect,
    BashResult,
    BashTape,
    Effect,
    End,
    Header,
    Intent,
    Line,
    MessageLine,
    ModelEffect,
    ModelTape,
    Part,
    Ref,
    Resumed,
    Stored,
    Tape,
    ToolEffect,
    ToolResult,
    Tools,
    ToolTape,
    Totals,
    ValueEffect,
    ValueTape,
    check_header,
    decode_lines,
    encode_line,
)
from harness.errors import DamageError
from harness.files import Appender
from harness.records import (
    BashReply,
    BashRequest,
    Failure,
    History,
    ModelReply,
    ModelRequest,
    Reply,
    Request,
    ToolReply,
    ToolRequest,
    Usage,
    assistant_message,
)
from harness.store import Store

SHORT = 64
"""Texts shorter than this are written again rather than referred to."""

_ANCHOR = 32  # characters that must agree before a slice is looked for


class TapeWriter:
    """Effects → lines. Holds the state that a reader of the lines so far would have."""

    def __init__(self) -> None:
        self.count = 0
        """Lines so far, those of the parents included."""
        self.effects = 0
        self.totals = Totals()
        self._refs: dict[bytes, Ref] = {}  # message digest → where it stands
        self._tools: dict[str, int] = {}  # tools digest → line
        self._outputs: dict[bytes, tuple[int, str]] = {}  # sha256 of an output → where it stands
        self._recent: list[tuple[int, str, str]] = []  # outputs since the last model request
        self._last: ModelRequest | None = None
        self._model = ""

    @classmethod
    def after(cls, tape: Tape, last: ModelRequest | None, model: str) -> TapeWriter:
        """The writer that goes on behind a tape; `last` is the last model request on it."""
        writer = cls()
        for line in tape.lines:
            writer._learn(line, tape)
        writer._last, writer._model = last, model if last is not None else ""
        return writer

    def forget(self) -> None:
        """Let go of histories and outputs: nothing more will be written."""
        self._last, self._recent = None, []

    def _learn(self, line: AnyLine, tape: Tape) -> None:
        self.count += 1
        number = self.count
        if isinstance(line, MessageLine):
            digest = sha256(canonical.message_bytes(tape.message(number))).digest()
            self._refs.setdefault(digest, number)
        elif isinstance(line, Tools):
            self._tools.setdefault(canonical.digest(line.tools), number)
        elif isinstance(line, Effect):
            reply = tape.reply(line)
            if isinstance(line, ModelEffect):
                self._recent = []
            self._note_reply(number, reply)
            self._count_effect(str(type(line).__struct_config__.tag), reply)
        elif isinstance(line, Resumed):
            self._add_totals(maybe_paid=line.maybe_paid)

    # -------------------------------------------------------------------------------- requests

    def before(self, request: Request) -> tuple[list[Line], Any]:
        """The lines that must stand before an effect, and the effect's request as it is taped."""
        if isinstance(request, BashRequest):
            return [], BashTape(request.command, float(request.timeout))
        if isinstance(request, ToolRequest):
            return [], ToolTape(request.server, request.name, request.arguments)
        if not isinstance(request, ModelRequest):
            return [], ValueTape(request.name)
        lines: list[Line] = []
        tools: int | None = None
        last = self._last
        if last is None or last.tools_digest != request.tools_digest:
            tools = self._tools.get(request.tools_digest)
            if tools is None:
                tools = self._put(Tools(tools=request.tools), lines)
                self._tools[request.tools_digest] = tools
        same = last is not None and last.params_canonical == request.params_canonical
        splices = [
            (start, delete, [self._ref(node, lines, old) for node, old in nodes])
            for start, delete, nodes in _splices(last.messages if last else None, request.messages)
        ]
        return lines, ModelTape(splices, params=None if same else request.params, tools=tools)

    def _put(self, line: Line, lines: list[Line]) -> int:
        self.count += 1
        lines.append(line)
        return self.count

    def _ref(self, node: History, lines: list[Line], replaced: History | None) -> Ref:
        found = self._refs.get(node.message_digest)
        if found is not None:
            return found
        message = dict(node.message)
        sources = self._recent
        if replaced is not None and isinstance(replaced.message.get("content"), str):
            at = self._refs.get(replaced.message_digest)
            if isinstance(at, int):
                sources = [(at, "message", replaced.message["content"]), *sources]
        line = MessageLine(message=message)
        content = message.get("content")
        if isinstance(content, str) and len(content) >= SHORT:
            parts = _parts(content, sources)
            if any(not isinstance(part, str) for part in parts):
                del message["content"]
                line = MessageLine(message=message, content=parts)
        number = self._put(line, lines)
        self._refs[node.message_digest] = number
        return number

    # --------------------------------------------------------------------------------- replies

    def effect(
        self,
        request: Request,
        taped: Any,
        digest: str,
        reply: Reply | None,
        *,
        model: str = "",
        failure: Failure | None = None,
        meta: dict[str, Any] | None = None,
    ) -> Line:
        """The line of one effect; `taped` is what `before` gave."""
        line: Line
        more: dict[str, Any] = {"digest": digest, "failure": failure, "meta": meta or None}
        if isinstance(request, ModelRequest):
            if model != self._model:
                taped = ModelTape(taped.splices, model, taped.params, taped.tools)
            assert reply is None or isinstance(reply, ModelReply)
            line = ModelEffect(request=taped, reply=reply, **more)
            self._last, self._model, self._recent = request, model, []
        elif isinstance(request, BashRequest):
            line = BashEffect(request=taped, reply=self._bash(reply), **more)
        elif isinstance(request, ToolRequest):
            result = None
            if isinstance(reply, ToolReply):
                result = ToolResult(self._store_text(reply.content), reply.is_error)
            line = ToolEffect(request=taped, reply=result, **more)
        else:
            line = ValueEffect(request=taped, reply=reply, **more)
        self.count += 1
        if failure is None:
            self._note_reply(self.count, reply)
        self._count_effect(request.kind, reply)
        return line

    def _bash(self, reply: Reply | None) -> BashResult | None:
        if not isinstance(reply, BashReply):
            return None
        return BashResult(
            self._store(reply.stdout),
            self._store(reply.stderr),
            reply.exit_code,
            reply.timed_out,
            reply.omitted,
        )

    def _store_text(self, text: str) -> str | Stored:
        try:
            return self._store(text.encode())
        except UnicodeEncodeError:  # a lone surrogate is text, and would not come back from bytes
            return text

    def _store(self, data: bytes) -> str | Stored:
        if len(data) >= SHORT and (seen := self._outputs.get(sha256(data).digest())):
            return Stored(line=seen[0], stream=seen[1])
        try:
            return data.decode()
        except UnicodeDecodeError:
            return Stored(base64=base64.b64encode(data).decode())

    def _note_reply(self, number: int, reply: Reply | None) -> None:
        """Remember what a later line can refer to."""
        if isinstance(reply, ModelReply):
            refs: tuple[Ref, Ref] = ((number, "reasoning"), number)
            for ref in refs:
                message = assistant_message(reply, reasoning=not isinstance(ref, int))
                digest = sha256(canonical.message_bytes(message)).digest()
                self._refs[digest] = ref
        elif isinstance(reply, BashReply):
            self._note_output(number, "stdout", reply.stdout)
            self._note_output(number, "stderr", reply.stderr)
        elif isinstance(reply, ToolReply):
            self._note_output(
                number, "content", reply.content.encode("utf-8", "surrogatepass"), reply.content
            )

    def _note_output(self, number: int, stream: str, data: bytes, text: str | None = None) -> None:
        if len(data) >= SHORT:
            text = data.decode("utf-8", "replace") if text is None else text
            self._outputs.setdefault(sha256(data).digest(), (number, stream))
            self._recent.append((number, stream, text))

    def _count_effect(self, kind: str, reply: Reply | None) -> None:
        self.effects += 1
        usage = reply.usage if isinstance(reply, ModelReply) else Usage()
        self._add_totals(
            **{kind: 1}, input_tokens=usage.input_tokens, output_tokens=usage.output_tokens
        )

    def _add_totals(self, **more: int) -> None:
        now = self.totals
        self.totals = Totals(
            **{name: getattr(now, name) + more.get(name, 0) for name in now.__struct_fields__}
        )


def _splices(
    old: History | None, new: History
) -> list[tuple[int, int, list[tuple[History, History | None]]]]:
    """What to do to the old messages to get the new ones; each node with the one it replaces."""
    if old is None:
        return [(0, 0, [(node, None) for node in new.nodes()])]
    added: list[tuple[History, History | None]] = []
    node = new
    while len(node) > len(old) and node.parent is not None:
        added.append((node, None))
        node = node.parent
    if node.chain == old.chain:
        return [(len(old), 0, added[::-1])] if added else []
    if len(new) < len(old):
        before, after = old.nodes(), new.nodes()
        keep = 0
        while keep < len(after) and before[keep].message_digest == after[keep].message_digest:
            keep += 1
        return [(keep, len(before) - keep, [(node, None) for node in after[keep:]])]
    # messages were changed in place (old outputs were shortened): one splice for each stretch
    pairs: list[tuple[History, History]] = []
    was, now = old, node
    while was.chain != now.chain and was.parent is not None and now.parent is not None:
        pairs.append((was, now))
        was, now = was.parent, now.parent
    found: list[tuple[int, int, list[tuple[History, History | None]]]] = []
    for index, (was, now) in enumerate(reversed(pairs), len(old) - len(pairs)):
        if was.message_digest == now.message_digest:
            continue
        if found and found[-1][0] + found[-1][1] == index:
            start, delete, nodes = found[-1]
            found[-1] = (start, delete + 1, [*nodes, (now, was)])
        else:
            found.append((index, 1, [(now, was)]))
    if added:
        found.append((len(old), 0, added[::-1]))
    return found


def _parts(content: str, sources: Sequence[tuple[int, str, str]]) -> list[Part]:
    """The text as literal parts and slices of earlier texts, longest sources first."""
    parts: list[Part] = [content]
    for line, stream, text in sorted(sources, key=lambda source: -len(source[2])):
        if len(text) < SHORT:
            break
        found: list[Part] = []
        for part in parts:
            found += _cut(part, line, stream, text) if isinstance(part, str) else [part]
        parts = found
    return parts


def _cut(part: str, line: int, stream: str, text: str) -> list[Part]:
    """One literal part, with the head and the tail of a source that it holds made slices."""
    start = part.find(text[:_ANCHOR])
    if start < 0:
        return [part]
    head = _agree(part, start, text)
    cut: list[Part] = [part[:start], (line, stream, 0, head)]
    rest = part[start + head :]
    left = len(text) - head
    end = rest.rfind(text[-_ANCHOR:]) + _ANCHOR if left >= SHORT else 0
    if end >= _ANCHOR:
        tail = _agree(rest[:end][::-1], 0, text[head:][::-1])
        cut += [rest[: end - tail], (line, stream, len(text) - tail, len(text)), rest[end:]]
    else:
        cut.append(rest)
    return [piece for piece in cut if piece != ""]


def _agree(part: str, start: int, text: str) -> int:
    """How many characters of `text` stand in `part` from `start` on (by bisection)."""
    low, high = 0, min(len(text), len(part) - start)
    while low < high:
        middle = (low + high + 1) // 2
        if part[start + low : start + middle] == text[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


# ------------------------------------------------------------------------------------------ journal


class Journal:
    """The file of one sample's recording in progress."""

    def __init__(
        self, store: Store, run: str, key: str, writer: TapeWriter, file: Appender
    ) -> None:
        self._store, self._run, self._key = store, run, key
        self.writer = writer
        self._file = file

    @classmethod
    def begin(cls, store: Store, run: str, key: str, header: Header, writer: TapeWriter) -> Journal:
        """A new journal in place of any old one; `writer` knows the parent's lines, if any."""
        journal = cls(store, run, key, writer, store.open_journal(run, key, size=0))
        writer.count += 1
        journal._file.append(encode_line(header), durable=False)
        return journal

    @classmethod
    def reopen(
        cls, store: Store, run: str, key: str, found: OpenTape, writer: TapeWriter
    ) -> Journal:
        """Go on behind a journal that was left, without its torn end."""
        file = store.open_journal(run, key, size=found.size)
        return cls(store, run, key, writer, file)

    def resumed(self, maybe_paid: int, drift: list[dict[str, Any]]) -> None:
        """Note that the recording was interrupted and goes on."""
        self.writer.count += 1
        self.writer._add_totals(maybe_paid=maybe_paid)
        self._file.append(encode_line(Resumed(maybe_paid=maybe_paid, drift=drift)), durable=False)

    def intend(self, request: Request, digest: str) -> Any:
        """Write what must stand before an effect; what costs gets an intent line, on the disk."""
        lines, taped = self.writer.before(request)
        costs = isinstance(request, ModelRequest | ToolRequest)
        if costs:
            lines.append(Intent(effect=self.writer.effects + 1, digest=digest))
        if lines:
            self._file.append(b"".join(map(encode_line, lines)), durable=costs)
        return taped

    def effect(
        self, request: Request, taped: Any, digest: str, reply: Reply | None, **more: Any
    ) -> bytes:
        """Write one effect; it is on the disk when this returns. Returns the line."""
        data = encode_line(self.writer.effect(request, taped, digest, reply, **more))
        self._file.append(data, durable=True)
        return data

    def keep(self, data: bytes) -> str:
        """Put an object into the store that an effect's metadata will name."""
        return self._store.put(data)

    def close(self) -> None:
        self._file.close()

    def read(self, last: bytes = b"") -> bytes:
        """The cassette's lines so far, from the disk, without the intents; `last` behind them."""
        data = self._store.read_journal(self._run, self._key) or b""
        return strip_intents(data, last)

    def finish(self) -> None:
        """No more effects will come; what they could have referred to is let go of."""
        self.close()
        self.writer.forget()

    def seal(self, end: End) -> str:
        """Make the journal a cassette: an object of the store. The journal stays until removed."""
        self.close()
        return self._store.put(self.read(encode_line(end)))

    def remove(self) -> None:
        self._store.remove_journal(self._run, self._key)


_INTENT = b'{"type":"intent",'


def strip_intents(data: bytes, last: bytes = b"") -> bytes:
    """The lines of a journal that a cassette keeps, and `last` behind them."""
    kept, view, start = BytesIO(), memoryview(data), 0  # no copies of lines: they may be large
    while end := data.find(b"\n", start) + 1:
        if not data.startswith(_INTENT, start):
            kept.write(view[start:end])
        start = end
    kept.write(last)
    return kept.getvalue()


class OpenTape:
    """A journal as it was found: the lines that are whole, and what is behind them."""

    def __init__(self, data: bytes, what: str) -> None:
        whole = data.rfind(b"\n") + 1
        self.torn = len(data) - whole
        """Bytes of a last line that was not finished; they are dropped."""
        lines = decode_lines(data[:whole], what) if whole else []
        if lines:
            check_header(lines, what)
        intents = sum(isinstance(line, Intent) for line in lines)
        self.lines = [line for line in lines if not isinstance(line, Intent)]
        costly = sum(isinstance(line, ModelEffect | ToolEffect) for line in self.lines)
        noted = sum(line.maybe_paid for line in self.lines if isinstance(line, Resumed))
        self.maybe_paid = intents - costly - noted
        """Requests that were sent and whose replies never came, since the last resumption."""
        self.size = whole
        if self.maybe_paid < 0:
            raise DamageError(f"{what} is damaged: it has replies that were never asked for")
