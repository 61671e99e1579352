"""Continuing a tape is one operation: fresh recording, resume, retry, extension, fork.

Replay what there is through the loop; at the first request that has no reply there, rebuild the
sandbox and go on live; seal what came of it. A fresh recording continues an empty tape.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from harness import __version__
from harness.attempt import Agent, attempt
from harness.cassette import (
    FORMAT,
    VERSION,
    AnyLine,
    Effect,
    End,
    Header,
    Parent,
    Tape,
    decode_lines,
    read_cassette,
)
from harness.cassette import Agent as AgentRef
from harness.divergence import Divergence, Place
from harness.drift import image_drift, rehydrate
from harness.errors import DivergenceError, Interrupted, LimitError, SandboxError
from harness.journal import Journal, OpenTape, TapeWriter
from harness.records import MATCH_PARTS, Outcome, Sample, TrajectoryHash, Usage
from harness.redact import Redactor
from harness.replaying import Replayed, last_error, replay_tape
from harness.runfile import RunSettings
from harness.store import Store, sample_key
from harness.world import Continuing, Diverged, Live, Recorder, Replayer, Served, World


class LiveWorld(Live, Protocol):
    """A live world with an end."""

    def close(self) -> None:
        """Remove the sandbox; a second call does nothing."""


class Continued(msgspec.Struct, kw_only=True):
    """A sealed sample."""

    key: str
    cassette: str
    end: End
    drift: list[dict[str, Any]]
    usage: Usage
    seconds: float
    """Live time; 0 where the tape was followed to its end."""
    live: bool
    """Whether anything was asked of the outside."""
    forked_at: Divergence | None = None


class SampleRecording:
    """One sample and epoch, from what is on its tape to the seal."""

    def __init__(
        self,
        store: Store,
        run: str,
        sample: Sample,
        agent: Agent,
        settings: RunSettings,
        *,
        start: Callable[[], LiveWorld],
        source: str | None = None,
        fork: bool = False,
        match_on: Collection[str] = MATCH_PARTS,
        image: dict[str, Any] | None = None,
        drift: Sequence[dict[str, Any]] = (),
        call_again: Collection[str] = (),
        keep_wire: bool = True,
        secrets: Iterable[str] = (),
        tools: Sequence[dict[str, Any]] = (),
        servers: Mapping[str, str] | None = None,
        on_drift: str = "hard",
        stop: threading.Event | None = None,
        check: Callable[[], None] = lambda: None,
        spent: Callable[[int], None] = lambda tokens: None,
        note: Callable[[str], None] = lambda line: None,
    ) -> None:
        """`start` makes the live world when it is needed. `source`: the cassette to continue, if
        there is no journal; with `fork`, also where the loop leaves it; with a looser `match_on`,
        its replies are taken for requests that differ, and all is recorded anew. `drift`: what is
        known to differ already for every sample. `call_again`: the MCP servers whose recorded calls
        are made again. `on_drift`:
        `warn`, `fail`, or `hard` (fail on what is more than another text). `check` may raise a
        LimitError before each request; `spent` is told tokens."""
        self._store, self._run, self._agent, self._settings = store, run, agent, settings
        self.sample = sample
        self.key = sample_key(sample.task_id, sample.epoch)
        self._what = f"sample {sample.task_id!r}, epoch {sample.epoch}, of run {run!r}"
        self._start, self._source, self._fork, self._image = start, source, fork, image
        self._match_on, self._keep_wire, self._known_drift = match_on, keep_wire, drift
        self._call_again = call_again
        self._loose = set(match_on) != set(MATCH_PARTS)
        self._tools, self._servers = tools, servers or {}
        self._on_drift, self._stop = on_drift, stop or threading.Event()
        self._check, self._spent, self._note = check, spent, note
        self._redactor = Redactor(secrets)
        self._drift: list[dict[str, Any]] = []
        self._live_since: float | None = None
        self._tokens = 0
        self._world: LiveWorld | None = None
        self._journal: Journal | None = None
        self._found: OpenTape | None = None
        self._before: list[AnyLine] = []
        """Lines of the parents, as far as they are kept."""
        self._tape = self._read()

    # ------------------------------------------------------------------------- what there is

    def _read(self) -> Tape:
        data = self._store.read_journal(self._run, self.key)
        found = OpenTape(data, f"the journal of {self._what}") if data else None
        if found is not None and found.lines and not self._only_served(found):
            if found.torn:
                self._note(f"{self._what}: an unfinished last line of its journal was dropped")
            self._found = found
            header = found.lines[0]
            if isinstance(header, Header) and header.parent is not None:
                parent = read_cassette(self._store, header.parent.cassette, self._what)
                self._before = list(parent.lines[: header.parent.lines])
            return Tape([*self._before, *found.lines], f"the journal of {self._what}")
        if self._source is not None:
            return read_cassette(self._store, self._source, f"the cassette of {self._what}")
        return Tape([self._header(None)], self._what)

    def _only_served(self, found: OpenTape) -> bool:
        """Whether the journal of a loose replay holds nothing that was paid for: it is redone."""
        effects = [line for line in found.lines if isinstance(line, Effect)]
        return self._loose and all((line.meta or {}).get("served") for line in effects)

    def _header(self, parent: Parent | None) -> Header:
        return Header(
            format=FORMAT,
            version=VERSION,
            sample=self.sample,
            agent=AgentRef(self._settings.agent, self._settings.agent_source),
            settings=msgspec.to_builtins(self._settings.loop),
            image=self._image,
            harness=__version__,
            parent=parent,
        )

    # ---------------------------------------------------------------------------- going on

    def take(self) -> Continued:
        """Run the loop to its end and seal the cassette.

        Raises Interrupted when asked to stop (the journal stays, and is continued next time), a
        divergence when the loop does not follow what is recorded (unless told to fork), and what
        concerns more than this sample.
        """
        loop = self._settings.loop
        replayer = Replayer(
            self._tape,
            model=loop.model,
            place=Place(self._run, self.sample.task_id, self.sample.epoch),
            match_on=self._match_on if self._found is None else MATCH_PARTS,
            tools=self._tools,
            servers=self._servers,
        )
        if self._loose and self._found is None:
            return self._take_loosely(replayer)
        fork = self._fork and self._found is None
        world = Continuing(replayer, self._go_live, fork=fork)
        try:
            outcome = attempt(self._agent, self.sample, world, loop)
            if self._stop.is_set() and outcome.status == "error":
                raise Interrupted  # the sandbox was taken away from under it
            if self._journal is None:
                if (same := self._followed(replayer, outcome)) is not None:
                    return same
                if not fork:
                    replayer.check_finished()
            return self._seal(self._clean(outcome), world, world.forked_at)
        finally:
            self._close()

    def _take_loosely(self, replayer: Replayer) -> Continued:
        """The tape's replies for the loop's own requests, all written down anew."""
        served = Served(replayer, self._rebuild, fork=self._fork)
        self._journal = Journal.begin(
            self._store, self._run, self.key, self._header(None), TapeWriter()
        )
        self._before = []
        world = self._recorder(served, self._journal, None)
        try:
            outcome = attempt(self._agent, self.sample, world, self._settings.loop)
            if self._stop.is_set() and outcome.status == "error":
                raise Interrupted
            if served.forked_at is None and self._world is None:
                replayer.check_finished()
            return self._seal(self._clean(outcome), world, served.forked_at)
        except DivergenceError:
            self._store.remove_journal(self._run, self.key)
            raise
        finally:
            self._close()

    def _close(self) -> None:
        if self._journal is not None:
            self._journal.close()
        if self._world is not None:
            self._world.close()

    def _followed(self, replayer: Replayer, outcome: Outcome) -> Continued | None:
        """The source itself, when the loop followed it to its end and ended alike."""
        end = self._tape.end
        if self._source is None or self._found is not None or end is None:
            return None
        if replayer.trajectory.result(outcome) != end.trajectory:
            return None
        return Continued(
            key=self.key,
            cassette=self._source,
            end=end,
            drift=self._tape.drift(),
            usage=self._tape.usage(),
            seconds=0.0,
            live=False,
        )

    def _go_live(self, replayer: Replayer) -> Recorder:
        journal = self._open_journal(replayer)
        return self._recorder(self._rebuild(replayer), journal, replayer.trajectory)

    def _recorder(
        self, world: Live | World, journal: Journal, trajectory: TrajectoryHash | None
    ) -> Recorder:
        return Recorder(
            world,
            journal,
            model=self._settings.loop.model,
            redactor=self._redactor,
            trajectory=trajectory,
            before=self._before_request,
            spent=self._count,
            stopped=self._stop.is_set,
            keep_wire=self._keep_wire,
        )

    def _rebuild(self, replayer: Replayer) -> LiveWorld:
        """A live world whose sandbox is where the served effects left it."""
        tape, served = self._tape, replayer.served
        self._live_since = time.monotonic()
        self._tokens = _sum(tape.prefix(served).usage())
        self._world = self._start()
        if tape.effects[:served]:
            self._drift = [
                *image_drift(tape.header.image, self._image),
                *self._known_drift,
                *rehydrate(
                    self._world,
                    tape,
                    tape.effects[:served],
                    call_again=self._call_again,
                    clean=self._redactor.reply,
                ),
            ]
        if self._journal is not None and (self._found is not None or self._source is not None):
            self._journal.resumed(self._found.maybe_paid if self._found else 0, self._drift)
        for drift in self._drift:
            if self._on_drift == "fail" or (self._on_drift == "hard" and drift["hard"]):
                raise SandboxError(f"the rebuilt sandbox is not as recorded: {drift['told']}")
        return self._world

    def _open_journal(self, replayer: Replayer) -> Journal:
        """The journal, opened behind what was replayed."""
        if self._journal is not None:
            return self._journal
        model, last = self._settings.loop.model, replayer.last_request
        if self._found is not None:
            writer = TapeWriter.after(self._tape, last, model)
            self._journal = Journal.reopen(self._store, self._run, self.key, self._found, writer)
            return self._journal
        parent, writer = None, TapeWriter()
        if self._source is not None:
            prefix = self._tape.prefix(replayer.served)
            self._before = list(prefix.lines)
            parent = Parent(self._source, len(prefix.lines), replayer.served)
            writer = TapeWriter.after(prefix, last, model)
        self._journal = Journal.begin(
            self._store, self._run, self.key, self._header(parent), writer
        )
        return self._journal

    def _before_request(self) -> None:
        self._check()
        limits = self._settings
        if limits.sample_tokens is not None and self._tokens >= limits.sample_tokens:
            raise LimitError(
                f"the sample has used its {limits.sample_tokens} tokens (--sample-tokens)"
            )
        if limits.sample_seconds is not None and self._seconds() >= limits.sample_seconds:
            raise LimitError(
                f"the sample's {limits.sample_seconds:g} s are over (--sample-seconds)"
            )

    def _count(self, tokens: int) -> None:
        self._tokens += tokens
        self._spent(tokens)

    def _seconds(self) -> float:
        return 0.0 if self._live_since is None else time.monotonic() - self._live_since

    def _clean(self, outcome: Outcome) -> Outcome:
        """Without secrets: a user's loop may have put one into its answer or its error."""
        return msgspec.convert(self._redactor.json(msgspec.to_builtins(outcome)), Outcome)

    # ------------------------------------------------------------------------------- sealing

    def _seal(
        self, outcome: Outcome, world: Continuing | Recorder, forked_at: Divergence | None
    ) -> Continued:
        if isinstance(world, Continuing):
            self._open_journal(world.replayer)
        journal = self._journal
        assert journal is not None
        trajectory = world.trajectory.result(outcome)
        end = End(
            status=outcome.status,
            answer=outcome.answer,
            failure=outcome.failure,
            last_error=last_error(world.last_reply, outcome),
            trajectory=trajectory,
            totals=journal.writer.totals,
        )
        journal.finish()
        # long samples are large: nothing of them is held twice while the loop runs again
        tape = Tape(
            [*self._before, *decode_lines(journal.read(), f"the journal of {self._what}"), end],
            f"the cassette of {self._what}",
        )
        drift, usage = tape.drift(), tape.usage()
        replayed = replay_tape(
            tape,
            self._agent,
            self._settings.loop,
            place=Place(self._run, self.sample.task_id, self.sample.epoch),
            tools=self._tools,
            servers=self._servers,
        )
        del tape
        if not replayed.identical:
            report = self._redactor.json(_report(replayed, outcome))
            end = msgspec.structs.replace(end, replayable=False, report=report)
        return Continued(
            key=self.key,
            cassette=journal.seal(end),
            end=end,
            drift=drift,
            usage=usage,
            seconds=self._seconds(),
            live=self._world is not None,
            forked_at=forked_at,
        )


def _report(replayed: Replayed, outcome: Outcome) -> dict[str, Any]:
    """Why a loop does not follow its own cassette."""
    if isinstance(replayed.divergence, Diverged):
        report = replayed.divergence.report
        return {"told": str(replayed.divergence), **msgspec.to_builtins(report)}
    now = replayed.outcome
    return {"told": f"it ended with {now.answer!r} ({now.status}), not {outcome.answer!r}"}


def _sum(usage: Usage) -> int:
    return usage.input_tokens + usage.output_tokens
