"""A run in which things go wrong for some samples: the counts are right, the others unharmed."""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from harness.records import VERDICTS
from harness.runfile import read_run
from harness.store import Store
from tests.live.line import (
    ROOT,
    RUN,
    command,
    containers_of,
    environment,
    harness,
    offline,
    policy,
    recording,
    samples,
)

pytestmark = pytest.mark.usefixtures("full_image")

BROKEN_AT_ONCE = "569f783e-2350-52e0-b337-47a8d5cae625"
BROKEN_LATER = "0f4d35b7-0df2-568e-8bfd-fee43ddac8f8"
KILLED = "ce61ca41-acdf-502c-9d77-a55fb647c246"
"""Its second command sleeps for ten minutes: time to kill the container under it."""
FAILED = {BROKEN_AT_ONCE, BROKEN_LATER, KILLED}
MANY = ("--limit", "24", "--eval-batch-size", "5", "--command-timeout", "25", "--json")
PATIENCE = ("-g", "retries=1", "-g", "retry_interval=0.05")


def recorded_verdicts() -> dict[str, str]:
    """What the committed run with the same policy has, all 26 of it."""
    run = read_run(Store(ROOT / "cassettes"), "demo")
    return {entry.task_id: entry.verdict for entry in run.samples}


def kill_container(task_id: str, seconds: float = 300) -> str:
    """Kill the container of a sample of this run as soon as its long command runs in it."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = subprocess.run(
            [
                "docker", "ps", "-q", "--filter", f"label=gaia-harness.sample={task_id}",
                "--filter", f"label=gaia-harness.run={RUN}",
            ],
            capture_output=True, text=True, check=True,
        ).stdout.split()  # fmt: skip
        for container in found:
            processes = subprocess.run(
                ["docker", "top", container], capture_output=True, text=True, check=False
            ).stdout
            if "sleep 600" in processes:
                subprocess.run(["docker", "kill", container], capture_output=True, check=True)
                return container
        time.sleep(0.1)
    raise AssertionError(f"no container of {task_id} with its long command")


def counts(metrics: dict[str, Any]) -> dict[str, int]:
    return {verdict: metrics[verdict] for verdict in VERDICTS}


def paid(report: dict[str, Any]) -> int:
    """Model turns on the tapes that were answered with a completion."""
    turns = sum(int(sample["steps"]) for sample in report["samples"])
    return turns - int(report["metrics"]["context_exceeded"])  # that one is an HTTP error


def test_two_broken_samples_and_a_dead_container_cost_three_samples(tmp_path: Path) -> None:
    """F01: exact counts, exit 4, no container left, and `--retry-errors` mends it."""
    store = tmp_path / "st"
    broken = ("--broken", f"{BROKEN_AT_ONCE}:0", "--broken", f"{BROKEN_LATER}:3")
    with policy(tmp_path / "broken", *broken) as server:
        arguments = recording(store, server, *PATIENCE) + list(MANY)
        process = subprocess.Popen(
            command(*arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        kill_container(KILLED)
        stdout, stderr = process.communicate(timeout=600)
        assert process.returncode == 4, stderr
        assert containers_of(RUN) == []
        report = json.loads(stdout)
        first = samples(stdout)
        calls = server.completions()

        # nothing is asked again, and the exit status is a matter of taste
        assert harness(*arguments).returncode == 4
        assert harness(*arguments, "--ignore-errors").returncode == 0
        assert server.completions() == calls

    chosen = sorted(recorded_verdicts())[:24]
    expected = {id: recorded_verdicts()[id] for id in chosen} | dict.fromkeys(FAILED, "error")
    assert {id: sample["verdict"] for (id, _), sample in first.items()} == expected
    expected_counts = {verdict: list(expected.values()).count(verdict) for verdict in VERDICTS}
    assert counts(report["metrics"]) == expected_counts
    assert expected_counts["error"] == 3
    assert sum(expected_counts.values()) == 24
    assert all(expected_counts[verdict] for verdict in VERDICTS[:6])  # every class has its test
    assert (expected_counts["missing"], expected_counts["unscored"]) == (0, 0)
    assert report["metrics"]["num"] == 24
    assert report["metrics"]["mean_acc"] == expected_counts["right"] / 24
    assert Counter(sample["status"] for sample in first.values()) == {"ok": 21, "error": 3}

    # each failure says what it was, and a replay without anything live tells the same
    shown = {id: harness("show", RUN, id, "--store", str(store)).stdout for id in FAILED}
    assert "sandbox died: its container was killed" in shown[KILLED]
    for id in (BROKEN_AT_ONCE, BROKEN_LATER):
        assert "Broken on purpose" in shown[id]
    replayed = harness("replay", RUN, "--store", str(store), "--json", variables=offline(tmp_path))
    assert replayed.returncode == 0, replayed.stderr
    assert counts(json.loads(replayed.stdout)["metrics"]) == counts(report["metrics"])
    assert all(sample["identical"] for sample in samples(replayed.stdout).values())

    # a server that works: only the three go on, each from where it was
    with policy(tmp_path / "whole") as server:
        mended = harness(*recording(store, server, *PATIENCE), *MANY, "--retry-errors", timeout=600)
        assert mended.returncode == 0, mended.stderr
        assert containers_of(RUN) == []
        after = json.loads(mended.stdout)
        assert calls + server.completions() == paid(after)
    second = samples(mended.stdout)
    assert {id: s["verdict"] for (id, _), s in second.items()} == {
        id: recorded_verdicts()[id] for id in chosen
    }
    assert after["metrics"]["error"] == 0
    assert after["metrics"]["num"] == 24
    for key, sample in first.items():  # the others are what they were, to the byte
        if key[0] not in FAILED:
            assert second[key] == sample
    assert harness("verify", RUN, "--store", str(store)).returncode == 0
    assert harness("replay", RUN, "--store", str(store)).returncode == 0
