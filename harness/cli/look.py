"""`harness ls` and `harness show`."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from harness.cli.common import emit, json_option, open_store, price_option, say, store_option
from harness.errors import HarnessError

if TYPE_CHECKING:
    from harness.costs import Price


@click.command()
@store_option
@json_option
@price_option
def ls(store_path: str, as_json: bool, price: Price | None) -> None:
    """List the runs of the store."""
    from harness.showing import run_summary, summary_lines

    store = open_store(store_path)
    failed = False
    summaries: list[dict[str, Any]] = []
    for name in store.runs():
        try:
            summaries.append(run_summary(store, name, price))
        except HarnessError as error:
            say(f"error: {error}")
            failed = True
    for line in [json.dumps(s) for s in summaries] if as_json else summary_lines(summaries):
        emit(line)
    sys.exit(1 if failed else 0)


@click.command()
@click.argument("run")
@click.argument("task_id", required=False)
@store_option
@json_option
@price_option
@click.option("--epoch", type=int, default=1, show_default=True)
@click.option("--raw", is_flag=True, help="The cassette's lines as they are.")
def show(
    run: str,
    task_id: str | None,
    store_path: str,
    as_json: bool,
    price: Price | None,
    epoch: int,
    raw: bool,
) -> None:
    """Show RUN: its settings and samples; with TASK_ID the transcript of that sample.

    --json: the run as `replay --json` prints it, or the sample as `export --format jsonl` does.
    """
    from harness.showing import run_lines, transcript

    store = open_store(store_path)
    if task_id is None:
        if raw:
            from harness.terminal import printable_json

            emit(printable_json(store.read_run(run).decode("utf-8", "backslashreplace")))
            return
        if as_json:
            from harness.report import to_json
            from harness.showing import recorded_report

            report = recorded_report(store, run)
            report.cost = report.cost and report.cost.at(price)
            emit(to_json(report))
            return
        lines = run_lines(store, run, price)
    elif as_json:
        from harness.exporting import row
        from harness.runfile import read_run
        from harness.showing import entry_of

        found = read_run(store, run)
        emit(json.dumps(row(store, found, entry_of(found, task_id, epoch))))
        return
    else:
        lines = transcript(store, run, task_id, epoch, raw=raw)
    for line in lines:
        emit(line)
