"""Runs, resumption and reports as a user meets them: through the commands, scripted at the seam."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from harness.errors import ModelError
from harness.progress import Plain, progress_for
from harness.records import ModelRequest, Reply, Request, Sample
from harness.report import verdict_for
from harness.runfile import read_run
from harness.scorer import question_scorer
from harness.store import Store
from tests.commands import NOWHERE, Commands, recording
from tests.scripted import Backend, call, counting, dataset, says
from tests.test_disk import Killed, trajectories
from tests.test_files import everything

ROOT = Path(__file__).parent.parent
TEN = [(f"t{n}", 1 + n % 3, f"t{n}" if n < 4 else "another") for n in range(10)]


def folder(path: Path, rows: list[tuple[str, int, str]]) -> None:
    dataset(path / "data", rows)


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    """A folder with a data set of ten samples: the first four truths are what will be answered."""
    folder(tmp_path, TEN)
    return Commands(tmp_path, monkeypatch)


def report(result: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def verdicts(result: Any) -> dict[str, str]:
    return {sample["task_id"]: sample["verdict"] for sample in report(result)["samples"]}


def killed_at(task: str, otherwise: Any = counting) -> Backend:
    """The process ends when that sample begins."""

    def policy(sample: Sample, request: Request) -> Reply:
        return Killed() if sample.task_id == task else otherwise(sample, request)

    return Backend(policy)


def failing(*tasks: str) -> Any:
    """The endpoint gives up on these samples at their third turn."""

    def policy(sample: Sample, request: Request) -> Reply:
        late = isinstance(request, ModelRequest) and len(request.messages) > 5
        fails = late and sample.task_id in tasks
        return ModelError("no reply after 5 attempts") if fails else counting(sample, request)

    return policy


# ------------------------------------------------------------------------------------ the figures


def test_errors_and_missing_samples_stay_in_the_denominator(cli: Commands) -> None:
    """F01: 4 right, 4 wrong, 1 error, 1 missing are 4 of 10, wherever the figure stands."""
    with pytest.raises(Killed):
        cli.record(backend=killed_at("t9", failing("t8")))
    for args in (("replay", "r", "--json"), ("score", "r", "--json"), ("show", "r", "--json")):
        metrics = report(cli(*args))["metrics"]
        counts = [metrics[name] for name in ("right", "wrong", "error", "missing")]
        assert (counts, metrics["num"]) == ([4, 4, 1, 1], 10), args
        assert metrics["mean_acc"] == 0.4
    for command in ("replay", "score", "show"):
        shown = cli(command, "r").stdout
        assert "4 right, 4 wrong" in shown
        assert "1 error, 1 missing" in shown
        assert "8 of 10 completed" in shown
        (overall,) = [line for line in shown.splitlines() if "| overall" in line]
        assert "0.4" in overall
    assert report(cli("ls", "--json"))["mean_acc"] == 0.4


def test_no_level_is_above_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F02: level 1 with 3 right and 1 wrong is 0.75; the others are in [0, 1] too."""
    folder(tmp_path, [("a", 1, "a"), ("b", 1, "b"), ("c", 1, "c"), ("d", 1, "x"), ("e", 2, "e")])
    cli = Commands(tmp_path, monkeypatch)
    found = report(cli.record("--json"))["metrics"]["by_subset"]
    assert found["2023_level1"] == {"mean_acc": 0.75, "num": 4}
    assert all(0 <= part["mean_acc"] <= 1 for part in found.values())
    assert " 0.75 |" in cli("show", "r").stdout


def test_the_mean_and_pass_at_k_are_named_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F09: epochs T F F give a mean of 0.333 and a pass@3 of 1.0; an export takes a stated one."""
    folder(tmp_path, [("a", 1, "1")])

    def policy(sample: Sample, request: Request) -> Reply:
        return says(None, call("submit", answer=str(sample.epoch)))

    cli = Commands(tmp_path, monkeypatch)
    result = cli.record("--epochs", "3", "--json", backend=Backend(policy))
    metrics = report(result)["metrics"]
    assert metrics["mean_acc"] == pytest.approx(1 / 3)
    assert metrics["pass@3"] == 1.0
    assert "mean of 3 epochs 0.3333, pass@2 0.6667, pass@3 1.0" in cli("show", "r").stdout
    for epoch in "123":
        rows = cli("export", "r", "--format", "leaderboard", "-o", "-", "--epoch", epoch).stdout
        assert json.loads(rows)["model_answer"] == epoch


def test_the_scorer_is_called_once_for_each_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A14: three samples, three calls: while recording, scoring again and replaying."""
    folder(tmp_path, [("a", 1, "a"), ("b", 2, "x"), ("c", 3, "c")])
    cli = Commands(tmp_path, monkeypatch)
    scored: list[object] = []

    def counted(*args: Any) -> Any:
        scored.append(args)
        return verdict_for(*args)

    monkeypatch.setattr("harness.recording.verdict_for", counted)
    cli.record("--epochs", "1")
    assert len(scored) == 3
    cli.record()  # a finished run is not scored again
    assert len(scored) == 3
    for args in (("score", "r"), ("replay", "r")):
        calls.clear()
        cli(*args, "--scorer", "tests.test_runs:counts_its_calls", "--dataset", "data")
        assert len(calls) == 3, args


calls: list[tuple[str | None, str]] = []


def counts_its_calls(answer: str | None, truth: str) -> bool:
    """The official rules; each call leaves a trace."""
    calls.append((answer, truth))
    return question_scorer(answer, truth)


# -------------------------------------------------------------------------------------- going on


def test_a_sample_is_what_its_id_and_epoch_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F04: two samples with one question are two; an errored one is done, and is done again only
    when that is asked for."""
    folder(tmp_path, [("a", 1, "a"), ("b", 2, "x"), ("c", 3, "c")])
    path = tmp_path / "data" / "2023" / "validation" / "metadata.jsonl"
    rows = [json.loads(line) | {"Question": "The same?"} for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    cli = Commands(tmp_path, monkeypatch)
    first = cli.record("--json", status=4, backend=Backend(failing("b")))
    assert verdicts(first) == {"a": "right", "b": "error", "c": "right"}
    again = Backend()
    assert verdicts(cli.record("--json", status=4, backend=again))["b"] == "error"
    assert again.asked == []
    told = cli.record("--retry-errors", "--plan").stdout
    assert "to do: 1 samples" in told
    assert verdicts(cli.record("--retry-errors", "--json", backend=again))["b"] == "wrong"
    assert {task for task, _ in again.asked} == {"b"}
    # and once more: nothing is left to do
    cli.record("--retry-errors", backend=again)
    assert again.models() == 2


def test_the_report_of_a_resumed_run_covers_all_of_it(cli: Commands) -> None:
    """F06, F03: stopped at 7 of 10, resumed: the figures are over 10, and the 7 are not redone."""
    with pytest.raises(Killed):
        cli.record(backend=killed_at("t7"))
    assert report(cli("replay", "--json"))["metrics"]["missing"] == 3
    backend = Backend()
    metrics = report(cli.record("--json", backend=backend))["metrics"]
    assert (metrics["num"], metrics["missing"], metrics["mean_acc"]) == (10, 0, 0.4)
    assert {task for task, _ in backend.asked} == {"t7", "t8", "t9"}
    assert len(report(cli("score", "--json"))["samples"]) == 10


@pytest.mark.parametrize(
    "signals",
    [[signal.SIGINT], [signal.SIGTERM], [signal.SIGHUP], [signal.SIGHUP, signal.SIGHUP]],
)
def test_an_interruption_is_told_and_keeps_what_is_finished(
    cli: Commands, capfd: pytest.CaptureFixture[str], signals: list[int]
) -> None:
    """F07: SIGINT at 3 of 10: a message at once, exit 130, a report marked cancelled; the 3 are
    kept and the rest is done by the same command. (Twice: `tests/live/test_line.py`.)

    A terminal that is closed tells it twice, as its kernel and its shell both do."""

    def interrupted(sample: Sample, request: Request) -> Reply:
        if sample.task_id == "t3" and isinstance(request, ModelRequest):
            for number in signals:
                os.kill(os.getpid(), number)
                time.sleep(0.1)  # one that is pending already is not counted
        return counting(sample, request)

    result = cli.record("--json", status=130, backend=Backend(interrupted))
    assert "interrupted: waiting for replies in flight" in capfd.readouterr().err
    found = report(result)
    assert found["notes"][0].startswith("cancelled")
    assert found["metrics"]["missing"] == 7
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
    backend = Backend()
    assert report(cli.record("--json", backend=backend))["metrics"]["missing"] == 0
    assert {task for task, _ in backend.asked} == {f"t{n}" for n in range(3, 10)}
    assert cli.store.journals("r") == []
    assert cli("verify").exit_code == 0


def test_nohup_is_heeded(cli: Commands) -> None:
    def hung_up(sample: Sample, request: Request) -> Reply:
        os.kill(os.getpid(), signal.SIGHUP)
        return counting(sample, request)

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert report(cli.record("--json", backend=Backend(hung_up)))["metrics"]["missing"] == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_scored_sample_is_never_drawn_again(cli: Commands) -> None:
    """F08: wrong on the first attempt and right on a second is wrong; only what the endpoint or
    the sandbox broke is retried, and what that took is shown."""

    class Flaky(Backend):
        """The endpoint answered at the third attempt."""

        def world(self, sample: Sample, attachment: Path | None) -> Any:
            world = super().world(sample, attachment)
            tries = [{"status": 429, "waited": 2.0}, {"error": "APIConnectionError", "waited": 4.0}]
            meta = {"attempts": [*tries, {"status": 200, "waited": 0.0}]}
            world.take_meta = lambda: meta  # type: ignore[method-assign]
            return world

    def lucky(sample: Sample, request: Request) -> Reply:
        return says(None, call("submit", answer="another"))

    args = ("--task-id", "t9", "--task-id", "t0")
    assert verdicts(cli.record("--json", *args, backend=Flaky())) == {"t0": "right", "t9": "wrong"}
    again = Backend(lucky)
    for more in ((), ("--retry-errors",), ("--ignore-errors",)):
        assert verdicts(cli.record("--json", *args, *more, backend=again))["t9"] == "wrong"
    assert again.asked == []
    shown = cli("show", "r", "t9").stdout
    assert "[step 1] model (3 attempts: 429, APIConnectionError, 200)" in shown
    assert "4 model turns, 3 commands, 0 tool calls, 40 + 20 tokens" in shown
    # the other one is a run of its own: more epochs are more draws, and each counts
    metrics = report(cli.record("--json", *args, "--epochs", "2", backend=again))["metrics"]
    assert (metrics["num"], metrics["mean_acc"]) == (4, 0.5)


# -------------------------------------------------------------------------------- what is printed


def test_no_bar_where_nobody_watches(cli: Commands) -> None:
    """F10: stderr is no terminal here: plain lines, no carriage return, no colour; the results
    alone on stdout."""
    result = cli.record("--json", "--eval-batch-size", "4")
    assert "\r" not in result.stderr
    assert "\x1b" not in result.stderr
    lines = result.stderr.splitlines()
    assert sum(line.startswith("[") for line in lines) == 10
    assert len(lines) < 15
    assert len(result.stdout.splitlines()) == 1
    assert "[10/10]" in lines[-1]


@pytest.mark.parametrize("variable", ["CI", "NO_COLOR"])
def test_no_bar_in_ci_even_in_a_terminal(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    """F10: `CI` or `NO_COLOR` decide where stderr is a terminal."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert type(progress_for()) is not Plain
    monkeypatch.setenv(variable, "1")
    assert type(progress_for()) is Plain


QUESTION = "What is the name of task"


def test_what_may_be_shared_holds_no_question_and_no_truth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B08: tables, lists, scores and exports hold ids, verdicts and cost; the truth shows only
    with a flag that says so, the question only in the transcript; the bundle, which cannot do
    without, is called what it is; git ignores a store unless its owner adds it."""
    truths = ["the truth 7f3a", "another truth 55aa"]
    folder(tmp_path, [("a", 1, truths[0]), ("b", 2, truths[1])])

    def right(sample: Sample, request: Request) -> Reply:
        return says(None, call("submit", answer=truths[0]))

    cli = Commands(tmp_path, monkeypatch)
    outputs = [cli.record(backend=Backend(right)).output]
    for args in (
        ("replay",), ("score",), ("score", "--explain"), ("show", "r"), ("ls",), ("ls", "--json"),
        ("show", "r", "--raw"), ("diff", "r", "r"), ("diff", "r", "r", "--json"), ("verify",),
    ):  # fmt: skip
        outputs.append(cli(*args, *(("--dataset", "data") if args[0] == "score" else ())).output)
    for output in outputs:
        for text in (*truths, QUESTION):
            assert text not in output
    shown = cli("score", "--explain", "--show-truths", "--dataset", "data").output
    assert truths[1] in shown
    assert QUESTION not in shown
    # machine output holds the answers given, as the interface says; never a question or a truth
    for args in (("replay", "--json"), ("score", "--json")):
        output = cli(*args).output
        assert truths[0] in output
        assert truths[1] not in output
        assert QUESTION not in output
    for name, data in everything(tmp_path / "st").items():
        assert truths[1].encode() not in data, name
    assert "do not publish it" in cli("bundle", "r", "-o", "r.bundle").stdout
    assert (tmp_path / "st" / ".gitignore").read_text() == "*\n"


def test_a_selection_is_told_with_its_list(cli: Commands) -> None:
    """B10: how many of how many, by which options, and the list's digest, wherever the figure is;
    two runs over different lists are marked when they are compared."""
    cli.record("--subset", "2023_level1", "--limit", "3", "--shuffle-seed", "7")
    cli.record(run="all")
    digest = read_run(cli.store, "r").selection.digest[:19]
    note = (
        "3 of 10 samples of validation selected by --subset 2023_level1 --limit 3 "
        f"--shuffle-seed 7; list {digest}"
    )
    for args in (("replay", "r"), ("score", "r"), ("show", "r")):
        assert note in cli(*args).stdout
        assert note in report(cli(*args, "--json"))["notes"]
    assert "10 of 10 samples of validation selected; list sha256:" in cli("show", "all").stdout
    assert read_run(cli.store, "all").selection.digest[:19] != digest
    compared = cli("diff", "r", "all").stdout
    assert "NOTE: the lists differ: 7 recorded only in all" in compared
    found = report(cli("diff", "r", "all", "--json"))
    assert (len(found["only_a"]), len(found["only_b"])) == (0, 7)


def test_a_limit_with_a_seed_is_the_same_subset_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F12: `--limit 5 --shuffle-seed N` twice, and over rows in another order: the same five."""
    folder(tmp_path, TEN)
    cli = Commands(tmp_path, monkeypatch)
    chosen = ("--limit", "5", "--shuffle-seed", "11", "--json")
    first = verdicts(cli.record(*chosen, run="one"))
    assert len(first) == 5
    assert verdicts(cli.record(*chosen, run="two")) == first
    path = tmp_path / "data" / "2023" / "validation" / "metadata.jsonl"
    path.write_text("".join(reversed(path.read_text().splitlines(keepends=True))))
    assert verdicts(cli.record(*chosen, run="three")) == first
    digests = {read_run(cli.store, run).selection.digest for run in ("one", "two", "three")}
    assert len(digests) == 1
    other = cli.record("--limit", "5", "--shuffle-seed", "12", "--json", run="four")
    assert verdicts(other) != first


# ------------------------------------------------------------------------------- record and replay

WATCHED = """
import sys
FORBIDDEN = ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.system",
             "pty.spawn", "socket.connect", "socket.getaddrinfo", "socket.gethostbyname")
def hook(event, args):
    if event in FORBIDDEN:
        open("EVENTS", "a").write(f"{event} {args!r}\\n")
        raise PermissionError(event)
sys.addaudithook(hook)
from harness.cli import cli
cli()
"""


def proving(sample: Sample, request: Request) -> Reply:
    """The model has files made; in the sandbox, that is, and not where the recording runs."""
    if isinstance(request, ModelRequest) and len(request.messages) < 3:
        command = "touch PROOF /tmp/PROOF-of-replay; bash -c 'touch PROOF2' & "
        return says(None, call("bash", command=command), call("fetch", id="c2", url="x"))
    return counting(sample, request)


def test_a_replay_does_nothing(cli: Commands) -> None:
    """E03: no command is run again, no tool server started, no process, no connection: watched by
    the interpreter itself."""
    from harness.records import ToolReply, ToolRequest

    schema = {
        "type": "function",
        "function": {"name": "fetch", "description": "", "parameters": {"type": "object"}},
    }

    def policy(sample: Sample, request: Request) -> Reply:
        return ToolReply("ok") if isinstance(request, ToolRequest) else proving(sample, request)

    Path("mcp.json").write_text(
        json.dumps({"mcpServers": {"web": {"command": "touch", "args": ["PROOF3"]}}})
    )
    backend = Backend(policy)
    backend.tools = [{"name": "fetch", "server": "web", "schema": schema}]
    cli.record("--mcp", "mcp.json", backend=backend)
    assert ("t0", "tool") in backend.asked
    for args in (("replay", "--json"), ("score",), ("show", "r", "t0"), ("verify",)):
        done = subprocess.run(
            [sys.executable, "-c", WATCHED, *args, "--store", "st"],
            capture_output=True, text=True, check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        if "--json" in args:
            assert all(sample["identical"] for sample in json.loads(done.stdout)["samples"])
    left = {path.name for path in cli.folder.iterdir()}
    assert left == {"data", "st", "mcp.json"}
    assert not Path("/tmp/PROOF-of-replay").exists()


def test_replay_is_what_happens_unless_record_is_said(
    cli: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E18: a key is set and nothing is recorded: no command but `record` goes live; and `record`
    over a recorded run asks nothing and replaces nothing unless told to."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-0123456789abcdef")
    cli.record("--task-id", "t0")
    backend = Backend()
    cli.backend = backend
    for args in (("replay", "none"), ("score", "none"), ("replay", "r", "--task-id", "t1")):
        cli(*args, status=2)
    Path("two").write_text("{question} Now.")
    cli("replay", "r", "--prompt-template", "two", status=1)  # leaves its tape: still nothing live
    before = everything(cli.folder / "st")
    cli.record("--task-id", "t0", backend=backend)
    assert "other settings" in cli.record("--max-steps", "7", status=2, backend=backend).stderr
    assert everything(cli.folder / "st") == before
    assert backend.asked == []
    cli.record("--task-id", "t0", "--overwrite", backend=backend)
    assert backend.models() == 4


def test_a_recording_knows_no_path_of_its_machine(cli: Commands, tmp_path: Path) -> None:
    """E15: recorded here, moved, replayed from another folder by another user: identical, and no
    path, home or name of a user in any file."""
    cli.record("--task-id", "t0")
    before = trajectories(cli("replay", "--json"))
    private = [str(tmp_path).encode(), str(Path.home()).encode() + b"/", b"/tmp/"]
    cli("bundle", "r", "-o", "r.bundle")
    for name, data in everything(tmp_path / "st").items():
        for text in private:
            assert text not in data, (name, text)
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "home").mkdir(parents=True)
    (tmp_path / "st").rename(elsewhere / "store")
    done = subprocess.run(
        [sys.executable, "-m", "harness", "replay", "--store", "../store", "--json"],
        cwd=elsewhere / "home", capture_output=True, text=True, check=False,
        env={"PATH": os.environ["PATH"], "HOME": str(elsewhere / "home"), "USER": "somebody",
             "LANG": "C", "TZ": "Asia/Kathmandu", "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert trajectories(done) == before


@pytest.mark.parametrize(
    ("place", "told"),
    [("layout", "store of version 2"), ("run", "of version 2"), ("cassette", "version 2")],
)
def test_another_version_is_refused_by_name_and_left_as_it_is(
    cli: Commands, place: str, told: str
) -> None:
    """E12: a newer program's file: every command says which version it is and which it reads, and
    none drops, mends or rewrites it. (The committed fixtures of version 1 are replayed in CI.)"""
    cli.record("--task-id", "t0")
    files = cli.store.files
    run = json.loads(files.read("runs/r.json"))
    if place == "layout":
        layout = files.read("layout.json")
        files.write("layout.json", layout.replace(b'"version": 1', b'"version": 2'))
    elif place == "run":
        files.write("runs/r.json", json.dumps({**run, "version": 2}).encode())
    else:
        cassette = cli.store.get(run["samples"][0]["cassette"])
        name = cli.store.put(cassette.replace(b'"version":1', b'"version":2', 1))
        from harness.runfile import write_run

        found = read_run(cli.store, "r")
        found.samples[0].cassette = name
        write_run(cli.store, found)
    before = everything(cli.folder / "st")
    for args in (("replay",), ("score",), ("verify",), ("show", "r", "t0"), ("gc",)):
        result = cli(*args, status=None)
        assert result.exit_code in (1, 2), args
        assert told in result.output, (args, result.output)
        assert everything(cli.folder / "st") == before, args


@pytest.mark.parametrize("command", ["replay", "score"])
def test_a_run_that_cannot_be_read_stops_no_other(cli: Commands, command: str) -> None:
    """Each is told once, the others are done; a finding counts before what cannot be used."""
    for run in ("a", "b", "c"):
        cli.record("--task-id", "t0", run=run)
    files = cli.store.files
    newer = json.dumps({**json.loads(files.read("runs/a.json")), "version": 2}).encode()
    files.write("runs/a.json", newer)
    found = cli(command, status=2)
    assert "run file of 'a' is of version 2" in found.output
    assert "\nb\n" in found.output
    assert "\nc\n" in found.output
    files.write("runs/b.json", files.read("runs/b.json").replace(b"t0", b"t1"))
    found = cli(command, status=1)
    assert "run file of 'a' is of version 2" in found.output
    assert "run file of 'b' is damaged" in found.output
    assert "\nc\n" in found.output


def test_the_next_command_takes_over_what_the_replay_was_told(cli: Commands) -> None:
    cli.record("--task-id", "t0")
    (cli.folder / "a template").write_text("{question} Be quick. {file}")
    told = ("--prompt-template", "a template", "--no-network")
    found = json.loads(cli("replay", "r", "--json", "--jobs", "1", *told, status=1).stdout)
    command = found["samples"][0]["divergence"]["command"]
    assert "replay r --task-id t0 " in command
    assert command.endswith(
        " --prompt-template 'a template' --no-network --on-divergence fork --as r-fork"
    )
    assert "--jobs" not in command
    planned = cli(*shlex.split(command)[1:], "--plan")
    assert "diverges at step 1: prompt template" in planned.output


@pytest.mark.parametrize("args", [("score", "--against"), ("score", "--scorer"),
                                  ("replay", "--scorer")])  # fmt: skip
def test_a_scorer_without_truths_is_no_scorer(cli: Commands, args: tuple[str, ...]) -> None:
    """It was never asked, so nothing is said of what it would change."""
    cli.record("--task-id", "t0")
    told = cli(args[0], "r", args[1], "tests.bad_scorers:casefold", status=3)
    assert "the truths of run 'r' are not here" in told.output
    assert "--dataset DIR" in told.output
    assert "flip" not in told.output
    cli(args[0], "r", args[1], "tests.bad_scorers:casefold", "--dataset", "data")
    assert "cannot be explained" not in cli("score", "r").output
    assert "nothing can be explained" in cli("score", "r", "--explain").output


def test_a_plan_to_overwrite_is_not_free(cli: Commands) -> None:
    cli.record("--limit", "3")
    planned = cli(*recording("r", "--limit", "3", "--plan"))
    assert "to do: 0 samples" in planned.output
    planned = cli(*recording("r", "--limit", "3", "--overwrite", "--plan"))
    assert "to do: 3 samples" in planned.output
    assert "run r: 3 samples" in planned.output


def test_a_plan_needs_no_key(cli: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    args = ("record", "--run", "r", "--dataset", "data", "--model", "m")
    assert "to do: 10 samples" in cli(*args, "--plan").output
    assert "no API key" in cli(*args, status=3).output


def test_what_is_said_after_errors_and_of_narrower_options(cli: Commands) -> None:
    failed = cli.record("--limit", "3", backend=Backend(failing("t0", "t1")), status=4)
    assert "2 samples ended in error; the same command with --retry-errors" in failed.output
    again = cli.record("--limit", "2", status=4)
    assert "has 3 samples x epochs; these options select 2 of them" in again.output
    assert "--retry-errors" in again.output
    assert "[2/3]" in cli.record("--limit", "3", "--retry-errors").output


def test_marks_stand_in_the_list_of_runs(cli: Commands) -> None:
    cli.record("--task-id", "t0")
    assert "NOTE" not in cli("ls").output
    (cli.folder / "template").write_text("{question} Be quick. {file}")
    cli("replay", "r", "--match-on", "model,tools,params", "--prompt-template", "template",
        "--as", "loose")  # fmt: skip
    lines = {line.split()[0]: line for line in cli("ls").stdout.splitlines()}
    assert "loose replay" in lines["loose"]
    assert "loose replay" not in lines["r"]


def test_a_fork_keeps_the_batch_size(cli: Commands) -> None:
    cli.record("--task-id", "t0", "--eval-batch-size", "3")
    fork = ("replay", "r", "--max-steps", "1", "--on-divergence", "fork", "--api-url", NOWHERE)
    cli.backend = Backend()
    cli(*fork, "--as", "f", "--dataset", "data")
    assert read_run(cli.store, "f").settings.transport["eval_batch_size"] == 3
    cli(*fork, "--as", "g", "--dataset", "data", "--eval-batch-size", "2")
    assert read_run(cli.store, "g").settings.transport["eval_batch_size"] == 2


def test_a_task_id_may_be_shortened(cli: Commands) -> None:
    cli.record("--limit", "3")
    found = report(cli("replay", "r", "--task-id", "t0", "--json"))
    assert [sample["task_id"] for sample in found["samples"]] == ["t0"]
    told = cli("replay", "r", "--task-id", "t", status=2).output
    assert "3 samples that begin with 't': t0, t1, t2" in told
    assert "3 samples that begin with 't'" in cli("show", "r", "t", status=2).output


def test_one_sample_as_json(cli: Commands) -> None:
    cli.record("--task-id", "t0")
    shown = json.loads(cli("show", "r", "t0", "--json").stdout)
    assert shown == json.loads(cli("export", "r", "--format", "jsonl", "-o", "-").stdout)
    assert shown["task_id"] == "t0"


def test_reading_changes_no_file(cli: Commands) -> None:
    """E12: loading never normalises, upgrades or touches: not a byte, not a time stamp."""
    cli.record("--task-id", "t0")

    def state() -> dict[str, Any]:
        root = cli.folder / "st"
        return {str(p): (p.stat().st_mtime_ns, p.stat().st_ino) for p in root.rglob("*")}

    before = state()
    for args in (
        ("ls",), ("show", "r"), ("show", "r", "t0"), ("replay",), ("score",), ("verify",),
        ("diff", "r", "r"), ("gc", "--dry-run"), ("bundle", "r", "-o", "b"),
        ("export", "r", "--format", "jsonl", "-o", "x"),
    ):  # fmt: skip
        cli(*args)
        assert state() == before, args


def test_what_no_run_uses_is_listed_and_two_branches_do_not_meet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E19: `verify` lists what an overwritten or removed run left behind; every sample is a file
    of its own and every run too, so that two branches that add runs merge without a conflict."""

    def git(*args: str) -> str:
        command = ["git", "-c", "user.name=x", "-c", "user.email=x@x", *args]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout

    folder(tmp_path, TEN)
    cli = Commands(tmp_path, monkeypatch)
    cli.record("--task-id", "t0", "--task-id", "t1")
    cli.record("--task-id", "t0", "--max-steps", "7", "--overwrite")
    listed = cli("verify").stdout
    assert listed.count("is used by no run (harness gc removes it)") == 2
    assert cli("gc").stdout.count("sha256:") == 2
    assert "used by no run" not in cli("verify").stdout

    git("init", "-q", "-b", "main")
    git("add", "--force", "st", "data")
    git("commit", "-q", "-m", "one run")
    for branch, task in (("left", "t2"), ("right", "t3")):
        git("checkout", "-q", "-b", branch, "main")
        cli.record("--task-id", task, run=branch)
        git("add", "--force", "st")
        git("commit", "-q", "-m", branch)
    git("merge", "-q", "left")
    assert cli.store.runs() == ["left", "r", "right"]
    assert Store(tmp_path / "st").all_journals() == []
    cli("verify")
    assert all(s["identical"] for s in report(cli("replay", "left", "--json"))["samples"])
