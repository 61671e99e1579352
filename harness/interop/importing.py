"""Import: what another tool recorded becomes a run of the store, or nothing is changed.

A reader (`evalscope`, `inspect_log`, `vcr`) turns a tool's files into `ImportedSample`s, one at a
time; `write_import` makes sealed cassettes of them with the recorder's own writer. All is read and
checked before the store is touched: until then the cassettes wait in a temporary file. What the
tool did not keep is not invented: it is named, in the run's marks and in each cassette's last line.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from itertools import pairwise
from typing import IO, Any

import msgspec

from harness import __version__, canonical
from harness.cassette import FORMAT, VERSION, Agent, End, Header, encode_line
from harness.dataset import UNKNOWN, Dataset, Item
from harness.errors import DataError, LackError, UsageError
from harness.interop.imported import (
    MAX_EFFECTS,
    Difference,
    ImportedSample,
    ImportReport,
    Source,
)
from harness.journal import TapeWriter
from harness.records import (
    Outcome,
    Sample,
    TrajectoryHash,
    Usage,
    Verdict,
    failure_digest,
    reply_digest,
)
from harness.report import SampleResult, verdict_for
from harness.results import missing_result, report_of, result_of
from harness.runfile import DatasetRef, Entry, RunFile, RunSettings, Selection, check, encode
from harness.store import PREFIX, Store, check_run_name

MAX_MISSING = 10_000
"""Samples and epochs that were to be run and are not there, where somebody says that many."""

_IN_MEMORY = 16 << 20  # bytes of cassettes that wait in memory; more wait on the disk


class _Taken(msgspec.Struct, kw_only=True):
    """A sample that was read: its line in the run file, and where its cassette waits."""

    entry: Entry
    sample: Sample
    outcome: Outcome
    theirs: Verdict | None
    told: str
    truth: str | None
    trajectory: str
    totals: Any
    notes: list[str]
    last_error: str | None
    start: int
    size: int


def write_import(
    store: Store,
    name: str,
    *,
    source: Source,
    settings: RunSettings,
    samples: Iterable[ImportedSample],
    dataset: Dataset | None = None,
    dataset_id: str = "",
    split: str = "validation",
    selection: Selection | None = None,
    expected: Callable[[], Sequence[tuple[str, int]]] = lambda: (),
    epochs: int = 1,
    warnings: list[str] | None = None,
) -> ImportReport:
    """Make a new run of what another tool recorded.

    `dataset` is the user's own copy, if it was given: it says questions, levels and truths. Without
    it the run's data set is what the tool kept of it. `expected` is asked at the end for what was
    to be run, by id and level (0: unknown): samples that did not come are `missing`, in each of
    `epochs`. `warnings`, which may grow meanwhile, say what is wrong with the tool's files.

    The store is not touched before all samples were read. Raises UsageError for a name that is
    taken, DataError for samples that contradict themselves, LackError for a full disk.
    """
    check_run_name(name)
    _refuse_existing(store, name)
    known = {item.sample.task_id: item for item in dataset.items} if dataset else None
    try:
        with tempfile.SpooledTemporaryFile(_IN_MEMORY) as waiting:
            taken = [_take(sample, known, source, waiting) for sample in samples]
            if not taken:
                raise DataError(f"this {source.tool} run holds no sample")
            taken.sort(key=lambda one: (one.entry.task_id, one.entry.epoch))
            _check(taken)
            whole = dataset or _dataset_of(taken, dataset_id or source.tool, split)
            truths = {item.sample.task_id: item.truth for item in whole.items}
            if dataset is None:  # what a tool does not say is no withheld truth
                truths = {task: truth for task, truth in truths.items() if truth != UNKNOWN}
            missing = _missing(taken, expected(), epochs, known)
            differences = [*_score(taken, truths), *map(_lacks, missing)]
            entries = [*(one.entry for one in taken), *missing]
            entries.sort(key=lambda entry: (entry.task_id, entry.epoch))
            run = RunFile(
                name=name,
                harness=__version__,
                settings=settings,
                environment={"imported": _imported(source)},
                dataset=DatasetRef(
                    id=whole.id,
                    source="folder" if dataset else source.tool.lower(),
                    revision=whole.revision,
                    split=whole.split,
                    digest=whole.digest,
                ),
                selection=_selection(selection, entries, whole),
                marks=[_mark(source)],
                samples=entries,
            )
            check(run, "the imported run")
            _write(store, run, taken, waiting)
    except OSError as error:
        raise LackError(f"the import cannot be written: {error.strerror or error}") from error
    return _report(run, source, taken, differences, whole, warnings or [])


def _refuse_existing(store: Store, name: str) -> None:
    if store.files.exists("layout.json"):
        taken = [run for run in store.runs() if run.lower() == name.lower()]
        if taken:
            raise UsageError(
                f"{store.label} has a run {taken[0]!r} already; an import makes a new one",
                hint="choose another --run",
            )


# ---------------------------------------------------------------------------------------- cassettes


def _take(
    found: ImportedSample, known: dict[str, Item] | None, source: Source, waiting: IO[bytes]
) -> _Taken:
    """Write a sample's cassette behind the others that wait."""
    sample = found.sample
    if known is not None:
        item = known.get(sample.task_id)
        if item is None:
            raise UsageError(
                f"sample {sample.task_id!r} of the {source.tool} run is not in the data set given",
                hint="name the data set that it was made over, or leave --dataset out",
            )
        sample = msgspec.structs.replace(item.sample, epoch=sample.epoch)
    if len(found.effects) > MAX_EFFECTS:
        raise DataError(f"sample {sample.task_id!r} has more than {MAX_EFFECTS} effects")
    try:
        data, end = _cassette(found, sample, source)
    except (RecursionError, ValueError) as error:  # nested too deep, or no JSON
        raise DataError(f"sample {sample.task_id!r} cannot be written: {error}") from None
    start = waiting.seek(0, 2)
    waiting.write(data)
    theirs = found.verdict
    if found.outcome.status == "error":
        verdict: Verdict = "error"
    elif found.outcome.answer is None:
        verdict = verdict_for("ok", None, found.last_error, "")
    else:
        verdict = theirs or "unscored"
    usage = found.usage or Usage(end.totals.input_tokens, end.totals.output_tokens)
    entry = Entry(
        task_id=sample.task_id,
        epoch=sample.epoch,
        level=sample.level,
        status=found.outcome.status,
        verdict=verdict,
        verdict_source="recorded" if theirs is not None else None,
        steps=end.totals.model,
        usage=usage,
        seconds=round(max(found.seconds, 0.0), 3),
        replayable=False,
    )
    return _Taken(
        entry=entry,
        sample=sample,
        outcome=found.outcome,
        theirs=theirs,
        told=found.told,
        truth=found.truth,
        trajectory=end.trajectory,
        totals=end.totals,
        notes=found.notes,
        last_error=found.last_error,
        start=start,
        size=len(data),
    )


def _cassette(found: ImportedSample, sample: Sample, source: Source) -> tuple[bytes, End]:
    """A sealed cassette's bytes, and its last line."""
    writer, trajectory = TapeWriter(), TrajectoryHash()
    header = Header(
        format=FORMAT,
        version=VERSION,
        sample=sample,
        agent=Agent(source.agent, ""),
        harness=__version__,
    )
    lines = [encode_line(header)]
    writer.count += 1
    for request, reply, failure, meta, model in found.effects:
        digest = request.digest(model)
        before, taped = writer.before(request)
        more: dict[str, Any] = {"model": model, "failure": failure, "meta": meta}
        line = writer.effect(request, taped, digest, reply, **more)
        lines += map(encode_line, [*before, line])
        trajectory.add(digest, failure_digest(failure) if failure else reply_digest(reply))
    told = {"tool": source.name, "verdict": found.told, "missing": found.missing}
    end = End(
        status=found.outcome.status,
        answer=found.outcome.answer,
        failure=found.outcome.failure,
        last_error=found.last_error if found.outcome.answer is None else None,
        trajectory=trajectory.result(found.outcome),
        totals=writer.totals,
        replayable=False,
        report={"imported": {**told, "notes": found.notes}},
    )
    return b"".join([*lines, encode_line(end)]), end


def _check(taken: Sequence[_Taken]) -> None:
    """No sample twice, and each of one level."""
    for one, other in pairwise(taken):
        if one.entry.task_id != other.entry.task_id:
            continue
        name = f"sample {one.entry.task_id!r}"
        if one.entry.epoch == other.entry.epoch:
            raise DataError(f"{name}, epoch {one.entry.epoch}, is there twice")
        if one.entry.level != other.entry.level:
            raise DataError(f"{name} has two levels: {one.entry.level} and {other.entry.level}")


# -------------------------------------------------------------------------------- data and verdicts


def _dataset_of(taken: Sequence[_Taken], id: str, split: str) -> Dataset:
    """What the tool kept of the data set, in the form of one."""
    items: dict[str, Item] = {}
    for one in taken:
        sample = msgspec.structs.replace(one.sample, epoch=1)
        truth = UNKNOWN if one.truth is None else one.truth
        item = Item(sample=sample, truth=truth, path=None, subset=f"2023_level{sample.level}")
        before = items.setdefault(sample.task_id, item)
        if before.truth != truth and UNKNOWN not in (before.truth, truth):
            raise DataError(f"sample {sample.task_id!r} has two different targets")
        if before.truth == UNKNOWN:
            items[sample.task_id] = item
    ordered = tuple(items.values())
    # as `dataset.load` computes it: the same samples have the same digest
    rows = [
        {
            name: getattr(item.sample, name)
            for name in ("attachment", "file_name", "level", "question", "task_id")
        }
        for item in ordered
    ]
    digest = PREFIX + canonical.digest(rows)
    return Dataset(id=id, revision=None, split=split, digest=digest, items=ordered)


def _score(taken: Sequence[_Taken], truths: dict[str, str]) -> list[Difference]:
    """Set each verdict by the official rules, where the truth is known; where that changes it."""
    found = []
    for one in taken:
        entry, truth = one.entry, truths.get(one.entry.task_id)
        if truth is not None:
            entry.verdict = verdict_for(entry.status, one.outcome.answer, one.last_error, truth)
            entry.verdict_source = "scored" if entry.status == "ok" else None
        if entry.verdict != one.theirs and not (one.theirs is None and entry.verdict != "error"):
            found.append(
                Difference(
                    task_id=entry.task_id,
                    epoch=entry.epoch,
                    theirs=one.theirs,
                    told=one.told,
                    ours=entry.verdict,
                    why="; ".join(dict.fromkeys([_why(one, truth).rstrip("."), *one.notes])),
                )
            )
    return found


def _lacks(entry: Entry) -> Difference:
    return Difference(
        task_id=entry.task_id,
        epoch=entry.epoch,
        theirs=None,
        told="",
        ours="missing",
        why="it was to be run and is not there, which counts in our denominator",
    )


def _why(one: _Taken, truth: str | None) -> str:
    """Why the verdict is another than the tool's own. Shows neither answer nor truth."""
    from harness.explain import explain  # only where verdicts differ
    from harness.scorer import answer_kind

    entry = one.entry
    if entry.verdict == "error":
        failure = one.outcome.failure
        told = f"{failure.kind}: {failure.message[:160]}" if failure else "error"
        return f"it ended in an error ({told}), which counts in our denominator and is no answer"
    if one.outcome.answer is None:
        return one.notes[0] if one.notes else "there is no answer"
    if truth is None or entry.verdict == "unscored":
        return "the truth is not known here"
    if one.truth is not None and truth != one.truth:
        return "the target that the tool was told is not the data set's answer"
    kind = answer_kind(truth)
    if entry.verdict == "right":
        return f"by the leaderboard's rule for a {kind} the answer is right"
    return f"by the leaderboard's rule for a {kind}: {explain(one.outcome.answer, truth).hint}"


def _missing(
    taken: Sequence[_Taken],
    expected: Sequence[tuple[str, int]],
    epochs: int,
    known: dict[str, Item] | None,
) -> list[Entry]:
    """A line for each sample and epoch that was to be run and is not there."""
    have = {(one.entry.task_id, one.entry.epoch) for one in taken}
    levels = {one.entry.task_id: one.entry.level for one in taken}
    found = {}
    for task_id, level in [*expected, *levels.items()]:
        if known is not None and task_id in known:
            level = known[task_id].sample.level
        level = levels.get(task_id, level)
        for epoch in range(1, epochs + 1):
            if (task_id, epoch) not in have:
                found[task_id, epoch] = Entry(task_id=task_id, epoch=epoch, level=level)
        if len(found) > MAX_MISSING:
            raise DataError(f"more than {MAX_MISSING} samples were asked for that are not there")
    return list(found.values())


# ------------------------------------------------------------------------------------- the run file


def _imported(source: Source) -> dict[str, Any]:
    return {
        **source.details,
        "tool": source.tool,
        "version": source.version,
        "missing": list(source.missing),
    }


def _mark(source: Source) -> str:
    lacks = "; not in it: " + ", ".join(source.missing) if source.missing else ""
    return f"imported from {source.name}{lacks}"


def _selection(given: Selection | None, entries: Sequence[Entry], whole: Dataset) -> Selection:
    ids = sorted({entry.task_id for entry in entries})
    return msgspec.structs.replace(
        given or Selection(),
        epochs=max(entry.epoch for entry in entries),
        selected=len(ids),
        of=max(len(ids), len(whole.items)),
        digest=PREFIX + canonical.digest(ids),
    )


def _write(store: Store, run: RunFile, taken: Sequence[_Taken], waiting: IO[bytes]) -> None:
    """The objects first, the run file last; what was put is taken back when that fails."""
    store.create()
    with store.writer(run.name):
        _refuse_existing(store, run.name)
        put: list[str] = []
        try:
            for one in taken:
                waiting.seek(one.start)
                data = waiting.read(one.size)
                one.entry.cassette = PREFIX + sha256(data).hexdigest()
                if not store.has(one.entry.cassette):
                    put.append(store.put(data))
            store.write_run(run.name, encode(run))
        except BaseException:
            for name in put:
                store.remove_object(name)
            raise


# --------------------------------------------------------------------------------------- the report


def _report(
    run: RunFile,
    source: Source,
    taken: Sequence[_Taken],
    differences: list[Difference],
    whole: Dataset,
    warnings: Sequence[str],
) -> ImportReport:
    by_key = {(one.entry.task_id, one.entry.epoch): one for one in taken}
    results = [_result(entry, by_key.get((entry.task_id, entry.epoch))) for entry in run.samples]
    report = report_of(run, results, [*run.marks, run.selection.told(run.dataset.split)])
    effects = {
        kind: sum(getattr(one.totals, kind) for one in taken) for kind in ("model", "bash", "tool")
    }
    told = {(item.task_id, item.epoch) for item in differences}
    notes = [
        f"{one.entry.task_id} epoch {one.entry.epoch}: {note}"
        for one in taken
        if (one.entry.task_id, one.entry.epoch) not in told
        for note in one.notes
    ]
    known = tuple(item for item in whole.items if item.truth != UNKNOWN)
    return ImportReport(
        source=source,
        report=report,
        differences=differences,
        effects=effects,
        notes=[*warnings, *notes],
        rescored=sum(result.verdict_source == "scored" for result in results),
        truths=msgspec.structs.replace(whole, items=known) if known else None,
    )


def _result(entry: Entry, one: _Taken | None) -> SampleResult:
    if one is None:
        return missing_result(entry)
    trajectory = PREFIX + one.trajectory
    return result_of(entry, answer=one.outcome.answer, trajectory=trajectory, replayable=False)
