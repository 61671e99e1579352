"""`harness import`."""

from __future__ import annotations

import importlib
import json
from typing import TYPE_CHECKING, Any

import click
import msgspec

from harness.cli.common import emit, json_option, say, store_option
from harness.errors import HarnessError
from harness.store import Store

if TYPE_CHECKING:
    from harness.interop.imported import ImportReport

# format → its reader in `harness.interop`, which has `import_run(store, path, name, dataset=…)`
READERS = {"evalscope": "evalscope", "inspect": "inspect_log", "vcr": "vcr_import"}


@click.command(name="import")
@click.argument("path", type=click.Path(exists=True))
@click.option("--from", "tool", required=True, type=click.Choice(list(READERS)), help="The tool.")
@click.option("--run", required=True, metavar="NAME", help="Name of the new run.")
@store_option
@json_option
@click.option("--dataset", metavar="mini|DIR", help="The data set that it was made over.")
@click.option("--split", type=click.Choice(["validation", "test"]), default="validation")
@click.option("--seal-truths", is_flag=True, help="Store a sealed answer key with the run.")
def import_(
    path: str,
    tool: str,
    run: str,
    store_path: str,
    as_json: bool,
    dataset: str | None,
    split: str,
    seal_truths: bool,
) -> None:
    """Take what another tool recorded at PATH into the store, as a new run.

    Verdicts are computed again by the official rules where truths are known; each one that differs
    from the tool's own is listed, with the reason. Nothing is changed when PATH cannot be used.
    """
    data = None
    if dataset is not None:
        from harness.config import load_dataset

        data = load_dataset(dataset, split=split)
    store = Store(store_path)
    reader = importlib.import_module(f"harness.interop.{READERS[tool]}")
    found: ImportReport = reader.import_run(store, path, run, dataset=data, split=split)
    notes = list(found.notes)
    if found.truths is not None and dataset != "mini":
        notes += _keep_truths(found)
    if seal_truths:
        from harness.scoring import seal_truths as seal

        count = seal(store, run, dataset=data or found.truths)
        notes.append(f"{count} truths sealed")
    if as_json:
        emit(_json(found, notes))
    else:
        for line in _lines(found, notes):
            emit(line)


def _keep_truths(found: ImportReport) -> list[str]:
    """Put the truths that came along where truths are looked for; never into the store."""
    from harness.truths import remember

    assert found.truths is not None
    try:
        path = remember(found.truths)
    except HarnessError as error:
        return [f"the truths were not kept ({error.message}): score with --dataset"]
    say(f"the truths are kept for `harness score` in {path}, not in the store")
    return []


def _json(found: ImportReport, notes: list[str]) -> str:
    """The run's report, and beside it what the import came to."""
    from harness.report import to_json

    source = found.source
    more: dict[str, Any] = {
        "imported": {
            "tool": source.tool,
            "version": source.version,
            "missing": list(source.missing),
            "effects": found.effects,
            "theirs": {"mean_acc": source.mean_acc, "num": source.num},
            "rescored": found.rescored,
            "differences": msgspec.to_builtins(found.differences),
            "notes": notes,
        }
    }
    return f"{to_json(found.report)[:-1]}, {json.dumps(more)[1:]}"


def _lines(found: ImportReport, notes: list[str]) -> list[str]:
    from harness.report import table
    from harness.terminal import printable

    source, report = found.source, found.report
    kinds = ", ".join(f"{count} {kind}" for kind, count in found.effects.items())
    lines = [
        f"{report.run}: {len(report.samples)} samples x epochs of {source.name}; effects: {kinds}",
        *table(report).splitlines(),
        f"verdicts: {found.rescored} computed by the official rules",
    ]
    if source.mean_acc is not None:
        over = "" if source.num is None else f" over {source.num}"
        ours = report.metrics["mean_acc"]
        told = "n/a" if ours is None else f"{ours:.4g}"
        told = f"{told} over {report.metrics['num']}"
        if not found.rescored:
            told = f"not computed, for want of truths (--dataset DIR); above are {source.tool}'s"
        lines.append(f"their own figure: {source.mean_acc:.4g}{over}; ours: {told}")
        lines.append(f"{len(found.differences)} verdicts differ from {source.tool}'s own")
    for one in found.differences:
        theirs = one.theirs or "not scored"
        told = f" ({one.told})" if one.told else ""
        lines.append(
            f"  {one.task_id} epoch {one.epoch}: theirs {theirs}{told}, ours {one.ours}: {one.why}"
        )
    lines += [f"NOTE: {note}" for note in notes]
    return [printable(line) for line in lines]
