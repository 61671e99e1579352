"""`--sandbox local` keeps the same contract, without the protection.

Every command here runs on this machine: nothing that would do harm outside a container.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.errors import LackError, SandboxError, UsageError
from harness.live.local_sandbox import LocalEngine, LocalSandbox
from harness.live.sandbox import SandboxConfig, engine_for
from tests.live.conftest import ROOT, sample

SOON = 30.0
linux_only = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")

Make = Callable[..., LocalSandbox]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """`make(attachment, file_name)`: a new sandbox."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    engine = engine_for(SandboxConfig(kind="local"), run="tests")
    assert isinstance(engine, LocalEngine)
    yield lambda attachment=None, name="": engine.start(sample(file_name=name), attachment)
    engine.close()


@pytest.fixture
def sandbox(make: Make) -> LocalSandbox:
    return make()


@pytest.fixture
def word() -> str:
    """A number of seconds that no other process on this machine sleeps."""
    return str(secrets.randbelow(10**7) + 10**7)


def asleep(word: str) -> list[str]:
    """Processes that sleep that long, zombies left out."""
    listed = subprocess.run(
        ["ps", "-eo", "stat=,args="], capture_output=True, text=True, check=True
    ).stdout
    return [line for line in listed.splitlines() if word in line and not line.startswith("Z")]


def gone(word: str) -> bool:
    """Whether none is left; a killed process may take a moment to disappear."""
    for _ in range(50):
        if not asleep(word):
            return True
        time.sleep(0.1)
    return False


def test_preflight_warns_and_finds_bash(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    engine = engine_for(SandboxConfig(kind="local"), run="tests")
    assert engine.preflight(said.append) is None
    assert said
    assert said[0].startswith("UNSAFE")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(LackError, match="needs bash"):
        engine.preflight(said.append)


def test_network_cannot_be_switched_off() -> None:
    with pytest.raises(UsageError, match="cannot switch the network off"):
        engine_for(SandboxConfig(kind="local", network=False), run="tests")


@pytest.mark.parametrize(
    ("command", "out", "err", "code"),
    [
        ("echo hi; echo err >&2", b"hi\n", b"err\n", 0),
        ("", b"", b"", 0),
        ("exit 124", b"", b"", 124),
        ("kill -9 $$", b"", b"", 137),
        ("cat; read -r x; echo done", b"done\n", b"", 0),
        (r"printf '\xff\0\xfe'; printf '\x80' >&2", b"\xff\0\xfe", b"\x80", 0),
        ("printf %s '\ud800'", b"\xed\xa0\x80", b"", 0),
        ("echo one; echo two >/dev/stdout", b"one\ntwo\n", b"", 0),
        ("echo '" + "x" * 300_000 + "' | wc -c; cat; exit 4", b"300001\n", b"", 4),
    ],
)
def test_replies(sandbox: LocalSandbox, command: str, out: bytes, err: bytes, code: int) -> None:
    reply = sandbox.run(command, SOON)
    assert (reply.stdout, reply.stderr, reply.exit_code) == (out, err, code)
    assert (reply.timed_out, reply.omitted) == (False, 0)


def test_recorders_own_input_is_not_read(sandbox: LocalSandbox) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"for the recorder\n")
    saved = os.dup(0)
    os.dup2(reader, 0)
    try:
        assert sandbox.run("read -r line; echo [$line]", SOON).stdout == b"[]\n"
    finally:
        os.dup2(saved, 0)
        for number in (saved, reader, writer):
            os.close(number)


def test_nul_is_refused(sandbox: LocalSandbox) -> None:
    reply = sandbox.run("touch ran\0", SOON)
    assert (reply.exit_code, reply.stderr[:18]) == (126, b"[sandbox] not run:")
    assert sandbox.run("ls", SOON).stdout == b""


def test_output_is_bounded(sandbox: LocalSandbox) -> None:
    reply = sandbox.run("seq 1 200000", SOON)
    whole = b"".join(b"%d\n" % i for i in range(1, 200_001))
    assert reply.stdout == whole[: 1 << 19] + whole[-(1 << 19) :]
    assert reply.omitted == len(whole) - (1 << 20)


def test_state_between_commands(sandbox: LocalSandbox) -> None:
    sandbox.run("cd /; export A=1; echo kept >/workspace/f", SOON)
    reply = sandbox.run('pwd; echo "[$A]"; cat f /workspace/f', SOON)
    assert reply.stdout == f"{sandbox.folder}/workspace\n[]\nkept\nkept\n".encode()


def test_environment_is_clean(sandbox: LocalSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "canary")
    lines = sandbox.run("env", SOON).stdout.decode().splitlines()
    assert {line.split("=")[0] for line in lines} <= {
        *("HOME", "LANG", "PATH", "PYTHONHASHSEED", "TERM", "PWD", "SHLVL", "_"),
        "GAIA_HARNESS_COMMAND",
    }
    assert f"HOME={sandbox.folder}/home" in lines


def test_attachment_is_a_copy(make: Make, tmp_path: Path) -> None:
    original = tmp_path / "data" / "a b.csv"
    original.parent.mkdir()
    original.write_text("a,b\n")
    (original.parent / "metadata.jsonl").write_text("truths")
    sandbox = make(original, "a b.csv")
    reply = sandbox.run(
        "ls -A /shared_files; cat '/shared_files/a b.csv'; echo a/shared_files /workspaces", SOON
    )
    # only whole paths are replaced
    assert reply.stdout == b"a b.csv\na,b\na/shared_files /workspaces\n"
    assert (sandbox.folder / "shared_files" / "a b.csv").stat().st_mode & 0o222 == 0
    sandbox.run("chmod u+w /shared_files/*; echo x >'/shared_files/a b.csv'", SOON)
    assert original.read_text() == "a,b\n"


@linux_only
@pytest.mark.parametrize(
    "command",
    [
        "sleep {0}",
        "setsid sleep {0} & (setsid bash -c 'sleep {0} & sleep {0}' &); sleep {0}",
        "trap '' TERM; (trap '' TERM; sleep {0}) & kill -STOP $$",
        "exec >/dev/null 2>&1; while :; do setsid sleep {0} & sleep 0.05; done",
    ],
)
def test_timeout_leaves_nothing(sandbox: LocalSandbox, word: str, command: str) -> None:
    kept = word + "0"
    sandbox.run(f"sleep {kept} & echo", SOON)
    began = time.monotonic()
    reply = sandbox.run("echo part; " + command.format(word + "1"), 1)
    assert time.monotonic() - began < SOON
    assert (reply.exit_code, reply.timed_out) == (None, True)
    assert reply.stdout == b"part\n"
    assert gone(word + "1")
    assert len(asleep(kept)) == 1
    sandbox.close()
    assert gone(kept)


def test_background_child_neither_hangs_nor_dies(sandbox: LocalSandbox, word: str) -> None:
    began = time.monotonic()
    talk = "(for i in 1 2 3 4 5; do sleep 0.2; echo late; done; exec sleep {word}) &"
    reply = sandbox.run(f"{talk.replace('{word}', word)} echo hi", SOON)
    assert time.monotonic() - began < 10
    assert reply.stdout == b"hi\n"
    for _ in range(3):
        assert sandbox.run("sleep 0.4; echo on", SOON).stdout == b"on\n"
    assert len(asleep(word)) == 1  # it was not killed by a pipe that nobody reads
    flood = sandbox.run("yes & sleep 0.1; exit 3", SOON)
    assert flood.exit_code == 3
    assert sandbox.run("echo on", SOON).stdout == b"on\n"


def test_close_removes_folder_and_processes(sandbox: LocalSandbox, word: str) -> None:
    sandbox.run(f"setsid sleep {word} >/dev/null 2>&1 & echo x >f", SOON)
    timer = threading.Timer(0.5, sandbox.close)
    timer.start()
    with pytest.raises(SandboxError, match="sandbox was closed"):
        sandbox.run(f"sleep {word}", 300)
    timer.join()
    sandbox.close()
    assert gone(word)
    assert not sandbox.folder.exists()
    with pytest.raises(SandboxError, match="sandbox was closed"):
        sandbox.run("echo hi", SOON)


def test_a_removed_folder_comes_back_or_is_an_error(sandbox: LocalSandbox) -> None:
    sandbox.run("rm -rf /workspace", SOON)
    assert sandbox.run("ls -A; pwd", SOON).stdout == f"{sandbox.folder}/workspace\n".encode()
    sandbox.run(f"rm -rf {sandbox.folder}", SOON)
    with pytest.raises(SandboxError, match="sandbox lost: No such file"):
        sandbox.run("echo hi", SOON)


def test_closed_engine_starts_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    engine = engine_for(SandboxConfig(kind="local"), run="tests")
    engine.start(sample(), None)
    engine.close()
    with pytest.raises(SandboxError, match="closed"):
        engine.start(sample(), None)
    assert list(tmp_path.iterdir()) == []


def test_nothing_leaks(sandbox: LocalSandbox) -> None:
    def held() -> tuple[int, int]:
        time.sleep(0.3)  # the threads that empty the pipes end with the pipes
        return threading.active_count(), len(os.listdir("/dev/fd"))

    sandbox.run("echo hi", SOON)
    before = held()
    for _ in range(50):
        sandbox.run("echo hi", SOON)
        sandbox.run("sleep 100", 0.01)
    assert held() == before


def test_docker_is_not_imported() -> None:
    code = (
        "import sys\n"
        "from harness.live.sandbox import SandboxConfig, engine_for\n"
        "engine_for(SandboxConfig(kind='local'), run='t').preflight(lambda line: None)\n"
        "engine_for(SandboxConfig(), run='t')\n"
        "print([name for name in ('docker', 'requests') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"
