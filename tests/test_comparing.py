"""`harness diff`: what differs between two runs, where it begins, and whether it is luck."""

from __future__ import annotations

import itertools
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from harness import dialogue, forking
from harness.cli import cli
from harness.comparing import Comparison, Luck, Pair, compare, lines, luck
from harness.config import Changes, changed_settings
from harness.dataset import Dataset
from harness.errors import DamageError, SandboxError, UsageError
from harness.parting import Parting
from harness.progress import Quiet
from harness.records import (
    BashReply,
    BashRequest,
    ModelReply,
    ModelRequest,
    Reply,
    Request,
    Sample,
    Settings,
    ToolCall,
    Usage,
    Verdict,
)
from harness.runfile import read_run
from harness.store import Store, object_path
from harness.world import World
from tests.scripted import Backend, Policy, call, config, counting, dataset, says, take

ROOT = Path(__file__).parent.parent
ROWS = [("a", 1, "a"), ("b", 2, "x"), ("c", 3, "c")]


@pytest.fixture
def data(tmp_path: Path) -> Dataset:
    return dataset(tmp_path / "data", ROWS)


@pytest.fixture
def two(store: Store, data: Dataset) -> Any:
    """Records run `a` as it is by default, and run `b` with a change; the comparison."""

    def record(policy: Policy = counting, old: Any = None, **more: Any) -> Comparison:
        take(store, config(data, "a", **(old or {})), Backend())
        take(store, config(data, "b", **more), Backend(policy))
        return compare(store, "a", "b")

    return record


def submits(answers: dict[str, str | None], sample: Sample, request: Request) -> Reply:
    """`counting`, with other answers."""
    reply = counting(sample, request)
    if isinstance(reply, ModelReply) and reply.content == "done":
        answer = answers.get(sample.task_id, sample.task_id)
        return says("done", call("submit", id="c9", answer=answer))
    return reply


def partings(found: Comparison) -> list[Parting | None]:
    return [pair.parting for pair in found.pairs]


def place(parting: Parting | None) -> tuple[Any, ...]:
    assert parting is not None
    return parting.step, parting.effect, parting.kind, parting.what, parting.path, parting.words


# --------------------------------------------------------------------------- flips, answers, cost


def test_a_run_recorded_twice_is_alike_throughout(two: Any) -> None:
    found = two()
    assert [(pair.alike, pair.same_trajectory, pair.parting) for pair in found.pairs] == [
        (True, True, None)
    ] * 3  # fmt: skip
    assert not found.changed
    text = "\n".join(lines(found))
    assert "a → b: 3 samples x epochs in both" in text
    assert "3 alike throughout, 0 verdicts flip, 0 other answers" in text
    assert "cost: +0 steps, +0 tokens, " in text
    assert "accuracy: 0.6667 → 0.6667 (+0)" in text
    assert "where they part" not in text
    assert "NOTE" not in text


def test_verdicts_and_answers_that_changed_are_told(two: Any) -> None:
    found = two(partial(submits, {"a": "z", "b": "y", "c": "c"}))
    assert [(pair.verdict_a, pair.verdict_b, pair.answer_changed) for pair in found.pairs] == [
        ("right", "wrong", True), ("wrong", "wrong", True), ("right", "right", False),
    ]  # fmt: skip
    assert (found.accuracy_a, found.accuracy_b) == (pytest.approx(2 / 3), pytest.approx(1 / 3))
    text = list(lines(found))
    assert "1 alike throughout, 1 verdicts flip, 1 other answers" in text
    assert "  a epoch 1  level 1  right → wrong" in text
    assert "  b epoch 1  level 2  another answer, also wrong" in text
    assert found.changed


def test_cost_is_that_of_b_beyond_a(two: Any, store: Store) -> None:
    found = two(old={"loop": Settings(model="scripted", max_steps=2)})
    assert [(pair.steps, pair.tokens) for pair in found.pairs] == [(2, 30)] * 3
    assert "cost: +6 steps, +90 tokens, " in "\n".join(lines(found))
    back = compare(store, "b", "a")
    assert [(pair.steps, pair.tokens) for pair in back.pairs] == [(-2, -30)] * 3
    assert "cost: -6 steps, -90 tokens, " in "\n".join(lines(back))
    old, new = read_run(store, "a").samples[0], read_run(store, "b").samples[0]
    assert found.pairs[0].seconds == round(new.seconds - old.seconds, 3)


# ------------------------------------------------------------------------------- where they part


def test_another_reply_of_the_model(two: Any) -> None:
    def policy(sample: Sample, request: Request) -> Reply:
        reply = counting(sample, request)
        if sample.task_id == "b" and isinstance(reply, ModelReply) and reply.content == "look 1":
            return msgspec.structs.replace(reply, content="look at 1")
        return reply

    found = two(policy)
    assert "where they part: 1 at step 2 (model reply)" in list(lines(found))
    assert [parting is None for parting in partings(found)] == [True, False, True]
    # the second turn's reply is the third effect
    assert place(found.pairs[1].parting) == (2, 3, "model", "reply", "content", "look {+at +}1")
    assert "  b epoch 1  step 2 (effect 3, model)  reply content  look {+at +}1" in list(
        lines(found)
    )


def test_another_output_of_a_command(two: Any) -> None:
    def policy(sample: Sample, request: Request) -> Reply:
        if isinstance(request, BashRequest) and request.command == "echo 2":
            return BashReply(b"\xff2\n", exit_code=1)
        return counting(sample, request)

    found = two(policy)
    assert place(found.pairs[0].parting) == (3, 6, "bash", "reply", "exit_code", "[-0-]{+1+}")


def test_another_prompt(two: Any) -> None:
    old = Settings(model="scripted", prompt_template="{question} Take your time.")
    new = Settings(model="scripted", prompt_template="{question} Take your chance.")
    found = two(old={"loop": old}, loop=new)
    step, effect, kind, what, path, words = place(found.pairs[0].parting)
    assert (step, effect, kind, what) == (1, 1, "model", "request")
    assert re.fullmatch(r"messages\[\d\]\.content", path)
    assert "[-time-]{+chance+}" in words
    assert [line.partition(":")[0] for line in found.settings] == ["loop.prompt_template"]


def test_another_command_of_the_loop(two: Any) -> None:
    found = two(
        old={"agent": "tests.bad_agents:plain"}, agent="tests.bad_agents:other_third_command"
    )
    parted = place(found.pairs[0].parting)
    assert parted[:5] == (3, 6, "bash", "request", "command")
    assert parted[5] == "echo [-2-]{+something else+}"


def test_another_kind_of_request(two: Any) -> None:
    found = two(old={"agent": "tests.bad_agents:plain"}, agent="tests.bad_agents:random_on_the_sly")
    assert place(found.pairs[0].parting) == (
        0, 1, "bash", "request", "kind", "[-model-]{+bash+}",
    )  # fmt: skip


def test_one_goes_on_where_the_other_ends(two: Any, store: Store) -> None:
    found = two(old={"loop": Settings(model="scripted", max_steps=2)})
    assert place(found.pairs[0].parting) == (3, 5, "model", "length", "", "b goes on")
    back = compare(store, "b", "a")
    assert place(back.pairs[0].parting) == (3, 5, "model", "length", "", "b goes on")


def test_another_answer_of_the_loop_itself(two: Any) -> None:
    found = two(old={"agent": "tests.bad_agents:plain"}, agent="tests.bad_agents:answers_twice")
    parted = place(found.pairs[0].parting)
    assert parted == (3, 6, "end", "end", "answer", "[-a-]{+another answer+}")
    assert "where they part: 3 at the end" in list(lines(found))


def test_an_error_in_one_of_the_two(two: Any) -> None:
    def policy(sample: Sample, request: Request) -> Reply:
        if sample.task_id == "b" and isinstance(request, BashRequest):
            return SandboxError("the container is gone")
        return counting(sample, request)

    found = two(policy)
    parted = place(found.pairs[1].parting)
    assert parted == (1, 2, "bash", "reply", "error", '[-null-]{+"sandbox"+}')
    assert (found.pairs[1].verdict_a, found.pairs[1].verdict_b) == ("wrong", "error")


def test_two_errors_of_one_kind_are_alike(store: Store, data: Dataset) -> None:
    def failing(seconds: int, sample: Sample, request: Request) -> Reply:
        if isinstance(request, BashRequest):
            return SandboxError(f"the container is gone after {seconds} s")
        return counting(sample, request)

    take(store, config(data, "a"), Backend(partial(failing, 3)))
    take(store, config(data, "b"), Backend(partial(failing, 4)))
    assert all(pair.alike for pair in compare(store, "a", "b").pairs)


def test_a_value_of_the_loop_s_own(store: Store, data: Dataset) -> None:
    agent = "tests.bad_agents:random_through_the_world"
    take(store, config(data, "a", agent=agent), Backend())
    take(store, config(data, "b", agent=agent), Backend())
    step, effect, kind, what, _, words = place(compare(store, "a", "b").pairs[0].parting)
    assert (step, effect, kind, what) == (0, 1, "value", "reply")
    assert re.fullmatch(r"\[-0?.*-\]\{\+.*\+\}|.*\[-\d+-\]\{\+\d+\+\}.*", words)


# ----------------------------------------------------------------------- what is no such difference


def other_ids(sample: Sample, request: Request) -> Reply:
    """`counting`, with ids and token counts as another endpoint would give them."""
    reply = counting(sample, request)
    if not isinstance(reply, ModelReply):
        return reply
    calls = tuple(
        ToolCall(f"id-{sample.task_id}-{c.id}", c.name, c.arguments) for c in reply.tool_calls
    )
    return msgspec.structs.replace(reply, tool_calls=calls, usage=Usage(99, 1))


def test_ids_and_token_counts_do_not_part_two_runs(two: Any) -> None:
    """They are seen by the loop, so the trajectories differ; but nobody would call it other."""
    found = two(other_ids)
    assert [(pair.alike, pair.same_trajectory) for pair in found.pairs] == [(True, False)] * 3
    assert [pair.tokens for pair in found.pairs] == [4 * (100 - 15)] * 3


def test_behind_other_ids_the_difference_is_still_found(two: Any) -> None:
    def policy(sample: Sample, request: Request) -> Reply:
        if isinstance(request, BashRequest) and request.command == "echo 2":
            return BashReply(b"else")
        return other_ids(sample, request)

    parted = place(two(policy).pairs[0].parting)
    assert parted[:5] == (3, 6, "bash", "reply", "stdout")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"model": "another"}, 'setting loop.model: "scripted" → "another"'),
        ({"params": {"seed": 7}}, "setting loop.params.seed: null → 7"),
        ({"command_timeout": 9.0}, "setting loop.command_timeout: 180 → 9"),
    ],
)
def test_settings_are_told_once_and_not_at_each_sample(
    two: Any, change: dict[str, Any], told: str
) -> None:
    found = two(loop=Settings(**{"model": "scripted", **change}))
    assert [(pair.alike, pair.same_trajectory) for pair in found.pairs] == [(True, False)] * 3
    assert told in list(lines(found))


def test_behind_another_model_the_difference_is_still_found(two: Any) -> None:
    found = two(partial(submits, {"a": "z"}), loop=Settings(model="another"))
    assert [pair.alike for pair in found.pairs] == [False, True, True]
    assert place(found.pairs[0].parting)[:4] == (4, 7, "model", "reply")


def asks_otherwise(sample: Sample, world: World, settings: Settings) -> str | None:
    """A loop that sets a parameter and a timeout of its own in its second turn."""
    for turn in range(2):
        params = {"seed": 5} if turn else settings.params
        world.perform(ModelRequest([{"role": "user", "content": "?"}], (), params))
        world.perform(BashRequest("echo", 3.0 if turn else settings.command_timeout))
    return "x"


def asks_as_set(sample: Sample, world: World, settings: Settings) -> str | None:
    """The same without."""
    for _ in range(2):
        world.perform(ModelRequest([{"role": "user", "content": "?"}], (), settings.params))
        world.perform(BashRequest("echo", settings.command_timeout))
    return "x"


def test_a_parameter_of_the_loop_s_own_is_a_difference(two: Any) -> None:
    agents = "tests.test_comparing:asks_as_set", "tests.test_comparing:asks_otherwise"
    found = two(old={"agent": agents[0]}, agent=agents[1])
    assert place(found.pairs[0].parting) == (2, 3, "model", "request", "params", '{+{"seed":5}+}')


def answers_calls(order: Sequence[int], world: World) -> str | None:
    """Two calls at once, answered under the ids of their places in `order`."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "?"}]
    for _ in range(2):
        reply = world.perform(ModelRequest(messages, [dialogue.BASH_TOOL]))
        calls = [made.openai() for made in reply.tool_calls]
        messages.append({"role": "assistant", "content": "", "tool_calls": calls})
        messages += [
            {"role": "tool", "tool_call_id": calls[at]["id"], "content": "done"} for at in order
        ]
    return "x"


def in_order(sample: Sample, world: World, settings: Settings) -> str | None:
    """Each result goes with its call."""
    return answers_calls([0, 1], world)


def crosswise(sample: Sample, world: World, settings: Settings) -> str | None:
    """Each result goes with the other call: a bug that only the ids show."""
    return answers_calls([1, 0], world)


def test_which_call_a_result_belongs_to_is_a_difference(store: Store, data: Dataset) -> None:
    numbers = itertools.count()

    def policy(sample: Sample, request: Request) -> Reply:
        calls = [call("bash", id=f"random-{next(numbers)}", command=name) for name in ("x", "y")]
        return says(None, *calls)

    for name, agent in (("a", "in_order"), ("b", "in_order"), ("c", "crosswise")):
        take(store, config(data, name, agent=f"tests.test_comparing:{agent}"), Backend(policy))
    found = compare(store, "a", "b")
    assert [(pair.alike, pair.same_trajectory) for pair in found.pairs] == [(True, False)] * 3
    found = compare(store, "a", "c")
    assert place(found.pairs[0].parting)[:5] == (
        2, 2, "model", "request", "messages[2].tool_call_id",
    )  # fmt: skip


# --------------------------------------------------------------------------- lists, epochs, forks


def test_lists_that_differ_are_flagged(store: Store, data: Dataset) -> None:
    take(store, config(data, "a", task_ids=["a", "b"]), Backend())
    take(store, config(data, "b", task_ids=["b", "c"], epochs=2), Backend())
    found = compare(store, "a", "b")
    assert [(pair.task_id, pair.epoch) for pair in found.pairs] == [("b", 1)]
    assert found.only_a == ["a epoch 1"]
    assert found.only_b == ["b epoch 2", "c epoch 1", "c epoch 2"]
    text = list(lines(found))
    assert "NOTE: the lists differ: 1 recorded only in a: a epoch 1" in text
    assert "NOTE: the lists differ: 3 recorded only in b: b epoch 2, c epoch 1, c epoch 2" in text
    take(store, config(data, "c", task_ids=["c"]), Backend())
    with pytest.raises(UsageError, match="no recorded sample in common"):
        compare(store, "a", "c")


def test_a_sample_that_is_not_recorded_yet_is_in_one_list_only(store: Store, data: Dataset) -> None:
    """It would otherwise pass for a lost answer."""

    def dying(sample: Sample, request: Request) -> Any:
        return KeyboardInterrupt() if sample.task_id == "c" else counting(sample, request)

    take(store, config(data, "a"), Backend())
    with pytest.raises(KeyboardInterrupt):
        take(store, config(data, "b"), Backend(dying))
    found = compare(store, "a", "b")
    assert [pair.task_id for pair in found.pairs] == ["a", "b"]
    assert found.only_a == ["c epoch 1"]
    assert found.accuracy_a == found.accuracy_b == 0.5


def test_long_lists_are_cut(store: Store, tmp_path: Path) -> None:
    data = dataset(tmp_path / "many", [(f"t{n}", 1, "x") for n in range(8)])
    take(store, config(data, "a"), Backend())
    take(store, config(data, "b", task_ids=["t0"]), Backend())
    note = next(line for line in lines(compare(store, "a", "b")) if line.startswith("NOTE"))
    assert note.endswith("7 recorded only in a: t1 epoch 1, t2 epoch 1, t3 epoch 1, t4 epoch 1, "
                         "t5 epoch 1 …")  # fmt: skip


def test_epochs_are_compared_each_with_its_own(store: Store, data: Dataset) -> None:
    ended: list[str] = []

    def policy(sample: Sample, request: Request) -> Reply:
        reply = submits({"a": "z"} if "a" in ended else {}, sample, request)
        if isinstance(reply, ModelReply) and reply.content == "done":
            ended.append(sample.task_id)
        return reply

    take(store, config(data, "a", epochs=2), Backend())
    take(store, config(data, "b", epochs=2), Backend(policy))
    found = compare(store, "a", "b")
    flips = [(pair.task_id, pair.epoch) for pair in found.pairs if pair.flips]
    assert (len(found.pairs), flips) == (6, [("a", 2)])
    assert found.accuracy_b == pytest.approx(3 / 6)


def test_other_data_sets_are_refused(store: Store, data: Dataset, tmp_path: Path) -> None:
    take(store, config(data, "a"), Backend())
    other = dataset(tmp_path / "other", [("a", 1, "a"), ("b", 2, "x"), ("d", 3, "c")])
    take(store, config(other, "b"), Backend())
    with pytest.raises(UsageError, match="different data sets"):
        compare(store, "a", "b")


def test_a_fork_differs_only_where_it_left_its_tape(store: Store, data: Dataset) -> None:
    take(store, config(data, "r", agent="tests.bad_agents:plain"), Backend())
    source = read_run(store, "r")
    changes = Changes(agent="tests.bad_agents:other_for_b")
    recording = msgspec.structs.replace(
        config(data, "new"), settings=changed_settings(source.settings, changes)
    )
    planned = forking.plan(store, source, recording)
    forking.fork(store, source, recording, planned, connect=lambda *_: Backend(), progress=Quiet())
    found = compare(store, "r", "new")
    assert [pair.alike for pair in found.pairs] == [True, False, True]
    assert place(found.pairs[1].parting)[:5] == (3, 6, "bash", "request", "command")
    assert [pair.seconds for pair in found.pairs][::2] == [0, 0]


def test_damage_is_named_and_the_others_are_compared(two: Any, store: Store) -> None:
    two(partial(submits, {"a": "z", "c": "z"}))
    name = read_run(store, "b").samples[0].cassette
    assert name is not None
    path = object_path(name)
    store.files.write(path, store.files.read(path)[:-30])
    found = compare(store, "a", "b")
    assert [(pair.alike, pair.same_trajectory) for pair in found.pairs] == [
        (False, False), (True, True), (False, False),
    ]  # fmt: skip
    assert len(found.damage) == 1
    assert "sample 'a', epoch 1, in run 'b' is damaged" in found.damage[0]
    path = "runs/b.json"
    store.files.write(path, store.files.read(path).replace(b"wrong", b"right", 1))
    with pytest.raises(DamageError, match="run file of 'b'"):
        compare(store, "a", "b")


def test_unscored_runs_have_no_accuracy(store: Store, tmp_path: Path) -> None:
    data = dataset(tmp_path / "hidden", [("a", 1, "a"), ("b", 2, "?")])
    take(store, config(data, "a"), Backend())
    take(store, config(data, "b"), Backend(partial(submits, {"a": "z"})))
    found = compare(store, "a", "b")
    assert (found.accuracy_a, found.accuracy_b, found.significance) == (None, None, None)
    assert "accuracy: n/a (unscored samples)" in list(lines(found))
    assert [pair.flips for pair in found.pairs] == [True, False]


# -------------------------------------------------------------------------------------------- luck


def pairs(*changes: int | Sequence[int]) -> list[Pair]:
    """Samples by how they changed: 1 better, -1 worse, 0 as it was; several for epochs."""
    verdicts: dict[int, tuple[Verdict, Verdict]] = {
        1: ("wrong", "right"), -1: ("right", "no_answer"), 0: ("right", "right"),
    }  # fmt: skip
    found = []
    for number, change in enumerate(changes):
        for epoch, one in enumerate([change] if isinstance(change, int) else change, 1):
            old, new = verdicts[one]
            found.append(
                Pair(task_id=str(number), epoch=epoch, level=1, verdict_a=old, verdict_b=new)
            )
    return found


def luck_of(*changes: int | Sequence[int]) -> Luck:
    found = luck(pairs(*changes))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("better", "worse", "p_value"),
    [
        (0, 0, 1.0),
        (1, 0, 1.0),
        (3, 1, 2 * (4 + 1) / 2**4),
        (1, 3, 2 * (4 + 1) / 2**4),
        (5, 0, 2 / 2**5),
        (6, 0, 2 / 2**6),
        (9, 2, 2 * (math.comb(11, 2) + 11 + 1) / 2**11),
        (7, 7, 1.0),
    ],
)
def test_the_test_is_exact(better: int, worse: int, p_value: float) -> None:
    """Against the binomial distribution, written out: all outcomes as far from even or further."""
    found = luck_of(*[1] * better, *[-1] * worse, *[0] * 12)
    assert (found.better, found.worse) == (better, worse)
    assert found.p_value == pytest.approx(p_value, abs=1e-12)


T_11, T_5 = 2.200985160, 2.570581836
"""0.975 quantiles of Student's t with 11 and 5 degrees of freedom, from a printed table."""


def test_the_interval_is_that_of_two_more_samples() -> None:
    """Computed by hand: 10 samples, 3 better, 1 worse; with the two added, 12 of sum 2."""
    mean = 2 / 12
    error = math.sqrt((6 - 12 * mean**2) / 11 / 12)
    low, high = luck_of(1, 1, 1, -1, *[0] * 6).interval
    assert low == pytest.approx(mean - T_11 * error, abs=1e-8)
    assert high == pytest.approx(mean + T_11 * error, abs=1e-8)
    low, high = luck_of(0, 0, 0, 0).interval
    assert -low == high == pytest.approx(T_5 * math.sqrt(2 / 5 / 6), abs=1e-8)
    assert luck_of(1).interval == (-1.0, 1.0)


def test_epochs_of_one_sample_are_no_independent_evidence() -> None:
    """Six attempts that changed, all of one sample, are one changed sample."""
    found = luck_of([1] * 6, [0] * 6, [0] * 6)
    assert (found.better, found.worse, found.p_value) == (1, 0, 1.0)
    assert luck_of([1, -1], [0, 0]).better == 0
    found = luck_of([1, 0], [0, -1], [0, 0], [0, 1])
    assert (found.better, found.worse) == (2, 1)
    mean, squares = 0.5 / 6, 3 * 0.25 + 2
    error = math.sqrt((squares - 6 * mean**2) / 5 / 6)
    assert found.interval[0] == pytest.approx(mean - T_5 * error, abs=1e-8)


def coverage(samples: int, better: float, worse: float, intervals: dict[Any, Any]) -> float:
    """How often the interval holds the true difference, over all outcomes."""
    total = 0.0
    for (up, down), (low, high) in intervals.items():
        same = samples - up - down
        ways = math.comb(samples, up) * math.comb(samples - up, down)
        chance = ways * better**up * worse**down * (1 - better - worse) ** same
        total += chance * (low - 1e-12 <= better - worse <= high + 1e-12)
    return total


def test_the_interval_keeps_its_word_where_few_samples_change() -> None:
    """26 samples: the figures that are told of it. The unadjusted interval is far from them."""
    from scipy import stats

    ours, plain = {}, {}
    for up, down in itertools.product(range(27), range(27)):
        if up + down <= 26:
            changes = [1] * up + [-1] * down + [0] * (26 - up - down)
            ours[up, down] = luck_of(*changes).interval
            if len(set(changes)) > 1:
                found = stats.ttest_1samp(changes, 0).confidence_interval(0.95)
                plain[up, down] = found.low, found.high
            else:
                plain[up, down] = changes[0], changes[0]
    rates = [(b, w) for b in (0.01, 0.04, 0.12, 0.3) for w in (0.0, 0.01, 0.04, 0.12, 0.3)]
    assert min(coverage(26, *rate, ours) for rate in rates) > 0.96
    assert min(coverage(26, *rate, plain) for rate in rates) < 0.24


def test_what_is_said_of_it(two: Any) -> None:
    found = two(partial(submits, {"a": "z"}))
    assert found.significance is not None
    last = list(lines(found))[-1]
    assert last.startswith(
        "is it luck? 0 samples better, 1 worse: exact sign test p = 1, 95 % interval of the "
        "difference -"
    )
    assert last.endswith(": it may be luck (fewer than 6 changed samples cannot tell)")
    several = msgspec.structs.replace(found, significance=luck_of(*[1] * 8))
    assert list(lines(several))[-1].endswith(": more than luck")
    several = msgspec.structs.replace(found, significance=luck_of(*[1] * 6, -1))
    assert list(lines(several))[-1].endswith(": it may be luck")


# ------------------------------------------------------------------------------------ the command


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose store `cassettes` holds runs `a` and `b`; the answer to sample a differs."""
    monkeypatch.chdir(tmp_path)
    store, data = Store(tmp_path / "cassettes"), dataset(tmp_path / "data", ROWS)
    take(store, config(data, "a"), Backend())
    take(store, config(data, "b"), Backend(partial(submits, {"a": "z\x1b[2J"})))
    return tmp_path


def run(*args: str) -> Result:
    return CliRunner().invoke(cli, ["diff", *args])


def test_the_command_prints_lines_for_people(folder: Path) -> None:
    result = run("a", "b")
    assert result.exit_code == 0
    assert "  a epoch 1  level 1  right → wrong" in result.stdout
    assert "\x1b" not in result.stdout
    assert result.stderr == ""


def test_json_is_one_object(folder: Path) -> None:
    result = run("a", "b", "--json")
    assert (result.exit_code, result.stdout.count("\n")) == (0, 1)
    found = json.loads(result.stdout)
    assert list(found) == [
        "a", "b", "settings", "pairs", "only_a", "only_b", "accuracy_a", "accuracy_b",
        "significance", "damage",
    ]  # fmt: skip
    assert list(found["pairs"][0]) == [
        "task_id", "epoch", "level", "verdict_a", "verdict_b", "answer_changed",
        "same_trajectory", "alike", "parting", "steps", "tokens", "seconds",
    ]  # fmt: skip
    assert found["pairs"][0]["parting"] | {"words": ""} == {
        "step": 4, "effect": 7, "kind": "model", "what": "reply",
        "path": "tool_calls[0].arguments", "words": "",
    }  # fmt: skip
    assert found["pairs"][1]["parting"] is None
    assert list(found["significance"]) == ["better", "worse", "p_value", "interval"]
    assert found["significance"]["worse"] == 1
    assert len(found["significance"]["interval"]) == 2


def test_its_exit_status(folder: Path) -> None:
    assert run("a", "b", "--exit-code").exit_code == 1
    assert run("a", "a", "--exit-code").exit_code == 0
    assert run("a", "nope").exit_code == 2
    store = Store(folder / "cassettes")
    name = read_run(store, "b").samples[1].cassette
    assert name is not None
    # in a run that differs, so that the two cassettes are read
    take(store, config(dataset(folder / "data", ROWS), "c"), Backend(other_ids))
    name = read_run(store, "c").samples[1].cassette
    assert name is not None
    store.files.write(object_path(name), b"")
    result = run("a", "c")
    assert result.exit_code == 1
    assert "sample 'b', epoch 1, in run 'c' is damaged" in result.stderr
    assert "2 alike throughout" in result.stdout


WITHOUT_SCIPY = """
import sys
sys.modules["scipy"] = None
from harness.__main__ import main
main()
"""


def test_without_the_library_it_says_what_to_install(folder: Path) -> None:
    command = [sys.executable, "-c", WITHOUT_SCIPY, "diff", "a", "b"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    assert "accuracy: 0.6667 → 0.3333 (-0.3333)" in done.stdout
    last = done.stdout.splitlines()[-1]
    assert last == "is it luck? pip install 'gaia-harness[stats]' to have it tested"
    done = subprocess.run(
        [*command, "--json"], capture_output=True, text=True, env=env, check=False
    )
    assert json.loads(done.stdout)["significance"] is None
