"""Fork: what follows its tape is kept, what leaves it goes on from there and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness import forking
from harness.config import Changes, changed_settings
from harness.dataset import Dataset
from harness.errors import LackError, UsageError
from harness.progress import Quiet
from harness.recording import Recorded
from harness.records import MATCH_PARTS, Reply, Request, Sample, Settings
from harness.replaying import replay_run
from harness.runfile import read_run
from harness.store import Store
from tests.scripted import Backend, config, counting, dataset, take

ROWS = [("a", 1, "a"), ("b", 2, "x"), ("c", 3, "c")]


@pytest.fixture
def data(tmp_path: Path) -> Dataset:
    return dataset(tmp_path / "data", ROWS)


def fork(
    store: Store,
    data: Dataset,
    backend: Backend,
    new: str = "new",
    *,
    task_ids: Sequence[str] = (),
    match_on: Sequence[str] = MATCH_PARTS,
    live: bool = True,
    agent: str | None = None,
    sandbox: dict[str, Any] | None = None,
    other_image: bool = False,
    **loop: Any,
) -> tuple[Recorded, list[forking.Planned]]:
    source = read_run(store, "r")
    changes = Changes(loop=loop, agent=agent, sandbox=sandbox or {})
    recording = msgspec.structs.replace(
        config(data, new), settings=changed_settings(source.settings, changes)
    )
    planned = forking.plan(store, source, recording, task_ids=task_ids, match_on=match_on)
    recorded = forking.fork(
        store, source, recording, planned, connect=lambda *_: backend, progress=Quiet(),
        match_on=match_on, live=live, other_image=other_image,
    )  # fmt: skip
    return recorded, planned


def replays_clean(store: Store, run: str, data: Dataset) -> bool:
    report, findings = replay_run(store, run, dataset=data)
    return not findings and all(result.identical for result in report.samples)


def test_only_what_leaves_its_tape_is_asked_for(store: Store, data: Dataset) -> None:
    """Sample b alone has a question that the changed loop asks otherwise."""
    take(store, config(data, agent="tests.bad_agents:plain"), Backend())
    backend = Backend()
    recorded, planned = fork(store, data, backend, agent="tests.bad_agents:other_for_b")
    assert [item.follows for item in planned] == [True, False, True]
    assert {task for task, _ in backend.asked} == {"b"}
    # the two commands that it shares with the tape are run again, and nothing is paid twice
    assert [kind for _, kind in backend.asked] == ["bash", "bash", "bash"]
    assert planned[1].commands == 2
    assert replays_clean(store, "new", data)
    assert read_run(store, "new").marks == ["forked from r"]
    old, new = read_run(store, "r"), read_run(store, "new")
    same = [a.cassette == b.cassette for a, b in zip(old.samples, new.samples, strict=True)]
    assert same == [True, False, True]
    assert any("forked from r" in note for note in recorded.report.notes)


def test_samples_that_ran_out_of_steps_go_on(store: Store, data: Dataset) -> None:
    loop = Settings(model="scripted", max_steps=2)
    assert take(store, config(data, loop=loop), Backend()).report.metrics["no_answer"] == 3
    backend = Backend()
    recorded, planned = fork(store, data, backend, max_steps=80)
    assert recorded.report.metrics["right"] == 2
    assert backend.models() == 3 * 2
    assert [item.live_steps for item in planned] == [78, 78, 78]
    assert replays_clean(store, "new", data)


def test_a_changed_template_asks_everything_again(store: Store, data: Dataset) -> None:
    take(store, config(data), Backend())
    backend = Backend()
    _, planned = fork(store, data, backend, prompt_template="Please: {question}")
    assert not any(item.follows for item in planned)
    assert backend.models() == 12
    assert replays_clean(store, "new", data)


def test_fewer_steps_need_nothing_live(store: Store, data: Dataset) -> None:
    take(store, config(data), Backend())
    backend = Backend()
    recorded, planned = fork(store, data, backend, max_steps=2)
    assert backend.asked == []
    assert [item.live_steps for item in planned] == [0, 0, 0]
    assert recorded.report.metrics["no_answer"] == 3
    assert replays_clean(store, "new", data)


def test_a_command_behind_the_last_turn_is_live_too(store: Store, data: Dataset) -> None:
    """No model turn is left, and still something is asked of the outside."""
    loop = Settings(model="scripted", max_steps=3)
    take(store, config(data, agent="tests.bad_agents:plain", loop=loop), Backend())
    backend = Backend()
    _, planned = fork(store, data, backend, agent="tests.bad_agents:other_third_command")
    assert [(item.live, item.live_steps) for item in planned] == [(True, 0)] * 3
    assert [kind for _, kind in backend.asked] == ["bash"] * 9
    assert replays_clean(store, "new", data)


def test_a_chain_of_forks_reads_as_one_tape(store: Store, data: Dataset) -> None:
    take(store, config(data, loop=Settings(model="scripted", max_steps=1)), Backend())
    for number, steps in enumerate((2, 3, 4)):
        source = "r" if number == 0 else f"f{number - 1}"
        settings = changed_settings(
            read_run(store, source).settings, Changes(loop={"max_steps": steps})
        )
        recording = msgspec.structs.replace(config(data, f"f{number}"), settings=settings)
        run = read_run(store, source)
        planned = forking.plan(store, run, recording)
        backend = Backend()
        forking.fork(
            store, run, recording, planned, connect=lambda *_, b=backend: b, progress=Quiet()
        )
        assert backend.models() == 3
        assert replays_clean(store, f"f{number}", data)
    undisturbed = take(
        Store.in_memory(), config(data, loop=Settings(model="scripted", max_steps=4)), Backend()
    )
    forked, _ = replay_run(store, "f2", dataset=data)
    assert [s.trajectory for s in forked.samples] == [
        s.trajectory for s in undisturbed.report.samples
    ]


def test_a_loose_replay_is_saved_anew_and_marked(store: Store, data: Dataset) -> None:
    take(store, config(data), Backend())
    backend = Backend()
    recorded, planned = fork(
        store, data, backend, live=False, match_on=("model", "tools"),
        prompt_template="Please: {question}",
    )  # fmt: skip
    assert all(item.follows for item in planned)
    assert backend.asked == []
    mark = "loose replay of r: matched on model, tools only"
    assert read_run(store, "new").marks == [mark]
    assert mark in recorded.report.notes
    assert replays_clean(store, "new", data)


def test_a_loose_replay_that_leaves_its_tape_can_go_on_live(store: Store, data: Dataset) -> None:
    loop = Settings(model="scripted", max_steps=2)
    take(store, config(data, loop=loop), Backend())
    backend = Backend()
    fork(store, data, backend, match_on=("model",), prompt_template="Hm: {question}", max_steps=9)
    assert backend.models() == 3 * 2
    assert replays_clean(store, "new", data)


def test_an_unfinished_fork_is_continued(store: Store, data: Dataset) -> None:
    loop = Settings(model="scripted", max_steps=2)
    take(store, config(data, loop=loop), Backend())

    class Dies(BaseException):
        pass

    asked: list[str] = []

    def dying(sample: Sample, request: Request) -> Reply:
        if len(asked) == 5:
            return Dies("gone")
        asked.append(request.kind)
        return counting(sample, request)

    with pytest.raises(Dies):
        fork(store, data, Backend(dying), max_steps=9)
    backend = Backend()
    recorded, _ = fork(store, data, backend, max_steps=9)
    assert recorded.report.metrics["right"] == 2
    assert asked.count("model") + backend.models() == 3 * 2
    assert replays_clean(store, "new", data)


def test_a_fork_into_a_run_that_is_something_else_is_refused(store: Store, data: Dataset) -> None:
    take(store, config(data), Backend())
    take(store, config(data, "new"), Backend())
    with pytest.raises(UsageError, match="is another"):
        fork(store, data, Backend(), max_steps=9)
    with pytest.raises(UsageError, match="name of its own"):
        fork(store, data, Backend(), "r", max_steps=9)
    with pytest.raises(UsageError, match="--overwrite"):
        fork(store, data, Backend(), "other.new", max_steps=9)


def test_another_image_is_refused_unless_it_was_named(store: Store, data: Dataset) -> None:
    def with_image(layers: list[str]) -> Backend:
        backend = Backend()
        backend.image = {"reference": "i", "id": f"sha256:{layers}", "layers": layers}
        return backend

    loop = Settings(model="scripted", max_steps=2)
    take(store, config(data, loop=loop), with_image(["one"]))
    with pytest.raises(LackError, match="not the one that was recorded"):
        fork(store, data, with_image(["two"]), max_steps=9)
    recorded, _ = fork(store, data, with_image(["two"]), "other", other_image=True, max_steps=9)
    assert recorded.report.metrics["error"] == 3
    assert recorded.report.samples[0].drift[0]["fields"] == ["image"]
    recorded, _ = fork(store, data, with_image(["one"]), "same", max_steps=9)
    assert recorded.report.metrics["error"] == 0


def test_a_plan_says_what_it_would_cost(store: Store, data: Dataset) -> None:
    take(store, config(data, loop=Settings(model="scripted", max_steps=2)), Backend())
    source = read_run(store, "r")
    settings = changed_settings(source.settings, Changes(loop={"max_steps": 5}))
    recording = msgspec.structs.replace(config(data, "new"), settings=settings)
    lines = forking.plan_lines(forking.plan(store, source, recording))
    assert lines[0] == "0 of 3 samples follow their tape to the end"
    assert lines[-1] == "to do: 6 recorded commands to run again, at most 9 live model turns"
    assert not store.has_run("new")
