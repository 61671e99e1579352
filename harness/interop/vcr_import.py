"""`harness import --from vcr`: cassettes of vcrpy become a run, one sample per file.

What an endpoint answered is read by our own client, as while recording: vcrpy plays each response
to the installed `openai` package. Only the conversation was on the wire; what ran between two
requests was not, so that no loop can be followed.
"""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from harness.answers import answer_text, parse_arguments
from harness.cassette import RecordedRequest
from harness.dataset import Dataset
from harness.errors import DataError, ModelError
from harness.exchange import StoredExchange
from harness.interop.imported import (
    MAX_EFFECTS,
    ImportedEffect,
    ImportedSample,
    ImportReport,
    Source,
)
from harness.interop.importing import write_import
from harness.interop.vcr_files import (
    Interaction,
    NoCassetteError,
    find_files,
    parse_json,
    read_cassette_file,
)
from harness.interop.wire_proof import Player
from harness.records import (
    Failure,
    History,
    ModelReply,
    ModelRequest,
    Outcome,
    Sample,
    Settings,
)
from harness.runfile import RunSettings
from harness.store import Store

MISSING = ("commands and their raw output", "verdicts", "levels", "timings")
"""What no cassette of vcrpy holds."""

_ENDPOINT = "/chat/completions"
_EPOCH = re.compile(r"(.+)@([1-9]\d{0,5})")
_OURS = ("latency", "attempts")  # of playing it here; they say nothing of the recording
_NO_CHOICE = ("model", "messages", "tools", "stream", "stream_options")


class _Asked(NamedTuple):
    """A chat completion's request."""

    model: str
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    params: dict[str, Any]
    stream: bool


def import_run(
    store: Store, path: str, name: str, *, dataset: Dataset | None = None, split: str = "validation"
) -> ImportReport:
    """Import a cassette, or every cassette below a folder, as a new run.

    Raises DataError for what cannot be read, LackError without vcrpy or openai.
    """
    player = Player()
    try:
        reader = _Reader(Path(path), player)
        samples = reader.samples()
        first = next(samples, None)
        if first is None:
            raise DataError(f"{path} holds no cassette of vcrpy with a chat completion")
        return write_import(
            store,
            name,
            source=Source(
                tool="vcrpy", agent="vcr", missing=MISSING, details={"endpoint": reader.endpoint}
            ),
            settings=RunSettings(
                loop=Settings(model=reader.model, params=reader.params),
                agent="vcr",
                stream=reader.stream,
                transport={"api_url": reader.endpoint},
            ),
            samples=chain([first], samples),
            dataset=dataset,
            dataset_id=Path(path).stem or "vcr",
            split=split,
            warnings=reader.warnings,
        )
    finally:
        player.close()


class _Reader:
    """Reads the files one after the other; what the run is told comes from the first request."""

    def __init__(self, path: Path, player: Player) -> None:
        self._path, self._player = path, player
        self.warnings: list[str] = []
        self.endpoint: str | None = None
        self.model, self.params, self.stream = "", dict[str, Any](), False

    def samples(self) -> Iterator[ImportedSample]:
        """One per file that holds a chat completion."""
        if not self._path.is_dir():
            found = self._sample(self._path, self._path.stem)
            if found is not None:
                yield found
            return
        files = find_files(self._path)
        names = [path.relative_to(self._path).with_suffix("").as_posix() for path in files]
        twice = Counter(names)
        for path, name in zip(files, names, strict=True):
            if twice[name] > 1:
                name = path.relative_to(self._path).as_posix()
            try:
                found = self._sample(path, name)
            except NoCassetteError as error:
                self.warnings.append(f"skipped: {error.message}")
                continue
            if found is not None:
                yield found

    def _sample(self, path: Path, name: str) -> ImportedSample | None:
        interactions = read_cassette_file(path)
        if len(interactions) > MAX_EFFECTS:
            raise DataError(f"{path} has more than {MAX_EFFECTS} interactions")
        talk = _Talk(self._player)
        skipped = 0
        for number, found in enumerate(interactions, 1):
            if not _is_completion(found):
                skipped += 1
                continue
            what = f"{path}, interaction {number}"
            asked = _asked(found.sent, what)
            if self.endpoint is None:
                self.endpoint = _base(found.uri, what)
                self.model, self.params, self.stream = asked.model, asked.params, asked.stream
            talk.add(asked, found, what)
        if skipped:
            self.warnings.append(f"{path}: {skipped} requests are no chat completions; left out")
        if not talk.asked:
            return None
        outcome, failure = talk.end()
        task_id, epoch = _identity(name)
        return ImportedSample(
            sample=Sample(task_id=task_id, question=talk.question, level=0, epoch=epoch),
            effects=talk.effects,
            outcome=outcome,
            last_error=talk.last.error if talk.last and not failure else None,
            notes=talk.notes,
        )


class _Talk:
    """One file's chat completions, in order, put together to model turns."""

    def __init__(self, player: Player) -> None:
        self.effects: list[ImportedEffect] = []
        self.question = ""
        self.last: ModelReply | None = None
        self.notes: list[str] = []
        self.asked = 0
        self._player = player
        self._nodes: list[History] = []  # of the last request's messages, to share what is the same
        self._failed: list[tuple[ModelRequest, str, str, int]] = []  # attempts without a reply yet
        self._lost = 0

    def add(self, asked: _Asked, found: Interaction, what: str) -> None:
        """One more interaction."""
        self.asked += 1
        if not self.question:
            self.question = _question(asked.messages)
        try:
            request = ModelRequest(self._history(asked.messages), asked.tools, asked.params)
            digest = request.digest(asked.model)
        except (RecursionError, ValueError) as error:
            raise DataError(f"{what}: the request cannot be read: {error}") from None
        if self._failed and self._failed[-1][1] != digest:
            self._lost += len(self._failed)
            self._failed.clear()
        recorded = RecordedRequest(asked.model, asked.params, asked.tools, asked.messages)
        try:
            reply, details, _ = self._player.play(recorded, asked.stream, _exchange(found), None)
        except ModelError as error:
            self._failed.append((request, digest, _once(error.message), found.status))
            self._model = asked.model
            return
        except (TypeError, RecursionError, ValueError) as error:
            raise DataError(f"{what}: it cannot be played: {error}") from None
        meta = {key: value for key, value in details.items() if key not in _OURS}
        meta["attempts"] = [{"status": status} for *_, status in self._failed]
        meta["attempts"].append({"status": found.status})
        self._failed.clear()
        self.effects.append(ImportedEffect(request, reply, meta=meta, model=asked.model))
        self.last = reply

    def _history(self, messages: list[dict[str, Any]]) -> History:
        """The messages, on the nodes that the request before had for the same ones."""
        shared = 0
        while (
            shared < min(len(messages), len(self._nodes))
            and self._nodes[shared].message == messages[shared]
        ):
            shared += 1
        node = self._nodes[shared - 1] if shared else History()
        nodes = self._nodes[:shared]
        for message in messages[shared:]:
            node = node.append(message)
            nodes.append(node)
        self._nodes = nodes
        return node

    def end(self) -> tuple[Outcome, Failure | None]:
        """How it ended: with an answer, without one, or in the error of the last request."""
        failure = None
        if self._failed:
            request, _, message, _ = self._failed[-1]
            failure = Failure("model", message)
            attempts = [{"status": status} for *_, status in self._failed]
            meta = {"attempts": attempts}
            self.effects.append(ImportedEffect(request, None, failure, meta, self._model))
        if self._lost:
            self.notes.append(f"{self._lost} requests got no reply and were not repeated; left out")
        if failure is not None:
            return Outcome(status="error", failure=failure), failure
        answer = self._answer()
        if answer is None:
            self.notes.append("there is no submit call and no last text: no answer")
        return Outcome(status="ok", answer=answer), None

    def _answer(self) -> str | None:
        """The argument of the first submit call that can be read, else the last reply's text."""
        for effect in self.effects:
            for call in effect.reply.tool_calls if isinstance(effect.reply, ModelReply) else ():
                if call.name != "submit":
                    continue
                try:
                    arguments = parse_arguments(call.arguments)
                except ValueError:
                    continue
                if isinstance(arguments, dict) and "answer" in arguments:
                    return answer_text(arguments["answer"])
        if self.last is None or self.last.tool_calls or self.last.error:
            return None
        return self.last.content


# ------------------------------------------------------------------------------------ a request


def _is_completion(found: Interaction) -> bool:
    try:
        path = urlsplit(found.uri).path
    except ValueError:
        return False
    return found.method == "POST" and path.rstrip("/").endswith(_ENDPOINT)


def _asked(data: bytes, what: str) -> _Asked:
    """The request in a body. DataError when it is none of a chat completion."""
    body = parse_json(data, f"{what}, the request's body")
    messages = body.get("messages") if isinstance(body, dict) else None
    if not isinstance(body, dict) or not isinstance(messages, list) or not _are_objects(messages):
        raise DataError(f"{what}: the request's body has no list of messages")
    tools = body.get("tools") or []
    if not _are_objects(tools):
        raise DataError(f"{what}: the request's tools are no list of objects")
    model = body.get("model")
    params = {key: value for key, value in body.items() if key not in _NO_CHOICE}
    if not isinstance(params.get("extra_body") or {}, dict):
        raise DataError(f"{what}: the request's extra_body is no object")
    return _Asked(
        model=model if isinstance(model, str) else "",
        messages=messages,
        tools=tools,
        params=params,
        stream=bool(body.get("stream")),
    )


def _are_objects(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def _question(messages: list[dict[str, Any]]) -> str:
    """The text of the user's first message."""
    for message in messages:
        if message.get("role") != "user":
            continue
        content = message.get("content")
        if isinstance(content, str):
            return content
        parts = content if isinstance(content, list) else []
        texts = [part.get("text") for part in parts if isinstance(part, dict)]
        return "\n".join(text for text in texts if isinstance(text, str))
    return ""


def _base(uri: str, what: str) -> str:
    """The base address of an endpoint, without user, password and query."""
    try:
        parts = urlsplit(uri)
        host = parts.netloc.rpartition("@")[2]
        usable = parts.scheme in ("http", "https") and bool(host)
    except ValueError:
        usable = False
    if not usable:
        raise DataError(f"{what}: the request's uri is no http(s) address")
    return f"{parts.scheme}://{host}{parts.path.rstrip('/').removesuffix(_ENDPOINT)}"


def _exchange(found: Interaction) -> StoredExchange:
    return StoredExchange(
        method="POST",
        path="",
        request_sha256="",
        status=found.status,
        headers=found.headers,
        base64=base64.b64encode(found.body).decode(),
    )


def _once(message: str) -> str:
    """A failure's words without the count of attempts, which were made here."""
    return message.partition(". Gave up after ")[0]


def _identity(name: str) -> tuple[str, int]:
    """Task id and epoch of a file's name: as our own export writes them, else the name itself."""
    match = _EPOCH.fullmatch(name)
    return (unquote(match[1]), int(match[2])) if match else (name, 1)
