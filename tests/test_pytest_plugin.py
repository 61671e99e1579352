"""The pytest plugin: recorded runs as tests, with pytest itself as the judge."""

from __future__ import annotations

import _socket
import asyncio
import json
import os
import subprocess
import sys
import threading
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.dataset import Dataset
from harness.records import ModelReply, Request, Sample, Settings
from harness.runfile import read_run
from harness.store import Store, object_path, run_path
from harness.testing.sockets import SocketBlockedError, no_sockets
from tests.scripted import Backend, config, counting, dataset, take

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parent.parent
ROWS = [("a", 1, "a"), ("b", 2, "x"), ("c", 3, "c")]
PLUGIN = ("-p", "harness.pytest_plugin", "-p", "no:cacheprovider")
WITH_TRUTHS = ("--harness-dataset=data",)

Run = Callable[..., pytest.RunResult]


@pytest.fixture
def data(pytester: pytest.Pytester) -> Dataset:
    return dataset(pytester.path / "data", ROWS)


@pytest.fixture
def runs(pytester: pytest.Pytester, data: Dataset) -> Store:
    """The store `cassettes` in the current folder: `r` by our loop, `p` by a plain one."""
    found = Store(pytester.path / "cassettes")
    take(found, config(data, epochs=2), Backend())
    take(found, config(data, "p", agent="tests.bad_agents:plain"), Backend())
    return found


@pytest.fixture
def run(pytester: pytest.Pytester, runs: Store) -> Run:
    """pytest in this process, in a folder that holds a store and the data set's folder."""

    def call(*args: str, truths: bool = True) -> pytest.RunResult:
        return pytester.runpytest_inprocess(*PLUGIN, *(WITH_TRUTHS if truths else ()), *args)

    return call


def apart(folder: Path, *args: str, path: Sequence[Path] = ()) -> subprocess.CompletedProcess[str]:
    """pytest in a process of its own."""
    places = os.pathsep.join(map(str, [ROOT, *path]))
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *args],
        capture_output=True, text=True, cwd=folder, env={**os.environ, "PYTHONPATH": places},
        timeout=120, check=False,
    )  # fmt: skip


def items(result: pytest.RunResult) -> list[str]:
    return [line for line in result.outlines if "::" in line]


def is_plain(result: pytest.RunResult) -> bool:
    """Whether the output is for people: no traceback, no source line, nothing internal."""
    text = result.stdout.str() + result.stderr.str()
    return not any(sign in text for sign in ("Traceback", "INTERNALERROR", "def ", "\nE  "))


# ------------------------------------------------------------------------------------------- items


def test_every_sample_and_epoch_is_an_item_in_the_order_of_the_run_file(run: Run) -> None:
    found = items(run("--harness-run", "r", "--harness-run", "p", "--collect-only", "-q"))
    assert found == [
        "r::a[1]", "r::a[2]", "r::b[1]", "r::b[2]", "r::c[1]", "r::c[2]",
        "p::a[1]", "p::b[1]", "p::c[1]",
    ]  # fmt: skip
    assert items(run("--harness-run=r", "--harness-run=r", "--co", "-q")) == found[:6]


def test_a_run_that_follows_its_tapes_passes(run: Run) -> None:
    result = run("--harness-run", "r")
    result.assert_outcomes(passed=6)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["harness: run r, 6 samples x epochs, *cassettes", "r ......*"])
    result.stdout.no_fnmatch_line("*= harness =*")


def test_workers_of_xdist_agree_on_the_items(pytester: pytest.Pytester, runs: Store) -> None:
    done = apart(
        pytester.path, *PLUGIN, *WITH_TRUTHS, "--harness-run=r", "--harness-run=p", "-n2", "-v",
        "--harness-agent=tests.bad_agents:other_for_b",
    )  # fmt: skip
    assert done.returncode == 1
    assert "[gw1]" in done.stdout
    # the plain loop leaves every tape of ours at once, and that of p's b at its third command
    assert "7 failed, 2 passed" in done.stdout
    assert "6 attempts at 3 samples diverge at step 1" in done.stdout
    assert "1 sample diverges at step 3" in done.stdout


@pytest.mark.parametrize(
    ("args", "found"),
    [
        (["-k", "level2"], ["r::b[1]", "r::b[2]"]),
        (["-k", "a"], ["r::a[1]", "r::a[2]"]),
        (["r::c[2]"], ["r::c[2]"]),
        (["r::c", "r::a[1]"], ["r::a[1]", "r::c[1]", "r::c[2]"]),
        (["r::c", "-k", "level1"], []),
    ],
)
def test_items_are_chosen_by_level_name_and_id(run: Run, args: list[str], found: list[str]) -> None:
    assert items(run("--harness-run", "r", "--co", "-q", *args)) == found


def test_the_ids_that_pytest_prints_can_be_asked_for_again(pytester: pytest.Pytester) -> None:
    """Also those of task ids that look like something else."""
    rows = [("x::y[1]", 1, "x"), ("two words", 1, "two words"), ("two", 1, "2")]
    data = dataset(pytester.path / "data", rows)
    take(Store(pytester.path / "cassettes"), config(data), Backend())
    args = (*PLUGIN, "--harness-run=r", *WITH_TRUTHS)
    listed = items(pytester.runpytest_inprocess(*args, "--co", "-q"))
    assert listed == ["r::two[1]", "r::two words[1]", "r::x::y[1][1]"]
    assert items(pytester.runpytest_inprocess(*args, "--co", "-q", "r::two")) == ["r::two[1]"]
    for one in listed:
        assert items(pytester.runpytest_inprocess(*args, "--co", "-q", one)) == [one]


def test_failed_items_are_run_again_first(pytester: pytest.Pytester, runs: Store) -> None:
    args = ("-p", "harness.pytest_plugin", *WITH_TRUTHS, "--harness-run=p")
    agent = "--harness-agent=tests.bad_agents:other_for_b"
    pytester.runpytest_inprocess(*args, agent).assert_outcomes(failed=1, passed=2)
    pytester.runpytest_inprocess(*args, "--lf").assert_outcomes(passed=1, deselected=2)


def test_a_run_stands_alone_unless_files_are_named(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(test_mine="def test_one(): pass")
    run("--harness-run", "p").assert_outcomes(passed=3)
    run("--harness-run", "p", "test_mine.py").assert_outcomes(passed=4)
    run("--harness-run", "p", ".", "p::a").assert_outcomes(passed=2)
    run().assert_outcomes(passed=1)
    pytester.makeini("[pytest]\naddopts = --harness-run=p")
    run().assert_outcomes(passed=4)
    run("-k", "test_one").assert_outcomes(passed=1, deselected=3)


def test_the_junit_file_says_what_was_compared(pytester: pytest.Pytester, run: Run) -> None:
    run("--harness-run=p", "--junitxml=j.xml", "--harness-agent=tests.bad_agents:other_for_b")
    cases = {
        (case.get("classname"), case.get("name")): case
        for case in ET.parse(pytester.path / "j.xml").getroot().iter("testcase")
    }
    assert list(cases) == [("p", "a[1]"), ("p", "b[1]"), ("p", "c[1]")]
    properties = {one.get("name"): one.get("value") for one in cases["p", "a[1]"].iter("property")}
    assert (properties["verdict"], properties["verdict_source"]) == ("right", "scored")
    assert str(properties["trajectory"]).startswith("sha256:")
    assert cases["p", "a[1]"].find("failure") is None
    failure = cases["p", "b[1]"].find("failure")
    assert failure is not None
    assert "diverges at step 3" in str(failure.get("message"))
    assert "Traceback" not in str(failure.text)


# ----------------------------------------------------------------------------------- what fails it


def test_a_divergence_fails_with_its_report(run: Run) -> None:
    result = run("--harness-run", "p", "--harness-agent", "tests.bad_agents:other_for_b")
    result.assert_outcomes(passed=2, failed=1)
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        [
            "*_ p b?1? level 2 _*",
            "p b epoch 1: diverges at step 3 (effect 6, bash)",
            "  cause *",
            "*harness replay p --task-id b --agent tests.bad_agents:other_for_b --on-div*",
            "*= harness =*",
            "1 sample diverges at step 3: *",
        ]
    )
    assert is_plain(result)


def test_a_changed_answer_fails(run: Run) -> None:
    result = run("--harness-run", "p", "--harness-agent", "tests.bad_agents:answers_twice")
    result.assert_outcomes(failed=3)
    result.stdout.fnmatch_lines(
        ["a epoch 1: the outcome changed: answer 'a' → answer 'another answer'"]
    )
    assert is_plain(result)


def test_a_changed_verdict_fails(pytester: pytest.Pytester, run: Run) -> None:
    """The truth is corrected in the data set; questions, and so its digest, are as they were."""
    dataset(pytester.path / "data", [("a", 1, "a"), ("b", 2, "b"), ("c", 3, "c")])
    result = run("--harness-run", "p")
    result.assert_outcomes(failed=1, passed=2)
    result.stdout.fnmatch_lines(["b epoch 1: the verdict changed: wrong → right"])
    assert is_plain(result)


def test_damage_fails_by_name_and_the_others_go_on(runs: Store, run: Run) -> None:
    cassette = read_run(runs, "p").samples[1].cassette
    assert cassette is not None
    path = object_path(cassette)
    runs.files.write(path, runs.files.read(path).replace(b"echo 1", b"echo 9", 1))
    result = run("--harness-run", "p")
    result.assert_outcomes(failed=1, passed=2)
    result.stdout.fnmatch_lines(["the cassette of sample 'b', epoch 1, in run 'p' is damaged: *"])
    assert path.rpartition("/")[2] in result.stdout.str()
    assert is_plain(result)


def test_a_damaged_run_file_is_an_error_and_other_runs_go_on(runs: Store, run: Run) -> None:
    path = run_path("p")
    runs.files.write(path, runs.files.read(path).replace(b'"right"', b'"wrong"', 1))
    result = run("--harness-run", "p", "--harness-run", "r", "--continue-on-collection-errors")
    result.assert_outcomes(errors=1, passed=6)
    assert result.ret == 1
    result.stdout.fnmatch_lines(["the run file of 'p' is damaged: *"])
    assert is_plain(result)


def test_a_sample_that_is_not_recorded_fails(
    pytester: pytest.Pytester, runs: Store, data: Dataset, run: Run
) -> None:
    def dying(sample: Sample, request: Request) -> Any:
        return KeyboardInterrupt() if sample.task_id == "b" else counting(sample, request)

    with pytest.raises(KeyboardInterrupt):
        take(runs, config(data, "half"), Backend(dying))
    assert [entry.status for entry in read_run(runs, "half").samples] == [
        "ok",
        "missing",
        "missing",
    ]
    result = run("--harness-run", "half")
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(
        ["half b epoch 1 is missing: *", "  try: harness record --run half …*"]
    )
    assert is_plain(result)


def test_verdicts_that_nobody_computed_fail_unless_allowed(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "empty"))
    result = run("--harness-run", "p", truths=False)
    result.assert_outcomes(failed=3)
    result.stdout.fnmatch_lines(
        [
            "p b epoch 1: the verdict 'wrong' is only the recorded one: the truths of *",
            "  try: --harness-dataset DIR, or --harness-allow-recorded to let it pass",
            "3 verdicts are taken from the record: the truths are not here",
        ]
    )
    assert is_plain(result)
    result = run("--harness-run", "p", "--harness-allow-recorded", truths=False)
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["3 verdicts are taken from the record: *"])
    agent = "--harness-agent=tests.bad_agents:answers_twice"
    run("--harness-run=p", "--harness-allow-recorded", agent, truths=False).assert_outcomes(
        failed=3
    )


def test_a_sample_that_ended_in_error_needs_no_truth(
    runs: Store, data: Dataset, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "empty"))
    take(runs, config(data, "e", agent="tests.bad_agents:raises"), Backend())
    run("--harness-run", "e", truths=False).assert_outcomes(passed=3)


def test_nothing_on_a_tape_steers_the_terminal(
    runs: Store,
    data: Dataset,
    pytester: pytest.Pytester,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nasty = "\x1b[2Jx\x9b31m\u202e"
    take(runs, config(data, "n"), Backend(lambda sample, request: ModelReply(content=nasty)))
    pytester.makepyfile(mine=f"def agent(sample, world, settings): return {nasty!r}")
    result = run("--harness-run", "n", "--harness-agent", "mine:agent", "-v")
    result.assert_outcomes(failed=3)
    assert not set("\x1b\x9b\u202e") & set(result.stdout.str())
    data = dataset(pytester.path / "nasty", [(nasty, 1, "x")])
    take(runs, config(data, "ids"), Backend())
    monkeypatch.setenv("HARNESS_CACHE", str(pytester.path / "empty"))
    result = run("--harness-run", "ids", "-v", truths=False)
    result.assert_outcomes(failed=1)
    assert not set("\x1b\x9b\u202e") & set(result.stdout.str())


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["--harness-run=nope"], "there is no run 'nope' in *(runs: p, r)*"),
        (["--harness-run=../r"], "*cannot name a run*"),
        (["--harness-run=r", "--harness-store=x"], "*x is no store*--harness-store DIR*"),
        (["--harness-run=r", "--harness-agent=no.such:loop"], "*cannot be imported*"),
        (["--harness-run=r", "--harness-agent=loop"], "*MODULE:NAME*"),
        (["--harness-run=r", "--harness-dataset=nowhere"], "'nowhere' is no data set: *"),
        (["--harness-run=r", "--harness-dataset=modelscope"], "'modelscope' is no data set: *"),
        (["--harness-run=r", "--harness-dataset=mini"], "*is not the one that was recorded*"),
        (["--harness-run=r", "r::z"], "run 'r' has no sample 'r::z' (try: harness show r)"),
    ],
)
def test_what_cannot_be_used_is_said_in_one_line(run: Run, args: list[str], told: str) -> None:
    result = run(*args)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {told}"])
    assert len([line for line in result.errlines if line]) == 1
    assert is_plain(result)


def test_the_store_is_found_as_the_commands_find_it(
    pytester: pytest.Pytester, runs: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.mkdir("elsewhere")
    args = (*PLUGIN, f"--harness-dataset={pytester.path / 'data'}", "--harness-run=p")
    monkeypatch.chdir("elsewhere")
    assert pytester.runpytest_inprocess(*args).ret == pytest.ExitCode.USAGE_ERROR
    pytester.runpytest_inprocess(*args, "--harness-store=../cassettes").assert_outcomes(passed=3)
    monkeypatch.setenv("HARNESS_STORE", "../cassettes")
    pytester.runpytest_inprocess(*args).assert_outcomes(passed=3)


# ----------------------------------------------------------------------------------------- sockets

REACHES_OUT = """
import socket
from tests.bad_agents import plain

def raising(sample, world, settings):
    socket.create_connection(("127.0.0.1", 9), timeout=1)

def swallowing(sample, world, settings):
    try:
        socket.socket().connect(("127.0.0.1", 9))
    except Exception:
        pass
    return plain(sample, world, settings)
"""


@pytest.mark.parametrize("agent", ["raising", "swallowing"])
def test_a_loop_that_reaches_for_the_network_fails(
    pytester: pytest.Pytester, runs: Store, agent: str
) -> None:
    """Also one that swallows the exception; and sockets are there again for other tests."""
    pytester.makepyfile(
        mine=REACHES_OUT,
        test_mine="""
            import socket
            def test_free():
                listening = socket.create_server(("127.0.0.1", 0))
                with listening, socket.create_connection(listening.getsockname()):
                    pass
        """,
    )
    args = (*PLUGIN, *WITH_TRUTHS, "--harness-run=p", f"--harness-agent=mine:{agent}", "-v")
    done = apart(pytester.path, *args, "p::b", "test_mine.py", "p::a", "-p", "no:randomly")
    assert "2 failed, 1 passed" in done.stdout
    assert "test_mine.py::test_free PASSED" in done.stdout
    assert "p b epoch 1: the loop reached for the network, past its World: socket." in done.stdout
    assert "Traceback" not in done.stdout
    # behind the items that failed, a socket can be had
    pytester.makeconftest("def pytest_collection_modifyitems(items): items.reverse()")
    done = apart(pytester.path, *args, "test_mine.py", "p::a")
    order = [line.partition(" ")[0] for line in done.stdout.splitlines() if "%]" in line]
    assert order == ["p::a[1]", "test_mine.py::test_free"]
    assert "1 failed, 1 passed" in done.stdout


@pytest.mark.parametrize(
    ("reach", "told"),
    [
        (lambda: _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM), "socket.__new__"),
        (lambda: _socket.socket(_socket.AF_INET6, _socket.SOCK_DGRAM), "socket.__new__"),
        (lambda: _socket.getaddrinfo("host.invalid", 80), "socket.getaddrinfo 'host.invalid'"),
        (lambda: _socket.gethostbyname("host.invalid"), "socket.gethostbyname 'host.invalid'"),
    ],
)
def test_sockets_are_refused_by_whatever_name(reach: Callable[[], object], told: str) -> None:
    with no_sockets() as refused:
        with pytest.raises(SocketBlockedError, match=r"needs no network"):
            reach()
        assert refused == [told]


def test_sockets_that_are_open_already_connect_to_nothing() -> None:
    """Docker's daemon among others: it listens at a local path."""
    local = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    inet = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)
    with no_sockets() as refused:
        with pytest.raises(SocketBlockedError):
            local.connect("/var/run/docker.sock")
        with pytest.raises(SocketBlockedError):
            inet.sendto(b"x", ("127.0.0.1", 9))
    assert refused == [
        "socket.connect '/var/run/docker.sock'",
        "socket.sendto ('127.0.0.1', 9)",
    ]
    inet.sendto(b"x", ("127.0.0.1", 9))  # allowed again
    inet.close()
    local.close()


def test_other_threads_are_held_too_and_asyncio_still_works() -> None:
    caught: list[BaseException] = []

    def reach() -> None:
        try:
            _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
        except SocketBlockedError as error:
            caught.append(error)

    async def nothing() -> str:
        await asyncio.sleep(0)
        return "done"

    with no_sockets() as refused:
        thread = threading.Thread(target=reach)
        thread.start()
        thread.join()
        assert asyncio.run(nothing()) == "done"
    assert len(caught) == len(refused) == 1


# ---------------------------------------------------------------------------- tests of the user's


def test_a_test_of_your_own_is_called_with_every_sample(
    pytester: pytest.Pytester, run: Run
) -> None:
    pytester.makepyfile(
        test_mine="""
            import pytest
            from tests.bad_agents import other_for_b

            @pytest.mark.harness_run("r", task_ids=["a", "b"], dataset="data")
            def test_it_follows(harness_sample):
                result = harness_sample.check()
                assert result.identical and result.verdict_source == "scored"
                assert harness_sample.run == "r"
                assert harness_sample.sample.question.endswith(f"task {result.task_id}?")
                assert harness_sample.entry.level == result.level

            @pytest.mark.harness_run("r")
            def test_fewer_steps(harness_sample):
                replayed = harness_sample.replay(max_steps=2)
                assert replayed.steps == 2
                assert replayed.divergence.report.kind == "end"
                assert harness_sample.replay().identical

            @pytest.mark.harness_run("p", agent="tests.bad_agents:plain")
            @pytest.mark.parametrize("number", [1, 2])
            def test_another_loop(harness_sample, number):
                replayed = harness_sample.replay(agent=other_for_b)
                left = harness_sample.entry.task_id == "b"
                assert (replayed.divergence is not None) == left

            def test_none(): pass
        """
    )
    result = run("-v", truths=False)
    result.assert_outcomes(passed=4 + 6 + 6 + 1)
    result.stdout.fnmatch_lines(["test_mine.py::test_it_follows?r-a?1?? PASSED*"])


def test_what_a_loop_says_to_pytest_is_heeded(pytester: pytest.Pytester, run: Run) -> None:
    """`pytest.fail` in a loop is no `Exception`, and no error of the loop's either."""
    pytester.makepyfile(
        test_mine="""
            import pytest

            @pytest.mark.harness_run("r", task_ids=["a"], dataset="data")
            @pytest.mark.parametrize("say", [pytest.fail, pytest.skip])
            @pytest.mark.parametrize("do", ["replay", "check"])
            def test_mine(harness_sample, say, do):
                def agent(sample, world, settings):
                    say("enough")
                getattr(harness_sample, do)(agent=agent)
        """
    )
    result = run("test_mine.py")
    result.assert_outcomes(failed=4, skipped=4)
    result.stdout.fnmatch_lines(["FAILED * - Failed: enough"])


def test_a_check_that_fails_shows_the_report_alone(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        test_mine="""
            import pytest

            @pytest.mark.harness_run("p", task_ids=["b"])
            @pytest.mark.parametrize("agent", ["other_for_b", "answers_twice"])
            def test_mine(harness_sample, agent):
                harness_sample.check(agent=f"tests.bad_agents:{agent}")

            @pytest.mark.harness_run("p", task_ids=["b"])
            def test_typo(harness_sample):
                harness_sample.replay(max_step=3)
        """
    )
    result = run("test_mine.py")
    result.assert_outcomes(failed=3)
    result.stdout.fnmatch_lines(
        [
            "p b epoch 1: diverges at step 3 (effect 6, bash)",
            "b epoch 1: the outcome changed: answer 'b' → answer 'another answer'",
            "loop settings: there is no 'max_step' (there are *max_steps*",
        ]
    )
    assert is_plain(result)


def test_options_stand_in_for_what_a_marker_does_not_say(
    pytester: pytest.Pytester, run: Run
) -> None:
    pytester.makepyfile(test_mine="def test_mine(harness_sample): harness_sample.check()")
    run("test_mine.py", "--harness-run=p").assert_outcomes(passed=3 + 3)
    agent = "--harness-agent=tests.bad_agents:answers_twice"
    run("test_mine.py", "--harness-run=p", agent).assert_outcomes(failed=3 + 3)


def test_a_marker_s_paths_are_those_of_the_root_folder(
    pytester: pytest.Pytester, runs: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makeini("[pytest]")
    pytester.makepyfile(
        test_mine="""
            import pytest

            @pytest.mark.harness_run("p", store="cassettes", dataset="data")
            def test_mine(harness_sample): harness_sample.check()
        """
    )
    monkeypatch.chdir(pytester.mkdir("elsewhere"))
    pytester.runpytest_inprocess(*PLUGIN, "../test_mine.py").assert_outcomes(passed=3)


def test_markers_of_one_run_do_not_mix(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        test_mine="""
            import pytest

            @pytest.mark.harness_run("p", agent="tests.bad_agents:answers_twice")
            def test_one(harness_sample): harness_sample.check()

            @pytest.mark.harness_run("p", task_ids=["b"])
            def test_two(harness_sample): harness_sample.check()

            @pytest.mark.harness_run("p", dataset="nowhere", task_ids=["c"], allow_recorded=True)
            def test_three(harness_sample): pass
        """
    )
    result = run("test_mine.py")
    result.assert_outcomes(errors=1)  # all is opened before any test runs
    result.stdout.fnmatch_lines(["'*nowhere' is no data set: *"])
    pytester.mkdir("nowhere")
    dataset(pytester.path / "nowhere", ROWS)
    run("test_mine.py").assert_outcomes(failed=3, passed=2)


@pytest.mark.parametrize(
    ("marker", "told"),
    [
        ("", '*needs @pytest.mark.harness_run("RUN")*'),
        ('@pytest.mark.harness_run("nope")', "there is no run 'nope' *"),
        ('@pytest.mark.harness_run("p", stroe="x")', "the marker harness_run takes no 'stroe':"),
        ('@pytest.mark.harness_run("p", task_ids=["z"])', "run 'p' has no sample 'z'"),
        ('@pytest.mark.harness_run("p", store="x")', "*x is no store: *"),
    ],
)
def test_a_marker_that_cannot_be_used_is_an_error_of_collection(
    pytester: pytest.Pytester, run: Run, marker: str, told: str
) -> None:
    pytester.makepyfile(test_mine=f"import pytest\n{marker}\ndef test_mine(harness_sample): pass\n")
    result = run("--strict-markers")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([told])
    assert is_plain(result)


# --------------------------------------------------------------------------------- what it costs

LOADED = """
import json, sys
def pytest_sessionfinish(session):
    if not hasattr(session.config, "workerinput"):
        open("loaded.json", "w").write(json.dumps(sorted(sys.modules)))
"""


def loaded(folder: Path) -> set[str]:
    found: list[str] = json.loads((folder / "loaded.json").read_text())
    return set(found)


def entry_point(folder: Path) -> Path:
    """A distribution that announces the plugin as ours does."""
    place = folder / "installed" / "announced-1.dist-info"
    place.mkdir(parents=True)
    (place / "METADATA").write_text("Metadata-Version: 2.1\nName: announced\nVersion: 1\n")
    (place / "entry_points.txt").write_text(
        "[pytest11]\nharness.pytest_plugin = harness.pytest_plugin\n"
    )
    return place.parent


def test_installed_and_not_asked_for_it_loads_nothing(pytester: pytest.Pytester) -> None:
    installed = entry_point(pytester.path)
    pytester.makepyfile(test_mine="def test_one(): pass")
    pytester.makeconftest(LOADED)
    done = apart(pytester.path, "-p", "no:hypothesispytest", path=[installed])
    assert "1 passed" in done.stdout
    names = loaded(pytester.path)
    assert {name for name in names if name.partition(".")[0] == "harness"} == {
        "harness", "harness.pytest_plugin",
    }  # fmt: skip
    assert "msgspec" not in names
    # and it may be named besides
    done = apart(pytester.path, "-p", "harness.pytest_plugin", "--markers", path=[installed])
    assert done.returncode == 0
    assert "@pytest.mark.harness_run(run, ...," in done.stdout


def test_asked_for_it_loads_nothing_live(pytester: pytest.Pytester, runs: Store) -> None:
    pytester.makeconftest(LOADED)
    done = apart(pytester.path, *PLUGIN, *WITH_TRUTHS, "--harness-run=r")
    assert "6 passed" in done.stdout
    packages = {name.partition(".")[0] for name in loaded(pytester.path)}
    assert not packages & {
        "openai", "docker", "modelscope", "huggingface_hub", "httpx", "mcp", "vcr", "pyarrow",
        "pydantic", "requests", "scipy",
    }  # fmt: skip
    assert not any(name.startswith("harness.live") for name in loaded(pytester.path))


def test_a_loop_setting_of_the_run_is_kept(
    pytester: pytest.Pytester, data: Dataset, runs: Store, run: Run
) -> None:
    """Settings come from the run file, so a run of two steps is replayed with two."""
    take(runs, config(data, "two", loop=Settings(model="scripted", max_steps=2)), Backend())
    run("--harness-run", "two").assert_outcomes(passed=3)
