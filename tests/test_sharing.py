"""Many runs by several processes: the same results, in the same order, as by one."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from harness.errors import LackError
from harness.replaying import ReplayOptions
from harness.sharing import RunReplayed, replay_runs
from harness.store import Store, run_path
from tests.scripted import Backend, config, dataset, take

NAMES = ["a", "b", "c", "d", "e"]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Five runs; `c` is damaged, and of `d` one cassette."""
    folder = tmp_path_factory.mktemp("shared")
    store = Store(folder / "store")
    data = dataset(folder / "data", [("x", 1, "x"), ("y", 2, "no")])
    for name in NAMES:
        take(store, config(data, run=name), Backend())
    path = Path(store.label) / run_path("c")
    path.write_bytes(path.read_bytes().replace(b'"missing"', b'"absent"').replace(b"x", b"z", 1))
    return store


def outcome(done: RunReplayed) -> object:
    """All of it but where things were said."""
    return msgspec.to_builtins(msgspec.structs.replace(done, told=[]))


def replayed(store: Store, jobs: int, options: ReplayOptions | None = None) -> tuple[object, ...]:
    told: list[str] = []
    found = replay_runs(
        store, NAMES, options or ReplayOptions(), jobs=jobs, progress=told.append
    )  # fmt: skip
    return [outcome(done) for done in found], told


def test_results_order_and_words_do_not_depend_on_the_processes(store: Store) -> None:
    """E11; with divergences, so that something is said on the way."""
    options = ReplayOptions(loop={"prompt_template": "otherwise: {question}"})
    one, two = replayed(store, 1, options), replayed(store, 2, options)
    assert one == two
    assert one[1], "the divergences are told"


def test_damage_to_one_run_leaves_the_others(store: Store) -> None:
    done = list(replay_runs(store, NAMES, ReplayOptions(), jobs=2))
    assert [result.name for result in done] == NAMES
    assert [result.name for result in done if result.report is None] == ["c"]
    assert done[2].problem is not None
    assert "'c' is damaged" in done[2].problem
    assert done[2].status == 1


@pytest.mark.parametrize("jobs", [1, 2])
def test_what_stops_every_run_is_told_of_each(store: Store, jobs: int) -> None:
    options = ReplayOptions(agent="nowhere:agent")
    done = list(replay_runs(store, ["a", "b"], options, jobs=jobs))
    assert [result.status for result in done] == [3, 3]
    assert all("nowhere" in (result.problem or "") for result in done)


def test_what_stops_a_single_run_is_raised(store: Store) -> None:
    with pytest.raises(LackError, match="nowhere"):
        list(replay_runs(store, ["a"], ReplayOptions(agent="nowhere:agent"), jobs=2))


def test_fewer_runs_than_processes_share_their_samples(store: Store) -> None:
    alone = list(replay_runs(store, ["a"], ReplayOptions(), jobs=1))
    shared = list(replay_runs(store, ["a"], ReplayOptions(), jobs=2))
    assert [outcome(done) for done in alone] == [outcome(done) for done in shared]


def test_a_store_in_memory_needs_no_process() -> None:
    assert list(replay_runs(Store.in_memory(), [], ReplayOptions(), jobs=2)) == []
