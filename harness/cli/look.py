"""`harness ls` and `harness show`."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from harness.cli.common import emit, json_option, open_store, say, store_option
from harness.errors import HarnessError, UsageError


@click.command()
@store_option
@json_option
def ls(store_path: str, as_json: bool) -> None:
    """List the runs of the store."""
    from harness.showing import run_summary, summary_lines

    store = open_store(store_path)
    failed = False
    summaries: list[dict[str, Any]] = []
    for name in store.runs():
        try:
            summaries.append(run_summary(store, name))
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
@click.option("--epoch", type=int, default=1, show_default=True)
@click.option("--raw", is_flag=True, help="The cassette's lines as they are.")
def show(
    run: str, task_id: str | None, store_path: str, as_json: bool, epoch: int, raw: bool
) -> None:
    """Show RUN: its settings and samples; with TASK_ID the transcript of that sample."""
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

            emit(to_json(recorded_report(store, run)))
            return
        lines = run_lines(store, run)
    elif as_json:
        raise UsageError("--json shows runs; for one sample use --raw")
    else:
        lines = transcript(store, run, task_id, epoch, raw=raw)
    for line in lines:
        emit(line)
