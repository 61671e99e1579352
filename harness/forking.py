"""Fork: what follows its tape is kept, what leaves it goes on live from there, into a new run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from harness import __version__
from harness.attempt import Agent, load_callable
from harness.cassette import BashEffect, Tape, read_cassette
from harness.divergence import Divergence, Place, summary
from harness.errors import UsageError
from harness.opening import RecordConfig, check_new_name
from harness.recording import Connect, Progress, Recorded, Recording
from harness.records import MATCH_PARTS
from harness.replaying import check_sample, replay_tape
from harness.runfile import Entry, RunFile, chosen, differences, read_run, tools_of
from harness.store import Store, check_run_name


class Planned(msgspec.Struct, kw_only=True):
    """What a fork would do with one sample."""

    entry: Entry
    follows: bool
    """Whether the loop follows the tape to the recorded end."""
    divergence: Divergence | None = None
    live: bool = False
    """Whether it would ask anything of the outside."""
    commands: int = 0
    """Recorded commands that would be run again to rebuild the sandbox."""
    live_steps: int = 0
    """Model turns at most."""


def plan(
    store: Store,
    source: RunFile,
    config: RecordConfig,
    *,
    task_ids: Sequence[str] = (),
    match_on: Sequence[str] = MATCH_PARTS,
) -> list[Planned]:
    """Replay every sample with the new settings; costs nothing."""
    agent: Agent = load_callable(config.settings.agent, "the agent")
    tools, servers = tools_of(source)
    loop = config.settings.loop
    found = []
    for entry in chosen(source, task_ids):
        if entry.cassette is None:
            new = Planned(entry=entry, follows=False, live=True, live_steps=loop.max_steps)
            found.append(new)
            continue
        what = f"the cassette of sample {entry.task_id!r}, epoch {entry.epoch}"
        tape = read_cassette(store, entry.cassette, what)
        check_sample(tape, entry, what)
        replayed = replay_tape(
            tape,
            agent,
            loop,
            place=Place(source.name, entry.task_id, entry.epoch),
            match_on=match_on,
            tools=tools,
            servers=servers,
        )
        report = getattr(replayed.divergence, "report", None)
        if report is None:
            found.append(Planned(entry=entry, follows=True))
            continue
        ends = report.kind == "end"  # the loop stops where the tape goes on: nothing live
        found.append(
            Planned(
                entry=entry,
                follows=False,
                divergence=report,
                live=not ends,
                commands=0 if ends else _commands(tape, report.effect - 1),
                live_steps=0 if ends else max(loop.max_steps - replayed.steps, 0),
            )
        )
    return found


def _commands(tape: Tape, served: int) -> int:
    return sum(isinstance(effect, BashEffect) for effect in tape.effects[:served])


def plan_lines(planned: Sequence[Planned]) -> list[str]:
    """A plan for people: how many follow, where the others leave, what it would cost."""
    live = [item for item in planned if not item.follows]
    lines = [f"{len(planned) - len(live)} of {len(planned)} samples follow their tape to the end"]
    lines += summary([item.divergence for item in live if item.divergence is not None])
    missing = sum(item.entry.cassette is None for item in live)
    if missing:
        lines.append(f"{missing} samples are not recorded yet")
    lines.append(
        f"to do: {sum(item.commands for item in live)} recorded commands to run again, "
        f"at most {sum(item.live_steps for item in live)} live model turns"
    )
    return lines


def fork(
    store: Store,
    source: RunFile,
    config: RecordConfig,
    planned: Sequence[Planned],
    *,
    connect: Connect,
    progress: Progress,
    match_on: Sequence[str] = MATCH_PARTS,
    live: bool = True,
    other_image: bool = False,
    **more: Any,
) -> Recorded:
    """Make the run `config.run` out of `source`.

    Without `live`, nothing is asked of the outside: what leaves its tape stays missing. An
    unfinished fork of the same settings is continued. `other_image`: the user named another image.
    """
    check_run_name(config.run)
    check_new_name(config.run)
    if config.run == source.name:
        raise UsageError(f"a fork needs a name of its own: {config.run!r} is the run it comes from")
    agent: Agent = load_callable(config.settings.agent, "the agent")
    with store.writer(config.run):
        run = _new_run(store, source, config, planned, match_on)
        loose = set(match_on) != set(MATCH_PARTS)
        by_key = {(item.entry.task_id, item.entry.epoch): item for item in planned}
        for entry in run.samples:
            item = by_key[entry.task_id, entry.epoch]
            if item.follows and not loose and entry.status == "missing":
                _keep(entry, item.entry)
        job = Recording(
            store,
            run,
            config,
            agent,
            progress,
            sources={
                key: item.entry.cassette for key, item in by_key.items() if item.entry.cassette
            },
            fork=live,
            match_on=match_on,
            other_image=other_image,
            **more,
        )
        todo = [
            entry
            for entry in job.unfinished()
            if live or (loose and by_key[entry.task_id, entry.epoch].follows)
        ]
        needed = live and any(by_key[entry.task_id, entry.epoch].live for entry in todo)
        if todo:
            job.live(todo, connect if needed else None)
        else:
            job.flush()
        return job.result()


def _new_run(
    store: Store,
    source: RunFile,
    config: RecordConfig,
    planned: Sequence[Planned],
    match_on: Sequence[str],
) -> RunFile:
    mark = f"forked from {source.name}"
    if set(match_on) != set(MATCH_PARTS):
        mark = f"loose replay of {source.name}: matched on {', '.join(match_on)} only"
    entries = [
        Entry(task_id=item.entry.task_id, epoch=item.entry.epoch, level=item.entry.level)
        for item in planned
    ]
    if store.has_run(config.run):
        run = read_run(store, config.run)
        changed = differences(run.settings, config.settings)
        if mark not in run.marks or run.dataset.digest != source.dataset.digest:
            changed.insert(0, f"it was not {mark}")
        if changed:
            lines = "\n    ".join(changed)
            raise UsageError(
                f"run {config.run!r} exists and is another:\n    {lines}",
                hint="choose another name with --as",
            )
        have = {(entry.task_id, entry.epoch) for entry in run.samples}
        run.samples += [e for e in entries if (e.task_id, e.epoch) not in have]
        return run
    ids = {entry.task_id for entry in entries}
    return RunFile(
        name=config.run,
        harness=__version__,
        settings=config.settings,
        environment={**source.environment},
        dataset=source.dataset,
        selection=msgspec.structs.replace(source.selection, task_ids=[], selected=len(ids))
        if len(ids) < source.selection.selected
        else source.selection,
        tools=source.tools,
        marks=[*source.marks, mark],
        samples=entries,
    )


def _keep(entry: Entry, old: Entry) -> None:
    """Take over a sample that follows its tape: the cassette and all that is known of it."""
    for name in Entry.__struct_fields__:
        setattr(entry, name, getattr(old, name))
