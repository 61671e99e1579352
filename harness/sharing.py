"""Many runs replayed by several processes: each process takes whole runs, one after the other.

Results come in the order of the names, and are those of one process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from harness.dataset import Dataset
from harness.errors import HarnessError
from harness.files import Folder
from harness.replaying import ReplayOptions, replay_run
from harness.report import RunReport
from harness.store import Store


class RunReplayed(msgspec.Struct, frozen=True, kw_only=True):
    """What the replay of one run came to."""

    name: str
    report: RunReport | None
    """None where something stopped the whole run."""
    findings: list[str] = []
    problem: str | None = None
    """What stopped the run: damage, a version that is not read, an agent that is not there."""
    status: int = 0
    """Exit status that the problem means."""
    told: list[str] = []
    """What was said on the way, in another process."""


def replay_runs(
    store: Store,
    names: Sequence[str],
    options: ReplayOptions,
    *,
    dataset: Dataset | None = None,
    jobs: int = 1,
    progress: Callable[[str], None] = lambda line: None,
) -> Iterator[RunReplayed]:
    """Replay runs with so many processes; fewer runs than processes share their samples instead.

    What stops one of several runs is part of its result, and stops no other; of a single run it is
    raised.
    """
    if jobs < 2 or len(names) < jobs or not isinstance(store.files, Folder):
        for name in names:
            alone = len(names) == 1
            yield _replayed(store, name, options, dataset, jobs, progress, alone=alone)
        return
    from concurrent.futures import ProcessPoolExecutor  # costs start-up time
    from multiprocessing import get_context

    given = (str(store.files.root), options, dataset)
    pool = ProcessPoolExecutor(
        jobs, mp_context=get_context("spawn"), initializer=_begin, initargs=given
    )
    with pool:
        for done in pool.map(_share, names):
            for line in done.told:
                progress(line)
            yield done


def _replayed(
    store: Store,
    name: str,
    options: ReplayOptions,
    dataset: Dataset | None,
    jobs: int,
    progress: Callable[[str], None],
    *,
    alone: bool = False,
) -> RunReplayed:
    try:
        report, findings = replay_run(
            store, name, options, dataset=dataset, jobs=jobs, progress=progress
        )
    except HarnessError as error:
        if alone:
            raise
        status = error.exit_code
        return RunReplayed(name=name, report=None, problem=str(error), status=status)
    return RunReplayed(name=name, report=report, findings=findings)


_given: tuple[str, ReplayOptions, Dataset | None] | None = None
"""What every run of a process is replayed with: handed over once."""


def _begin(root: str, options: ReplayOptions, dataset: Dataset | None) -> None:
    global _given
    _given = root, options, dataset


def _share(name: str) -> RunReplayed:
    assert _given is not None
    root, options, dataset = _given
    told: list[str] = []
    done = _replayed(Store(root), name, options, dataset, 1, told.append)
    return msgspec.structs.replace(done, told=told)
