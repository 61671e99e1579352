"""The command line: output, exit statuses, errors for people."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from harness.cli import COMMANDS, cli
from harness.dataset import Dataset
from harness.progress import Plain
from harness.runfile import read_run
from harness.store import Store
from tests.scripted import Backend, config, dataset, take

ROWS = [("a", 1, "a"), ("b", 2, "x"), ("c", 3, "c")]
ROOT = Path(__file__).parent.parent


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a data set `data` and a store `st` that holds run `r`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HARNESS_STORE", str(tmp_path / "st"))
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    take(Store(tmp_path / "st"), config(data_in(tmp_path)), Backend())
    return tmp_path


def data_in(folder: Path) -> Dataset:
    return dataset(folder / "data", ROWS)


def run(*args: str) -> Result:
    return CliRunner().invoke(cli, args)


def test_a_replay_prints_the_table_and_exits_0(folder: Path) -> None:
    result = run("replay", "--dataset", "data")
    assert result.exit_code == 0
    assert "| Model    | Dataset  | Metric   | Subset" in result.stdout
    assert "identical: 3 of 3" in result.stdout
    assert "\r" not in result.output
    assert "\x1b" not in result.output


def test_json_is_one_object_per_run_and_nothing_else(folder: Path) -> None:
    take(Store(folder / "st"), config(data_in(folder), "s"), Backend())
    result = run("replay", "--json", "--dataset", "data")
    first, second = map(json.loads, result.stdout.splitlines())
    assert [first["run"], second["run"]] == ["r", "s"]
    assert first["metrics"] | {"stderr": None, "by_subset": None} == {
        "mean_acc": pytest.approx(2 / 3), "num": 3, "right": 2, "wrong": 1, "no_answer": 0,
        "context_exceeded": 0, "refused": 0, "error": 0, "missing": 0, "unscored": 0,
        "stderr": None, "by_subset": None,
    }  # fmt: skip
    sample = first["samples"][0]
    assert sample["identical"] is True
    assert sample["cassette"].startswith("sha256:")
    assert sample["trajectory"].startswith("sha256:")
    assert sample | {"cassette": "", "trajectory": ""} == {
        "task_id": "a", "epoch": 1, "level": 1, "status": "ok", "verdict": "right",
        "verdict_source": "scored", "answer": "a", "steps": 4, "cassette": "", "trajectory": "",
        "identical": True, "divergence": None, "drift": [], "replayable": True,
        "usage": {"input_tokens": 40, "output_tokens": 20},
    }  # fmt: skip


def test_verdicts_without_truths_are_taken_from_the_record_and_say_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARNESS_CACHE", str(folder / "empty"))
    result = run("replay", "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert {sample["verdict_source"] for sample in found["samples"]} == {"recorded"}
    assert any("taken from the record" in note for note in found["notes"])


def test_one_changed_word_is_marked_at_step_1(folder: Path) -> None:
    Path("one").write_text("{question}\n\nTake your time.\n{file}")
    Path("two").write_text("{question}\n\nTake your chance.\n{file}")
    store = Store(folder / "st")
    from harness.records import Settings

    loop = Settings(model="scripted", prompt_template=Path("one").read_text())
    take(store, config(data_in(folder), "t", loop=loop), Backend())
    result = run("replay", "t", "--dataset", "data", "--prompt-template", "two")
    assert result.exit_code == 1
    assert "diverges at step 1" in result.stderr
    assert "[-time-]{+chance+}" in result.stderr
    assert "3 samples diverge at step 1: prompt template" in result.stderr
    assert "identical: 0 of 3" in result.stdout


def test_a_loose_replay_is_marked_and_never_identical(folder: Path) -> None:
    Path("two").write_text("Now: {question}")
    args = ("replay", "r", "--dataset", "data", "--prompt-template", "two", "--json")
    result = run(*args, "--match-on", "model,tools,params")
    found = json.loads(result.stdout)
    assert "loose replay: matched on model, tools, params only" in found["notes"]
    assert [sample["identical"] for sample in found["samples"]] == [False] * 3
    assert [sample["divergence"] for sample in found["samples"]] == [None] * 3


def test_damage_names_file_and_sample(folder: Path) -> None:
    entry = read_run(Store(folder / "st"), "r").samples[0]
    assert entry.cassette is not None
    hexes = entry.cassette.removeprefix("sha256:")
    path = folder / "st" / "objects" / "sha256" / hexes[:2] / hexes[2:]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    for command in ("replay", "score", "verify"):
        result = run(command, "r")
        assert result.exit_code == 1, command
        assert "sample 'a'" in result.output
        assert path.name in result.output
    result = run("show", "r", "a")
    assert result.exit_code == 1
    assert "damaged" in result.stderr


@pytest.mark.parametrize(
    ("args", "status", "told"),
    [
        (["replay", "nope"], 2, "there is no run 'nope'"),
        (["replay", "../r"], 2, "cannot name a run"),
        (["replay", "r", "--task-id", "z"], 2, "has no sample 'z'"),
        (["replay", "--match-on", "everything"], 2, "--match-on"),
        (["replay", "r", "--agent", "no.such:agent"], 3, "cannot be imported"),
        (["replay", "r", "--agent", "agent"], 2, "MODULE:NAME"),
        (["replay", "r", "--scorer", "tests.bad_scorers:nope"], 3, "no callable"),
        (["replay", "r", "--on-divergence", "fork"], 2, "--as NAME"),
        (["replay", "--store", "nowhere"], 2, "no store"),
        (["score", "r", "--scorer", "a:b", "--against", "a:b"], 2, "not both"),
        (["show", "r", "zzz"], 2, "has no sample"),
        (["show", "r", "a", "--epoch", "2"], 2, "has no epoch 2 of sample"),
        (["rm", "nope"], 2, "there is no run"),
        (["record", "--run", "x", "--dataset", "mini", "--model", "m"], 3, "OPENAI_API_KEY"),
        (["record", "--run", "a/b", "--dataset", "mini", "--model", "m"], 2, "cannot name a run"),
        (
            ["record", "--run", "x", "--dataset", "nowhere", "--model", "m", "--api-url", "http://h"],
            2,
            "is no folder",
        ),
        (
            ["record", "--run", "x", "--dataset", "mini", "--model", "m", "--api-url", "http://h",
             "-g", "temprature=1"],
            2,
            "did you mean 'temperature'",
        ),
        (
            ["record", "--run", "x", "--dataset", "mini", "--model", "m", "--api-url", "http://h",
             "-g", "seed=1.5"],
            2,
            "must be int",
        ),
        (
            ["record", "--run", "x", "--dataset", "mini", "--model", "m", "--api-url", "http://h",
             "--max-output-chars", "999999"],
            2,
            "more than the sandbox keeps",
        ),
        (
            ["record", "--run", "x", "--dataset", "mini", "--model", "m", "--api-url", "http://h",
             "--subset", "2023_level4"],
            2,
            "the nearest is",
        ),
        (["replya"], 2, "did you mean 'replay'"),
        (["record"], 2, "--run"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_said_in_one_line(
    folder: Path, args: list[str], status: int, told: str
) -> None:
    result = run(*args)
    assert result.exit_code == status, result.output
    assert told in result.stderr
    assert "Traceback" not in result.output
    assert not Store(folder / "st").has_run("x")


def test_debug_shows_the_traceback(folder: Path) -> None:
    result = run("--debug", "replay", "nope")
    assert result.exit_code == 2
    assert "Traceback" in result.stderr
    assert "UsageError" in result.stderr


def test_score_counts_again_and_shows_flips(folder: Path) -> None:
    assert run("score", "r", "--dataset", "data").exit_code == 0
    Path("my_scorers.py").write_text("def lenient(answer, truth):\n    return True\n")
    result = run("score", "r", "--dataset", "data", "--against", "my_scorers:lenient", "--json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    (flip,) = found["flips"]
    assert flip == {
        "task_id": "b", "epoch": 1, "level": 2, "kind": "string", "old": "wrong", "new": "right",
    }  # fmt: skip
    assert found["metrics"]["right"] == 3
    assert found["before"] == {"right": 2, "wrong": 1}
    shown = run(
        "score", "r", "--dataset", "data", "--scorer", "my_scorers:lenient", "--show-truths"
    )
    assert "b epoch 1  level 2  string  wrong → right  answer 'b', truth 'x'" in shown.stdout
    plain = run("score", "r", "--dataset", "data", "--scorer", "my_scorers:lenient")
    assert "truth" not in plain.stdout.replace("truths", "")


def test_explanations_are_no_part_of_the_score(folder: Path) -> None:
    result = run("score", "r", "--dataset", "data", "--explain", "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert [entry["task_id"] for entry in found["explained"]] == ["b"]
    assert found["metrics"]["right"] == 2


def test_ls_and_show(folder: Path) -> None:
    listed = run("ls")
    assert listed.exit_code == 0
    assert "scripted" in listed.stdout
    assert json.loads(run("ls", "--json").stdout)["samples"] == 3
    shown = run("show", "r")
    assert "right" in shown.stdout
    transcript = run("show", "r", "a")
    assert "What is the name of task a?" in transcript.stdout
    assert "$ echo 0" in transcript.stdout
    assert "answer a" in transcript.stdout
    raw = run("show", "r", "a", "--raw")
    assert all(json.loads(line) for line in raw.stdout.splitlines())
    assert json.loads(run("show", "r", "--json").stdout)["run"] == "r"


def test_nothing_on_a_tape_steers_the_terminal(folder: Path, tmp_path: Path) -> None:
    from harness.records import BashReply, BashRequest
    from tests.scripted import call, counting, says

    nasty = "\x1b]0;owned\x07\x1b[2J\r\u202e\x9b31m"

    def policy(sample: Any, request: Any) -> Any:
        if isinstance(request, BashRequest):
            return BashReply(nasty.encode(), nasty.encode())
        if len(request.messages) > 4:
            return says(nasty, call("submit", answer=nasty), reasoning=nasty)
        return counting(sample, request)

    take(Store(folder / "st"), config(data_in(folder), "n"), Backend(policy))
    for args in (["show", "n", "a"], ["show", "n"], ["replay", "n"], ["ls"]):
        result = run(*args)
        for char in "\x1b\x07\r\u202e\x9b":
            assert char not in result.output, args


def test_verify_finds_what_is_unused(folder: Path) -> None:
    assert run("verify").exit_code == 0
    store = Store(folder / "st")
    store.put(b"nobody's")
    result = run("verify")
    assert result.exit_code == 0
    assert "used by no run" in result.stdout


def test_rm_removes_a_run(folder: Path) -> None:
    assert run("rm", "r").exit_code == 0
    assert Store(folder / "st").runs() == []
    assert run("replay").exit_code == 2


def test_a_plan_makes_nothing(folder: Path) -> None:
    args = ["record", "--run", "p", "--dataset", "mini", "--model", "m", "--api-url", "http://h"]
    result = run(*args, "--plan", "--limit", "3")
    assert result.exit_code == 0
    assert "to do: 3 samples, at most 150 model turns" in result.stdout
    assert not Store(folder / "st").has_run("p")


def test_the_store_can_be_moved(folder: Path, tmp_path: Path) -> None:
    before = json.loads(run("replay", "--json", "--dataset", "data").stdout)
    (folder / "st").rename(folder / "elsewhere")
    os.makedirs("deep/er")
    os.chdir("deep/er")
    result = run("replay", "--store", "../../elsewhere", "--json", "--dataset", "../../data")
    assert json.loads(result.stdout) == before


def test_every_command_has_help_and_is_documented() -> None:
    texts = [path.read_text() for path in [ROOT / "README.md", *ROOT.glob("docs/*.md")]]
    for name in COMMANDS:
        assert run(name, "--help").exit_code == 0
        assert any(f"harness {name}" in text for text in texts), name


def test_the_module_runs_and_a_closed_pipe_is_no_traceback(folder: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "harness"]
    done = subprocess.run([*command, "--version"], capture_output=True, text=True, env=environment)
    assert done.stdout.startswith("harness 0.")
    done = subprocess.run(
        ["bash", "-c", f"'{sys.executable}' -m harness show r a --raw | head -c 1 >/dev/null"],
        capture_output=True, text=True, env=environment,
    )  # fmt: skip
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux only")
@pytest.mark.parametrize(
    ("streams", "status"),
    [
        (">/dev/full", 3),
        (">&-", 0),
        ("2>/dev/full >/dev/null", 0),
        ("2>&-", 0),
        ("<&- >&- 2>&-", 0),
    ],
)
def test_streams_that_cannot_be_written(folder: Path, streams: str, status: int) -> None:
    """A result that is lost is an error; what is told on the way is not."""
    command = f"exec {sys.executable} -m harness replay r --dataset data {streams}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    if status:
        assert "error: the output cannot be written: No space left on device" in done.stderr
    if streams == "2>&-":
        assert "samples in" not in done.stdout  # progress does not take its place


def test_no_file_takes_the_place_of_a_closed_stream() -> None:
    """What is written to stderr past Python, by a signal's handler, would go into a journal."""
    code = (
        "import os, sys; from harness.__main__ import main; sys.argv[1:] = ['--version']; main();"
        "sys.exit(os.open(os.devnull, os.O_RDONLY))"
    )
    done = subprocess.run(
        ["sh", "-c", f'exec {sys.executable} -c "{code}" <&- >&- 2>&-'],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.returncode == 3


def test_a_recording_outlives_those_who_watch_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stderr is a pipe that nobody reads any more: the run is recorded to its end all the same."""
    reads, writes = os.pipe()
    os.close(reads)
    with os.fdopen(writes, "w") as watched:
        monkeypatch.setattr(sys, "stderr", watched)
        again = config(data_in(folder), run="s")
        done = take(Store("st"), again, Backend(), progress=Plain())
    assert done.report.metrics["missing"] == 0


def test_a_sealed_key_scores_where_the_truths_are_not(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.sealing.COST", 2)
    assert run("seal-truths", "r", "--dataset", "data").exit_code == 0
    monkeypatch.setenv("HARNESS_CACHE", str(folder / "empty"))
    (folder / "data").rename(folder / "gone")
    for command in ("replay", "score"):
        result = run(command, "r", "--json")
        assert result.exit_code == 0, result.output
        found = json.loads(result.stdout)
        assert {sample["verdict_source"] for sample in found["samples"]} == {"sealed"}
        assert [sample["verdict"] for sample in found["samples"]] == ["right", "wrong", "right"]
    assert run("verify").exit_code == 0
    assert run("gc").stdout.startswith("0 objects")
    assert run("bundle", "r", "-o", "b").exit_code == 0
    assert run("unbundle", "b", "--store", "other").exit_code == 0
    found = json.loads(run("score", "r", "--json", "--store", "other").stdout)
    assert {sample["verdict_source"] for sample in found["samples"]} == {"sealed"}
    result = run("seal-truths", "r")
    assert result.exit_code == 3
    assert "--dataset" in result.stderr
