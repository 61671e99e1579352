"""`harness score`."""

from __future__ import annotations

import json
import sys
from collections import Counter
from typing import TYPE_CHECKING

import click
import msgspec

from harness.cli.common import (
    Stopped,
    emit,
    json_option,
    open_store,
    runs_or_all,
    say,
    store_option,
)
from harness.errors import HarnessError, UsageError

if TYPE_CHECKING:
    from harness.scoring import Flip, Scored


@click.command()
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@store_option
@json_option
@click.option("--scorer", metavar="MODULE:NAME", help="A scorer, beside the recorded verdicts.")
@click.option("--against", metavar="MODULE:NAME", help="A scorer, beside the official rules.")
@click.option("--explain", is_flag=True, help="Sort wrong answers by why they are wrong.")
@click.option("--show-truths", is_flag=True, help="Print answers and truths of what is listed.")
@click.option("--dataset", metavar="mini|DIR", help="Where the truths are.")
def score(
    runs: tuple[str, ...],
    store_path: str,
    as_json: bool,
    scorer: str | None,
    against: str | None,
    explain: bool,
    show_truths: bool,
    dataset: str | None,
) -> None:
    """Score the recorded answers of RUNs (default: all) again, without running the loop.

    Exits 1 when a verdict flips or a cassette is damaged.
    """
    from harness.report import table, to_json
    from harness.scoring import ScoreOptions, score_run

    if scorer and against:
        raise UsageError("give --scorer or --against, not both")
    if show_truths and not (scorer or against or explain):
        say(
            "nothing is listed that truths could be shown of: give --explain, --against or --scorer"
        )
    options = ScoreOptions(scorer=scorer, against=against, explain=explain, show_truths=show_truths)
    store = open_store(store_path)
    data = None
    if dataset is not None:
        from harness.config import load_dataset

        data = load_dataset(dataset)
    failed, stopped = False, Stopped()
    names = runs_or_all(store, runs)
    for name in names:
        try:
            scored = score_run(store, name, options, dataset=data, progress=say)
        except HarnessError as error:
            if len(names) == 1:
                raise
            stopped.add(str(error), error.exit_code)
            continue
        if as_json:
            more = {
                "before": scored.before,
                "flips": [msgspec.to_builtins(flip) for flip in scored.flips],
            }
            if explain:
                more["explained"] = scored.explained
            emit(to_json(scored.report)[:-1] + f", {json.dumps(more)[1:]}")
        else:
            emit(f"{name}\n{table(scored.report)}")
            for line in _lines(scored, bool(scorer or against)):
                emit(line)
        for finding in scored.findings:
            say(finding)
        failed = failed or bool(scored.flips or scored.findings)
    sys.exit(stopped.status(failed))


def _lines(scored: Scored, compared: bool) -> list[str]:
    from harness.terminal import printable

    lines = [_flip_line(flip) for flip in scored.flips]
    if compared and not scored.flips:
        lines.append(f"0 of {len(scored.report.samples)} verdicts flip")
    if scored.flips:
        after: Counter[str] = Counter(result.verdict for result in scored.report.samples)
        count = len(scored.flips)
        lines.insert(0, f"{count} {'verdict flips' if count == 1 else 'verdicts flip'}:")
        names = sorted({*scored.before, *after})
        changes = [f"{name} {scored.before.get(name, 0)} → {after.get(name, 0)}" for name in names]
        lines.append("totals: " + ", ".join(changes))
    if scored.explained:
        classes = Counter(str(entry["class"]) for entry in scored.explained)
        lines.append("why wrong answers are wrong (for people; no part of any score):")
        for label, count in classes.most_common():
            lines.append(f"  {count:4} {label}")
        winnable = sum(entry["winnable"] for entry in scored.explained)
        lines.append(
            f"{winnable} of these {len(scored.explained)} have the right value in a wrong form: "
            "what a better prompt could win at most"
        )
        for entry in scored.explained:
            shown = f": {entry['answer']!r} for {entry['truth']!r}" if "truth" in entry else ""
            lines.append(
                printable(f"  {entry['task_id']} epoch {entry['epoch']}: {entry['class']}{shown}")
            )
    return [*lines, ""]


def _flip_line(flip: Flip) -> str:
    from harness.terminal import printable

    shown = "" if flip.truth is None else f"  answer {flip.answer!r}, truth {flip.truth!r}"
    return printable(
        f"  {flip.task_id} epoch {flip.epoch}  level {flip.level}  {flip.kind or '?'}  "
        f"{flip.old} → {flip.new}{shown}"
    )


@click.command()
@click.argument("run")
@store_option
@click.option("--dataset", metavar="mini|DIR", help="Where the truths are.")
def seal_truths(run: str, store_path: str, dataset: str | None) -> None:
    """Store a sealed answer key for RUN: verdicts can be computed from it, truths not read.

    What it resists and what not: docs/scoring.md.
    """
    from harness.scoring import seal_truths as seal

    store = open_store(store_path)
    data = None
    if dataset is not None:
        from harness.config import load_dataset

        data = load_dataset(dataset)
    emit(f"run {run}: {seal(store, run, dataset=data)} truths sealed")
