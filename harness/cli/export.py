"""`harness export`."""

from __future__ import annotations

import os
from collections.abc import Iterable

import click

from harness.cli.common import emit, open_store, say, store_option
from harness.errors import LackError, UsageError


@click.command()
@click.argument("run")
@store_option
@click.option(
    "--format",
    "shape",
    required=True,
    type=click.Choice(["leaderboard", "jsonl", "vcr", "inspect"]),
)
@click.option(
    "-o", "--output", required=True, metavar="PATH", help="vcr: a folder; - is standard output."
)
@click.option(
    "--epoch",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="leaderboard: whose answers.",
)
@click.option("--pad", is_flag=True, help="leaderboard: send an empty answer for what is missing.")
@click.option("--traces", is_flag=True, help="leaderboard: add what the model said.")
@click.option(
    "--dataset", metavar="mini|DIR", help="leaderboard: the split's ids. inspect: targets."
)
def export(
    run: str,
    store_path: str,
    shape: str,
    output: str,
    epoch: int,
    pad: bool,
    traces: bool,
    dataset: str | None,
) -> None:
    """Write RUN in another shape: the leaderboard's JSON Lines, a flat line per sample, a vcrpy
    cassette per sample, or an inspect log."""
    from harness import exporting
    from harness.runfile import read_run
    from harness.truths import find

    store = open_store(store_path)
    found = read_run(store, run)
    if shape == "jsonl":
        _write(output, exporting.jsonl(store, found))
        return
    if shape == "vcr":
        from harness.interop.vcr_export import export as export_vcr

        done = export_vcr(store, found, output)
        for note in done.notes():
            say(f"note: {note}")
        say(
            f"{output}: {done.files} cassettes, {done.interactions} interactions; "
            "do not publish what the terms forbid"
        )
        return
    data = None
    if dataset is not None:
        from harness.config import load_dataset

        data = load_dataset(dataset, split=found.dataset.split)
    if shape == "inspect":
        from harness.interop.inspect_export import write_log

        truths = find(found.dataset.digest, dataset=data) if data is not None else None
        count = write_log(store, found, output, truths=truths)
        targets = "with the data set's answers as targets" if truths else "without targets"
        say(f"{output}: {count} samples, {targets}; do not publish what the terms forbid")
        return
    epochs = max((entry.epoch for entry in found.samples), default=1)
    ids = find(found.dataset.digest, dataset=data)
    lines = exporting.leaderboard(store, found, ids, epoch=epoch, pad=pad, traces=traces)
    _write(output, lines)
    say(f"the answers are those of epoch {epoch} of {epochs}")


def _write(output: str, lines: Iterable[str]) -> None:
    """All lines or nothing; nothing that exists is left half-replaced."""
    text = "".join(line + "\n" for line in lines)
    if output == "-":
        emit(text.rstrip("\n"))
        return
    if os.path.isdir(output):
        raise UsageError(f"{output} is a folder")
    temporary = f"{output}.{os.getpid()}.tmp"
    try:
        with open(temporary, "w", encoding="ascii", newline="\n") as file:
            file.write(text)
        os.replace(temporary, output)
    except OSError as error:
        raise LackError(f"{output} cannot be written: {error.strerror or error}") from error
    say(f"{output}: {text.count(chr(10))} lines; do not publish what the terms forbid")
