"""`pytest --harness-run RUN`: the hooks and nodes that make tests of recorded samples."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Mapping
from typing import Any

import msgspec
import pytest

from harness.divergence import Divergence, summary
from harness.errors import DamageError
from harness.replaying import RunReplay
from harness.testing.sample import HarnessSample, node_name, open_replay, usage_errors


class RunHooks:
    """The hooks that are needed when runs are named among the options."""

    def __init__(self, config: pytest.Config) -> None:
        """Opens the runs. Raises pytest.UsageError for what cannot be used."""
        names: list[str] = config.option.harness_run
        self.ids = _take_ids(config, names)
        self.notes: list[str] = []
        self.replays: dict[str, RunReplay | DamageError] = {}
        for name in names:
            with usage_errors():
                try:
                    self.replays[name] = open_replay(config, name, notes=self.notes)
                except DamageError as error:
                    self.replays[name] = error  # told as an error of collection
        _check_ids(self.ids, self.replays)

    def pytest_report_header(self) -> list[str]:
        """Which runs, how large, from where."""
        lines = [
            f"harness: run {name}, {len(replay.entries)} samples x epochs, {replay.store.label}"
            for name, replay in self.replays.items()
            if isinstance(replay, RunReplay)
        ]
        return [*lines, *(f"harness: {note}" for note in self.notes)]

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Puts the runs behind what else is collected."""
        report = yield
        if isinstance(collector, pytest.Session) and report.passed:
            runs = [
                RecordedRun.from_parent(
                    collector, name=name, nodeid=name, replay=replay, ids=self.ids
                )
                for name, replay in self.replays.items()
            ]
            report.result = [*report.result, *runs]
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Gives the report what the summary needs, in plain values: processes hand it on."""
        report = yield
        if isinstance(item, RecordedItem) and call.when == "call":
            report.__dict__["harness"] = item.told()
        return report

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Divergences by cause, and how many verdicts nobody computed."""
        told: list[dict[str, Any]] = [
            report.__dict__["harness"]
            for reports in terminalreporter.stats.values()
            for report in reports
            if "harness" in getattr(report, "__dict__", ())
        ]
        found = [one["divergence"] for one in told if one["divergence"]]
        lines = summary(msgspec.convert(one, Divergence) for one in found)
        recorded = sum(one["verdict_source"] == "recorded" for one in told)
        if recorded:
            lines.append(f"{recorded} verdicts are taken from the record: the truths are not here")
        if lines:
            terminalreporter.section("harness")
            for line in lines:
                terminalreporter.write_line(line)


def _take_ids(config: pytest.Config, names: list[str]) -> list[str]:
    """Takes `RUN::TASK_ID[EPOCH]` out of the arguments, and leaves what else is to be collected.

    Runs on a command line that names no file or folder stand alone; runs in `addopts` come on top
    of the tests that are there.
    """
    ids = [arg for arg in config.args if arg.partition("::")[0] in names]
    config.args = [arg for arg in config.args if arg not in ids]
    typed = any(str(arg).startswith("--harness-run") for arg in config.invocation_params.args)
    if typed and config.args_source != config.ArgsSource.ARGS:
        config.args = []
    return ids


def _check_ids(ids: list[str], replays: Mapping[str, RunReplay | DamageError]) -> None:
    for one in ids:
        run = one.partition("::")[0]
        replay = replays[run]
        if isinstance(replay, RunReplay) and not any(
            _is_named(run, node_name(entry), [one]) for entry in replay.entries
        ):
            raise pytest.UsageError(f"run {run!r} has no sample {one!r} (try: harness show {run})")


def _is_named(run: str, name: str, ids: list[str]) -> bool:
    """Whether the item is among those that were named; a name without epoch means all of them."""
    full = f"{run}::{name}"
    return not ids or any(one in (run, full) or full.startswith(f"{one}[") for one in ids)


class RecordedRun(pytest.Collector):
    """A run as a node; its samples are below it, in the order of the run file."""

    def __init__(self, *, replay: RunReplay | DamageError, ids: list[str], **more: Any) -> None:
        """`replay`, or the damage for which there is none; `ids`: what to take, if not all."""
        super().__init__(**more)
        self.replay, self.ids = replay, ids

    def collect(self) -> Iterator[pytest.Item]:
        """The items; a damaged run file is an error of collection."""
        if isinstance(self.replay, DamageError):
            raise self.CollectError(str(self.replay))
        allow = self.config.option.harness_allow_recorded
        for entry in self.replay.entries:
            name = node_name(entry)
            if _is_named(self.name, name, self.ids):
                recorded = HarnessSample(self.replay, entry, allow)
                yield RecordedItem.from_parent(
                    self, name=name, nodeid=f"{self.name}::{name}", recorded=recorded
                )


class RecordedItem(pytest.Item):
    """One sample and epoch. `-k level2` selects by level."""

    def __init__(self, *, recorded: HarnessSample, **more: Any) -> None:
        super().__init__(**more)
        self.recorded = recorded
        self.extra_keyword_matches.add(f"level{recorded.entry.level}")

    def runtest(self) -> None:
        """Replays the sample; what is wrong with it is the failure's text."""
        self.recorded.check()

    def reportinfo(self) -> tuple[os.PathLike[str], None, str]:
        """The headline of a failure."""
        recorded = self.recorded
        return self.path, None, f"{recorded.run} {self.name} level {recorded.entry.level}"

    def told(self) -> dict[str, Any]:
        """Of the check that was made: properties for the JUnit file, and what is summed up."""
        checked = self.recorded.checked
        if checked is None:
            return {"divergence": None, "verdict_source": None}
        result = checked.result
        self.user_properties += [
            ("verdict", result.verdict),
            ("verdict_source", str(result.verdict_source)),
            ("trajectory", str(result.trajectory)),
        ]
        return {
            "divergence": msgspec.to_builtins(checked.divergence),
            "verdict_source": result.verdict_source,
        }
