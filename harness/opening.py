"""What is to be recorded: the run file to begin or to go on with, and what is left to do."""

from __future__ import annotations

import contextlib
import platform
import sys
from collections.abc import Callable
from typing import Any

import msgspec

from harness import __version__
from harness.dataset import Dataset, Item, selection_digest
from harness.errors import UsageError
from harness.runfile import (
    DatasetRef,
    Entry,
    RunFile,
    RunSettings,
    Selection,
    differences,
    read_run,
)
from harness.store import Store


class RecordConfig(msgspec.Struct, kw_only=True):
    """One recording."""

    run: str
    settings: RunSettings
    dataset: Dataset | None
    """None for a fork that needs nothing live."""
    source: str = ""
    """`mini`, a hub's name, or `folder`: where the data set came from."""
    items: tuple[Item, ...] = ()
    selection: Selection = Selection()
    api_url: str | None = None
    """The endpoint's address in full; the run file holds what may be stored of it."""
    api_key: str | None = None
    secrets: tuple[str, ...] = ()
    """Texts that must not reach the store, the API key among them."""
    mcp: tuple[Any, ...] = ()
    """The MCP servers, with their secrets; the settings hold what may be stored of them."""
    keep_wire: bool = True
    eval_batch_size: int = 1
    retry_errors: bool = False
    overwrite: bool = False
    on_drift: str = "hard"
    """`hard`: fail on drift that is not text alone; `warn`: never; `fail`: on any."""


BESIDE = ".new"


def check_new_name(run: str) -> None:
    """UsageError for a name under which `--overwrite` records, and which it takes away again."""
    if run.endswith(BESIDE):
        raise UsageError(
            f"{run!r} is the name under which --overwrite records {run.removesuffix(BESIDE)!r}",
            hint="choose another name",
        )


def plan_lines(store: Store, config: RecordConfig) -> list[str]:
    """What `record` would do, without doing it."""
    name = config.run
    if config.overwrite and store.has_run(name):
        config = msgspec.structs.replace(config, run=name + BESIDE, overwrite=False)
    run = open_run(store, config)
    counts = {"ok": 0, "error": 0, "missing": 0}
    for entry in run.samples:
        counts[entry.status] += 1
    unfinished = len(store.journals(config.run)) if store.has_run(config.run) else 0
    todo = counts["missing"] + (counts["error"] if config.retry_errors else 0)
    steps = todo * config.settings.loop.max_steps
    return [
        f"run {name}: {len(run.samples)} samples x epochs, of {run.selection.of} in the split",
        *(
            ["overwrite: it is recorded beside, and replaced when all is there"]
            * (name != config.run)
        ),
        f"recorded: {counts['ok']} ok, {counts['error']} error; {unfinished} unfinished journals",
        f"to do: {todo} samples, at most {steps} model turns",
    ]


def open_run(
    store: Store, config: RecordConfig, note: Callable[[str], None] = lambda line: None
) -> RunFile:
    """The run to go on with: a new one, or the recorded one if it was told the same."""
    wanted = [
        Entry(task_id=item.sample.task_id, epoch=epoch, level=item.sample.level)
        for item in config.items
        for epoch in range(1, config.selection.epochs + 1)
    ]
    assert config.dataset is not None
    dataset = DatasetRef(
        id=config.dataset.id,
        source=config.source,
        revision=config.dataset.revision,
        split=config.dataset.split,
        digest=config.dataset.digest,
    )
    if not store.has_run(config.run):
        return RunFile(
            name=config.run,
            harness=__version__,
            settings=config.settings,
            environment=_environment(),
            dataset=dataset,
            selection=config.selection,
            samples=wanted,
        )
    run = read_run(store, config.run)
    changed = differences(run.settings, config.settings)
    if (run.dataset.digest, run.dataset.split) != (dataset.digest, dataset.split):
        changed.append(f"dataset: {run.dataset.id} ({run.dataset.digest}) → {dataset.id}")
    if changed:
        lines = "\n    ".join(changed)
        raise UsageError(
            f"run {config.run!r} was recorded with other settings:\n    {lines}",
            hint=_way_out(config.run, changed),
        )
    have = {(entry.task_id, entry.epoch) for entry in run.samples}
    new = [entry for entry in wanted if (entry.task_id, entry.epoch) not in have]
    if not new and len(wanted) < len(have):
        note(
            f"run {config.run!r} has {len(have)} samples x epochs; these options "
            f"select {len(wanted)} of them. Nothing is taken out of a run"
        )
    if new:
        run.samples = sorted([*run.samples, *new], key=lambda entry: (entry.task_id, entry.epoch))
        ids = {entry.task_id for entry in run.samples}
        items = tuple(item for item in config.dataset.items if item.sample.task_id in ids)
        run.selection = msgspec.structs.replace(
            config.selection,
            selected=len(ids),
            digest=selection_digest(items),
            epochs=max(entry.epoch for entry in run.samples),
        )
    return run


def _way_out(run: str, changed: list[str]) -> str:
    if run.endswith(BESIDE):
        return f"finish it with those, or give it up: harness rm {run}"
    if all(field.startswith(("agent_source:", "agent:")) for field in changed):
        return (
            "go on with the changed loop in a fork: "
            f"harness replay {run} --agent MODULE:NAME --on-divergence fork --as NEW"
        )
    return "choose another --run, or record this one anew with --overwrite"


def _environment() -> dict[str, Any]:
    """Versions of what a recording stands on; the image is added when it is known."""
    from importlib.metadata import PackageNotFoundError, version  # slow to load

    packages = {}
    for name in ("docker", "mcp", "msgspec", "openai"):
        with contextlib.suppress(PackageNotFoundError):
            packages[name] = version(name)
    return {
        "packages": packages,
        "platform": sys.platform,
        "python": platform.python_version(),
    }
