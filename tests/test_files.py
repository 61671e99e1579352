"""Where a store keeps its bytes: whole or absent, durable, and never outside its folder."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.errors import DamageError, LackError, UsageError
from harness.files import Files, Folder, Memory

KINDS = ("folder", "memory")
ROOT = Path(__file__).parent.parent


@pytest.fixture(params=KINDS)
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    """Each kind in turn."""
    return Folder(tmp_path / "s") if request.param == "folder" else Memory()


def python(code: str, *args: str, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run code in another process that can import the package."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-c", code, *args],
        capture_output=True, text=True, timeout=60, check=False, env=env, **more,
    )  # fmt: skip


def everything(folder: Path) -> dict[str, bytes]:
    """All files below a folder, hidden ones too."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def outer() -> Iterator[Path]:
    """A folder that other users can reach, which pytest's own are not."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield Path(name)


@contextlib.contextmanager
def unprivileged() -> Iterator[None]:
    """Another user for a while, if we are root: permissions do not bind root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


# ------------------------------------------------------------------------------ both kinds alike


def test_what_is_written_is_read_listed_and_removed(files: Files) -> None:
    assert not files.exists("a/b/c")
    assert files.listing("a") == []
    with pytest.raises(FileNotFoundError):
        files.read("a/b/c")
    files.write("a/b/c", b"1")
    files.write("a/B", b"2")
    files.write("a/b/c", b"3")
    files.write("ab", b"")
    assert files.read("a/b/c") == b"3"
    assert files.read("ab") == b""
    assert files.exists("a/B")
    assert files.listing("a") == ["a/B", "a/b/c"]
    files.remove("a/b/c")
    files.remove("a/b/c")
    files.remove("no/such/file")
    assert files.listing("a") == ["a/B"]


def test_temporary_files_are_not_listed_and_are_swept(files: Files) -> None:
    files.write("a/.x.1-2.tmp", b"half")
    files.write("a/own.tmp", b"not ours")
    files.write("a/x", b"whole")
    assert files.listing("a") == ["a/x"]
    files.sweep()
    assert not files.exists("a/.x.1-2.tmp")
    assert files.exists("a/own.tmp")
    assert files.read("a/x") == b"whole"


def test_an_appender_goes_on_behind_the_end(files: Files) -> None:
    first = files.append("j/x")
    first.append(b"one\n", durable=True)
    first.append(b"two\n", durable=False)
    first.close()
    again = files.append("j/x", size=6)
    assert files.read("j/x") == b"one\ntw"
    again.append(b"!\n", durable=True)
    again.close()
    assert files.read("j/x") == b"one\ntw!\n"
    files.append("j/x", size=100).close()  # a cut never makes a file longer
    assert files.read("j/x") == b"one\ntw!\n"
    files.append("j/x", size=0).close()
    assert files.read("j/x") == b""


def test_a_folder_stays_where_it_is_whatever_the_current_one_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user's loop may change it while a run is recorded."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    files = Folder(Path("s"))
    files.write("a/x", b"1")
    monkeypatch.chdir(tmp_path / "elsewhere")
    files.write("a/y", b"2")
    files.append("j/z").close()
    assert files.read("a/x") == b"1"
    assert files.listing("a") == ["a/x", "a/y"]
    assert everything(tmp_path) == {"s/a/x": b"1", "s/a/y": b"2", "s/j/z": b""}
    assert files.label("a/x") == "s/a/x"  # as it was named


@pytest.mark.parametrize("name", ["file", "file/below", "link"])
def test_what_is_no_folder_is_called_that(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(LackError, match=rf"cannot be written: .*{name[:4]} is no folder"):
        Folder(tmp_path / name).write("a/x", b"1")


def test_a_folder_without_a_current_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert not Folder(Path("s")).exists("a")
    Folder(tmp_path / "s").write("a", b"1")


@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize("wanted", [True, False])
def test_a_lock_is_shared_or_exclusive(files: Files, held: bool, wanted: bool) -> None:
    with files.lock("l", exclusive=held):
        if held or wanted:
            with pytest.raises(UsageError), files.lock("l", exclusive=wanted):
                pass
        else:
            with files.lock("l", exclusive=wanted):
                pass
        with files.lock("other", exclusive=True):
            pass
    with files.lock("l", exclusive=True):
        pass


def test_a_lock_ends_with_its_block_however_that_ends(files: Files) -> None:
    with pytest.raises(KeyError), files.lock("l", exclusive=True):
        raise KeyError
    with files.lock("l", exclusive=True):
        pass


# -------------------------------------------------------------------------- whole or absent (E16)


@pytest.mark.parametrize("old", [None, b"old"])
@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_write_that_fails_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: bytes | None, step: str
) -> None:
    """The disk fills up between opening the temporary file and its renaming (E16)."""
    files = Folder(tmp_path)
    if old is not None:
        files.write("a/x", old)

    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, step, full)
        with pytest.raises(LackError) as caught:
            files.write("a/x", b"new and longer")
    assert caught.value.exit_code == 3
    assert "No space left" in str(caught.value)
    assert "a/x" in str(caught.value)
    assert everything(tmp_path) == ({} if old is None else {"a/x": old})
    files.write("a/x", b"new and longer")
    assert everything(tmp_path) == {"a/x": b"new and longer"}


@pytest.mark.parametrize("old", [None, b"old"])
def test_a_process_that_dies_before_the_renaming_leaves_what_was_there(
    tmp_path: Path, old: bytes | None
) -> None:
    """Killed with the temporary file written: nobody takes it for anything (E16)."""
    files = Folder(tmp_path)
    if old is not None:
        files.write("a/x", old)
    code = (
        "import os, sys, pathlib; from harness.files import Folder\n"
        "os.replace = lambda *_: os._exit(9)\n"
        "Folder(pathlib.Path(sys.argv[1])).write('a/x', b'new')"
    )
    assert python(code, str(tmp_path)).returncode == 9
    assert b"new" in everything(tmp_path).values()
    assert files.listing("a") == ([] if old is None else ["a/x"])
    assert files.exists("a/x") is (old is not None)
    files.sweep()
    assert everything(tmp_path) == ({} if old is None else {"a/x": old})


def test_a_disk_that_is_full_for_real(tmp_path: Path) -> None:
    """A limit on the size of files stands for the disk: the kernel itself refuses the bytes."""
    code = """
import os, pathlib, resource, signal, sys
from harness.errors import LackError
from harness.files import Folder
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
files = Folder(pathlib.Path(sys.argv[1]))
journal = files.append("j/x")
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
journal.append(b"a" * 600, durable=True)
for attempt in (lambda: journal.append(b"b" * 600, durable=True),
                lambda: files.write("o/x", b"c" * 2000)):
    try:
        attempt()
    except LackError as error:
        print(error.exit_code, error)
"""
    done = python(code, str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("File too large") == 2
    assert done.stdout.count("\n3 ") + done.stdout.startswith("3 ") == 2
    assert set(everything(tmp_path)) == {"j/x"}
    assert everything(tmp_path)["j/x"].startswith(b"a" * 600)


def test_threads_that_write_one_file_do_not_meet(tmp_path: Path) -> None:
    """Each write is whole, and none fails because of the other."""
    files = Folder(tmp_path)
    contents = [bytes([65 + number]) * 50_000 for number in range(4)]
    failed: list[BaseException] = []

    def write(data: bytes) -> None:
        try:
            for _ in range(10):
                files.write("x", data)
                assert files.read("x") in contents
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(data,)) for data in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert list(everything(tmp_path)) == ["x"]


def test_what_is_written_is_synced_with_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file before its renaming, the folder after it; an append only when asked to."""
    files = Folder(tmp_path)
    files.write("a/old", b"")
    done: list[str] = []
    real_sync, real_replace = os.fsync, os.replace

    def sync(fd: int) -> None:
        done.append("folder" if Path(f"/dev/fd/{fd}").is_dir() else "file")
        real_sync(fd)

    def replace(*args: Any) -> None:
        done.append("replace")
        real_replace(*args)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "replace", replace)
    files.write("a/x", b"1")
    assert done == ["file", "replace", "folder"]
    done.clear()
    journal = files.append("a/j")
    assert done == ["folder"]
    journal.append(b"1", durable=False)
    assert done == ["folder"]
    journal.append(b"1", durable=True)
    assert done == ["folder", "file"]
    journal.close()
    done.clear()
    files.remove("a/x")
    assert done == ["folder"]


# -------------------------------------------------------------------- what is not a regular file


def put_in_place(kind: str, path: Path, outside: Path) -> None:
    """Something else than a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to(outside)
    else:
        path.symlink_to(outside.with_name("nowhere"))


OPENING: dict[str, Callable[[Files], object]] = {
    "read": lambda files: files.read("a/x"),
    "append": lambda files: files.append("a/x", size=0),
    "lock": lambda files: files.lock("a/x", exclusive=True).__enter__(),
}


@pytest.mark.parametrize("kind", ["folder", "fifo", "link", "dangling"])
@pytest.mark.parametrize("action", OPENING)
def test_only_regular_files_are_opened(tmp_path: Path, kind: str, action: str) -> None:
    """A store of a stranger leads nowhere: no link is followed, no pipe is waited for."""
    outside = tmp_path / "outside"
    outside.write_bytes(b"mine")
    files = Folder(tmp_path / "s")
    put_in_place(kind, tmp_path / "s" / "a" / "x", outside)
    assert files.exists("a/x")
    with pytest.raises(DamageError, match=r"a/x is not a regular file"):
        OPENING[action](files)
    assert everything(tmp_path)["outside"] == b"mine"
    assert not (tmp_path / "nowhere").exists()


def test_a_link_is_replaced_and_never_written_through(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"mine")
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "x").symlink_to(outside)
    Folder(tmp_path / "s").write("x", b"new")
    assert outside.read_bytes() == b"mine"
    assert Folder(tmp_path / "s").read("x") == b"new"


def test_a_file_that_is_too_large_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.files.MAX_FILE", 1 << 20)
    with open(tmp_path / "x", "wb") as file:
        file.truncate((1 << 20) + 1)
    with pytest.raises(DamageError, match="larger than 1 MiB"):
        Folder(tmp_path).read("x")


def test_a_read_error_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(fd: int, count: int) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    (tmp_path / "x").write_bytes(b"1")
    monkeypatch.setattr(os, "read", broken)
    with pytest.raises(DamageError, match=r"x cannot be read: Input/output error"):
        Folder(tmp_path).read("x")


def test_a_file_where_a_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")
    files = Folder(tmp_path)
    assert not files.exists("a/x")
    for refused in (lambda: files.read("a/x"), lambda: files.listing("a")):
        with pytest.raises(DamageError, match="Not a directory"):
            refused()
    with pytest.raises(LackError) as caught:
        files.write("a/x", b"1")
    assert str(tmp_path / "a" / "x") in str(caught.value)
    with pytest.raises(LackError):
        Folder(tmp_path / "a" / "store").append("x")


# ------------------------------------------------------------------------------------ permissions


def test_a_folder_that_may_not_be_written(outer: Path) -> None:
    """Each kind of write says so, with exit status 3, and leaves nothing half-done."""
    inner = outer / "s"
    inner.mkdir()
    (inner / "x").write_bytes(b"old")
    inner.chmod(0o555)
    files = Folder(inner)
    attempts: list[Callable[[], object]] = [
        lambda: files.write("x", b"new"),
        lambda: files.write("a/b/y", b"new"),
        lambda: files.remove("x"),
        lambda: files.append("z"),
        lambda: files.lock("l", exclusive=True).__enter__(),
    ]
    with unprivileged():
        for attempt in attempts:
            with pytest.raises(LackError, match="Permission denied") as caught:
                attempt()
            assert caught.value.exit_code == 3
            assert caught.value.hint
        assert files.read("x") == b"old"
    inner.chmod(0o755)
    assert everything(inner) == {"x": b"old"}


def test_a_folder_that_may_not_be_read_is_not_an_empty_one(outer: Path) -> None:
    inner = outer / "a" / "b"
    inner.mkdir(parents=True)
    (inner / "x").write_bytes(b"1")
    inner.chmod(0o000)
    files = Folder(outer)
    attempts: list[Callable[[], object]] = [
        lambda: files.listing("a"),
        lambda: files.exists("a/b/x"),
        lambda: files.read("a/b/x"),
    ]
    with unprivileged():
        for attempt in attempts:
            with pytest.raises(DamageError, match="Permission denied"):
                attempt()
    inner.chmod(0o755)


def test_a_disk_without_locks_is_told_from_a_lock_that_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    def unsupported(*args: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", unsupported)
    with (
        pytest.raises(LackError, match="cannot be locked"),
        Folder(tmp_path).lock("l", exclusive=True),
    ):
        pass
