"""`harness record`, and what it shares with a fork: progress, interruption, the live side."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import click

from harness.cli.common import emit, json_option, say, store_option
from harness.cli.options import (
    limit_changes,
    loop_changes,
    mcp_servers,
    sandbox_changes,
    shared_options,
)
from harness.store import Store


@click.command()
@click.option("--run", required=True, metavar="NAME", help="The run to make or to continue.")
@store_option
@json_option
@click.option("--plan", is_flag=True, help="Say what would be done, and stop.")
@click.option(
    "--dataset",
    default="modelscope",
    show_default=True,
    metavar="mini|modelscope|huggingface|DIR",
    help="The packaged questions, a hub, or a folder in GAIA's layout.",
)
@click.option("--dataset-id", metavar="ID", help="Another data set than gaia-benchmark/GAIA.")
@click.option("--revision", help="The data set's revision on the hub.")
@click.option("--split", type=click.Choice(["validation", "test"]), default="validation")
@click.option("--subset", "subsets", multiple=True, metavar="2023_level1", help="Repeatable.")
@click.option("--task-id", "task_ids", multiple=True, metavar="ID", help="Repeatable.")
@click.option("--limit", type=int, metavar="N", help="At most N samples.")
@click.option("--shuffle-seed", type=int, metavar="N", help="Draw the samples in another order.")
@click.option("--epochs", type=int, default=1, show_default=True, help="Attempts per sample.")
@click.option("--allow-missing-files", is_flag=True, help="Run samples without their attachment.")
@click.option("--model", required=True, metavar="NAME", help="As the endpoint calls it.")
@shared_options
@click.option("--no-wire", is_flag=True, help="Do not keep the HTTP exchanges.")
@click.option("--retry-errors", is_flag=True, help="Go on with samples that ended in error.")
@click.option("--overwrite", is_flag=True, help="Record the run anew, and replace it when done.")
def record(store_path: str, as_json: bool, plan: bool, no_wire: bool, **given: Any) -> None:
    """Run samples live and record them. The same command continues an unfinished run.

    Exits 4 when samples ended in error, 130 when interrupted; what is finished is kept.
    """
    from harness.config import RecordOptions, parse_generation, record_config

    defaulted = ("agent", "on_drift", "eval_batch_size")
    optional = {name: value for name in defaulted if (value := given.pop(name)) is not None}
    loop, sandbox, limits = loop_changes(given), sandbox_changes(given), limit_changes(given)
    options = RecordOptions(
        generation=parse_generation(given.pop("generation")),
        sandbox=sandbox,
        wire=not no_wire,
        mcp=mcp_servers(given),
        **optional,
        **loop,
        **limits,
        **given,
    )
    config = record_config(options, progress=say, ask=not plan)
    store = Store(store_path)
    if plan:
        from harness.opening import plan_lines

        for line in plan_lines(store, config):
            emit(line)
        return

    def work(progress: Any, stop: threading.Event) -> Any:
        from harness.recording import record as do_record

        return do_record(store, config, connect=connect, progress=progress, stop=stop)

    sys.exit(carry_out(work, as_json=as_json, ignore_errors=options.ignore_errors))


def carry_out(
    work: Callable[[Any, threading.Event], Any], *, as_json: bool, ignore_errors: bool
) -> int:
    """Do live work with progress and interruption, print its report; the exit status."""
    from harness.progress import progress_for
    from harness.report import table, to_json

    stop = threading.Event()
    progress = progress_for()
    with interruptible(stop, progress):
        done = work(progress, stop)
    emit(to_json(done.report) if as_json else f"{done.report.run}\n{table(done.report)}")
    for finding in done.findings:
        say(finding)
    if done.interrupted:
        return 130
    if done.findings:
        return 1
    return 4 if done.report.metrics["error"] and not ignore_errors else 0


def connect(config: Any, note: Callable[[str], None], sleep: Callable[[float], None]) -> Any:
    """The live side; imported only when something is asked of it."""
    from harness.live.backend import Backend

    return Backend(
        config.run,
        config.settings,
        api_url=config.api_url,
        api_key=config.api_key,
        mcp=config.mcp,
        progress=note,
        sleep=sleep,
    )


_HANGUP: signal.Signals | None = getattr(signal, "SIGHUP", None)  # not on Windows


class interruptible:
    """Ctrl-C once: stop after the replies in flight. Twice: stop at once; files stay valid.

    SIGTERM counts as Ctrl-C; so does the end of the terminal, which is told more than once.
    """

    def __init__(self, stop: threading.Event, progress: Any) -> None:
        self._stop, self._progress = stop, progress
        self._old: dict[int, Any] = {}

    def __enter__(self) -> None:
        numbers = [signal.SIGINT, signal.SIGTERM]
        if _HANGUP is not None and signal.getsignal(_HANGUP) is not signal.SIG_IGN:  # else: nohup
            numbers.append(_HANGUP)
        for number in numbers:
            self._old[number] = signal.signal(number, self._on_signal)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: Any) -> None:
        if self._stop.is_set():
            if number == _HANGUP:
                return
            os._exit(130)
        self._stop.set()
        if not self._progress.in_flight:  # nothing is paid yet: no need to wait for anything
            raise KeyboardInterrupt
        with suppress(OSError):  # the terminal may be gone
            # not through the display, which this very thread may be in the middle of
            os.write(2, b"interrupted: waiting for replies in flight; again to stop at once\n")
