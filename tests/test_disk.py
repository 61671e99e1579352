"""Full disks, read-only stores, torn files, two processes, a wrong clock, readers beside a writer.

All through the commands, with a scripted backend at the seam. What a process that is killed leaves
behind is in `tests/live/crashes.py`, with real containers and a real server.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from harness.records import BashReply, BashRequest, Reply, Request, Sample
from harness.runfile import read_run
from harness.store import Store, journal_path, object_path, sample_key
from tests.commands import Commands, recording
from tests.scripted import Backend, counting, dataset, says
from tests.test_files import everything
from tests.test_store import holder

ROOT = Path(__file__).parent.parent
ROWS = [("a", 1, "a"), ("b", 2, "x"), ("c", 3, "c")]


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    """A folder with a data set of three samples, and nothing recorded."""
    dataset(tmp_path / "data", ROWS)
    return Commands(tmp_path, monkeypatch)


class Killed(BaseException):
    """Stands for the end of the process."""


def dies_at(request_number: int) -> Backend:
    """The process ends while that request is under way."""
    backend = Backend()

    def policy(sample: Sample, request: Request) -> Reply:
        dies = len(backend.asked) == request_number
        return Killed() if dies else counting(sample, request)

    backend.policy = policy
    return backend


def trajectories(result: Any) -> dict[str, str]:
    found = json.loads(result.stdout)
    return {sample["task_id"]: sample["trajectory"] for sample in found["samples"]}


# ------------------------------------------------------------------------------------ full disk


@contextlib.contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """A file system of that size; skipped where none can be mounted."""
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if made.returncode:
        if os.environ.get("CI") and os.geteuid() == 0:
            pytest.fail(f"no tmpfs: {made.stderr}")
        pytest.skip("only root can mount a small disk")
    try:
        yield folder
    finally:
        os.chdir("/")
        subprocess.run(["umount", "-l", str(folder)], check=True)


def talkative(sample: Sample, request: Request) -> Reply:
    """Sample a is short; the others print more than the disk holds."""
    if isinstance(request, BashRequest) and sample.task_id != "a":
        return BashReply(stdout=os.urandom(200_000).hex().encode())
    return counting(sample, request)


def test_a_full_disk_is_told_and_nothing_recorded_is_lost(cli: Commands, tmp_path: Path) -> None:
    """F11, on a disk of 1 MB: exit 3 with the cause and what to do; the finished sample replays;
    when there is space again, the same command goes on where it stopped."""
    with small_disk(tmp_path / "disk", "1m") as disk:
        ballast = disk / "ballast"
        ballast.write_bytes(b"x" * 300_000)
        at = ("--store", str(disk / "st"))
        full = Backend(talkative)
        result = cli.record(*at, status=3, backend=full)
        assert "No space left on device" in result.stderr
        assert "what was recorded before is kept" in result.stderr
        assert "run the same command again" in result.stderr
        store = Store(disk / "st")
        assert [entry.status for entry in read_run(store, "r").samples] == [
            "ok",
            "missing",
            "missing",
        ]
        replayed = json.loads(cli("replay", *at, "--task-id", "a", "--json").stdout)
        assert replayed["samples"][0]["identical"] is True
        assert "NOT" not in cli("show", "r", "a", *at).stdout
        cli("verify", *at)

        ballast.unlink()
        # too little space still: again a clear error, and again nothing lost
        cli.record(*at, status=3, backend=Backend(talkative))
        subprocess.run(["mount", "-o", "remount,size=20m", str(disk)], check=True)
        again = Backend(talkative)
        done = json.loads(cli.record("--json", *at, backend=again).stdout)
        assert done["metrics"]["missing"] == 0
        assert "a" not in {task for task, _ in again.asked}
        assert "0 unused" not in cli("verify", *at).stdout
        report = json.loads(cli("replay", *at, "--json").stdout)
        assert all(sample["identical"] for sample in report["samples"])
        assert not list(disk.rglob("*.tmp"))


def test_what_was_paid_before_the_disk_filled_is_not_asked_again(
    cli: Commands, tmp_path: Path
) -> None:
    """The reply that the disk took is used; at most the one in flight is sent again."""
    with small_disk(tmp_path / "disk", "1m") as disk:
        (disk / "ballast").write_bytes(b"x" * 500_000)
        at = ("--store", str(disk / "st"), "--task-id", "b")
        full = Backend(talkative)
        cli.record(*at, status=3, backend=full)
        (disk / "ballast").unlink()
        subprocess.run(["mount", "-o", "remount,size=20m", str(disk)], check=True)
        again = Backend(talkative)
        cli.record(*at, "--on-drift", "warn", backend=again)
        assert full.models() + again.models() <= 4 + 1
        assert again.models() < 4


# ------------------------------------------------------------------------------- read-only store


@pytest.fixture
def read_only(cli: Commands, tmp_path: Path) -> Iterator[Commands]:
    """A recorded store that cannot be written; its sample c is missing."""
    cli.record("--task-id", "a", "--task-id", "b")
    store = tmp_path / "st"
    if os.geteuid() == 0:  # root may write whatever the modes say: a read-only mount then
        bound = subprocess.run(
            ["mount", "--bind", str(store), str(store)], capture_output=True, check=False
        )
        if bound.returncode:
            pytest.skip("no bind mounts here")
        try:
            subprocess.run(["mount", "-o", "remount,ro,bind", str(store)], check=True)
            yield cli
        finally:
            subprocess.run(["umount", "-l", str(store)], check=True)
        return
    folders = [store, *(path for path in store.rglob("*") if path.is_dir())]
    for path in folders:
        path.chmod(0o555)
    yield cli
    for path in folders:
        path.chmod(0o755)


def test_a_read_only_store_is_read_and_refuses_the_rest_in_one_line(read_only: Commands) -> None:
    before = everything(read_only.folder / "st")
    for args in (
        ("ls",), ("show", "r"), ("show", "r", "a"), ("replay",), ("score",), ("verify",),
        ("diff", "r", "r"), ("gc", "--dry-run"), ("bundle", "r", "-o", "r.bundle"),
    ):  # fmt: skip
        read_only(*args)
    backend = Backend()
    writing: list[tuple[str, ...]] = [
        recording("r"), recording("new"), ("gc",), ("rm", "r"),
        ("replay", "r", "--match-on", "model", "--as", "l"),
        ("unbundle", "r.bundle", "--as", "u"),
    ]  # fmt: skip
    for refused in writing:
        read_only.backend = backend
        result = read_only(*refused, status=3)
        assert "cannot be written" in result.stderr, refused
    assert backend.asked == []  # nothing is paid that cannot be kept
    assert everything(read_only.folder / "st") == before


# ------------------------------------------------------------------------------------ torn lines


def tiny(sample: Sample, world: Any, settings: Any) -> str:
    """A loop whose tape is short, so that it can be torn at every byte."""
    from harness.records import ModelRequest

    talk: list[dict[str, Any]] = [{"role": "user", "content": "?"}]
    for _ in range(2):
        reply = world.perform(ModelRequest(talk))
        world.perform(BashRequest("ls", 1.0))
        talk = [*talk, {"role": "assistant", "content": reply.content}]
    return "x"


def answering(sample: Sample, request: Request) -> Reply:
    return BashReply(b"one\ntwo\n") if isinstance(request, BashRequest) else says("ok")


TINY = ("--agent", "tests.test_disk:tiny", "--task-id", "a")


def test_a_journal_torn_at_every_byte_is_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E16, F03: whatever prefix of a journal a crash leaves, the same command goes on from it: no
    whole reply is asked for again, the result is that of an undisturbed run, the file is whole.

    Every byte of the last two lines and the ends of all others; with HARNESS_LONG=1 every byte."""
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None  # nothing to wait for there
    with TemporaryDirectory(dir=memory) as name:
        dataset(Path(name) / "data", ROWS)
        _torn_at_every_byte(Commands(Path(name), monkeypatch))
        os.chdir(tmp_path)


def _torn_at_every_byte(cli: Commands) -> None:
    undisturbed = cli.record(*TINY, "--json", run="u", backend=Backend(answering))
    expected = trajectories(undisturbed)

    def whole(sample: Sample, request: Request) -> Reply:
        late = isinstance(request, BashRequest) and len(cli.backend.asked) == 4
        return Killed() if late else answering(sample, request)

    with pytest.raises(Killed):
        cli.record(*TINY, backend=Backend(whole))
    name = journal_path("r", sample_key("a", 1))
    journal, run_file = cli.store.files.read(name), cli.store.read_run("r")
    paid_by = [len(journal[:at].split(b'{"type":"model"')) - 1 for at in range(len(journal) + 1)]
    ends = [at for at, byte in enumerate(journal) if byte == 10]
    near = {at + by for at in ends for by in (-1, 0, 1, 2)}
    for at in range(len(journal) + 1):
        if os.environ.get("HARNESS_LONG") != "1" and at < ends[-3] and at not in near:
            continue
        cli.store.files.write(name, journal[:at])
        cli.store.files.write("runs/r.json", run_file)
        backend = Backend(answering)
        result = cli.record(*TINY, "--json", backend=backend)
        assert trajectories(result) == expected, at
        kept = journal[:at].rfind(b"\n") + 1
        assert backend.models() == 2 - paid_by[kept], at
        torn = at != kept and kept > 0
        assert ("an unfinished last line of its journal was dropped" in result.stderr) is torn, at
        assert cli.store.journals("r") == []
    assert len(journal) > 800


@pytest.mark.parametrize("step", ["object", "run file", "journal"])
def test_the_end_of_a_recording_is_repaired_at_every_step(cli: Commands, step: str) -> None:
    """E16, F03: object, run file, journal removal, in this order; a crash behind any of them costs
    nothing: also when it came before the run file said that the sample is done."""
    cli.record()
    done = trajectories(cli("replay", "--json"))
    entry = read_run(cli.store, "r").samples[0]
    cassette = cli.store.get(entry.cassette or "")
    lines = cassette.splitlines(keepends=True)[:-1]
    journal = journal_path("r", sample_key("a", 1))
    if step == "journal":  # all is written but the journal is still there
        cli.store.files.write(journal, b"".join(with_intents(lines)))
    else:
        run = read_run(cli.store, "r")
        run.samples[0] = type(entry)(task_id="a", epoch=1, level=1)
        from harness.runfile import write_run

        write_run(cli.store, run)
        cli.store.files.write(journal, b"".join(with_intents(lines)))
        if step == "object":
            cli.store.remove_object(entry.cassette or "")
    backend = Backend()
    again = cli.record("--json", backend=backend)
    assert trajectories(again) == done
    assert backend.models() == 0
    assert cli("verify").exit_code == 0


def with_intents(lines: list[bytes]) -> Iterator[bytes]:
    """A journal's lines: each costly effect has its intent before it."""
    effects = 0
    for line in lines:
        fields = json.loads(line)
        if fields["type"] in ("model", "bash", "tool", "value"):
            effects += 1
            if fields["type"] == "model":
                digest = fields["digest"]
                yield b'{"type":"intent","effect":%d,"digest":"%b"}\n' % (effects, digest.encode())
        yield line


# ------------------------------------------------------------------------------------ damage (E17)


@pytest.mark.parametrize("how", ["cut", "flip", "gone", "line endings"])
def test_damage_is_told_and_never_recorded_over(cli: Commands, how: str) -> None:
    """E17, E13: replay names file and sample, and calls it no miss; `record` says so too, asks
    nothing live and replaces nothing. The owner's consent is `--overwrite`."""
    cli.record()
    entry = read_run(cli.store, "r").samples[1]
    path = object_path(entry.cassette or "")
    data = cli.store.files.read(path)
    if how == "gone":
        cli.store.files.remove(path)
    else:
        cli.store.files.write(
            path,
            {"cut": data[:-20], "flip": data[:99] + bytes([data[99] ^ 1]) + data[100:],
             "line endings": data.replace(b"\n", b"\r\n")}[how],
        )  # fmt: skip
    backend = Backend()
    for args in (("replay", "--json"), ("score",), ("verify",), ("show", "r", "b")):
        result = cli(*args, status=1)
        assert path in result.output
        assert "sample 'b'" in result.output
        assert "diverges" not in result.output
        if how == "line endings":
            assert "line endings" in result.output
    before = everything(cli.folder / "st" / "objects")
    result = cli.record(status=1, backend=backend)
    assert path in result.output
    assert backend.asked == []
    assert everything(cli.folder / "st" / "objects") == before
    cli.record("--overwrite", backend=backend)
    assert backend.models() == 12
    assert cli("replay").exit_code == 0


# ----------------------------------------------------------------------------- several processes


def test_a_second_recorder_of_a_run_is_refused_at_once(cli: Commands) -> None:
    """Two processes on one run: exit 2 before anything is asked; another run may be recorded."""
    cli.record("--task-id", "a")
    with holder(cli.folder / "st", "r"):
        backend = Backend()
        started = time.monotonic()
        result = cli.record(status=2, backend=backend)
        assert time.monotonic() - started < 30  # it does not wait for the other
        assert "another harness process" in result.stderr
        assert backend.asked == []
        cli.record(run="other")
        for args in (("gc",), ("rm", "r")):
            assert "another harness process" in cli(*args, status=2).stderr
        for args in (("replay",), ("show", "r"), ("ls",), ("score",), ("verify",)):
            cli(*args)
    cli.record()


READER = """
import json, sys, time
from click.testing import CliRunner
from harness.cli import cli
store, stop = sys.argv[1:]
commands = [("replay", "--json"), ("verify",), ("ls",), ("show", "r"), ("score", "--json"),
            ("gc", "--dry-run")]
rounds = 0
print("ready", flush=True)
while True:
    last = sys.stdin.isatty() or open(stop).read() == "stop"
    for args in commands:
        result = CliRunner().invoke(cli, [*args, "--store", store])
        if result.exit_code != 0:
            print(args, result.exit_code, result.output)
            raise SystemExit(1)
    rounds += 1
    if last:
        break
print(rounds)
"""


def test_sixteen_readers_beside_a_recorder(cli: Commands) -> None:
    """Nobody ever reads half of anything, and no reader hinders the writer."""
    cli.record("--task-id", "a")
    stop = cli.folder / "stop"
    stop.write_text("")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    readers = [
        subprocess.Popen(
            [sys.executable, "-c", READER, str(cli.folder / "st"), str(stop)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for _ in range(16)
    ]
    try:
        for reader in readers:
            assert reader.stdout is not None
            assert reader.stdout.readline() == "ready\n"
        for epochs in range(1, 7):  # the run file is replaced again and again
            cli.record("--epochs", str(epochs), "--eval-batch-size", "3")
        stop.write_text("stop")
        for reader in readers:
            out, err = reader.communicate(timeout=300)
            assert reader.returncode == 0, out + err
    finally:
        for reader in readers:
            reader.kill()
            reader.wait()
    assert json.loads(cli("replay", "--json").stdout)["metrics"]["num"] == 18


# -------------------------------------------------------------------------------------- the clock


def test_a_clock_that_is_set_back_changes_nothing_but_metadata(
    cli: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What depends on the wall clock: the time stamp in an effect's metadata, which no loop sees
    and no digest covers. Limits and timeouts are measured on the monotonic clock; names, order,
    resumption and locks know no time; files are found by name and digest, never by age. Here the
    clock runs backwards from the year 2001 while a run is recorded, killed, continued and read."""
    expected = trajectories(cli.record("--json", run="u"))
    ticks = iter(range(10**9))
    monkeypatch.setattr(time, "time", lambda: 1e9 - next(ticks) * 3600.0)
    monkeypatch.setattr(time, "time_ns", lambda: int(time.time() * 1e9))
    with pytest.raises(Killed):
        cli.record(backend=dies_at(6))
    for path in (cli.folder / "st").rglob("*"):  # and the files come from the future
        os.utime(path, (4e9, 4e9))
    assert trajectories(cli.record("--json")) == expected
    assert trajectories(cli("replay", "r", "--json")) == expected
    for args in (("verify",), ("score",), ("show", "r", "a"), ("gc",)):
        cli(*args)


def test_no_module_asks_what_time_it_is_but_for_metadata() -> None:
    """The claim above, in the sources: `time.time` and `datetime.now` stand where stamps are made
    and where an endpoint's date is read, below the seam."""
    asking = {
        path.relative_to(ROOT / "harness").as_posix()
        for path in (ROOT / "harness").rglob("*.py")
        for text in [path.read_text(encoding="utf-8")]
        if any(word in text for word in ("time.time(", "datetime.now(", "utcnow(", "st_mtime"))
    }
    assert asking <= {
        "live/backend.py", "live/model.py", "live/faults.py", "live/waits.py", "live/owner.py",
        "live/hub.py", "live/hub_clients.py",
    }, asking  # fmt: skip
