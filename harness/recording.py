"""Record: run the loop live over many samples, seal each one, lose nothing on the way."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from harness.attempt import Agent, load_callable
from harness.cassette import End, read_cassette, read_end
from harness.continuing import Continued, LiveWorld, SampleRecording
from harness.dataset import UNKNOWN
from harness.drift import tools_drift
from harness.errors import DamageError, Finding, Interrupted, LackError, LimitError
from harness.opening import BESIDE, RecordConfig, check_new_name, open_run
from harness.records import MATCH_PARTS, Sample
from harness.redact import Redactor
from harness.report import RunReport, SampleResult, verdict_for
from harness.results import missing_result, report_of, result_of
from harness.runfile import (
    Entry,
    RunFile,
    read_run,
    tools_of,
    write_run,
)
from harness.store import PREFIX, Store
from harness.verdicts import known_truths, notes_of


class Backend(Protocol):
    """What `harness.live.backend` gives."""

    image: dict[str, Any] | None
    tools: list[dict[str, Any]]

    def world(self, sample: Sample, attachment: Path | None) -> LiveWorld:
        """Start the sandbox of one sample."""

    def abort(self) -> None:
        """Remove every sandbox now."""

    def close(self) -> None:
        """Let go of everything live."""


class Progress(Protocol):
    """Told what happens; `harness.progress` shows it to people."""

    def begin(self, total: int, done: int, right: int = 0) -> None:
        """`total` samples in the run, `done` of them finished before."""

    def note(self, line: str) -> None:
        """Say one line."""

    def sample(self, result: SampleResult) -> None:
        """One more sample is finished."""

    def tokens(self, count: int) -> None:
        """Tokens of one more reply."""

    def running(self, yes: bool) -> None:
        """Whether samples are in flight: an interruption has to wait for their replies."""

    def end(self) -> None:
        """No more will come."""


Connect = Callable[[RecordConfig, Callable[[str], None], Callable[[float], None]], Backend]


class Recorded(msgspec.Struct, kw_only=True):
    """What a recording came to."""

    report: RunReport
    findings: list[str]
    interrupted: bool = False


def record(
    store: Store,
    config: RecordConfig,
    *,
    connect: Connect,
    progress: Progress,
    stop: threading.Event | None = None,
) -> Recorded:
    """Record what is not recorded yet; a finished run makes no call and needs nothing live.

    `stop` ends it early: requests in flight are awaited, what is finished is kept.
    """
    check_new_name(config.run)
    store.create()
    if config.overwrite and store.has_run(config.run):
        return _overwrite(store, config, connect=connect, progress=progress, stop=stop)
    return _record(store, config, connect=connect, progress=progress, stop=stop)


def _record(
    store: Store,
    config: RecordConfig,
    *,
    connect: Connect,
    progress: Progress,
    stop: threading.Event | None,
) -> Recorded:
    agent: Agent = load_callable(config.settings.agent, "the agent")
    with store.writer(config.run):
        run = open_run(store, config, progress.note)
        job = Recording(store, run, config, agent, progress, stop=stop)
        todo = job.unfinished()
        if todo:
            job.live(todo, connect)
        else:
            job.flush()
        return job.result()


def _overwrite(store: Store, config: RecordConfig, **live: Any) -> Recorded:
    """Record beside the old run, under `NAME.new`; take its place only when all is there."""
    beside = msgspec.structs.replace(config, run=config.run + BESIDE, overwrite=False)
    done = _record(store, beside, **live)
    if done.interrupted or done.report.metrics["missing"]:
        return done
    with store.writer(config.run), store.writer(beside.run):
        run = read_run(store, beside.run)
        run.name = config.run
        store.remove_journals(config.run)
        write_run(store, run)
        store.remove_run(beside.run)
    done.report.run = config.run
    return done


# ----------------------------------------------------------------------------------- the recording


_UNFAITHFUL = "the loop does not follow its own cassette: this sample cannot be replayed"
_ADVICE = (
    "  a loop has to do the same given the same replies: clocks, random numbers and files of its "
    "own go through ValueRequest"
)


class Recording:
    """The state of one `record` call, shared by its worker threads."""

    def __init__(
        self,
        store: Store,
        run: RunFile,
        config: RecordConfig,
        agent: Agent,
        progress: Progress,
        *,
        stop: threading.Event | None = None,
        sources: Mapping[tuple[str, int], str] | None = None,
        fork: bool = False,
        match_on: Sequence[str] = MATCH_PARTS,
        other_image: bool = False,
    ) -> None:
        """`sources`: cassettes to continue, by task id and epoch; `fork` also where a loop leaves
        them. `other_image`: the sandboxes may have another image than the run's."""
        self.store, self.run, self.config, self.agent = store, run, config, agent
        self.progress, self.stop = progress, stop or threading.Event()
        self.sources, self.fork, self.match_on = sources or {}, fork, match_on
        self.other_image = other_image
        items = config.dataset.items if config.dataset else ()
        self.items = {item.sample.task_id: item for item in items}
        self.truths = known_truths(run, config.dataset, progress.note)
        self.results: dict[tuple[str, int], SampleResult] = {}
        self.findings: list[str] = []
        self.broken: BaseException | None = None
        self.backend: Backend | None = None
        self.drift: list[dict[str, Any]] = []
        self.tokens = 0
        self._lock = threading.RLock()
        self._unflushed: list[str] = []

    def unfinished(self) -> list[Entry]:
        """What is to be done: never recorded, interrupted, or (if asked for) ended in error."""
        return [
            entry
            for entry in self.run.samples
            if entry.status == "missing" or (entry.status == "error" and self.config.retry_errors)
        ]

    def live(self, todo: list[Entry], connect: Connect | None) -> None:
        """Work through the entries with `eval_batch_size` threads.

        Without `connect` nothing live is needed, or allowed.
        """
        if connect is not None:
            self.backend = connect(self.config, self.progress.note, self._sleep)
        try:
            self._check_image()
            self._check_tools()
            write_run(self.store, self.run)
            right = sum(entry.verdict == "right" for entry in self.run.samples)
            self.progress.begin(len(self.run.samples), len(self.run.samples) - len(todo), right)
            work: queue.SimpleQueue[Entry] = queue.SimpleQueue()
            for entry in todo:
                work.put(entry)
            count = min(self.config.eval_batch_size, len(todo))
            threads = [
                threading.Thread(target=self._work, args=(work,), daemon=True) for _ in range(count)
            ]
            for thread in threads:
                thread.start()
            self.progress.running(True)  # from here on an interruption waits for replies
            aborted = False
            while any(thread.is_alive() for thread in threads):
                for thread in threads:
                    thread.join(0.1)
                if self.stop.is_set() and not aborted and self.backend is not None:
                    aborted = True
                    self.backend.abort()  # commands cost nothing; replies in flight are awaited
        finally:
            self.progress.running(False)
            self.progress.end()
            if self.backend is not None:
                self.backend.close()
            self.flush()
        if self.broken is not None:
            raise self.broken

    def _check_image(self) -> None:
        if self.backend is None:
            return
        known, image = self.run.environment.get("image"), self.backend.image
        other = known and image and list(known["layers"]) != list(image["layers"])
        if other and not self.other_image:
            assert known is not None
            assert image is not None
            raise LackError(
                f"the image {image['reference']} is not the one that was recorded with "
                f"(recorded {known['id']}, here {image['id']})",
                hint="load the recorded image, or name this one with --docker-image in a fork",
            )
        self.run.environment["image"] = image

    def _check_tools(self) -> None:
        """The tools that the run holds are used throughout; other ones now are drift."""
        if self.backend is None:
            return
        tools = Redactor(self.config.secrets).json(self.backend.tools)
        if not self.run.tools and not self._recorded_already():
            self.run.tools = tools
        self.drift = tools_drift(self.run.tools, tools)

    def _recorded_already(self) -> bool:
        return bool(self.sources) or any(entry.cassette for entry in self.run.samples)

    def _world(self, entry: Entry) -> LiveWorld:
        if self.backend is None:
            raise LackError("this replay may not ask anything live", hint="--on-divergence fork")
        item = self.items.get(entry.task_id)
        if item is None:
            raise self._unknown(entry)
        return self.backend.world(self._sample(entry), item.path)

    def _work(self, work: queue.SimpleQueue[Entry]) -> None:
        while not self.stop.is_set():
            try:
                entry = work.get_nowait()
            except queue.Empty:
                return
            try:
                self._record(entry)
            except Interrupted:
                return
            except Finding as error:
                with self._lock:
                    told = f"{entry.task_id} epoch {entry.epoch}: {error}"
                    self.findings.append(Redactor(self.config.secrets).text(told))
            except BaseException as error:
                with self._lock:
                    self.broken = self.broken or error
                self.stop.set()

    def _sleep(self, seconds: float) -> None:
        """Between attempts at a model request; an interruption ends it."""
        if self.stop.wait(seconds):
            raise Interrupted

    def _record(self, entry: Entry) -> None:
        tools, servers = tools_of(self.run)
        sample = SampleRecording(
            self.store,
            self.run.name,
            self._sample(entry),
            self.agent,
            self.run.settings,
            source=entry.cassette or self.sources.get((entry.task_id, entry.epoch)),
            fork=self.fork,
            match_on=self.match_on,
            image=self.run.environment.get("image"),
            drift=self.drift,
            call_again=[server.name for server in self.config.mcp if server.rehydrate],
            keep_wire=self.config.keep_wire,
            start=lambda: self._world(entry),
            secrets=self.config.secrets,
            tools=tools,
            servers=servers,
            on_drift=self.config.on_drift,
            stop=self.stop,
            check=self._check_budget,
            spent=self._spend,
            note=self.progress.note,
        )
        self._done(entry, sample.take())

    def _sample(self, entry: Entry) -> Sample:
        """The sample as the data set has it, or, for a tape that is only followed, as the tape."""
        item = self.items.get(entry.task_id)
        if item is not None:
            return msgspec.structs.replace(item.sample, epoch=entry.epoch)
        source = self.sources.get((entry.task_id, entry.epoch))
        if source is None:
            raise self._unknown(entry)
        return read_cassette(self.store, source, f"sample {entry.task_id!r}").header.sample

    def _unknown(self, entry: Entry) -> DamageError:
        return DamageError(
            f"run {self.run.name!r} has a sample {entry.task_id!r}, epoch {entry.epoch}, that its "
            "data set does not have"
        )

    def _done(self, entry: Entry, taken: Continued) -> None:
        end = taken.end
        entry.cassette, entry.status = taken.cassette, end.status
        truth = self.truths.get(entry.task_id, UNKNOWN)
        entry.verdict = verdict_for(end.status, end.answer, end.last_error, truth)
        entry.verdict_source = "scored"
        entry.steps, entry.usage = end.totals.model, taken.usage
        entry.seconds = round(entry.seconds + taken.seconds, 3)
        entry.replayable, entry.drift = end.replayable, len(taken.drift)
        result = _result(entry, end, taken.drift)
        with self._lock:
            self.results[entry.task_id, entry.epoch] = result
            self._unflushed.append(taken.key)
            if not end.replayable:
                self.findings.append(
                    f"{entry.task_id} epoch {entry.epoch}: the loop does not follow its own "
                    f"cassette: {(end.report or {}).get('told', 'it ended otherwise')}\n{_ADVICE}"
                )
            # a run file is rewritten as a whole: seldom enough that all of it stays linear
            if len(self._unflushed) * 50 >= len(self.run.samples):
                self.flush()
        self.progress.sample(result)
        if not end.replayable:
            self.progress.note(f"  {_UNFAITHFUL}")
        if end.failure is not None:
            self.progress.note(f"  {end.failure.kind}: {end.failure.message}")

    def _check_budget(self) -> None:
        limit = self.config.settings.run_tokens
        if limit is not None and self.tokens >= limit:
            raise LimitError(f"the run has used its {limit} tokens (--run-tokens)")

    def flush(self) -> None:
        """Write the run file; only then do the journals go that it has in sealed form."""
        with self._lock:
            write_run(self.store, self.run)
            for key in self._unflushed:
                self.store.remove_journal(self.run.name, key)
            self._unflushed.clear()

    def _spend(self, tokens: int) -> None:
        with self._lock:
            self.tokens += tokens
        self.progress.tokens(tokens)

    def result(self) -> Recorded:
        """The whole run's report, what was recorded before included."""
        results = [
            self.results.get((entry.task_id, entry.epoch)) or recorded_result(self.store, entry)
            for entry in self.run.samples
        ]
        notes = notes_of(self.run, results)
        if errors := sum(result.status == "error" for result in results):
            samples = "1 sample" if errors == 1 else f"{errors} samples"
            notes.append(
                f"{samples} ended in error; the same command with --retry-errors goes on from there"
            )
        if self.stop.is_set():
            notes.insert(
                0, "cancelled: this report covers what was finished; the same command goes on"
            )
        report = report_of(self.run, results, notes)
        return Recorded(report=report, findings=self.findings, interrupted=self.stop.is_set())


def _result(entry: Entry, end: End, drift: list[dict[str, Any]]) -> SampleResult:
    return result_of(entry, answer=end.answer, trajectory=PREFIX + end.trajectory, drift=drift)


def recorded_result(store: Store, entry: Entry) -> SampleResult:
    """A sample as it was recorded, from its run file's line and its cassette's last."""
    what = f"the cassette of sample {entry.task_id!r}, epoch {entry.epoch}"
    if entry.cassette is None:
        return missing_result(entry)
    if entry.drift:  # told in full only where it stands
        tape = read_cassette(store, entry.cassette, what)
        assert tape.end is not None
        return _result(entry, tape.end, tape.drift())
    return _result(entry, read_end(store, entry.cassette, what), [])
