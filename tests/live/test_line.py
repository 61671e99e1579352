"""Record for real, replay from the tape alone: the promise of the project, from outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.live.line import (
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

FEW = ("--limit", "5", "--eval-batch-size", "3")


@pytest.mark.parametrize("stream", ["true", "false"])
def test_recorded_once_replayed_anywhere(tmp_path: Path, stream: str) -> None:
    """Server stopped, daemon out of reach, store moved: the same answers and trajectories."""
    with policy(tmp_path / "server", "--flaky") as server:
        recorded = harness(
            *recording(tmp_path / "st", server, *FEW, "-g", f"stream={stream}", "--json",
                       "-g", "retry_interval=0.1")
        )  # fmt: skip
    assert recorded.returncode == 0, recorded.stderr
    assert "\r" not in recorded.stderr
    assert containers_of(RUN) == []
    before = samples(recorded.stdout)
    assert len(before) == 5
    (tmp_path / "st").rename(tmp_path / "moved")
    replayed = harness(
        "replay", RUN, "--store", str(tmp_path / "moved"), "--json",
        cwd=tmp_path, variables={"HOME": str(tmp_path), **offline(tmp_path)},
    )  # fmt: skip
    assert replayed.returncode == 0, replayed.stderr
    after = samples(replayed.stdout)
    for key, sample in before.items():
        assert after[key]["identical"] is True
        assert after[key]["trajectory"] == sample["trajectory"]
        assert after[key]["answer"] == sample["answer"]
        assert after[key]["verdict"] == sample["verdict"]
        assert after[key]["verdict_source"] == "scored"
    for command_name in ("score", "verify", "ls", "show"):
        arguments = [] if command_name == "ls" else [RUN]
        done = harness(
            command_name, *arguments, "--store", str(tmp_path / "moved"),
            variables=offline(tmp_path),
        )  # fmt: skip
        assert done.returncode == 0, done.stderr


def test_streamed_and_whole_replies_make_one_tape(tmp_path: Path) -> None:
    found = []
    with policy(tmp_path / "server") as server:
        for stream in ("true", "false"):
            store = tmp_path / stream
            done = harness(*recording(store, server, *FEW, "-g", f"stream={stream}", "--json"))
            assert done.returncode == 0, done.stderr
            found.append({k: s["trajectory"] for k, s in samples(done.stdout).items()})
    assert found[0] == found[1]


def test_what_leaves_the_tape_touches_nothing_live(tmp_path: Path) -> None:
    with policy(tmp_path / "server") as server:
        store = tmp_path / "st"
        assert harness(*recording(store, server, "--limit", "2")).returncode == 0
        paid = server.completions()
        (tmp_path / "template").write_text("{question} Be quick.\n\n{file}")
        done = harness(
            "replay", RUN, "--store", str(store), "--prompt-template", str(tmp_path / "template")
        )
        assert done.returncode == 1
        assert "diverges at step 1" in done.stderr
        assert "{+" in done.stderr
        assert "Be quick" in done.stderr
        assert server.completions() == paid
        assert containers_of(RUN) == []


def test_interrupted_once_keeps_what_is_finished(tmp_path: Path) -> None:
    """Ctrl-C: a message at once, replies in flight awaited, exit 130, no container left; then the
    same command makes only the calls that are missing."""
    with policy(tmp_path / "server") as server:
        undisturbed = harness(*recording(tmp_path / "one", server, "--limit", "8", "--json"))
        calls = server.completions()
        arguments = recording(
            tmp_path / "two", server, "--limit", "8", "--eval-batch-size", "3", "--json"
        )
        process = subprocess.Popen(
            command(*arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        assert process.stderr is not None
        lines = [process.stderr.readline() for _ in range(2)]
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=60)
        assert process.returncode == 130, "".join(lines) + stderr
        assert "interrupted" in stderr
        partial = json.loads(stdout)
        assert partial["notes"][0].startswith("cancelled")
        assert 2 <= partial["metrics"]["num"] - partial["metrics"]["missing"] < 8
        assert containers_of(RUN) == []
        resumed = harness(*arguments)
        assert resumed.returncode == 0, resumed.stderr
        assert server.completions() == 2 * calls
        first, second = samples(undisturbed.stdout), samples(resumed.stdout)
        assert {k: s["trajectory"] for k, s in first.items()} == {
            k: s["trajectory"] for k, s in second.items()
        }


def test_interrupted_twice_ends_at_once_and_leaves_valid_files(tmp_path: Path) -> None:
    with policy(tmp_path / "server") as server:
        store = tmp_path / "st"
        # its second command sleeps for ten minutes; the limit is far away
        arguments = recording(store, server, "--task-id", MORSE, "--command-timeout", "300")
        process = subprocess.Popen(
            command(*arguments), stderr=subprocess.PIPE, text=True, env=environment()
        )
        for _ in range(300):
            if server.completions() == 2:
                break
            time.sleep(0.1)
        time.sleep(1.0)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
        assert process.returncode == 130
        assert harness("verify", "--store", str(store)).returncode == 0
        assert harness("clean").returncode == 0
        assert containers_of(RUN) == []


MORSE = "ce61ca41-acdf-502c-9d77-a55fb647c246"


def test_a_dead_daemon_is_said_before_anything_is_paid(tmp_path: Path) -> None:
    with policy(tmp_path / "server") as server:
        done = harness(
            *recording(tmp_path / "st", server, "--limit", "1"),
            variables={"DOCKER_HOST": f"unix://{tmp_path}/no.sock"},
        )
        assert done.returncode == 3
        assert "Traceback" not in done.stderr
        assert server.completions() == 0
        done = harness(
            *recording(tmp_path / "st", server, "--limit", "1", "--docker-image", "no/such:image")
        )
        assert done.returncode == 3
        assert "no/such:image" in done.stderr
        assert server.completions() == 0


def test_a_server_that_is_gone_ends_samples_as_errors(tmp_path: Path) -> None:
    """One that has answered before; one that never did gives up the run: `test_no_endpoint.py`."""
    with policy(tmp_path / "server", "--delay", "0.3") as server:
        arguments = recording(
            tmp_path / "st", server, "--limit", "2", "-g", "retries=1", "-g", "retry_interval=0.1",
            "--json",
        )  # fmt: skip
        process = subprocess.Popen(
            command(*arguments), stdout=subprocess.PIPE, text=True, env=environment()
        )
        while server.completions() < 2 and process.poll() is None:  # the first has arrived
            time.sleep(0.05)
    stdout, _ = process.communicate(timeout=120)
    assert process.returncode == 4
    assert json.loads(stdout)["metrics"]["error"] == 2
    assert harness(*arguments, "--ignore-errors").returncode == 0
    assert harness("replay", RUN, "--store", str(tmp_path / "st")).returncode == 0
    assert containers_of(RUN) == []


def test_the_host_does_not_show_in_the_store(tmp_path: Path) -> None:
    """No path, user name or variable of the recording machine is on the tape."""
    with policy(tmp_path / "server") as server:
        done = harness(
            *recording(tmp_path / "st", server, "--limit", "3"),
            variables={
                "OPENAI_API_KEY": "sk-canary-0123456789abcdef",
                "CANARY_OF_THE_HOST": "canary-in-the-environment",
            },
        )
    assert done.returncode == 0, done.stderr
    for path in (tmp_path / "st").rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            for canary in (b"sk-canary", b"canary-in-the", str(tmp_path).encode()):
                assert canary not in content, path
            assert os.uname().nodename.encode() not in content, path
