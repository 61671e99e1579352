"""`scripts/bench`: what it reports, and when it fails. No test here depends on how fast it is."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"


@pytest.fixture(scope="module", autouse=True)
def _importable() -> Any:
    sys.path.insert(0, str(SCRIPTS))
    yield
    sys.path.remove(str(SCRIPTS))


def module(name: str) -> Any:
    return importlib.import_module(f"benchmarks.{name}")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `scripts/bench --quick` writes for a workload that is next to nothing."""
    folder = tmp_path_factory.mktemp("bench")
    target = folder / "bench.json"
    done = subprocess.run(
        [sys.executable, SCRIPTS / "bench", "--quick", "--samples", "2", "--steps", "3",
         "--json", target],
        capture_output=True, text=True, timeout=600, check=False,
        env={**os.environ, "XDG_CACHE_HOME": str(folder / "cache")},
    )  # fmt: skip
    # ratios of so small a workload mean nothing, so that its gates may well be broken
    assert done.returncode in (0, 1), done.stderr
    assert target.is_file(), done.stderr
    again = subprocess.run(
        [sys.executable, SCRIPTS / "bench", "--show", target],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout.startswith(again.stdout)
    found: dict[str, Any] = json.loads(target.read_text())
    assert [row["told"] for row in found["table"]] == [
        line[:58].rstrip() for line in done.stdout.splitlines()[2 : 2 + len(found["table"])]
    ]
    return found


def test_every_target_has_a_line_and_every_line_a_figure_or_a_reason(
    report: dict[str, Any],
) -> None:
    targets = module("targets").TARGETS
    assert [row["figure"] for row in report["table"]] == [target.figure for target in targets]
    for row in report["table"]:
        if row["value"] is None:
            assert row["verdict"] == "not measured"
            assert row["why"]
        else:
            assert isinstance(row["value"], int | float)
            assert row["verdict"] == ("-" if row["limit"] is None else row["verdict"])
            assert row["verdict"] in ("met", "MISSED", "-")


def test_what_needs_the_outside_is_left_out_of_the_quick_run(report: dict[str, Any]) -> None:
    missing = {row["figure"] for row in report["table"] if row["value"] is None}
    assert missing == {
        "fastest_peer_over_replay", "live_overhead_ms", "teardown_s", "stress_growth",
    }  # fmt: skip


def test_the_report_says_what_was_measured_on_what(report: dict[str, Any]) -> None:
    assert report["quick"] is True
    assert report["sizes"]["samples"] == 2
    assert {"processor", "cores", "system", "python", "load"} <= set(report["machine"])
    assert {"replay", "start-up", "depth", "stored", "recording", "jobs"} <= set(report["details"])
    made = report["details"]["stored"]["made"]
    assert made["right"] == 2
    assert made["effects"] == 2 * (2 * 3 + 1)


def test_what_is_not_a_matter_of_time_holds_also_here(report: dict[str, Any]) -> None:
    figures = report["figures"]
    assert figures["banned_imports"] == 0
    assert figures["jobs_same"] == 1
    assert figures["fsyncs_per_effect"] <= 2


def test_the_targets_are_those_of_the_design() -> None:
    """Each line of the design's table; a limit that is moved has to be moved here, too."""
    limits = {target.figure: target.limit for target in module("targets").TARGETS}
    assert {name: limit for name, limit in limits.items() if limit is not None} == {
        "replay_over_floor": 2.0,
        "replay_command_cpu_s": 0.3,
        "fastest_peer_over_replay": 10.0,
        "version_cpu_ms": 90.0,
        "one_sample_cpu_ms": 130.0,
        "banned_imports": 0.0,
        "depth_320_over_80": 4.4,
        "depth_shortened": 4.4,
        "stored_over_distinct": 1.3,
        "stored_bare_over_distinct": 1.3,
        "stored_over_own": 1.2,
        "bundle_over_distinct": 0.45,
        "stored_80_over_20": 4.1,
        "replay_memory_mb": 40.0,
        "replay_memory_growth_mb": 5.0,
        "score_cpu_ms": 150.0,
        "record_tmpfs_cpu_ms": 0.2,
        "record_disk_cpu_ms": 1.0,
        "record_wire_cpu_ms": 0.2,
        "fsyncs_per_effect": 2.0,
        "fsyncs_per_effect_wire": 2.0,
        "record_memory": 2.0,
        "live_overhead_ms": 100.0,
        "teardown_s": 0.5,
        "runs_growth": 1.1,
        "jobs_overhead": 1.1,
        "jobs_same": 1.0,
        "stress_growth": 2.0,
    }


def judged(**figures: float) -> Any:
    """The row of one figure."""
    (name,) = figures
    rows = module("targets").judge(figures, {})
    return next(row for row in rows if row.target.figure == name)


@pytest.mark.parametrize(
    ("value", "verdict", "broken"),
    [(1.5, "met", False), (2.0, "met", False), (2.1, "MISSED", False), (3.6, "MISSED", True)],
)
def test_a_miss_is_told_and_a_gross_regression_fails(
    value: float, verdict: str, broken: bool
) -> None:
    row = judged(replay_over_floor=value)
    assert (row.verdict, row.broken) == (verdict, broken)


def test_absolute_times_never_fail_the_quick_run() -> None:
    """Only ratios within one run, counts and bytes have a gate."""
    timed = [
        target.figure
        for target in module("targets").TARGETS
        if target.gate is not None and target.unit not in ("x", "")
    ]
    assert timed == []
    assert judged(replay_command_cpu_s=100.0).verdict == "MISSED"
    assert not judged(replay_command_cpu_s=100.0).broken


def test_some_figures_must_be_at_least_their_limit() -> None:
    assert judged(fastest_peer_over_replay=9.9).verdict == "MISSED"
    assert judged(fastest_peer_over_replay=10.1).verdict == "met"
    assert judged(jobs_same=0.0).broken


def test_a_figure_without_a_line_is_refused() -> None:
    with pytest.raises(KeyError, match="nonsense"):
        module("targets").judge({"nonsense": 1.0}, {})


def test_the_workload_is_the_same_every_time_and_less_of_it_is_its_beginning() -> None:
    made = module("workload").Workload
    assert made(3, 4).bodies == made(3, 4).bodies
    assert made(2, 4).outputs == made(3, 4).outputs[:2]


def test_the_workload_has_the_size_that_is_stated() -> None:
    workload = module("workload").Workload(165, 20)
    whole, apart = workload.distinct()
    outputs = [output for outputs in workload.outputs for output in outputs]
    assert 12.5e6 < whole < 13.3e6
    assert apart > whole
    assert 3700 < sum(map(len, outputs)) / len(outputs) < 3900
    assert 0.2 < 1 - len(set(outputs)) / len(outputs) < 0.3


@pytest.mark.parametrize(
    ("cost", "growth"),
    [
        (lambda n: 5.0 * n, 1.0),
        (lambda n: 2.0 + n, 2 / 3),
        (lambda n: 7.0, 0.0),
        (lambda n: n * n, 3.0),
    ],
    ids=["straight", "with a start", "flat", "quadratic"],
)
def test_a_curve_that_bends_is_told_from_one_that_does_not(
    cost: Callable[[float], float], growth: float
) -> None:
    stress = module("stress")
    curve = stress.Curve("x", "n", "CPU s", {"line": [(n, cost(n)) for n in (1, 2, 4, 8)]})
    found, each = stress.growth([curve])
    assert found == {"stress_growth": each["x: line"]}
    assert found["stress_growth"] == pytest.approx(growth)


def test_the_page_shows_the_table_of_the_first_run() -> None:
    """`scripts/bench --show docs/evidence/bench-1.json --into docs/benchmarks.md` makes it so."""
    targets, root = module("targets"), SCRIPTS.parent
    known = json.loads((root / "docs/evidence/bench-1.json").read_text())
    rows = targets.judge(known["figures"], known["not_measured"])
    assert known["quick"] is False
    assert "\n".join(targets.markdown(rows)) in (root / "docs/benchmarks.md").read_text()


def test_the_picture_is_drawn_of_every_curve() -> None:
    """Well-formed SVG, with the words of each panel."""
    curves = [
        module("stress").Curve(f"<{n}>", "steps", "CPU s", {"a & b": [(1, 1.0), (2, 2.0)]})
        for n in range(4)
    ]
    root = ElementTree.fromstring(module("picture").picture(curves))
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"<0>", "<3>", "steps", "CPU s", "a & b"} <= set(texts)
    assert len(root.findall("{http://www.w3.org/2000/svg}g")) == 4
