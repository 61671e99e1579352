"""Export: a run in other shapes. Nothing here asks the outside."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from harness.cassette import ModelEffect, read_cassette, read_end
from harness.errors import UsageError
from harness.records import ModelReply
from harness.runfile import Entry, RunFile
from harness.store import PREFIX, Store


def leaderboard(
    store: Store,
    run: RunFile,
    ids: Mapping[str, Any] | None,
    *,
    epoch: int = 1,
    pad: bool = False,
    traces: bool = False,
) -> Iterator[str]:
    """The leaderboard's JSON Lines: one object per sample of the split, in the order of the ids.

    `ids`: the task ids of the whole split, None when they are not known here. A sample that ended
    without an answer has an empty one; samples that are missing or ended in error are refused,
    unless `pad` gives those an empty answer too. With `traces`, what the model said is added as
    `reasoning_trace`. Raises UsageError naming the ids that are missing.
    """
    entries = {entry.task_id: entry for entry in run.samples if entry.epoch == epoch}
    if not entries:
        raise UsageError(f"run {run.name!r} has no epoch {epoch}")
    if ids is None:
        if run.selection.selected < run.selection.of:
            raise UsageError(
                f"run {run.name!r} has {run.selection.selected} of {run.selection.of} samples, and "
                "the ids of the others are not known here",
                hint="--dataset DIR",
            )
        ids = entries
    missing = [id for id in ids if id not in entries or entries[id].status != "ok"]
    if missing and not pad:
        raise UsageError(
            f"run {run.name!r} lacks {len(missing)} of the {len(ids)} answers of epoch {epoch}: "
            f"{', '.join(sorted(missing))}",
            hint="record the rest (--retry-errors), or send them empty with --pad",
        )
    for task_id in sorted(ids):
        entry = entries.get(task_id)
        row = {"task_id": task_id, "model_answer": ""}
        if entry is not None and entry.cassette is not None and entry.status == "ok":
            what = entry.what(run.name)
            row["model_answer"] = read_end(store, entry.cassette, what).answer or ""
            if traces:
                row["reasoning_trace"] = _trace(store, entry.cassette, what)
        yield json.dumps(row)


def _trace(store: Store, cassette: str, what: str) -> str:
    """What the model said and called, turn by turn."""
    parts = []
    for effect in read_cassette(store, cassette, what).effects:
        if isinstance(effect, ModelEffect) and isinstance(effect.reply, ModelReply):
            reply = effect.reply
            calls = [f"{call.name}({call.arguments})" for call in reply.tool_calls]
            parts += [text for text in (reply.reasoning, reply.content, *calls) if text]
    return "\n".join(parts)


JSONL_KEYS = {
    "run": "name of the run",
    "model": "model as the endpoint calls it",
    "dataset": "id of the data set",
    "split": "validation or test",
    "task_id": "id of the sample",
    "epoch": "attempt, from 1",
    "level": "1 to 3",
    "status": "ok, error or missing",
    "verdict": "right, wrong, no_answer, context_exceeded, refused, error, missing or unscored",
    "answer": "submitted answer, null when there is none",
    "error": "kind of the error that ended the sample, else null",
    "steps": "model turns",
    "bash_calls": "commands that were run",
    "tool_calls": "calls of MCP tools",
    "input_tokens": "as the endpoint counted them",
    "output_tokens": "as the endpoint counted them",
    "seconds": "live time",
    "replayable": "whether the loop follows this cassette",
    "cassette": "sha256:… of the cassette, null when there is none",
    "trajectory": "sha256:… over what the loop asked and could read",
}
"""The keys of `--format jsonl`, and what they hold."""


def jsonl(store: Store, run: RunFile) -> Iterator[str]:
    """One flat JSON object per sample and epoch, with the keys of `JSONL_KEYS` in their order."""
    for entry in run.samples:
        yield json.dumps(row(store, run, entry))


def row(store: Store, run: RunFile, entry: Entry) -> dict[str, Any]:
    """One sample and epoch, with the keys of `JSONL_KEYS`."""
    end = read_end(store, entry.cassette, entry.what(run.name)) if entry.cassette else None
    return {
        "run": run.name,
        "model": run.settings.loop.model,
        "dataset": run.dataset.id,
        "split": run.dataset.split,
        "task_id": entry.task_id,
        "epoch": entry.epoch,
        "level": entry.level,
        "status": entry.status,
        "verdict": entry.verdict,
        "answer": end.answer if end else None,
        "error": end.failure.kind if end and end.failure else None,
        "steps": entry.steps,
        "bash_calls": end.totals.bash if end else 0,
        "tool_calls": end.totals.tool if end else 0,
        **msgspec.to_builtins(entry.usage),
        "seconds": entry.seconds,
        "replayable": entry.replayable,
        "cassette": entry.cassette,
        "trajectory": PREFIX + end.trajectory if end else None,
    }
