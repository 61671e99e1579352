"""What a replay says of samples that followed their tape and yet are not what they were."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.dataset import Dataset
from harness.errors import UsageError
from harness.records import BashRequest, ModelRequest, Sample, Settings
from harness.replaying import ReplayOptions, RunReplay, replay_run
from harness.report import SampleResult
from harness.runfile import read_run, write_run
from harness.store import Store
from harness.world import World
from tests.bad_agents import answers_twice, other_for_b, plain
from tests.scripted import Backend, config, dataset, take

ROWS = [("a", 1, "a"), ("b", 2, "x"), ("c", 3, "c")]


def breaks_at_the_end(sample: Sample, world: World, settings: Settings) -> str | None:
    """Makes all the requests, and then has an error of its own."""
    plain(sample, world, settings)
    raise KeyError("no such thing")


def three_turns(sample: Sample, world: World, settings: Settings) -> str | None:
    """Asks and runs, three times."""
    for turn in range(3):
        world.perform(ModelRequest([{"role": "user", "content": "?"}]))
        world.perform(BashRequest(f"echo {turn}"))
    return "x"


def breaks_in_the_second(sample: Sample, world: World, settings: Settings) -> str | None:
    """The same, up to an error of its own behind the second reply of the model."""
    world.perform(ModelRequest([{"role": "user", "content": "?"}]))
    world.perform(BashRequest("echo 0"))
    world.perform(ModelRequest([{"role": "user", "content": "?"}]))
    raise ValueError("no such\n\x1bthing")


@pytest.fixture
def data(tmp_path: Path) -> Dataset:
    return dataset(tmp_path / "data", ROWS)


@pytest.fixture
def recorded(store: Store, data: Dataset, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Store:
    """A run by the plain loop, whose truths are on this machine no more."""
    take(store, config(data, agent="tests.bad_agents:plain"), Backend())
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "empty"))
    return store


def replayed(store: Store, agent: str) -> tuple[list[SampleResult], list[str]]:
    report, findings = replay_run(store, "r", ReplayOptions(agent=f"tests.{agent}"))
    return report.samples, findings


def test_a_recorded_verdict_stands_for_the_recorded_outcome_only(recorded: Store) -> None:
    samples, findings = replayed(recorded, "bad_agents:plain")
    assert [(s.verdict, s.verdict_source) for s in samples] == [
        ("right", "recorded"), ("wrong", "recorded"), ("right", "recorded"),
    ]  # fmt: skip
    assert not findings
    samples, findings = replayed(recorded, "bad_agents:answers_twice")
    assert [(s.verdict, s.verdict_source) for s in samples] == [("unscored", None)] * 3
    assert len(findings) == 3


def test_a_loop_that_breaks_now_is_an_error_whatever_is_known(recorded: Store) -> None:
    samples, findings = replayed(recorded, "test_replaying:breaks_at_the_end")
    assert [(s.status, s.verdict, s.verdict_source) for s in samples] == [
        ("error", "error", None)
    ] * 3  # fmt: skip
    assert findings[0].startswith(
        "a epoch 1: the outcome changed: answer 'a' → error (agent: the agent raised KeyError: "
    )


def test_another_kind_of_error_is_another_outcome(store: Store, data: Dataset) -> None:
    agent = "tests.test_replaying:three_turns"
    take(store, config(data, agent=agent, limits={"sample_tokens": 30}), Backend())
    samples, findings = replayed(store, "test_replaying:three_turns")
    assert not findings
    samples, findings = replayed(store, "test_replaying:breaks_in_the_second")
    assert [(s.status, s.identical, s.divergence) for s in samples] == [("error", False, None)] * 3
    assert re.match(
        r"a epoch 1: the outcome changed: error \(limit: .*\) → error \(ag", findings[0]
    )
    assert not set("\n\x1b") & set(findings[0])


def test_a_last_line_that_its_effects_do_not_bear_out_is_told(store: Store, data: Dataset) -> None:
    """Somebody edited the trajectory digest, and made every name right again."""
    take(store, config(data), Backend())
    run = read_run(store, "r")
    entry = run.samples[1]
    assert entry.cassette is not None
    content = store.get(entry.cassette)
    entry.cassette = store.put(re.sub(rb'"trajectory":"....', b'"trajectory":"0000', content))
    write_run(store, run)
    report, findings = replay_run(store, "r", dataset=data)
    assert [s.identical for s in report.samples] == [True, False, True]
    assert findings == [
        "b epoch 1: the cassette's last line holds another trajectory than its effects give"
    ]
    loose = ReplayOptions(match_on=("model", "messages"))
    assert replay_run(store, "r", loose, dataset=data)[1] == []


def test_a_setting_that_there_is_none_of_is_refused(recorded: Store) -> None:
    with pytest.raises(UsageError, match=r"no 'max_step' \(there are model, params, max_steps, "):
        RunReplay(recorded, "r", ReplayOptions(loop={"max_step": 3}))


def test_one_sample_can_be_replayed_by_itself_and_by_another_loop(
    recorded: Store, data: Dataset
) -> None:
    replay = RunReplay(recorded, "r", dataset=data)
    a, b, _ = replay.entries
    assert replay.check(b).result.identical
    checked = replay.changed(other_for_b).check(b)
    assert checked.divergence is not None
    assert (checked.divergence.step, checked.divergence.kind, checked.findings) == (3, "bash", [])
    assert replay.changed("tests.bad_agents:other_for_b").check(b).divergence is not None
    assert replay.changed(answers_twice).check(a).findings
    assert replay.check(a).result.identical  # the run itself is as it was
    assert replay.changed(command_timeout=3.0).check(a).divergence is not None
