"""inspect itself reads, scores and shows the logs that are exported. HARNESS_INSPECT names a Python
that has it (`scripts/inspect-python` prints one)."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.live.conftest import ROOT, unavailable
from tests.live.line import harness

READ = """
import json, sys
from inspect_ai.log import read_eval_log, read_eval_log_sample_summaries
log = read_eval_log(sys.argv[1], resolve_attachments=True)
print(json.dumps({
    "status": log.status,
    "summaries": len(read_eval_log_sample_summaries(sys.argv[1])),
    "model": log.eval.model,
    "samples": [
        [s.id, s.epoch, s.target, s.output.completion, [m.role for m in s.messages],
         sum(len(m.tool_calls or ()) for m in s.messages if m.role == "assistant"),
         {name: score.value for name, score in (s.scores or {}).items()}]
        for s in log.samples
    ],
}))
"""
FIGURES = """
import json, sys
from inspect_ai.log import read_eval_log
print(json.dumps({
    score.name: {name: metric.value for name, metric in score.metrics.items()}
    for score in read_eval_log(sys.argv[1], header_only=True).results.scores
}))
"""


@pytest.fixture(scope="module")
def inspect_python() -> str:
    found = os.environ.get("HARNESS_INSPECT")
    if not found:
        unavailable("HARNESS_INSPECT is not set; scripts/inspect-python prints it")
    return found


def asked(python: str, *args: str) -> str:
    done = subprocess.run([python, *args], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_inspect_reads_and_scores_an_exported_log(tmp_path: Path, inspect_python: str) -> None:
    log, store = tmp_path / "demo.eval", str(ROOT / "cassettes")
    exported = harness("export", "demo", "--store", store, "--format", "inspect", "-o", str(log),
                       "--dataset", "mini")  # fmt: skip
    assert exported.returncode == 0, exported.stderr
    ours = json.loads(harness("replay", "demo", "--store", store, "--json").stdout)
    found = json.loads(asked(inspect_python, "-c", READ, str(log)))
    assert found["status"] == "success"
    assert found["summaries"] == len(found["samples"]) == 26
    assert "scripted-policy" in found["model"]
    recorded = {s["task_id"]: s for s in ours["samples"]}
    for task, epoch, target, answer, roles, calls, scores in found["samples"]:
        assert epoch == 1
        assert target
        assert roles[:2] == ["system", "user"]
        assert calls >= roles.count("tool")
        assert scores == {"gaia": "C" if recorded[task]["verdict"] == "right" else "I"}
        if recorded[task]["answer"] is not None:
            assert answer == recorded[task]["answer"]

    scored = tmp_path / "scored.eval"
    inspect = str(Path(inspect_python).parent / "inspect")
    done = subprocess.run(
        [
            inspect, "score", str(log), "--scorer", "exact", "--action", "append",
            "--output-file", str(scored),
        ],
        capture_output=True, text=True, check=False,
        env={**os.environ, "NO_COLOR": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    figures = json.loads(asked(inspect_python, "-c", FIGURES, str(scored)))
    assert 0 < figures["exact"]["mean"] <= 1
    assert figures["gaia"]["accuracy"] == pytest.approx(ours["metrics"]["mean_acc"])


def test_a_log_that_inspect_wrote_comes_back(tmp_path: Path, inspect_python: str) -> None:
    """What inspect itself writes of our export, in its own layout, imports to the same verdicts."""
    log, again = tmp_path / "demo.eval", tmp_path / "again.json"
    store, new = str(ROOT / "cassettes"), str(tmp_path / "st")
    harness("export", "demo", "--store", store, "--format", "inspect", "-o", str(log),
            "--dataset", "mini")  # fmt: skip
    rewritten = (
        "import sys; from inspect_ai.log import read_eval_log, write_eval_log; "
        "write_eval_log(read_eval_log(sys.argv[1]), sys.argv[2])"
    )
    for target in (again, tmp_path / "again.eval"):
        asked(inspect_python, "-c", rewritten, str(log), str(target))
        run = target.suffix[1:]
        done = harness("import", "--from", "inspect", str(target), "--run", run, "--store", new,
                       "--dataset", "mini", "--json")  # fmt: skip
        assert done.returncode == 0, done.stderr
        theirs = {s["task_id"]: s["verdict"] for s in json.loads(done.stdout)["samples"]}
        ours = json.loads(harness("replay", "demo", "--store", store, "--json").stdout)
        assert theirs == {s["task_id"]: s["verdict"] for s in ours["samples"]}
