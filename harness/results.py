"""The lines of a run file as results, and the report that they make."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from harness.costs import Cost
from harness.report import RunReport, SampleResult, metrics
from harness.runfile import Entry, RunFile


def result_of(entry: Entry, **known: Any) -> SampleResult:
    """A sample as its run file's line has it; `known` is what is known besides, or better."""
    line = {
        "status": entry.status,
        "verdict": entry.verdict,
        "verdict_source": entry.verdict_source,
        "steps": entry.steps,
        "cassette": entry.cassette,
        "replayable": entry.replayable,
        "usage": entry.usage,
    }
    return SampleResult(
        task_id=entry.task_id, epoch=entry.epoch, level=entry.level, **{**line, **known}
    )


def report_of(
    run: RunFile,
    results: Sequence[SampleResult],
    notes: Sequence[str],
    *,
    model: str | None = None,
    cost: Cost | None = None,
) -> RunReport:
    """The report on these samples of a run. `model`: if another than the run's was asked."""
    return RunReport(
        run=run.name,
        model=model or run.settings.loop.model,
        dataset=msgspec.to_builtins(run.dataset),
        samples=list(results),
        metrics=metrics(results, subsets=run.selection.subsets),
        notes=list(notes),
        cost=cost,
    )


def missing_result(entry: Entry) -> SampleResult:
    """A sample that has no cassette."""
    return SampleResult(
        task_id=entry.task_id,
        epoch=entry.epoch,
        level=entry.level,
        status="missing",
        verdict="missing",
    )


def damaged_result(entry: Entry) -> SampleResult:
    """A sample whose cassette cannot be believed: counted as an error, never as it was."""
    return SampleResult(
        task_id=entry.task_id,
        epoch=entry.epoch,
        level=entry.level,
        status="error",
        verdict="error",
        cassette=entry.cassette,
        identical=False,
        replayable=False,
    )
