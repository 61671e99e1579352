"""`harness verify --wire`: every recorded model reply, made again from the bytes of the wire.

vcrpy plays the evidence to the installed `openai` package, and our own client and merger read it
as they do while recording. What comes out must be what the tape holds. That is a proof of the
cassette which does not rest on the moment of recording, and a regression test for upgrades of the
package and for changes of the merger.

Nothing can reach a network: vcrpy answers with record mode `none`, at an address (port 0 of this
machine) that nobody can listen on should it ever be bypassed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any

import msgspec

from harness.cassette import ModelEffect, RecordedRequest, Tape, read_cassette
from harness.difference import excerpts, first_difference, path_text
from harness.errors import DamageError, HarnessError, LackError, ModelError
from harness.exchange import StoredExchange
from harness.interop.evidence import Evidence, as_request, evidence_of, sent_as
from harness.live import wire
from harness.live.model import Model
from harness.records import ModelReply
from harness.redact import MARK
from harness.runfile import RunFile, read_run
from harness.store import Store

NOWHERE = "http://127.0.0.1:0"
"""Port 0 is no port: a connection to it fails at once and leaves no machine."""

Line = tuple[str, bool]
"""A line to print, and whether it is bad news."""

_DETAILS = (
    "response_id", "model", "created", "system_fingerprint", "service_tier", "usage",
    "cached_tokens", "reasoning_tokens", "unknown_parts", "tool_call_extras", "request_id",
    "endpoint_said",
)  # fmt: skip
"""Metadata that comes from the response, and so can be made again."""


class _Tally(msgspec.Struct):
    """What was seen of one run."""

    replies: int = 0
    rebuilt: int = 0
    exchanges: int = 0
    size: int = 0
    """Bytes of the responses."""
    broken: int = 0
    failed: int = 0
    differences: int = 0


def prove(store: Store, names: Sequence[str] = ()) -> Iterator[Line]:
    """Check the wire evidence of runs (default: all). LackError, at once, without the packages."""
    player = Player()
    return _prove(store, names or store.runs(), player)


def _prove(store: Store, names: Sequence[str], player: Player) -> Iterator[Line]:
    try:
        for name in names:
            try:
                run = read_run(store, name)
            except LackError:
                raise
            except HarnessError as error:
                yield str(error), True
                continue
            yield from _run(store, run, player)
    finally:
        player.close()


def _run(store: Store, run: RunFile, player: Player) -> Iterator[Line]:
    tally = _Tally()
    for entry in run.samples:
        if entry.cassette is None:
            continue
        where = f"sample {entry.task_id!r}, epoch {entry.epoch}"
        what = f"the cassette of {where}, in run {run.name!r}"
        try:
            tape = read_cassette(store, entry.cassette, what)
            for told in _sample(store, tape, run.settings.stream, player, tally):
                tally.differences += 1
                yield f"{run.name}: {where}, {told}", True
        except DamageError as error:
            yield str(error), True
        except (RecursionError, ValueError) as error:
            yield f"{what} is damaged: {error}", True
    yield from ((line, False) for line in _summary(run.name, tally, player))


def _summary(name: str, tally: _Tally, player: Player) -> Iterator[str]:
    if not tally.exchanges:
        yield (
            f"{name}: no wire evidence, so nothing is proved ({tally.replies} model replies; "
            "recorded with --no-wire, or imported)"
        )
        return
    yield (
        f"{name}: {tally.rebuilt} of {tally.replies} model replies made again from the wire, "
        f"{tally.differences} differences ({tally.exchanges} exchanges, {tally.size} bytes of "
        f"responses; {player.label})"
    )
    if tally.replies > tally.rebuilt:
        yield f"{name}: {tally.replies - tally.rebuilt} model replies have no wire evidence"
    if tally.failed:
        yield f"{name}: {tally.failed} exchanges of failed attempts gave no reply; not played"
    if tally.broken:
        yield f"{name}: {tally.broken} exchanges lost their connection; not played"


def _sample(store: Store, tape: Tape, stream: bool, player: Player, tally: _Tally) -> Iterator[str]:
    """Every difference in one sample, as `step N: field: …`."""
    for step, (index, recorded) in enumerate(tape.requests(), 1):
        effect = tape.effects[index]
        assert isinstance(effect, ModelEffect)
        evidence = evidence_of(store, effect, f"step {step} of {tape.what}")
        tally.replies += effect.reply is not None
        tally.exchanges += len(evidence.exchanges)
        tally.size += sum(len(found.body) for found in evidence.exchanges)
        tally.broken += evidence.broken
        plays = effect.reply is not None and evidence.final is not None
        tally.failed += len(evidence.exchanges) - evidence.broken - plays
        tally.rebuilt += plays
        for told in _effect(effect, recorded, stream, evidence, player):
            yield f"step {step}: {told}"


def _effect(
    effect: ModelEffect,
    recorded: RecordedRequest,
    stream: bool,
    evidence: Evidence,
    player: Player,
) -> Iterator[str]:
    asked = stream
    for found in evidence.exchanges:
        if found.method != "POST":  # a redirect led there, without the body
            continue
        sent = sent_as(recorded, stream, found.request_sha256)
        if sent is None:
            yield (
                "request_sha256: the request on the tape is not the one that was sent "
                f"(sent {found.request_sha256[:12]}…)"
            )
        else:
            asked = sent.stream
    if effect.reply is None or evidence.final is None:
        return
    try:
        reply, details, bodies = player.play(recorded, asked, evidence.final, effect.reply)
    except ModelError as error:
        yield f"reply: the tape has one, and the wire gives none: {error.message}"
        return
    yield from differences(effect.reply, effect.meta or {}, reply, details)
    for digest in bodies:
        if sent_as(recorded, asked, digest) is None:
            yield "request: the installed openai package sends another body than was recorded"


def differences(
    reply: ModelReply, meta: Mapping[str, Any], again: ModelReply, details: Mapping[str, Any]
) -> Iterator[str]:
    """Each field of a recorded reply, and of its metadata, that is another when made again."""
    pairs = [
        (name, getattr(reply, name), getattr(again, name)) for name in ModelReply.__struct_fields__
    ]
    pairs += [
        (f"meta.{name}", meta[name], details.get(name))
        for name in _DETAILS
        if name in meta and not (name == "endpoint_said" and _is_cleaned(meta[name]))
    ]
    for name, old, new in pairs:
        found = first_difference(_as_taped(old), _as_taped(new))
        if found is None:
            continue
        recorded, played = excerpts(found)
        field = name + ("." if found.path and isinstance(found.path[0], str) else "")
        yield (
            f"{field}{path_text(found.path)}: the tape has {_quoted(recorded)}, "
            f"the wire gives {_quoted(played)}"
        )


def _is_cleaned(text: Any) -> bool:
    """Whether something was cut out of an endpoint's words, here or there in another way."""
    return not isinstance(text, str) or "***" in text or MARK in text


def _quoted(text: str | None) -> str:
    return "nothing" if text is None else f"“{text}”"


def _as_taped(value: Any) -> Any:
    """A value as it is when it was written to a tape and read again."""
    value = msgspec.to_builtins(value)
    try:
        return msgspec.json.decode(msgspec.json.encode(value))
    except UnicodeEncodeError:  # a lone surrogate
        return json.loads(json.dumps(value))


class Player:
    """The installed `openai` package behind vcrpy. Plays one response at a time."""

    def __init__(self) -> None:
        """LackError when a package is not there."""
        try:
            import openai
            import vcr
        except ImportError as error:
            raise LackError(
                f"the package {error.name or 'vcrpy'} is missing, and the wire evidence is played "
                "through it",
                hint="pip install 'gaia-harness[vcr]'",
            ) from None
        from vcr.request import Request

        self._request = Request
        self._http = wire.http_library(openai.DefaultHttpxClient).__name__
        self._vcr = vcr.VCR(record_mode="none", match_on=("method", "uri"))
        self._vcr.register_persister(self)
        self._models: dict[tuple[str, bool], Model] = {}
        self._interaction: tuple[Any, dict[str, Any]] | None = None
        self.label = f"openai {version('openai')}, vcrpy {version('vcrpy')}"

    def play(
        self,
        recorded: RecordedRequest,
        stream: bool,
        found: StoredExchange,
        taped: ModelReply | None = None,
    ) -> tuple[ModelReply, dict[str, Any], list[str]]:
        """The reply that a response gives, its metadata, the SHA-256 of each body that was sent.

        `taped`, where it is known, only tells whether the stream had a finish reason. Raises
        ModelError when the response gives no reply, LackError when vcrpy does not play to this
        `openai` package.
        """
        url = f"{NOWHERE}/chat/completions"
        self._interaction = (self._request("POST", url, b"", {}), response_of(found))
        unfinished = taped is not None and taped.finish_reason is None and taped.error is None
        model = self._model(recorded.model, stream, anew=unfinished)
        exchanges: list[wire.Exchange] = []
        # an endpoint that gives no finish reasons is believed after the third stream without one
        failed: ModelError | None = None
        with self._vcr.use_cassette("evidence", allow_playback_repeats=True) as cassette:
            try:
                reply, details = model.complete(as_request(recorded), on_exchange=exchanges.append)
            except ModelError as error:
                failed = error
            finally:
                if unfinished:
                    model.close()
        # one that is older stands above the place where bytes are seen, or does not know the client
        if not (cassette.play_count and exchanges):
            raise LackError(
                f"vcrpy {version('vcrpy')} does not play to openai {version('openai')}, which is "
                f"built on {self._http}" + (f": {failed.message}" if failed else ""),
                hint="pip install --upgrade 'gaia-harness[vcr]'",
            )
        if failed is not None:
            place = f"model {recorded.model} at {NOWHERE}: "
            raise ModelError(failed.message.removeprefix(place))
        return reply, details, [exchange.request_sha256 for exchange in exchanges]

    def _model(self, name: str, stream: bool, *, anew: bool) -> Model:
        """A client for a model; `anew` for one that has not seen any stream yet."""
        if not anew and (name, stream) in self._models:
            return self._models[name, stream]
        model = Model(
            name,
            api_url=NOWHERE,
            api_key=None,
            stream=stream,
            retries=2,
            sleep=lambda seconds: None,
        )
        if not anew:
            self._models[name, stream] = model
        return model

    def load_cassette(self, path: Any, serializer: Any) -> tuple[list[Any], list[Any]]:
        """For vcrpy: the response that is to be played."""
        assert self._interaction is not None
        request, response = self._interaction
        return [request], [response]

    def save_cassette(self, path: Any, cassette: Any, serializer: Any) -> None:
        """For vcrpy, which never has anything to save in record mode `none`."""

    def close(self) -> None:
        """Let go of the clients."""
        for model in self._models.values():
            model.close()
        self._models.clear()


def response_of(found: StoredExchange) -> dict[str, Any]:
    """An exchange's response as vcrpy has it. Only headers that may be kept, whatever it holds."""
    return {
        "status": {"code": found.status, "message": ""},
        "headers": {name: [value] for name, value in wire.kept_headers(found.headers).items()},
        "body": {"string": found.body},
    }
