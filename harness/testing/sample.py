"""What a test holds in its hands: one sample of a recorded run. How runs are opened for tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import join
from typing import Any, NoReturn

import pytest

from harness.attempt import Agent
from harness.dataset import MINI, Dataset, load
from harness.errors import HarnessError, UsageError
from harness.records import Sample, Settings
from harness.replaying import Checked, Replayed, ReplayOptions, RunReplay
from harness.report import SampleResult
from harness.runfile import Entry, read_run
from harness.store import Store
from harness.terminal import printable
from harness.testing.sockets import no_sockets
from harness.world import World


class HarnessSample:
    """One sample and epoch of a recorded run: the value of the fixture `harness_sample`."""

    def __init__(self, replay: RunReplay, entry: Entry, allow_recorded: bool) -> None:
        self._replay, self._allow_recorded = replay, allow_recorded
        self.entry = entry
        """The run file's line: task id, epoch, level, recorded status and verdict."""
        self.checked: Checked | None = None
        """What the latest `check` found, also where it failed."""

    @property
    def run(self) -> str:
        """The run's name."""
        return self._replay.run.name

    @property
    def sample(self) -> Sample:
        """The sample as the loop saw it: question, level, attachment; never the truth."""
        __tracebackhide__ = True
        with failures():
            return self._replay.tape(self._recorded()).header.sample

    def replay(self, agent: Agent | str | None = None, **loop: Any) -> Replayed:
        """Replay with another loop, or other fields of `Settings`; as it was recorded by default.

        Nothing is judged: a divergence is part of the result. Sockets are blocked meanwhile.
        """
        __tracebackhide__ = True
        with failures(), no_sockets() as refused:
            replay, ended = self._changed(agent, loop)
            entry = self._recorded()
            replayed = replay.replay(entry, replay.tape(entry))
        if ended:
            raise ended[0]
        if refused:
            fail(self._reached_out(refused))
        return replayed

    def check(self, agent: Agent | str | None = None, **loop: Any) -> SampleResult:
        """Replay, and fail the test unless it follows its tape to the same answer and verdict."""
        __tracebackhide__ = True
        self.checked = None
        with failures(), no_sockets() as refused:
            replay, ended = self._changed(agent, loop)
            self.checked = checked = replay.check(self._recorded())
        if ended:
            raise ended[0]
        wrong = list(checked.findings)
        if checked.divergence is not None:
            wrong.insert(0, checked.divergence.text())
        if refused:
            wrong.insert(0, self._reached_out(refused))
        only_recorded = checked.result.verdict_source == "recorded"
        if not wrong and only_recorded and not self._allow_recorded:
            wrong.append(self._no_truth(checked.result))
        if wrong:
            fail("\n".join(wrong))
        return checked.result

    def _changed(
        self, agent: Agent | str | None, loop: dict[str, Any]
    ) -> tuple[RunReplay, list[BaseException]]:
        """The replay, and what of pytest's own (`fail`, `skip`, `exit`) its loop came to raise.

        That is the test's word, and no error of the loop's.
        """
        replay = self._replay.changed(agent, **loop)
        inner = replay.agent
        ended: list[BaseException] = []

        def heeded(sample: Sample, world: World, settings: Settings) -> str | None:
            try:
                return inner(sample, world, settings)
            except (pytest.fail.Exception, pytest.skip.Exception, pytest.exit.Exception) as outcome:
                ended.append(outcome)
                raise

        replay.agent = heeded
        return replay, ended

    def _recorded(self) -> Entry:
        if self.entry.cassette is None:
            fail(
                f"{self._place()} is missing: it was not recorded to its end\n"
                f"  try: harness record --run {self.run} …, which continues the run"
            )
        return self.entry

    def _place(self) -> str:
        return f"{self.run} {self.entry.task_id} epoch {self.entry.epoch}"

    def _reached_out(self, refused: list[str]) -> str:
        return (
            f"{self._place()}: the loop reached for the network, past its World: {refused[0]}\n"
            "  try: have it ask through world.perform, where replies are recorded"
        )

    def _no_truth(self, result: SampleResult) -> str:
        return (
            f"{self._place()}: the verdict {result.verdict!r} is only the recorded one: "
            f"the truths of {self._replay.run.dataset.id!r} are not on this machine\n"
            "  try: --harness-dataset DIR, or --harness-allow-recorded to let it pass"
        )


def parametrize(metafunc: pytest.Metafunc, usage: str) -> None:
    """Calls the test with each sample of the runs that its marker, or an option, names."""
    config = metafunc.config
    marker = metafunc.definition.get_closest_marker("harness_run")
    more: dict[str, Any] = dict(marker.kwargs) if marker else {}
    names = marker.args if marker and marker.args else config.option.harness_run
    if not names:
        fail('harness_sample needs @pytest.mark.harness_run("RUN"), or --harness-run RUN')
    allow = more.pop("allow_recorded", config.option.harness_allow_recorded)
    unknown = set(more) - {"store", "agent", "dataset", "task_ids"}
    if unknown:
        fail(f"the marker harness_run takes no {sorted(unknown)[0]!r}:\n  {usage}")
    with failures():
        replays = [open_replay(config, str(name), **more) for name in names]
    samples = [(replay, entry) for replay in replays for entry in replay.entries]
    metafunc.parametrize(
        "harness_sample",
        [(replay, entry, allow) for replay, entry in samples],
        ids=[f"{replay.run.name}-{node_name(entry)}" for replay, entry in samples],
        indirect=True,
    )


_OPENED = pytest.StashKey[dict[tuple[Any, ...], RunReplay]]()


def open_replay(
    config: pytest.Config,
    name: str,
    *,
    store: str | os.PathLike[str] | None = None,
    agent: str | None = None,
    dataset: str | os.PathLike[str] | None = None,
    task_ids: tuple[str, ...] = (),
    notes: list[str] | None = None,
) -> RunReplay:
    """A run, opened once per session. What is not given is taken from the options.

    `store` and `dataset` are relative to pytest's root folder, the options' to the current one.
    Raises the errors of `RunReplay`.
    """
    option, root = config.option, config.rootpath
    folder = option.harness_store or os.environ.get("HARNESS_STORE") or "cassettes"
    place = Path(folder).absolute() if store is None else root / store
    source = option.harness_dataset
    if dataset is not None:
        source = dataset if dataset == "mini" else str(root / dataset)
    agent = agent or option.harness_agent
    opened = config.stash.setdefault(_OPENED, {})
    key = (name, place, agent, source, tuple(task_ids))
    if key not in opened:
        found = Store(place)
        found.check()
        opened[key] = RunReplay(
            found,
            name,
            ReplayOptions(agent=agent, task_ids=tuple(task_ids), told=_told(folder, agent)),
            dataset=_dataset(found, name, source) if source else None,
            progress=(notes if notes is not None else []).append,
        )
    return opened[key]


def _told(store: str, agent: str | None) -> str:
    """The options with which `harness replay` does the same."""
    given = [*(["--store", store] if store != "cassettes" else [])]
    return join([*given, *(["--agent", agent] if agent else [])])


def _dataset(store: Store, run: str, source: str) -> Dataset:
    """The data set that is there, in the run's split. Never from a hub."""
    split = read_run(store, run).dataset.split
    if source == "mini":
        return load(MINI, id="mini", split=split)
    if not Path(source).is_dir():
        raise UsageError(f"{source!r} is no data set: give mini or a folder in GAIA's layout")
    return load(Path(source), split=split)


def node_name(entry: Entry) -> str:
    """`TASK_ID[EPOCH]`."""
    return f"{printable(entry.task_id)}[{entry.epoch}]"


def fail(text: str) -> NoReturn:
    """Fail with this text alone, made fit for a terminal."""
    __tracebackhide__ = True
    pytest.fail(printable(text, keep="\n"), pytrace=False)


@contextmanager
def failures() -> Iterator[None]:
    """An error of harness's own fails the test by its message; a bug keeps its traceback."""
    __tracebackhide__ = True
    try:
        yield
    except HarnessError as error:
        fail(str(error))


@contextmanager
def usage_errors() -> Iterator[None]:
    """An error of harness's own ends pytest by its message, in one line, with status 4."""
    try:
        yield
    except HarnessError as error:
        hint = f" (try: {error.hint})" if error.hint else ""
        hint = hint.replace("--store", "--harness-store")
        raise pytest.UsageError(printable(" ".join(error.message.split()) + hint)) from None
