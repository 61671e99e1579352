"""Verdicts, figures, the table and the JSON object."""

from __future__ import annotations

import itertools
import json
import math
import statistics
import unicodedata
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from harness.errors import HarnessError, UsageError
from harness.records import VERDICTS, Usage, Verdict
from harness.report import (
    RunReport,
    SampleResult,
    Status,
    metrics,
    table,
    to_json,
    verdict_for,
)


def result(
    task_id: str, verdict: Verdict = "right", *, epoch: int = 1, level: int = 1, **fields: Any
) -> SampleResult:
    status: Status = verdict if verdict in ("error", "missing") else "ok"
    return SampleResult(
        task_id=task_id, epoch=epoch, level=level, status=status, verdict=verdict, **fields
    )


def results(*verdicts: Verdict) -> list[SampleResult]:
    return [result(str(number), verdict) for number, verdict in enumerate(verdicts)]


def report(samples: list[SampleResult], **fields: Any) -> RunReport:
    dataset = {"id": "mini", "revision": None, "split": "validation", "digest": "sha256:00"}
    defaults: dict[str, Any] = {"run": "demo", "model": "m", "dataset": dataset}
    defaults["metrics"] = metrics(samples)
    return RunReport(samples=samples, **(defaults | fields))


# ---------------------------------------------------------------------------------------- verdicts


def never(answer: str | None, truth: str) -> bool:
    raise AssertionError("the scorer was asked")


@pytest.mark.parametrize(
    ("status", "answer", "last_error", "truth", "verdict"),
    [
        ("error", "42", None, "42", "error"),
        ("error", None, None, "?", "error"),
        ("missing", None, None, "42", "missing"),
        ("missing", None, None, "?", "missing"),
        ("ok", None, None, "42", "no_answer"),
        ("ok", None, None, "None", "no_answer"),
        ("ok", None, "context_exceeded", "42", "context_exceeded"),
        ("ok", None, "refused", "42", "refused"),
        ("ok", None, "something new", "42", "no_answer"),
        ("ok", "?", None, "?", "unscored"),
        ("ok", "", None, "?", "unscored"),
        ("ok", "42", None, " ? ", "unscored"),
        ("ok", None, None, "?", "unscored"),
        ("ok", None, "refused", "?", "unscored"),
    ],
)
def test_a05_only_answers_to_known_truths_reach_the_scorer(
    status: Status, answer: str | None, last_error: str | None, truth: str, verdict: Verdict
) -> None:
    assert verdict_for(status, answer, last_error, truth, never) == verdict


@pytest.mark.parametrize(
    ("answer", "truth", "last_error", "verdict"),
    [
        ("42", "42", None, "right"),
        ("43", "42", None, "wrong"),
        ("", "42", None, "wrong"),
        ("42", "42", "context_exceeded", "right"),
    ],
)
def test_an_answer_is_scored_by_the_official_rules(
    answer: str, truth: str, last_error: str | None, verdict: Verdict
) -> None:
    assert verdict_for("ok", answer, last_error, truth) == verdict


@pytest.mark.parametrize("value", [(False, "why"), 1, None, "yes"])
def test_a_scorer_that_returns_no_bool_is_refused(value: Any) -> None:
    def odd(answer: str | None, truth: str) -> bool:
        return value  # type: ignore[no-any-return]

    with pytest.raises(UsageError, match="odd returned"):
        verdict_for("ok", "a", None, "b", odd)


def test_a_scorer_that_raises_is_named_and_shows_no_truth() -> None:
    def odd(answer: str | None, truth: str) -> bool:
        raise KeyError(truth)

    with pytest.raises(UsageError, match="odd raised KeyError") as caught:
        verdict_for("ok", "a", None, "the truth", odd)
    assert "the truth" not in str(caught.value)


# ----------------------------------------------------------------------------------------- figures


def test_f01_errors_stay_in_the_denominator() -> None:
    """F01: the figure over completed samples is second and labelled."""
    verdicts: list[Verdict] = ["right", "right", "wrong", "wrong"]
    samples = results(*verdicts, *verdicts, "error", "missing")
    figures = metrics(samples)
    assert figures["mean_acc"] == 0.4
    assert (figures["num"], figures["right"], figures["wrong"]) == (10, 4, 4)
    assert (figures["error"], figures["missing"]) == (1, 1)
    shown = table(report(samples))
    assert "4 right, 4 wrong" in shown
    assert "1 error, 1 missing" in shown
    assert "8 of 10 completed" in shown
    assert "0.5" not in shown


def test_f02_no_level_is_above_one_and_an_empty_one_is_not_zero() -> None:
    """F02."""
    samples = results("right", "right", "right", "wrong")
    figures = metrics(samples, subsets=["2023_level1", "2023_level3"])
    assert figures["by_subset"] == {
        "2023_level1": {"mean_acc": 0.75, "num": 4},
        "2023_level3": {"mean_acc": None, "num": 0},
    }
    shown = table(report(samples, metrics=figures)).splitlines()
    assert [line.split("|")[5:7] for line in shown if "level3" in line] == [["   0 ", "   n/a "]]


def test_f09_the_mean_and_pass_at_k_are_two_figures_and_named() -> None:
    """F09."""
    verdicts: list[Verdict] = ["right", "wrong", "wrong"]
    samples = [result("a", verdict, epoch=n) for n, verdict in enumerate(verdicts, 1)]
    figures = metrics(samples)
    assert figures["mean_acc"] == pytest.approx(1 / 3)
    assert figures["pass@3"] == 1.0
    assert figures["pass@2"] == pytest.approx(2 / 3)
    assert "mean of 3 epochs 0.3333, pass@2 0.6667, pass@3 1.0" in table(report(samples))


def test_one_epoch_has_no_pass_at_k() -> None:
    assert not [key for key in metrics(results("right", "wrong")) if key.startswith("pass")]
    assert "epochs" not in table(report(results("right", "wrong")))


def test_the_ks_stay_few() -> None:
    samples = [result("a", "wrong", epoch=n) for n in range(1, 21)]
    keys = [key for key in metrics(samples) if key.startswith("pass")]
    assert keys == ["pass@2", "pass@4", "pass@8", "pass@16", "pass@20"]


def test_a05_one_unscored_sample_leaves_no_accuracy() -> None:
    samples = [*results("right", "wrong"), result("z", "unscored", level=2)]
    figures = metrics(samples)
    assert figures["mean_acc"] is None
    assert figures["stderr"] is None
    assert figures["by_subset"]["2023_level2"]["mean_acc"] is None
    assert figures["by_subset"]["2023_level1"]["mean_acc"] == 0.5
    overall = next(line for line in table(report(samples)).splitlines() if "overall" in line)
    assert "n/a" in overall
    twice = [result("z", "unscored", epoch=n) for n in (1, 2)]
    assert metrics(twice)["pass@2"] is None
    assert "mean of 2 epochs n/a, pass@2 n/a" in table(report(twice))


def test_a05_a_subset_of_errors_has_no_accuracy_where_truths_are_withheld() -> None:
    """Nor would anybody know it; where the others are scored, it is 0."""
    failed = result("b", "error", level=2)
    withheld = metrics([result("a", "unscored"), failed])["by_subset"]["2023_level2"]
    assert withheld == {"mean_acc": None, "num": 1}
    assert metrics([result("a", "right"), failed])["by_subset"]["2023_level2"]["mean_acc"] == 0


def test_nothing_at_all_is_no_crash() -> None:
    figures = metrics([])
    assert (figures["num"], figures["mean_acc"], figures["stderr"]) == (0, None, None)
    assert "n/a" in table(report([]))


@pytest.mark.parametrize(
    ("samples", "problem"),
    [
        ([result("a"), result("a", "wrong")], "counted twice"),
        ([result("a"), result("a", epoch=2, level=2)], "two levels"),
        ([result("a", "great")], "do not add up"),  # type: ignore[arg-type]
        ([SampleResult(task_id="a", level=1, status="error", verdict="wrong")], "status error"),
        ([SampleResult(task_id="a", level=1, status="ok", verdict="missing")], "status ok"),
    ],
)
def test_results_that_contradict_themselves_are_refused(
    samples: list[SampleResult], problem: str
) -> None:
    with pytest.raises(HarnessError, match=problem):
        metrics(samples)


attempts = st.integers(1, 5).flatmap(
    lambda epochs: st.lists(
        st.tuples(
            st.integers(1, 3),
            st.lists(st.sampled_from(VERDICTS), min_size=epochs, max_size=epochs),
        ),
        max_size=8,
    )
)


@given(attempts)
def test_figures_add_up(drawn: list[tuple[int, list[Verdict]]]) -> None:
    samples = [
        result(str(number), verdict, epoch=epoch, level=level)
        for number, (level, verdicts) in enumerate(drawn)
        for epoch, verdict in enumerate(verdicts, 1)
    ]
    figures = metrics(samples)
    assert figures["num"] == sum(figures[verdict] for verdict in VERDICTS) == len(samples)
    parts = figures["by_subset"].values()
    assert sum(part["num"] for part in parts) == figures["num"]
    if figures["mean_acc"] is None:
        assert figures["unscored"] or not samples
    else:
        assert not figures["unscored"]
        assert math.isclose(figures["mean_acc"] * figures["num"], figures["right"])
        right = sum(part["mean_acc"] * part["num"] for part in parts)
        assert math.isclose(right, figures["right"], abs_tol=1e-9)
    values = [value for key, value in figures.items() if key.startswith("pass@") or "acc" in key]
    assert all(value is None or 0 <= value <= 1 for value in values)
    known = [value for value in values if value is not None]
    assert known == sorted(known)  # more attempts never lower the chance
    assert metrics(reversed(samples)) == figures


def scored(drawn: Sequence[Sequence[bool]]) -> list[SampleResult]:
    return [
        result(str(number), "right" if right else "wrong", epoch=epoch)
        for number, tries in enumerate(drawn)
        for epoch, right in enumerate(tries, 1)
    ]


@given(st.lists(st.booleans(), min_size=2, max_size=30))
def test_standard_error_with_one_epoch_is_the_usual_one(drawn: list[bool]) -> None:
    usual = statistics.stdev(map(float, drawn)) / math.sqrt(len(drawn))
    assert metrics(scored([[right] for right in drawn]))["stderr"] == pytest.approx(usual)


grids = st.integers(2, 5).flatmap(
    lambda epochs: st.lists(
        st.lists(st.booleans(), min_size=epochs, max_size=epochs), min_size=2, max_size=9
    )
)


@given(grids)
def test_standard_error_with_epochs_is_that_of_the_samples_means(drawn: list[list[bool]]) -> None:
    means = [statistics.mean(map(float, tries)) for tries in drawn]
    usual = statistics.stdev(means) / math.sqrt(len(means))
    assert metrics(scored(drawn))["stderr"] == pytest.approx(usual, abs=1e-12)


@given(grids)
def test_pass_at_k_is_the_share_of_all_draws_of_k_attempts(drawn: list[list[bool]]) -> None:
    figures = metrics(scored(drawn))
    for k in (int(key[5:]) for key in figures if key.startswith("pass@")):
        shares = [
            statistics.mean(any(chosen) for chosen in itertools.combinations(tries, k))
            for tries in drawn
        ]
        assert figures[f"pass@{k}"] == pytest.approx(statistics.mean(shares))


def test_repeating_an_attempt_does_not_shrink_the_error() -> None:
    once = [[True], [False], [True], [False], [False]]
    thrice = [tries * 3 for tries in once]
    assert metrics(scored(thrice))["stderr"] == pytest.approx(metrics(scored(once))["stderr"])


# ------------------------------------------------------------------------------------------- forms


def test_the_table_has_the_guide_s_form() -> None:
    samples = [result(str(n), "right" if n == 0 else "wrong") for n in range(5)]
    run = report(samples, model="qwen3-max", dataset={"id": "gaia"}, notes=["5 of 165 selected"])
    assert table(run).splitlines() == [
        "+-----------+---------+----------+-------------+-----+-------+---------+",
        "| Model     | Dataset | Metric   | Subset      | Num | Score | Cat.0   |",
        "+===========+=========+==========+=============+=====+=======+=========+",
        "| qwen3-max | gaia    | mean_acc | 2023_level1 |   5 |   0.2 | default |",
        "+-----------+---------+----------+-------------+-----+-------+---------+",
        "| qwen3-max | gaia    | mean_acc | overall     |   5 |   0.2 | -       |",
        "+-----------+---------+----------+-------------+-----+-------+---------+",
        "num 5: 1 right, 4 wrong, 0 no_answer, 0 context_exceeded, 0 refused, 0 error, 0 missing,"
        " 0 unscored; 5 of 5 completed; stderr 0.2",
        "5 of 165 selected",
    ]


NASTY = "a\x1b[31m\r\n\x9b\u202e\ud800\u4e2d\x7f|"


def test_no_control_character_reaches_the_terminal() -> None:
    run = report(results("right"), model=NASTY, dataset={"id": NASTY}, notes=[NASTY])
    shown = table(run)
    shown.encode()
    grid = shown.splitlines()
    assert len(grid) == 9
    assert not [c for line in grid for c in line if unicodedata.category(c) in ("Cc", "Cs", "Cf")]
    assert len({len(line) + line.count("\u4e2d") for line in grid[:7]}) == 1


@given(text=st.text(st.characters()))
@example(text="\x7f\x1b\x9b\r\n\u2028\ud800\ud83d\ude00")
def test_json_is_one_line_and_keeps_any_text(text: str) -> None:
    sample = result(text, answer=text, divergence={text: [text]}, drift=[text])
    run = report([sample], run=text, model=text, notes=[text])
    line = to_json(run)
    assert line.isascii()
    assert line.isprintable()
    back = json.loads(line)
    pairs = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    assert back["samples"][0]["answer"] == back["run"] == back["notes"][0] == pairs


def test_json_has_the_interface_s_keys_in_its_order() -> None:
    samples = [result("a", usage=Usage(3, 4)), result("b", level=2)]
    back = json.loads(to_json(report(samples)))
    assert list(back) == ["run", "model", "dataset", "samples", "metrics"]
    assert list(back["samples"][0]) == [
        "task_id",
        "epoch",
        "level",
        "status",
        "verdict",
        "verdict_source",
        "answer",
        "steps",
        "cassette",
        "trajectory",
        "identical",
        "divergence",
        "drift",
        "replayable",
        "usage",
    ]
    assert back["samples"][0]["usage"] == {"input_tokens": 3, "output_tokens": 4}
    assert list(back["metrics"]) == [
        "mean_acc",
        "num",
        *VERDICTS,
        "stderr",
        "by_subset",
    ]
    assert back["metrics"]["by_subset"]["2023_level2"] == {"mean_acc": 1.0, "num": 1}


def test_b08_the_table_shows_no_answer() -> None:
    """B08."""
    samples = [result("a", answer="quince jelly"), result("b", "wrong", answer="quince")]
    assert "quince" not in table(report(samples))
    assert "quince jelly" in to_json(report(samples))
