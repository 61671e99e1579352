"""Runs in other shapes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.dataset import Dataset
from harness.errors import UsageError
from harness.exporting import JSONL_KEYS, jsonl, leaderboard
from harness.records import BashRequest
from harness.runfile import read_run
from harness.store import Store
from tests.scripted import Backend, call, config, counting, dataset, says, take
from tests.test_recording import failing

ROWS = [("a", 1, "a"), ("b", 2, "x"), ("c", 3, "c")]
IDS = dict.fromkeys("abc", "?")


@pytest.fixture
def data(tmp_path: Path) -> Dataset:
    return dataset(tmp_path / "data", ROWS)


def rows(lines: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines]


def test_the_leaderboard_gets_one_row_per_id(store: Store, data: Dataset) -> None:
    """B09: of three epochs one, stated."""
    take(store, config(data, epochs=3), Backend())
    found = rows(leaderboard(store, read_run(store, "r"), IDS, epoch=2))
    assert found == [{"task_id": id, "model_answer": id} for id in "abc"]
    with pytest.raises(UsageError, match="no epoch 4"):
        list(leaderboard(store, read_run(store, "r"), IDS, epoch=4))


def test_an_incomplete_split_is_refused_by_name_unless_padded(store: Store, data: Dataset) -> None:
    """B09: what is missing, was not selected, or ended in error."""
    take(store, config(data, task_ids=["a", "b"]), Backend(failing))
    run = read_run(store, "r")
    with pytest.raises(UsageError, match=r"lacks 2 of the 3 answers of epoch 1: b, c") as caught:
        list(leaderboard(store, run, IDS))
    assert "--pad" in str(caught.value)
    with pytest.raises(UsageError, match="2 of 3 samples"):
        list(leaderboard(store, run, None))
    assert rows(leaderboard(store, run, IDS, pad=True)) == [
        {"task_id": "a", "model_answer": "a"},
        {"task_id": "b", "model_answer": ""},
        {"task_id": "c", "model_answer": ""},
    ]


@pytest.mark.parametrize(
    ("submitted", "expected"),
    [
        (None, ""),
        ("", ""),
        (42, "42"),
        ([1, "x"], "1, x"),
        (True, "true"),
        ("ü\n\u2028", "ü\n\u2028"),
    ],
)
def test_an_answer_is_always_a_string_on_one_ascii_line(
    store: Store, data: Dataset, submitted: Any, expected: str
) -> None:
    """B09: no blank line, no BOM, a null answer is an empty one."""
    backend = Backend(lambda sample, request: says("hm", call("submit", answer=submitted)))
    take(store, config(data), backend)
    lines = list(leaderboard(store, read_run(store, "r"), IDS))
    assert len(lines) == 3
    for line in lines:
        assert line.isascii()
        assert "\n" not in line
        assert json.loads(line)["model_answer"] == expected


def test_traces_hold_what_the_model_said(store: Store, data: Dataset) -> None:
    take(store, config(data), Backend())
    (first, *_) = rows(leaderboard(store, read_run(store, "r"), IDS, traces=True))
    assert first["reasoning_trace"].startswith('look 0\nbash({"command": "echo 0"})')


def test_the_flat_lines_have_the_documented_keys(store: Store, data: Dataset) -> None:
    def policy(sample: Any, request: Any) -> Any:
        if sample.task_id == "c" and isinstance(request, BashRequest):
            raise RuntimeError("a bug below the seam")
        return failing(sample, request) if sample.task_id == "b" else counting(sample, request)

    take(store, config(data), Backend(policy))
    found = rows(jsonl(store, read_run(store, "r")))
    assert all(list(row) == list(JSONL_KEYS) for row in found)
    assert [row["status"] for row in found] == ["ok", "error", "error"]
    assert [row["error"] for row in found] == [None, "model", "agent"]
    assert found[0]["answer"] == "a"
    assert found[0]["bash_calls"] == 3
    assert found[0]["input_tokens"] == 40
    documented = (Path(__file__).parent.parent / "docs" / "export.md").read_text()
    for key, meaning in JSONL_KEYS.items():
        assert f"| `{key}` | {meaning} |" in documented
