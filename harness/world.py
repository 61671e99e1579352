"""The seam. Everything outside the loop is behind `World.perform`, and nothing else is.

Recorder(world, journal)      performs, writes the effect down, then hands the reply over
Replayer(tape)                serves recorded replies; asks nobody
Continuing(replayer, …)       the second until its place, then the first: resume, retry, fork
ScriptedWorld(replies)        a fake for tests of loops: scripted replies, no model, no sandbox
"""

from __future__ import annotations

import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import msgspec

from harness import canonical
from harness.cassette import AnyEffect, RecordedRequest, Tape
from harness.divergence import Divergence, Place, describe, left_over
from harness.errors import AgentError, DivergenceError, HarnessError, Interrupted, SampleError
from harness.journal import Journal
from harness.records import (
    MATCH_PARTS,
    Failure,
    History,
    ModelReply,
    ModelRequest,
    Reply,
    Request,
    TrajectoryHash,
    ValueRequest,
    failure_digest,
    plain,
    reply_digest,
)
from harness.redact import Redactor


class World(ABC):
    """The outside world, as a loop sees it."""

    tools: Sequence[dict[str, Any]] = ()
    """Schemas of the tools that the run's MCP servers offer, as they go into a model request."""

    servers: Mapping[str, str] = {}
    """Which server each of these tools is called at: tool name → server name."""

    @abstractmethod
    def perform(self, request: Request) -> Reply:
        """Do one thing outside and return its reply.

        Results are replies: also a timeout, a non-zero exit, a context overflow, a refusal. A
        `SampleError` means that the sample cannot go on. Calls must not overlap.
        """


_OVER = "perform() after the loop has ended"


class _OneAtATime(World):
    """Refuses overlapping calls, and repeats the error that ended the sample."""

    def __init__(self) -> None:
        self._open = threading.Lock()
        self.ended_by: BaseException | None = None
        """Set once a request failed; every later one fails in the same way."""
        self._over = False

    def perform(self, request: Request) -> Reply:
        if not self._open.acquire(blocking=False):
            told = _OVER if self._over else "a second perform() on the same World while one is open"
            raise RuntimeError(told)
        try:
            if self.ended_by is not None:
                raise self.ended_by
            if self._over:
                raise RuntimeError(_OVER)
            return self._perform(request)
        except BaseException as error:
            if isinstance(error, HarnessError) or not isinstance(error, Exception):
                self.ended_by = error
            raise
        finally:
            self._open.release()

    def end(self) -> None:
        """Refuse what is asked from now on; what a thread of the loop's asked before is awaited."""
        self._over = True
        with self._open:
            return

    @abstractmethod
    def _perform(self, request: Request) -> Reply: ...


class Live(Protocol):
    """What a Recorder records: a world that also knows the cost and circumstances of a reply."""

    @property
    def tools(self) -> Sequence[dict[str, Any]]:
        """As in `World`."""

    @property
    def servers(self) -> Mapping[str, str]:
        """As in `World`."""

    def perform(self, request: Request) -> Reply:
        """As in `World`."""

    def take_meta(self) -> dict[str, Any] | None:
        """Metadata of the request performed last: ids, timing, attempts. Never seen by loops."""


class Recorder(_OneAtATime):
    """Performs requests in a live world and writes each effect into a journal."""

    def __init__(
        self,
        world: Live | World,
        journal: Journal,
        *,
        model: str,
        redactor: Redactor | None = None,
        trajectory: TrajectoryHash | None = None,
        before: Callable[[], None] | None = None,
        spent: Callable[[int], None] | None = None,
        stopped: Callable[[], bool] | None = None,
        keep_wire: bool = True,
    ) -> None:
        """`before` is called before each request and may raise (limits); `spent` is told the
        tokens of each model reply; when `stopped`, nothing more is asked or written.
        `trajectory` goes on from a replayed prefix; `keep_wire` keeps the endpoint's HTTP
        exchanges beside the tape."""
        super().__init__()
        self._world, self._journal, self._model = world, journal, model
        self._redactor = redactor or Redactor(())
        self.trajectory = trajectory or TrajectoryHash()
        self._before = before or (lambda: None)
        self._spent = spent or (lambda tokens: None)
        self._stopped = stopped or (lambda: False)
        self._keep_wire = keep_wire
        self.tools, self.servers = plain(world.tools), plain(world.servers)  # a loop's own copies
        self.last_reply: ModelReply | None = None

    def _perform(self, request: Request) -> Reply:
        if self._stopped():
            raise Interrupted
        self._before()
        self._redactor.check(request)
        digest = request.digest(self._model)
        taped = self._journal.intend(request, digest)
        try:
            reply = self._world.perform(_guarded(request))
        except SampleError as error:
            if self._stopped():  # the sandbox was taken away: nothing that the sample did
                raise Interrupted from error
            error.message = self._redactor.text(error.message)
            failure = Failure(error.kind, error.message)
            self._journal.effect(
                request, taped, digest, None,
                model=self._model, failure=failure, meta=self._meta(),
            )  # fmt: skip
            self.trajectory.add(digest, failure_digest(failure))
            raise
        reply = _joined(self._redactor.reply(reply))
        self._journal.effect(request, taped, digest, reply, model=self._model, meta=self._meta())
        self.trajectory.add(digest, reply_digest(reply))
        if isinstance(reply, ModelReply):
            self.last_reply = reply
            self._spent(reply.usage.input_tokens + reply.usage.output_tokens)
        return reply

    def _meta(self) -> dict[str, Any] | None:
        """The circumstances of the last reply; HTTP exchanges become objects of the store."""
        take = getattr(self._world, "take_meta", None)
        meta: dict[str, Any] = (take() if take else None) or {}
        exchanges: list[bytes] = meta.pop("exchanges", [])
        if exchanges and self._keep_wire:
            clean = map(self._redactor.exchange, exchanges)
            meta["wire"] = [self._journal.keep(data) for data in clean if data is not None]
        redacted: dict[str, Any] = self._redactor.json(meta)
        return redacted or None


def _guarded(request: Request) -> Request:
    if isinstance(request, ValueRequest):
        return ValueRequest(request.name, partial(_made, request))
    return request


def _made(request: ValueRequest) -> Reply:
    """The value of a user loop's own, as a tape gives it back; AgentError when there is none.

    An exception of `make` is no reply: the tape could not give it back to a loop that catches it.
    """
    try:
        return json.loads(json.dumps(request.make(), allow_nan=False))
    except (KeyboardInterrupt, Interrupted):
        raise
    except BaseException as error:
        raise AgentError(
            f"the value {request.name!r} cannot be had: {type(error).__name__}: {error}"
        ) from error


def _joined(reply: Reply) -> Reply:
    """The reply as it will be read again: in JSON, a pair of surrogates is one character."""
    try:
        msgspec.json.encode(reply)
    except UnicodeEncodeError:
        value = _join_all(msgspec.to_builtins(reply))
        return msgspec.convert(value, type(reply)) if isinstance(reply, msgspec.Struct) else value
    return reply


def _join_all(value: Any) -> Any:
    if isinstance(value, str):
        return canonical.join_pairs(value)
    if isinstance(value, list | tuple):
        return [_join_all(item) for item in value]
    if isinstance(value, dict):
        return {_join_all(key): _join_all(item) for key, item in value.items()}
    return value


class Replayer(_OneAtATime):
    """Serves a tape's replies to the loop that asks for them in the recorded order."""

    def __init__(
        self,
        tape: Tape,
        *,
        model: str,
        place: Place | None = None,
        match_on: Collection[str] = MATCH_PARTS,
        tools: Sequence[dict[str, Any]] = (),
        servers: Mapping[str, str] | None = None,
    ) -> None:
        """`place` names run, sample and epoch in reports; `match_on` says which parts of a model
        request must be as recorded."""
        super().__init__()
        self.tape, self._model = tape, model
        self._at = place or Place("", tape.header.sample.task_id, tape.header.sample.epoch)
        self._loose = set(match_on) != set(MATCH_PARTS)
        self._match_on = frozenset(match_on)
        self._requests = tape.requests()
        self.tools, self.servers = plain(tools), plain(servers or {})  # a loop's own copies
        self.trajectory = TrajectoryHash()
        self.served = 0
        """Effects served so far."""
        self.steps = 0
        """Model turns served so far."""
        self.last_request: ModelRequest | None = None
        self.last_reply: ModelReply | None = None

    @property
    def exhausted(self) -> bool:
        """Whether every reply of the tape was served (a failure is not a reply)."""
        effects = self.tape.effects
        return self.served == len(effects) or effects[self.served].failure is not None

    def _perform(self, request: Request) -> Reply:
        tape = self.tape
        digest = request.digest(self._model)  # first of all: what has none ends a loop here as live
        if self.served >= len(tape.effects):
            failure = tape.end.failure if tape.end else None
            if failure is not None and failure.kind != "agent":
                # the sample ended between two effects (no sandbox, a limit that was reached)
                raise SampleError.of_kind(failure.kind, failure.message)
            raise self._diverged(request)
        effect = tape.effects[self.served]
        if effect.digest != digest and not (self._loose and self._matches(effect, request)):
            raise self._diverged(request)
        self.served += 1
        if isinstance(request, ModelRequest):
            self.steps += 1
            self.last_request = request
        if effect.failure is not None:
            self.trajectory.add(digest, failure_digest(effect.failure))
            raise SampleError.of_kind(effect.failure.kind, effect.failure.message)
        reply = tape.reply(effect)
        self.trajectory.add(digest, reply_digest(reply))
        if isinstance(reply, ModelReply):
            self.last_reply = reply
        return reply

    def _matches(self, effect: AnyEffect, request: Request) -> bool:
        """Whether a model request agrees in the parts that were asked to count."""
        if not isinstance(request, ModelRequest) or request.kind != effect_kind(effect):
            return False
        recorded = self._recorded(self.served)
        parts = {
            "model": recorded.model == self._model,
            "messages": History(recorded.messages) == request.messages,
            "tools": canonical.digest(recorded.tools) == request.tools_digest,
            "params": canonical.dumps(recorded.params) == request.params_canonical,
        }
        return all(parts[part] for part in self._match_on)

    def _recorded(self, index: int) -> RecordedRequest:
        """The recorded model request of an effect; read forward, so that a tape is read once."""
        for at, recorded in self._requests:
            if at == index:
                return recorded
        return self.tape.request(index)

    def _diverged(self, request: Request) -> DivergenceError:
        steps = self.steps + isinstance(request, ModelRequest)
        found = describe(
            self.tape,
            self.served,
            request,
            model=self._model,
            at=self._at,
            step=steps,
            match_on=self._match_on,
        )
        return Diverged(found)

    def check_finished(self) -> None:
        """Raises when effects are left over that the loop never asked for."""
        if self.ended_by is None and self.served < len(self.tape.effects):
            self.ended_by = Diverged(
                left_over(self.tape, self.served, at=self._at, step=self.steps)
            )
            raise self.ended_by


class Diverged(DivergenceError):
    """A divergence with its report."""

    def __init__(self, report: Divergence) -> None:
        super().__init__(report.text())
        self.report = report


class Continuing(_OneAtATime):
    """Replays a prefix, then goes on live: one operation for resume, retry, extend and fork."""

    def __init__(
        self,
        replayer: Replayer,
        go_live: Callable[[Replayer], Recorder],
        *,
        fork: bool = False,
    ) -> None:
        """`go_live` is called once, at the first request that the tape has no reply for; with
        `fork`, a request that differs from the recorded one is such a request too."""
        super().__init__()
        self.replayer, self._go_live, self._fork = replayer, go_live, fork
        self.recorder: Recorder | None = None
        self.forked_at: Divergence | None = None
        self.tools, self.servers = replayer.tools, replayer.servers

    @property
    def trajectory(self) -> TrajectoryHash:
        """Over the whole chain, as far as it has come."""
        return (self.recorder or self.replayer).trajectory

    @property
    def last_reply(self) -> ModelReply | None:
        """The newest model reply, of either side."""
        live = self.recorder.last_reply if self.recorder else None
        return live or self.replayer.last_reply

    def _perform(self, request: Request) -> Reply:
        if self.recorder is None:
            if not self.replayer.exhausted:
                try:
                    return self.replayer.perform(request)
                except Diverged as error:
                    if not self._fork:
                        raise
                    self.forked_at = error.report
            self.recorder = self._go_live(self.replayer)
        return self.recorder.perform(request)


class Served(_OneAtATime):
    """A loosely matched tape as a live world: its replies as long as they fit, then the outside.

    To be recorded: the loop's requests are not those of the tape.
    """

    def __init__(
        self, replayer: Replayer, go_live: Callable[[Replayer], Live], *, fork: bool = False
    ) -> None:
        super().__init__()
        self._replayer, self._go_live, self._fork = replayer, go_live, fork
        self.forked_at: Divergence | None = None
        self.tools, self.servers = replayer.tools, replayer.servers
        self._live: Live | None = None

    def _perform(self, request: Request) -> Reply:
        if self._live is None:
            try:
                return self._replayer.perform(request)
            except Diverged as error:
                if not self._fork:
                    raise
                self.forked_at = error.report
            self._live = self._go_live(self._replayer)
        return self._live.perform(request)

    def take_meta(self) -> dict[str, Any] | None:
        """Marks what came from the tape."""
        return {"served": True} if self._live is None else self._live.take_meta()


class ScriptedWorld(_OneAtATime):
    """A fake world for tests of loops: replies are scripted, nothing is run and nobody is asked."""

    def __init__(
        self,
        replies: Iterable[Reply] | Callable[[Request], Reply],
        *,
        tools: Sequence[dict[str, Any]] = (),
        servers: Mapping[str, str] | None = None,
    ) -> None:
        """`replies`: in the order of the requests, or a function of the request. An exception
        among them is raised. Values are made by their own `make`. `servers`: the server of each
        tool, if it matters to the test."""
        super().__init__()
        self._next = replies if callable(replies) else None
        self._replies = iter(() if callable(replies) else replies)
        self.tools = tools
        names = [tool["function"]["name"] for tool in tools]
        self.servers = servers if servers is not None else dict.fromkeys(names, "scripted")
        self.requests: list[Request] = []
        """What was asked for."""

    def _perform(self, request: Request) -> Reply:
        self.requests.append(request)
        if isinstance(request, ValueRequest):
            return _made(request)
        if self._next is not None:
            return self._next(request)
        try:
            reply = next(self._replies)
        except StopIteration:
            raise SampleError("the script has no more replies") from None
        if isinstance(reply, BaseException):
            raise reply
        return reply


def effect_kind(effect: AnyEffect) -> str:
    """`model`, `bash`, `tool` or `value`."""
    return str(type(effect).__struct_config__.tag)
