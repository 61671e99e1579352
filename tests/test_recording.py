"""Recording and replaying whole runs, with scripted worlds at the seam."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from harness.cassette import read_cassette
from harness.dataset import Dataset
from harness.errors import LackError, ModelError, SandboxError, UsageError
from harness.progress import Quiet
from harness.records import BashReply, BashRequest, ModelReply, Reply, Request, Sample, Settings
from harness.replaying import ReplayOptions, replay_run
from harness.report import RunReport, SampleResult
from harness.runfile import read_run
from harness.store import Store
from tests.scripted import Backend, call, config, counting, dataset, says, take

ROWS = [("a", 1, "a"), ("b", 2, "x"), ("c", 3, "c")]


@pytest.fixture
def data(tmp_path: Path) -> Dataset:
    return dataset(tmp_path / "data", ROWS)


def verdicts(report: RunReport) -> dict[str, str]:
    return {result.task_id: result.verdict for result in report.samples}


def trajectories(report: RunReport) -> list[str | None]:
    return [result.trajectory for result in report.samples]


def failing(sample: Sample, request: Request) -> Reply:
    """Sample b's endpoint fails at its third request."""
    if sample.task_id == "b" and not isinstance(request, BashRequest) and len(request.messages) > 5:  # type: ignore[union-attr]
        return ModelError("no reply after 5 attempts")
    return counting(sample, request)


def test_a_run_is_recorded_and_replayed(store: Store, data: Dataset) -> None:
    recorded = take(store, config(data, eval_batch_size=2), Backend())
    assert verdicts(recorded.report) == {"a": "right", "b": "wrong", "c": "right"}
    report, findings = replay_run(store, "r", dataset=data)
    assert not findings
    assert all(result.identical for result in report.samples)
    assert trajectories(report) == trajectories(recorded.report)
    assert verdicts(report) == verdicts(recorded.report)
    assert {result.verdict_source for result in report.samples} == {"scored"}


def test_a_finished_run_makes_no_call(store: Store, data: Dataset) -> None:
    first = take(store, config(data), Backend())
    backend = Backend()
    second = take(store, config(data), backend)
    assert backend.asked == []
    assert trajectories(second.report) == trajectories(first.report)


def test_the_wider_selection_and_more_epochs_are_added(store: Store, data: Dataset) -> None:
    backend = Backend()
    take(store, config(data, task_ids=["a"]), backend)
    assert {task for task, _ in backend.asked} == {"a"}
    take(store, config(data), backend)
    assert backend.models() == 12
    report = take(store, config(data, epochs=3), backend).report
    assert backend.models() == 36
    assert report.metrics["num"] == 9
    assert report.metrics["pass@3"] == pytest.approx(2 / 3)
    assert read_run(store, "r").selection.selected == 3
    narrower = take(store, config(data, task_ids=["b"]), backend).report
    assert narrower.metrics["num"] == 9
    assert backend.models() == 36


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"loop": Settings(model="another")}, 'loop.model: "scripted" → "another"'),
        ({"loop": Settings(model="scripted", max_steps=7)}, "loop.max_steps: 50 → 7"),
        ({"loop": Settings(model="scripted", params={"seed": 1})}, "loop.params.seed: null → 1"),
        ({"limits": {"sandbox": {"image": "x"}}}, 'sandbox.image: null → "x"'),
    ],
)
def test_other_settings_are_refused_with_the_fields_that_differ(
    store: Store, data: Dataset, change: dict[str, Any], told: str
) -> None:
    take(store, config(data), Backend())
    before = store.read_run("r")
    with pytest.raises(UsageError) as caught:
        take(store, config(data, **change), Backend())
    assert told in str(caught.value)
    assert store.read_run("r") == before


def test_another_data_set_is_refused(store: Store, data: Dataset, tmp_path: Path) -> None:
    take(store, config(data), Backend())
    other = dataset(tmp_path / "other", [("a", 1, "a"), ("b", 2, "x"), ("d", 3, "c")])
    with pytest.raises(UsageError, match="dataset"):
        take(store, config(other), Backend())


def test_errors_are_sealed_counted_replayed_and_retried(store: Store, data: Dataset) -> None:
    backend = Backend(failing)
    report = take(store, config(data), backend).report
    assert verdicts(report) == {"a": "right", "b": "error", "c": "right"}
    assert report.metrics["mean_acc"] == pytest.approx(2 / 3)
    replayed, findings = replay_run(store, "r", dataset=data)
    assert not findings
    assert all(result.identical for result in replayed.samples)

    again = Backend()
    assert verdicts(take(store, config(data), again).report)["b"] == "error"
    assert again.asked == []

    report = take(store, config(data, retry_errors=True), again).report
    assert verdicts(report) == {"a": "right", "b": "wrong", "c": "right"}
    # two commands were run again to rebuild the sandbox; two turns and a command are new
    assert again.asked == [("b", "bash")] * 2 + [("b", "model"), ("b", "bash"), ("b", "model")]
    entry = read_run(store, "r").entry("b", 1)
    assert entry is not None
    assert entry.cassette is not None
    assert len(read_cassette(store, entry.cassette, "x").parents()) == 1
    replayed, findings = replay_run(store, "r", dataset=data)
    assert not findings
    assert all(result.identical for result in replayed.samples)


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize("at", range(1, 8))
@pytest.mark.parametrize("before", [True, False])
def test_what_was_recorded_is_never_asked_again(
    store: Store, data: Dataset, at: int, before: bool
) -> None:
    """The process dies at the n-th request, before or behind the seam; then goes on."""
    undisturbed = take(Store.in_memory(), config(data, task_ids=["a"]), Backend())
    asked: list[str] = []

    def dying(sample: Sample, request: Request) -> Reply:
        if len(asked) + 1 == at and before:
            return Killed()
        asked.append(request.kind)
        if len(asked) == at:
            return Killed()
        return counting(sample, request)

    with pytest.raises(Killed):
        take(store, config(data, task_ids=["a"]), Backend(dying))
    backend = Backend()
    report = take(store, config(data, task_ids=["a"]), backend).report
    assert trajectories(report) == trajectories(undisturbed.report)
    # each reply that was recorded is kept; the request in flight is sent again
    models_before = asked.count("model")
    in_flight = 0 if before else int(asked[-1] == "model")
    assert backend.models() == 4 - models_before + in_flight
    entry = read_run(store, "r").entry("a", 1)
    assert entry is not None
    assert entry.cassette is not None
    end = read_cassette(store, entry.cassette, "x").end
    assert end is not None
    kinds = ["model", "bash"] * 4
    assert end.totals.maybe_paid == int(kinds[at - 1] == "model")
    assert store.journals("r") == []


def test_a_drifted_sandbox_is_told_and_hard_drift_ends_the_sample(
    store: Store, data: Dataset
) -> None:
    def drifting(text: bytes, code: int) -> Any:
        def policy(sample: Sample, request: Request) -> Reply:
            if isinstance(request, BashRequest):
                return BashReply(text, exit_code=code)
            return counting(sample, request)

        return policy

    take(store, config(data), Backend(failing))
    report = take(store, config(data, retry_errors=True), Backend(drifting(b"else", 0))).report
    (drifted,) = [result for result in report.samples if result.drift]
    assert drifted.verdict == "wrong"
    assert [drift["effect"] for drift in drifted.drift] == [2, 4]
    assert not any(drift["hard"] for drift in drifted.drift)

    other = Store.in_memory()
    take(other, config(data), Backend(failing))
    report = take(other, config(data, retry_errors=True), Backend(drifting(b"else", 3))).report
    (drifted,) = [result for result in report.samples if result.drift]
    assert drifted.verdict == "error"
    assert drifted.drift[0]["hard"]


def test_a_loop_that_cannot_follow_its_cassette_is_found_out_at_once(
    store: Store, data: Dataset
) -> None:
    recorded = take(store, config(data, agent="tests.bad_agents:random_on_the_sly"), Backend())
    assert len(recorded.findings) == 3
    assert not any(result.replayable for result in recorded.report.samples)
    recorded = take(
        store, config(data, "s", agent="tests.bad_agents:random_through_the_world"), Backend()
    )
    assert not recorded.findings
    report, findings = replay_run(store, "s", dataset=data)
    assert not findings
    assert all(result.identical for result in report.samples)


def test_a_users_loop_is_recorded_and_replayed_like_ours(store: Store, data: Dataset) -> None:
    take(store, config(data, agent="tests.bad_agents:plain"), Backend())
    report, findings = replay_run(store, "r", dataset=data)
    assert not findings
    assert all(result.identical for result in report.samples)

    options = ReplayOptions(agent="tests.bad_agents:other_third_command")
    report, findings = replay_run(store, "r", options, dataset=data)
    for result in report.samples:
        assert result.divergence is not None
        assert (result.divergence["kind"], result.divergence["step"]) == ("bash", 3)
        assert result.divergence["effect"] == 6
        assert "echo something else" in str(result.divergence)
    assert findings

    options = ReplayOptions(agent="tests.bad_agents:answers_twice")
    report, findings = replay_run(store, "r", options, dataset=data)
    assert len(findings) == 3
    assert all("another answer" in finding for finding in findings)
    assert not any(result.identical for result in report.samples)


@pytest.mark.parametrize("agent", ["raises", "swallows"])
def test_a_loop_that_breaks_is_recorded_as_an_error(
    store: Store, data: Dataset, agent: str
) -> None:
    def breaking(sample: Sample, request: Request) -> Reply:
        if isinstance(request, BashRequest) and request.command == "echo 2":
            return SandboxError("the container is gone")
        return BashReply(b"x")

    recorded = take(store, config(data, agent=f"tests.bad_agents:{agent}"), Backend(breaking))
    assert not recorded.findings
    assert set(verdicts(recorded.report).values()) == {"error"}
    report, findings = replay_run(store, "r", dataset=data)
    assert not findings
    assert all(result.identical for result in report.samples)


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        (says(None, error="context_exceeded"), "context_exceeded"),
        (says("I cannot", refusal="no", error="refused"), "refused"),
        (says("no tool"), "no_answer"),
        (says(None, call("submit", answer=None)), "no_answer"),
        (says(None, call("submit", answer="a")), "right"),
        (says(None, call("submit", answer="z")), "wrong"),
    ],
)
def test_how_a_sample_can_end(store: Store, data: Dataset, reply: ModelReply, verdict: str) -> None:
    backend = Backend(lambda sample, request: reply)
    report = take(store, config(data, task_ids=["a"]), backend).report
    assert verdicts(report)["a"] == verdict
    replayed, findings = replay_run(store, "r", dataset=data)
    assert not findings
    assert verdicts(replayed)["a"] == verdict


@pytest.mark.parametrize(
    ("limits", "models"), [({"sample_tokens": 30}, 6), ({"run_tokens": 30}, 2)]
)
def test_limits_end_samples_as_errors(
    store: Store, data: Dataset, limits: dict[str, int], models: int
) -> None:
    backend = Backend()
    report = take(store, config(data, limits=limits), backend).report
    assert set(verdicts(report).values()) == {"error"}
    assert backend.models() == models
    replayed, findings = replay_run(store, "r", dataset=data)
    assert not findings
    assert all(result.identical for result in replayed.samples)


class Stopping(Quiet):
    """Stops the recording when the first sample is finished."""

    def __init__(self, stop: threading.Event) -> None:
        super().__init__()
        self.stop = stop

    def sample(self, result: SampleResult) -> None:
        self.stop.set()


def test_an_interrupted_run_keeps_what_is_finished_and_goes_on(store: Store, data: Dataset) -> None:
    stop = threading.Event()
    backend = Backend()
    recorded = take(store, config(data), backend, progress=Stopping(stop), stop=stop)
    assert recorded.interrupted
    assert recorded.report.notes[0].startswith("cancelled")
    assert recorded.report.metrics["missing"] == 2
    report = take(store, config(data), backend).report
    assert report.metrics["missing"] == 0
    assert backend.models() == 12


def test_a_run_under_another_agent_version_is_not_continued(
    store: Store, data: Dataset, tmp_path: Path
) -> None:
    with pytest.raises(LackError):
        take(store, config(data, agent="no_such_module:agent"), Backend())


def test_the_store_holds_no_truth(store: Store, tmp_path: Path) -> None:
    data = dataset(tmp_path / "data", [("a", 1, "the secret truth 7f3a")])
    take(store, config(data), Backend())
    for name in ("runs", "objects", "journal"):
        for path in store.files.listing(name):
            assert b"the secret truth" not in store.files.read(path)


def test_damage_is_named_and_never_a_miss(store: Store, data: Dataset) -> None:
    take(store, config(data), Backend())
    entry = read_run(store, "r").samples[1]
    assert entry.cassette is not None
    hexes = entry.cassette.removeprefix("sha256:")
    path = f"objects/sha256/{hexes[:2]}/{hexes[2:]}"
    content = store.files.read(path)
    for damaged in (
        content[:-40],
        content.replace(b"look 1", b"look 2"),
        content.replace(b"\n", b"\r\n"),
        b"",
    ):
        store.files.write(path, damaged)
        report, findings = replay_run(store, "r", dataset=data)
        assert len(findings) == 1
        assert "sample 'b'" in findings[0]
        assert hexes[2:] in findings[0]
        assert "damaged" in findings[0]
        assert [result.identical for result in report.samples] == [True, False, True]
    store.files.remove(path)
    _, findings = replay_run(store, "r", dataset=data)
    assert "missing" in findings[0]


def test_overwrite_replaces_the_old_run_only_when_the_new_one_is_complete(
    store: Store, data: Dataset
) -> None:
    take(store, config(data), Backend())
    old = store.read_run("r")
    changed: dict[str, Any] = {"loop": Settings(model="another"), "overwrite": True}
    stop = threading.Event()
    take(store, config(data, **changed), Backend(), progress=Stopping(stop), stop=stop)
    assert store.read_run("r") == old
    backend = Backend()
    report = take(store, config(data, **changed), backend).report
    assert backend.models() == 8
    assert report.run == "r"
    assert store.runs() == ["r"]
    assert read_run(store, "r").settings.loop.model == "another"
    _, findings = replay_run(store, "r", dataset=data)
    assert not findings


def test_the_place_where_a_run_is_recorded_anew_is_nobody_s_run(
    store: Store, data: Dataset
) -> None:
    """`r.new` would be taken for the new recording of `r`, and removed."""
    backend = Backend()
    with pytest.raises(UsageError, match="is the name under which --overwrite records 'r'"):
        take(store, config(data, "r.new"), backend)
    assert store.runs() == []
    # one that was given up half-way: another recording anew does not mix with it
    take(store, config(data), backend)
    changed: dict[str, Any] = {"loop": Settings(model="another"), "overwrite": True}
    stop = threading.Event()
    take(store, config(data, **changed), backend, progress=Stopping(stop), stop=stop)
    asked = len(backend.asked)
    with pytest.raises(UsageError, match=r"harness rm r\.new"):
        take(store, config(data, overwrite=True), backend)
    assert len(backend.asked) == asked


def test_more_processes_give_the_same_in_the_same_order(store: Store, data: Dataset) -> None:
    take(store, config(data, epochs=3), Backend())
    changed = ReplayOptions(loop={"max_steps": 2}, task_ids=("a", "c"))
    for options in (ReplayOptions(), changed):
        alone, found_alone = replay_run(store, "r", options, dataset=data)
        shared, found_shared = replay_run(store, "r", options, dataset=data, jobs=3)
        assert shared == alone
        assert found_shared == found_alone
