"""Results of a run → figures, the table, the JSON object.

A report holds ids, verdicts, cost and, in JSON, the answers: never a question or a truth.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import msgspec

from harness.costs import Cost
from harness.errors import HarnessError, UsageError
from harness.records import VERDICTS, Usage, Verdict
from harness.scorer import question_scorer
from harness.terminal import columns, printable

Status = Literal["ok", "error", "missing"]
VerdictSource = Literal["scored", "sealed", "recorded"]
Scorer = Callable[[str | None, str], bool]

_ENDED_BY: dict[str | None, Verdict] = {
    "context_exceeded": "context_exceeded",
    "refused": "refused",
}
_HEADER = ("Model", "Dataset", "Metric", "Subset", "Num", "Score", "Cat.0")


class SampleResult(msgspec.Struct, kw_only=True):
    """One sample and epoch; the fields are those of `--json`, in its order."""

    task_id: str
    epoch: int = 1
    level: int
    status: Status
    verdict: Verdict
    verdict_source: VerdictSource | None = None
    """Where the verdict comes from; None when no truth had a part in it."""
    answer: str | None = None
    steps: int = 0
    """Model turns."""
    cassette: str | None = None
    """`sha256:…`"""
    trajectory: str | None = None
    """`sha256:…`"""
    identical: bool | None = None
    """Whether a replay gave the recorded trajectory; None when nothing was replayed."""
    divergence: dict[str, Any] | None = None
    drift: list[Any] = []
    replayable: bool = True
    usage: Usage = Usage()


class RunReport(msgspec.Struct, kw_only=True):
    """What a run came to."""

    run: str
    model: str
    dataset: dict[str, Any]
    """Id, revision, split, digest."""
    samples: list[SampleResult]
    metrics: dict[str, Any]
    """As `metrics` gives them."""
    notes: list[str] = []
    """Plain lines that belong to the figures: what was selected, what was not compared."""
    cost: Cost | None = None
    """What the recording of these samples cost."""


def verdict_for(
    status: Status,
    answer: str | None,
    last_error: str | None,
    truth: str,
    scorer: Scorer = question_scorer,
) -> Verdict:
    """The verdict on one attempt. `last_error` is the `error` of its last model reply.

    `error` and `missing` stay what they are. Else a withheld truth (`?`) leaves the attempt
    `unscored`, whatever it gave; no answer is `context_exceeded` or `refused` if that ended it,
    and `no_answer` otherwise; only an answer reaches the scorer. Raises UsageError for a scorer
    that raises or that returns something other than True or False.
    """
    if status != "ok":
        return status
    if truth.strip() == "?":
        return "unscored"
    if answer is None:
        return _ENDED_BY.get(last_error, "no_answer")
    name = getattr(scorer, "__qualname__", type(scorer).__name__)
    try:
        right: object = scorer(answer, truth)
    except Exception as error:  # a user's code; its text may hold the truth, so it is not shown
        raise UsageError(
            f"the scorer {name} raised {type(error).__name__}{_place(error)}"
        ) from error
    if not isinstance(right, bool):  # (False, "why") would count as right
        raise UsageError(
            f"the scorer {name} returned a value of type {type(right).__name__}; it must return"
            " True or False"
        )
    return "right" if right else "wrong"


def _place(error: Exception) -> str:
    """Where a user's code raised; nothing for the call itself, such as a wrong signature."""
    trace = error.__traceback__.tb_next if error.__traceback__ else None
    if trace is None:
        return ": it must take (model_answer, ground_truth)"
    while trace.tb_next is not None:
        trace = trace.tb_next
    return f" in {os.path.basename(trace.tb_frame.f_code.co_filename)}, line {trace.tb_lineno}"


# ----------------------------------------------------------------------------------------- figures


def metrics(results: Iterable[SampleResult], *, subsets: Iterable[str] = ()) -> dict[str, Any]:
    """The figures of a run: its JSON object's `metrics`.

    `num` counts samples x epochs and is the sum of the eight counts by verdict; `mean_acc` is
    right / num. `subsets` are listed even when no sample is in them. With several epochs,
    `pass@k` is the chance that one of k attempts drawn from those made is right, averaged over
    the samples (the unbiased estimator of Chen et al. 2021, arXiv 2107.03374), for k = 2, 4, 8, …
    and the number of epochs.

    `stderr` is the standard error of `mean_acc` with the samples as clusters of their epochs:
    sqrt(G / (G - 1) * sum over samples of (sum over epochs of (score - mean))^2) / num, for G
    samples (clustered standard errors as in Miller 2024, arXiv 2411.00640, with the correction for
    a finite number of clusters in Cameron and Miller 2015, J. Human Resources 50(2)). With one
    epoch this is the ordinary standard error of a mean.

    Figures that need what is not there are None: all when a verdict is `unscored`, `mean_acc`
    without samples, `stderr` with fewer than two. A subset's `mean_acc` is None when a verdict in
    it is `unscored`, and, where others are, when nothing in it came to an end. Raises HarnessError
    for results that contradict themselves.
    """
    results = list(results)
    _check(results)
    counts = Counter(result.verdict for result in results)
    by_subset: dict[str, list[SampleResult]] = {name: [] for name in subsets}
    for result in results:
        by_subset.setdefault(f"2023_level{result.level}", []).append(result)
    figures: dict[str, Any] = {
        "mean_acc": _accuracy(results),
        "num": len(results),
        **{verdict: counts[verdict] for verdict in VERDICTS},
        "stderr": None,
        "by_subset": {
            name: {"mean_acc": _accuracy(part), "num": len(part)}
            for name, part in sorted(by_subset.items())
        },
    }
    if counts["unscored"]:  # of a subset with errors alone nobody knows whether it has truths
        for name, part in by_subset.items():
            if all(result.status != "ok" for result in part):
                figures["by_subset"][name]["mean_acc"] = None
    attempts: dict[str, list[int]] = defaultdict(list)
    for result in results:
        attempts[result.task_id].append(int(result.verdict == "right"))
    scored = not counts["unscored"]
    if scored:
        figures["stderr"] = _clustered_error(list(attempts.values()))
    epochs = min(map(len, attempts.values()), default=0)
    for k in _draws(epochs):
        chances = [_pass_at(k, len(tries), sum(tries)) for tries in attempts.values()]
        figures[f"pass@{k}"] = math.fsum(chances) / len(chances) if scored else None
    return figures


def _check(results: Sequence[SampleResult]) -> None:
    counts = Counter(result.verdict for result in results)
    if sum(counts[verdict] for verdict in VERDICTS) != len(results):
        unknown = sorted(set(counts).difference(VERDICTS))
        raise HarnessError(f"the verdicts do not add up: {unknown} is none")
    seen: set[tuple[str, int]] = set()
    levels: dict[str, int] = {}
    for result in results:
        name = f"sample {result.task_id!r}, epoch {result.epoch}"
        if (result.task_id, result.epoch) in seen:
            raise HarnessError(f"{name} is counted twice")
        seen.add((result.task_id, result.epoch))
        if levels.setdefault(result.task_id, result.level) != result.level:
            raise HarnessError(f"{name} has two levels")
        ended = result.status if result.status != "ok" else None
        if ended != (result.verdict if result.verdict in ("error", "missing") else None):
            raise HarnessError(f"{name} has status {result.status} and verdict {result.verdict}")


def _accuracy(results: Sequence[SampleResult]) -> float | None:
    if not results or any(result.verdict == "unscored" for result in results):
        return None
    return sum(result.verdict == "right" for result in results) / len(results)


def _clustered_error(clusters: Sequence[Sequence[int]]) -> float | None:
    groups, num = len(clusters), sum(map(len, clusters))
    if groups < 2:
        return None
    mean = sum(map(sum, clusters)) / num
    squares = math.fsum((sum(scores) - len(scores) * mean) ** 2 for scores in clusters)
    return math.sqrt(squares * groups / (groups - 1)) / num


def _draws(epochs: int) -> list[int]:
    """2, 4, 8, … below the number of epochs, and that number; none for a single epoch."""
    powers = [1 << bit for bit in range(1, epochs.bit_length()) if 1 << bit < epochs]
    return [*powers, epochs] if epochs > 1 else []


def _pass_at(k: int, n: int, right: int) -> float:
    return 1 - math.comb(n - right, k) / math.comb(n, k)


# ------------------------------------------------------------------------------------------- forms


def table(report: RunReport) -> str:
    """The results as a grid, one line of counts, a line for epochs if several, then the notes.

    `n/a` stands for what was not scored. Holds no answer; nothing in it steers a terminal.
    """
    figures = report.metrics
    lead = (printable(report.model), printable(str(report.dataset.get("id", ""))), "mean_acc")
    rows = [
        (*lead, printable(name), str(part["num"]), _figure(part["mean_acc"]), "default")
        for name, part in figures["by_subset"].items()
    ]
    rows.append((*lead, "overall", str(figures["num"]), _figure(figures["mean_acc"]), "-"))
    lines = [*_grid(rows), _counts(figures)]
    if passes := [key for key in figures if key.startswith("pass@")]:
        epochs = max(result.epoch for result in report.samples)
        parts = ", ".join(f"{key} {_figure(figures[key])}" for key in passes)
        lines.append(f"mean of {epochs} epochs {_figure(figures['mean_acc'])}, {parts}")
    lines += [printable(note) for note in report.notes]
    return "\n".join(lines)


def _counts(figures: dict[str, Any]) -> str:
    counts = ", ".join(f"{figures[verdict]} {verdict}" for verdict in VERDICTS)
    completed = figures["num"] - figures["error"] - figures["missing"]
    line = f"num {figures['num']}: {counts}; {completed} of {figures['num']} completed"
    return f"{line}; stderr {_figure(figures['stderr'])}"


def _figure(value: float | None) -> str:
    return "n/a" if value is None else str(round(value, 4))


def _grid(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(columns, cells)) for cells in zip(_HEADER, *rows, strict=True)]

    def rule(char: str) -> str:
        return f"+{'+'.join(char * (width + 2) for width in widths)}+"

    def line(cells: Sequence[str]) -> str:
        padded = []
        for title, cell, width in zip(_HEADER, cells, widths, strict=True):
            gap = " " * (width - columns(cell))
            padded.append(gap + cell if title in ("Num", "Score") else cell + gap)
        return f"| {' | '.join(padded)} |"

    lines = [rule("-"), line(_HEADER), rule("=")]
    for row in rows:
        lines += [line(row), rule("-")]
    return lines


def to_json(report: RunReport) -> str:
    """The report as one line of JSON: what `--json` prints; `notes`, `cost` only if there are any.

    ASCII: any text survives, lone surrogates and control characters as escapes.
    """
    fields = msgspec.structs.asdict(report)
    for name in ("notes", "cost"):
        if not fields[name]:
            del fields[name]
    return json.dumps(fields, allow_nan=False, default=msgspec.to_builtins)
