"""Score: recorded answers against the truths, from the last lines of the cassettes alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from harness.attempt import load_callable
from harness.cassette import End, read_end
from harness.dataset import Dataset
from harness.errors import DamageError, LackError
from harness.records import Verdict
from harness.report import RunReport, SampleResult, Scorer, verdict_for
from harness.results import damaged_result, missing_result, report_of, result_of
from harness.runfile import Entry, read_run, write_run
from harness.scorer import answer_kind, question_scorer
from harness.store import PREFIX, Store
from harness.verdicts import known_truths, no_truths, notes_of, sealed_key, sealed_verdict

if TYPE_CHECKING:
    from harness.sealing import SealedKey


class ScoreOptions(msgspec.Struct, frozen=True, kw_only=True):
    """`scorer` is set beside the recorded verdicts, `against` beside the official rules."""

    scorer: str | None = None
    against: str | None = None
    explain: bool = False
    show_truths: bool = False


class Flip(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A verdict that one scorer gives and the other does not."""

    task_id: str
    epoch: int
    level: int
    kind: str | None
    """number, list or string; None where the truth is not known."""
    old: Verdict
    new: Verdict
    answer: str | None = None
    truth: str | None = None


class Scored(msgspec.Struct, kw_only=True):
    """What scoring a run came to."""

    report: RunReport
    before: dict[str, int]
    """Verdicts by name, as they were (recorded, or official with `against`)."""
    flips: list[Flip]
    explained: list[dict[str, Any]]
    """One entry per wrong answer: its class, and a hint; data for people, never part of a score."""
    findings: list[str]


def score_run(
    store: Store,
    name: str,
    options: ScoreOptions | None = None,
    *,
    dataset: Dataset | None = None,
    progress: Callable[[str], None] = lambda line: None,
) -> Scored:
    """Score a run's recorded answers again. The loop does not run; nothing live is needed."""
    options = options or ScoreOptions()
    run = read_run(store, name)
    truths = known_truths(run, dataset, progress)
    sealed = None if truths or options.scorer or options.against else sealed_key(store, run)
    spec = options.against or options.scorer
    if spec and not truths:
        raise no_truths(run, f"{spec} cannot be asked")
    scorer: Scorer = load_callable(spec, "the scorer") if spec else question_scorer
    results: list[SampleResult] = []
    before: Counter[str] = Counter()
    flips: list[Flip] = []
    explained: list[dict[str, Any]] = []
    findings: list[str] = []
    for entry in run.samples:
        if entry.cassette is None:
            results.append(missing_result(entry))
            before["missing"] += 1
            continue
        what = entry.what(name)
        try:
            end = read_end(store, entry.cassette, what)
        except DamageError as error:
            findings.append(str(error))
            results.append(damaged_result(entry))
            before[entry.verdict] += 1
            continue
        truth = truths.get(entry.task_id)
        result = _result(entry, end, truth, scorer, sealed)
        old = entry.verdict
        if options.against and truth is not None:
            old = verdict_for(end.status, end.answer, end.last_error, truth)
        results.append(result)
        before[old] += 1
        if result.verdict != old:
            flips.append(_flip(result, old, end, truth, options.show_truths))
        if options.explain and result.verdict in ("wrong", "no_answer") and truth is not None:
            explained.append(_explained(result, end, truth, options.show_truths))
    notes = [*_scorer_note(options), *notes_of(run, results), *_not_explained(options, truths)]
    report = report_of(run, results, notes)
    return Scored(
        report=report, before=dict(before), flips=flips, explained=explained, findings=findings
    )


def _not_explained(options: ScoreOptions, truths: dict[str, str]) -> list[str]:
    if not options.explain or truths:
        return []
    return ["nothing can be explained: the truths are not here (--dataset DIR)"]


def _scorer_note(options: ScoreOptions) -> list[str]:
    if options.against:
        return [f"scored by {options.against}, set against the official rules"]
    return [f"scored by {options.scorer}, not by the official rules"] if options.scorer else []


def _result(
    entry: Entry, end: End, truth: str | None, scorer: Scorer, sealed: SealedKey | None
) -> SampleResult:
    verdict, source = entry.verdict, "recorded"
    if sealed is not None:
        found = sealed_verdict(sealed, entry.task_id, end.status, end.answer, end.last_error)
        if found is not None:
            verdict, source = found, "sealed"
    if truth is not None:
        source = "scored"
        verdict = verdict_for(end.status, end.answer, end.last_error, truth, scorer=scorer)
    return result_of(
        entry,
        status=end.status,
        verdict=verdict,
        verdict_source=source,
        answer=end.answer,
        steps=end.totals.model,
        trajectory=PREFIX + end.trajectory,
        replayable=end.replayable,
    )


def _flip(result: SampleResult, old: Verdict, end: End, truth: str | None, show: bool) -> Flip:
    return Flip(
        task_id=result.task_id,
        epoch=result.epoch,
        level=result.level,
        kind=answer_kind(truth) if truth is not None else None,
        old=old,
        new=result.verdict,
        answer=end.answer if show else None,
        truth=truth if show else None,
    )


def _explained(result: SampleResult, end: End, truth: str, show: bool) -> dict[str, Any]:
    from harness.explain import explain  # only needed when asked for

    found = explain(end.answer, truth)
    entry = {
        "task_id": result.task_id,
        "epoch": result.epoch,
        "level": result.level,
        "class": found.label,
        "hint": found.hint,
        "winnable": found.winnable,
    }
    if show:
        entry |= {"answer": end.answer, "truth": truth}
    return entry


def totals(results: list[SampleResult]) -> dict[str, int]:
    """Verdicts by name."""
    return dict(Counter(result.verdict for result in results))


def seal_truths(store: Store, name: str, *, dataset: Dataset | None = None) -> int:
    """Put a sealed answer key for a run's samples into the store; how many it holds.

    With it, people who do not hold the data set can compute the verdicts. LackError when the
    truths are not on this machine.
    """
    from harness import sealing

    with store.writer(name):
        run = read_run(store, name)
        known = known_truths(run, dataset, lambda line: None)
        if not known:
            raise LackError(
                f"the truths of {run.dataset.id!r} are not on this machine", hint="--dataset DIR"
            )
        ids = {entry.task_id for entry in run.samples}
        key = sealing.seal({task_id: known[task_id] for task_id in ids if task_id in known})
        run.sealed_key = store.put(sealing.encode(key))
        write_run(store, run)
        return len(key.truths)
