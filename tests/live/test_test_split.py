"""The test split: no truths, no accuracy, and the leaderboard's file from end to end."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.gaia_folder import row, write_folder
from tests.live.chat_server import call, chat_server, says
from tests.live.line import containers_of, harness

pytestmark = pytest.mark.usefixtures("tiny_image")

RUN = "submission"
GIVEN: dict[str, Any] = {"t1": "bord\u00f3", "t2": 1.50, "t3": ["a", 2], "t4": True, "t5": None}
"""What is submitted for each sample, in its first epoch; in the second, `again` behind a text."""
SENT = {"t1": "bord\u00f3", "t2": "1.5", "t3": "a, 2", "t4": "true", "t5": ""}


def withheld(folder: Path) -> Path:
    """A test split as the hubs have it: truths are `?`, empty, or have no column at all."""
    rows = [row(id, Level=1 + number % 3) for number, id in enumerate(GIVEN)]
    for number, values in enumerate(rows):
        del values["Final answer"]
        if number % 2:
            values["Final answer"] = "?" if number == 1 else ""
    return write_folder(folder, rows, split="test")


class Decide:
    """Submits what is given; every question comes once for each epoch, in order."""

    def __init__(self, broken: str = "") -> None:
        self.seen: dict[str, int] = {}
        self.broken = broken

    def __call__(self, request: dict[str, Any]) -> dict[str, Any]:
        question = request["messages"][1]["content"]
        found = re.search(r"shed of (t\d)", question)
        assert found is not None
        if found[1] == self.broken:
            raise ConnectionAbortedError
        epoch = self.seen[found[1]] = self.seen.get(found[1], 0) + 1
        answer = GIVEN[found[1]]
        if epoch == 2 and isinstance(answer, str):
            answer += " again"
        return says("I know.", call("submit", answer=answer))


def leaderboard(store: Path, *more: str) -> Any:
    return harness("export", RUN, "--store", str(store), "--format", "leaderboard", *more)


def test_a_test_split_is_recorded_without_a_score_and_exported(tmp_path: Path) -> None:
    """A05 and B09."""
    data, store = withheld(tmp_path / "data"), tmp_path / "st"

    def record(url: str, *more: str) -> Any:
        return harness(
            "record", "--run", RUN, "--store", str(store), "--dataset", str(data),
            "--split", "test", "--model", "m", "--api-url", url, "--no-network",
            "--docker-image", "gaia-tiny:test", "-g", "retries=0", *more,
        )  # fmt: skip

    with chat_server(Decide(broken="t3")) as server:
        part = record(server.url, "--limit", "4", "--epochs", "2", "--json")
    assert part.returncode == 4, part.stderr
    found = json.loads(part.stdout)
    assert found["metrics"]["mean_acc"] is None
    assert found["metrics"]["stderr"] is None
    assert found["metrics"]["pass@2"] is None
    assert (found["metrics"]["unscored"], found["metrics"]["error"]) == (6, 2)
    assert all(part["mean_acc"] is None for part in found["metrics"]["by_subset"].values())
    assert {sample["verdict"] for sample in found["samples"]} == {"unscored", "error"}
    assert found["dataset"]["split"] == "test"

    # what is missing is named: a sample that ended in error, one that was never chosen
    refused = leaderboard(store, "-o", "-", "--dataset", str(data))
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "lacks 2 of the 5 answers of epoch 1: t3, t5" in refused.stderr
    assert "--pad" in refused.stderr
    padded = leaderboard(store, "-o", "-", "--dataset", str(data), "--pad")
    assert padded.returncode == 0, padded.stderr
    assert [json.loads(line)["model_answer"] for line in padded.stdout.splitlines()] == [
        SENT["t1"], SENT["t2"], "", SENT["t4"], "",
    ]  # fmt: skip

    # the rest: whatever shows the run has `n/a` where a score would stand
    with chat_server(Decide()) as server:
        whole = record(server.url, "--epochs", "2", "--retry-errors")
    assert whole.returncode == 0, whole.stderr
    assert containers_of(RUN) == []
    tables = [whole.stdout]
    for command in ("replay", "score", "show"):
        done = harness(command, RUN, "--store", str(store))
        assert done.returncode == 0, done.stderr
        tables.append(done.stdout)
    for text in tables:
        scores = [line.split("|")[6].strip() for line in text.splitlines() if "mean_acc" in line]
        assert scores == ["n/a"] * 4
        assert "stderr n/a" in text
        assert "mean of 2 epochs n/a, pass@2 n/a" in text
    listed = harness("ls", "--store", str(store)).stdout.splitlines()[1].split()
    assert listed[:5] == [RUN, "m", "data/test", "10", "n/a"]
    assert "10 unscored" in whole.stdout

    # the file: strict JSON Lines, every answer a string, one row for each sample of one epoch
    target = tmp_path / "submission.jsonl"
    written = leaderboard(store, "-o", str(target))
    assert written.returncode == 0
    assert "the answers are those of epoch 1 of 2" in written.stderr
    raw = target.read_bytes()
    assert raw.isascii()
    assert raw.endswith(b"}\n")
    rows = [json.loads(line) for line in raw.decode().split("\n")[:-1]]
    assert rows == [{"task_id": id, "model_answer": SENT[id]} for id in GIVEN]
    second = leaderboard(store, "-o", "-", "--epoch", "2").stdout.splitlines()
    assert [json.loads(line)["model_answer"] for line in second] == [
        f"{text} again" if id == "t1" else text for id, text in SENT.items()
    ]
    none = leaderboard(store, "-o", "-", "--epoch", "3")
    assert none.returncode == 2
    assert "has no epoch 3" in none.stderr
