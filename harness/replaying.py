"""Replay: the same loop, fed from cassettes. No container, network, key or clock."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

import msgspec

from harness.attempt import BUILT_IN, Agent, attempt, load_callable
from harness.cassette import Tape, read_cassette
from harness.costs import cost_of
from harness.dataset import Dataset
from harness.divergence import Divergence, Place, summary
from harness.errors import DamageError, DivergenceError, UsageError
from harness.files import Folder
from harness.records import MATCH_PARTS, Outcome, Settings, Verdict
from harness.report import (
    RunReport,
    SampleResult,
    Scorer,
    VerdictSource,
    verdict_for,
)
from harness.results import damaged_result, missing_result, report_of, result_of
from harness.runfile import Entry, RunFile, chosen, imported_from, read_run, tools_of
from harness.scorer import question_scorer
from harness.store import Store
from harness.terminal import printable
from harness.verdicts import known_truths, no_truths, notes_of, sealed_key, sealed_verdict
from harness.vouching import vouch
from harness.world import Diverged, Replayer

if TYPE_CHECKING:
    from harness.sealing import SealedKey

SHOWN = 3
"""Divergences of a run that are told in full; the rest is summed up by cause."""


class Replayed(msgspec.Struct, kw_only=True):
    """What became of one cassette."""

    outcome: Outcome
    """As the loop ended now; as recorded, where it diverged."""
    last_error: str | None = None
    trajectory: str | None = None
    """None where the loop diverged."""
    steps: int = 0
    identical: bool = False
    divergence: DivergenceError | None = None


def replay_tape(
    tape: Tape,
    agent: Agent,
    settings: Settings,
    *,
    place: Place,
    match_on: Collection[str] = MATCH_PARTS,
    tools: Sequence[dict[str, Any]] = (),
    servers: Mapping[str, str] | None = None,
) -> Replayed:
    """Run the loop on a sealed tape. A divergence is part of the result; damage is raised."""
    world = Replayer(
        tape, model=settings.model, place=place, match_on=match_on, tools=tools, servers=servers
    )
    end = tape.end
    if end is None:
        raise DamageError(f"{tape.what} is damaged: it was never finished")
    try:
        outcome = attempt(agent, tape.header.sample, world, settings)
        world.check_finished()
    except DivergenceError as error:
        return Replayed(
            outcome=end.outcome, last_error=end.last_error, steps=world.steps, divergence=error
        )
    trajectory = world.trajectory.result(outcome)
    return Replayed(
        outcome=outcome,
        last_error=last_error(world.last_reply, outcome),
        trajectory=trajectory,
        steps=world.steps,
        identical=trajectory == end.trajectory and set(match_on) == set(MATCH_PARTS),
    )


def last_error(last_reply: Any, outcome: Outcome) -> str | None:
    """Why there is no answer, if the model's last reply says so."""
    if outcome.status != "ok" or outcome.answer is not None or last_reply is None:
        return None
    error: str | None = last_reply.error
    return error


class ReplayOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to replay a run, where it differs from how it was recorded."""

    match_on: tuple[str, ...] = MATCH_PARTS
    task_ids: tuple[str, ...] = ()
    loop: dict[str, Any] = {}
    """Fields of `Settings` to set otherwise."""
    agent: str | None = None
    scorer: str | None = None
    told: str = ""
    """The options that these came from, as they stand on a command line."""


class Checked(msgspec.Struct, kw_only=True):
    """One sample and epoch after its replay: what it came to, and what is wrong with it."""

    result: SampleResult
    findings: list[str] = []
    """Damage, a changed outcome, a changed verdict: one line each. Not the divergence."""
    divergence: Divergence | None = None
    vouched: str | None = None
    """Of an imported sample, whose loop was another's: which steps ours would take as well."""


class RunReplay:
    """A run made ready for replay, sample by sample: what all samples share is loaded once."""

    def __init__(
        self,
        store: Store,
        name: str,
        options: ReplayOptions | None = None,
        *,
        dataset: Dataset | None = None,
        progress: Callable[[str], None] = lambda line: None,
    ) -> None:
        """Reads the run file, imports agent and scorer, looks for the truths. No cassette is read.

        `dataset`: where the truths are, if not in the packaged set or in the user's cache. Raises
        UsageError, LackError and DamageError for what stops the whole run.
        """
        self.store, self.options = store, options or ReplayOptions()
        self.run = read_run(store, name)
        self.settings = loop_settings(self.run, self.options.loop)
        self.imported = imported_from(self.run)
        spec = self.options.agent or (BUILT_IN if self.imported else self.run.settings.agent)
        self.agent: Agent = load_callable(spec, "the agent")
        self.scorer: Scorer = question_scorer
        if self.options.scorer:
            self.scorer = load_callable(self.options.scorer, "the scorer")
        self.entries = chosen(self.run, self.options.task_ids)
        self.truths = known_truths(self.run, dataset, progress)
        if self.options.scorer and not self.truths:
            raise no_truths(self.run, f"{self.options.scorer} cannot be asked")
        self.sealed = None if self.truths else sealed_key(store, self.run)
        self._tools, self._servers = tools_of(self.run)

    def tape(self, entry: Entry) -> Tape:
        """The cassette of a sample that has one, verified; DamageError when it cannot be used."""
        assert entry.cassette is not None
        name = self.run.name
        what = entry.what(name)
        tape = read_cassette(self.store, entry.cassette, what)
        check_sample(tape, entry, what)
        return tape

    def replay(self, entry: Entry, tape: Tape) -> Replayed:
        """Run the loop on the tape of this sample."""
        return replay_tape(
            tape,
            self.agent,
            self.settings,
            place=Place(self.run.name, entry.task_id, entry.epoch, self.options.told),
            match_on=self.options.match_on,
            tools=self._tools,
            servers=self._servers,
        )

    def changed(self, agent: Agent | str | None = None, **loop: Any) -> RunReplay:
        """The same run, to be replayed by another loop, or with other fields of `Settings`."""
        other = copy(self)
        if agent is not None:
            other.agent = load_callable(agent, "the agent") if isinstance(agent, str) else agent
        if loop:
            other.settings = loop_settings(self.run, {**self.options.loop, **loop})
        return other

    def check(self, entry: Entry) -> Checked:
        """Replay one sample and hold what comes out against the record."""
        if entry.cassette is None:
            return Checked(result=missing_result(entry))
        try:
            tape = self.tape(entry)
            if self.imported:
                return self._check_imported(entry, tape)
            replayed = self.replay(entry, tape)
        except DamageError as error:
            return Checked(result=damaged_result(entry), findings=[str(error)])
        except RecursionError:  # only a file that was made for it nests that deep
            finding = (
                f"sample {entry.task_id!r}, epoch {entry.epoch}, of run {self.run.name!r}: a value "
                f"in cassette {entry.cassette[:19]} is nested too deeply to be read"
            )
            return Checked(result=damaged_result(entry), findings=[finding])
        result = _result(entry, replayed, tape, self.scorer, self.truths, self.sealed)
        if isinstance(replayed.divergence, Diverged):
            return Checked(result=result, divergence=replayed.divergence.report)
        loose = set(self.options.match_on) != set(MATCH_PARTS)
        findings = _changes(entry, tape, replayed, result, loose=loose)
        return Checked(result=result, findings=findings)

    def _check_imported(self, entry: Entry, tape: Tape) -> Checked:
        """Answer and verdict again; of the loop, what can be said. Never called identical."""
        end = tape.end
        if end is None:
            raise DamageError(f"{tape.what} is damaged: it was never finished")
        vouched = vouch(tape, self.agent, self.settings)
        ended = Replayed(outcome=end.outcome, last_error=end.last_error, steps=vouched.steps)
        result = _result(entry, ended, tape, self.scorer, self.truths, self.sealed)
        result.identical = None
        findings = _changes(entry, tape, ended, result, loose=True)
        told = f"{entry.task_id} epoch {entry.epoch}: {vouched.text}"
        return Checked(result=result, findings=findings, vouched=told)


def replay_run(
    store: Store,
    name: str,
    options: ReplayOptions | None = None,
    *,
    dataset: Dataset | None = None,
    jobs: int = 1,
    progress: Callable[[str], None] = lambda line: None,
) -> tuple[RunReport, list[str]]:
    """Replay every sample of a run. Returns the report and the findings, one line each.

    `dataset`: where the truths are, if not in the packaged set or in the user's cache. `progress`
    is told the first divergences in full. `jobs`: processes that share the samples; results and
    their order do not depend on it.
    """
    replay = RunReplay(store, name, options, dataset=dataset, progress=progress)
    results: list[SampleResult] = []
    findings: list[str] = []
    divergences: list[Divergence] = []
    vouched: list[str] = []
    for checked in _all_checked(replay, jobs):
        results.append(checked.result)
        findings += checked.findings
        vouched += [checked.vouched] if checked.vouched is not None else []
        if checked.divergence is not None:
            if len(divergences) < SHOWN:
                progress(checked.divergence.text())
            divergences.append(checked.divergence)
    if len(divergences) > SHOWN:
        progress(f"({len(divergences) - SHOWN} more reports: --task-id ID, or --json)")
    findings += summary(divergences)
    report = report_of(
        replay.run,
        results,
        notes_of(replay.run, results, replay.options.match_on),
        model=replay.settings.model,
        cost=cost_of(replay.entries),
    )
    if replay.imported:
        report.notes.append(
            f"the loop of {replay.imported} was not run again; which steps ours would take too, "
            "given the same replies (what was asked for them is not compared):"
        )
        report.notes += vouched
    return report, findings


def _all_checked(replay: RunReplay, jobs: int) -> Iterable[Checked]:
    """Every sample checked, in the run's order, by so many processes."""
    jobs = min(jobs, len(replay.entries))
    if jobs < 2 or not isinstance(replay.store.files, Folder):
        return map(replay.check, replay.entries)
    from concurrent.futures import ProcessPoolExecutor  # costs start-up time
    from multiprocessing import get_context

    # each process takes every n-th sample, and opens the run for itself
    root, name = str(replay.store.files.root), replay.run.name
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        shares = [
            pool.submit(_check_share, root, name, replay.options, replay.truths, start, jobs)
            for start in range(jobs)
        ]
        parts = [share.result() for share in shares]
    return [parts[index % jobs][index // jobs] for index in range(len(replay.entries))]


def _check_share(
    root: str, name: str, options: ReplayOptions, truths: dict[str, str], start: int, step: int
) -> list[Checked]:
    replay = RunReplay(Store(root), name, options)
    replay.truths = truths
    return [replay.check(entry) for entry in replay.entries[start::step]]


def loop_settings(run: RunFile, changes: dict[str, Any]) -> Settings:
    """The run's own loop settings, with the given fields otherwise."""
    for name in changes:
        if name not in Settings.__struct_fields__:
            known = ", ".join(Settings.__struct_fields__)
            raise UsageError(f"loop settings: there is no {name!r} (there are {known})")
    fields = {**msgspec.to_builtins(run.settings.loop), **changes}
    try:
        return msgspec.convert(fields, Settings)
    except msgspec.ValidationError as error:
        raise UsageError(f"loop settings: {error}") from None


def check_sample(tape: Tape, entry: Entry, what: str) -> None:
    """The run file and the cassette must speak of the same sample."""
    sample = tape.header.sample
    if (sample.task_id, sample.epoch) != (entry.task_id, entry.epoch):
        raise DamageError(
            f"{what} is damaged: it holds sample {sample.task_id!r}, epoch {sample.epoch}"
        )


def _result(
    entry: Entry,
    replayed: Replayed,
    tape: Tape,
    scorer: Scorer,
    truths: Mapping[str, str],
    sealed: SealedKey | None,
) -> SampleResult:
    outcome = replayed.outcome
    verdict, source = _verdict(entry, replayed, tape, scorer, truths, sealed)
    divergence = replayed.divergence
    return result_of(
        entry,
        status=outcome.status,
        verdict=verdict,
        verdict_source=source,
        answer=outcome.answer,
        steps=replayed.steps,
        trajectory=f"sha256:{replayed.trajectory}" if replayed.trajectory else None,
        identical=replayed.identical,
        divergence=(
            msgspec.to_builtins(divergence.report) if isinstance(divergence, Diverged) else None
        ),
        drift=tape.drift(),
        usage=tape.usage(),
    )


def _verdict(
    entry: Entry,
    replayed: Replayed,
    tape: Tape,
    scorer: Scorer,
    truths: Mapping[str, str],
    sealed: SealedKey | None,
) -> tuple[Verdict, VerdictSource | None]:
    """The verdict on how the loop ended now, and where it comes from.

    Without a truth the recorded one stands, but only for the recorded outcome: any other is an
    error, or cannot be scored.
    """
    outcome, truth = replayed.outcome, truths.get(entry.task_id)
    if truth is not None:
        last = replayed.last_error
        return verdict_for(outcome.status, outcome.answer, last, truth, scorer=scorer), "scored"
    if sealed is not None and scorer is question_scorer:
        last = replayed.last_error
        found = sealed_verdict(sealed, entry.task_id, outcome.status, outcome.answer, last)
        if found is not None:
            return found, "sealed"
    if outcome.status == "error":
        return "error", None
    if tape.end is not None and not _same(outcome, tape.end.outcome):
        return "unscored", None
    return entry.verdict, "recorded"


def _same(outcome: Outcome, recorded: Outcome) -> bool:
    """Whether two attempts ended alike; errors do when they are of one kind, and those of the
    loop's own code when they are one exception: its text may hold a line's number."""
    ends = []
    for end in (outcome, recorded):
        kind = end.failure.kind if end.failure else None
        raised = end.failure.message.partition(":")[0] if end.failure and kind == "agent" else None
        ends.append((end.status, end.answer, kind, raised))
    return ends[0] == ends[1]


def _changes(
    entry: Entry, tape: Tape, replayed: Replayed, result: SampleResult, *, loose: bool
) -> list[str]:
    """What a sample that followed its tape does otherwise, one line each."""
    if tape.end is None:
        return []
    name = f"{entry.task_id} epoch {entry.epoch}"
    recorded = tape.end.outcome
    if not _same(replayed.outcome, recorded):
        return [f"{name}: the outcome changed: {_told(recorded)} → {_told(replayed.outcome)}"]
    found = []
    if result.verdict != entry.verdict and entry.verdict != "unscored":
        found.append(f"{name}: the verdict changed: {entry.verdict} → {result.verdict}")
    if not loose and not replayed.identical:
        found.append(
            f"{name}: the cassette's last line holds another trajectory than its effects give"
        )
    return found


def _told(outcome: Outcome) -> str:
    if outcome.failure is not None:
        return f"error ({outcome.failure.kind}: {printable(outcome.failure.message[:160])})"
    return "no answer" if outcome.answer is None else f"answer {outcome.answer[:80]!r}"
