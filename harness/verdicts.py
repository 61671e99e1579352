"""Which verdicts can be computed here, and the lines that belong to a run's figures."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from harness.dataset import UNKNOWN, Dataset
from harness.errors import DamageError, LackError
from harness.records import MATCH_PARTS, Verdict
from harness.report import SampleResult, Status, verdict_for
from harness.runfile import RunFile
from harness.store import Store
from harness.truths import find

if TYPE_CHECKING:
    from harness.sealing import SealedKey


def known_truths(
    run: RunFile, dataset: Dataset | None, progress: Callable[[str], None]
) -> dict[str, str]:
    """Truths by task id, as far as they can be found on this machine."""
    try:
        return find(run.dataset.digest, dataset=dataset) or {}
    except DamageError as error:
        progress(f"{error}; verdicts are taken from the record")
        return {}


def no_truths(run: RunFile, so: str) -> LackError:
    """What to raise where truths are needed and not on this machine."""
    return LackError(
        f"the truths of run {run.name!r} are not here: {so}",
        hint="--dataset DIR (the data set that the run was made over)",
    )


def sealed_key(store: Store, run: RunFile) -> SealedKey | None:
    """The run's sealed answer key, if it has one."""
    if run.sealed_key is None:
        return None
    from harness.sealing import decode  # hashing is slow, and seldom needed

    what = f"the sealed key of run {run.name!r}"
    return decode(store.get(run.sealed_key, what), what)


def sealed_verdict(
    key: SealedKey, task_id: str, status: Status, answer: str | None, last: str | None
) -> Verdict | None:
    """The verdict by the official rules, from a sealed key; None when it has no such sample."""
    sealed = key.find(task_id)
    if sealed is None:
        return None
    truth = UNKNOWN if sealed.kind == "withheld" else "sealed"
    return verdict_for(
        status, answer, last, truth, scorer=lambda given, _: key.is_right(sealed, given)
    )


def notes_of(
    run: RunFile, results: Sequence[SampleResult], match_on: Collection[str] = MATCH_PARTS
) -> list[str]:
    """The lines that belong to a run's figures wherever they are shown."""
    notes = [run.selection.told(run.dataset.split)]
    if set(match_on) != set(MATCH_PARTS):
        notes.append(f"loose replay: matched on {', '.join(match_on)} only")
    sealed = sum(result.verdict_source == "sealed" for result in results)
    if sealed:
        notes.append(f"{sealed} verdicts are computed from the sealed answer key")
    recorded = sum(result.verdict_source == "recorded" for result in results)
    if recorded:
        notes.append(f"{recorded} verdicts are taken from the record: the truths were not found")
    drifted = sum(bool(result.drift) for result in results)
    if drifted:
        notes.append(f"{drifted} samples were continued in a sandbox that had drifted")
    missing = sum(result.status == "missing" for result in results)
    if missing:
        notes.append(f"unfinished: {missing} samples are missing; the same record command goes on")
    diverged = sum(result.divergence is not None for result in results)
    if diverged:
        notes.append(f"{diverged} samples diverged: their verdicts above are those of the record")
    followed = [result for result in results if result.identical is not None]
    if followed:
        same = sum(bool(result.identical) for result in followed)
        notes.append(f"identical: {same} of {len(followed)}")
    return [*run.marks, *notes]
