"""The store: verified objects, names that are safe everywhere, locks, and two kinds that agree."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from harness.cassette import read_cassette, read_end
from harness.errors import DamageError, HarnessError, LackError, UsageError
from harness.files import Files, Memory
from harness.store import (
    Store,
    check_run_name,
    journal_path,
    object_path,
    run_path,
    sample_key,
)
from tests.json_values import texts
from tests.scripted import Backend, config, dataset, take
from tests.test_files import everything

ROOT = Path(__file__).parent.parent
RUNS = ["a", "b", "b-1.json", "0_x"]
KEYS = ["t@1", "t@2", "%54@1"]
NOWHERE = "sha256:" + "0" * 64


def name_of(data: bytes) -> str:
    return "sha256:" + sha256(data).hexdigest()


@pytest.fixture(params=["folder", "memory"])
def each(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """A new store of each kind."""
    found = Store(tmp_path / "s") if request.param == "folder" else Store.in_memory()
    found.create()
    return found


# ------------------------------------------------------------------------- the two kinds agree


class Agreement(RuleBasedStateMachine):
    """A folder and a memory store are told the same and must answer the same, as a dict would."""

    def __init__(self) -> None:
        super().__init__()
        memory = "/dev/shm" if os.path.isdir("/dev/shm") else None  # nothing to wait for there
        self.folder = tempfile.TemporaryDirectory(dir=memory)
        self.root = str(Path(self.folder.name) / "s")
        self.stores = (Store(self.root), Store.in_memory())
        self.objects: dict[str, bytes] = {}
        self.damaged: set[str] = set()
        self.run_files: dict[str, bytes] = {}
        self.journals: dict[tuple[str, str], bytes] = {}
        self.held: list[tuple[str | None, list[contextlib.ExitStack]]] = []
        for store in self.stores:
            store.create()

    def teardown(self) -> None:
        for _, stacks in self.held:
            for stack in stacks:
                stack.close()
        self.folder.cleanup()

    def both(self, act: Callable[[Store], Any]) -> Any:
        """The result, or the type of the exception, of both; they must be equal."""
        results: list[tuple[Any, str | None]] = []
        for store in self.stores:
            try:
                results.append((act(store), None))
            except (HarnessError, FileNotFoundError) as error:
                told = str(error).replace(self.root + "/", "memory:").replace(self.root, "memory:")
                if "lock" in told or "in use" in told:  # words of the operating system's own
                    told = ""
                results.append((type(error), told))
        assert results[0] == results[1]
        return results[0][0]

    def write(self, name: str, data: bytes) -> None:
        for store in self.stores:
            store.files.write(name, data)

    # -- objects

    @rule(data=st.binary(max_size=30) | st.sampled_from([b"x\ny\n", b"x\n"]))
    def put(self, data: bytes) -> None:
        assert self.both(lambda store: store.put(data)) == name_of(data)
        self.objects[name_of(data)] = data
        self.damaged.discard(name_of(data))

    @rule(choice=st.integers(0, 99), how=st.sampled_from(["flip", "cut", "crlf", "grow"]))
    def damage(self, choice: int, how: str) -> None:
        if not self.objects:
            return
        name = sorted(self.objects)[choice % len(self.objects)]
        data = self.objects[name]
        changed = {
            "flip": bytes([data[0] ^ 1]) + data[1:] if data else b"!",
            "cut": data[:-1],
            "crlf": data.replace(b"\n", b"\r\n"),
            "grow": data + b"\n",
        }[how]
        if changed != data:
            self.write(object_path(name), changed)
            self.damaged.add(name)

    @rule(choice=st.integers(0, 99))
    def remove_object(self, choice: int) -> None:
        name = [*sorted(self.objects), NOWHERE][choice % (len(self.objects) + 1)]
        self.both(lambda store: store.remove_object(name))
        self.objects.pop(name, None)
        self.damaged.discard(name)

    @rule(choice=st.integers(0, 99))
    def get(self, choice: int) -> None:
        name = [*sorted(self.objects), NOWHERE][choice % (len(self.objects) + 1)]
        found = self.both(lambda store: store.get(name, "the thing"))
        if name in self.damaged or name not in self.objects:
            assert found is DamageError
        else:
            assert found == self.objects[name]
        assert self.both(lambda store: store.has(name)) is (name in self.objects)

    # -- runs

    @rule(run=st.sampled_from(RUNS), data=st.binary(max_size=20))
    def write_run(self, run: str, data: bytes) -> None:
        assert self.both(lambda store: store.write_run(run, data)) is None
        self.run_files[run] = data

    @rule(run=st.sampled_from(RUNS))
    def read_run(self, run: str) -> None:
        expected = self.run_files.get(run, UsageError)
        assert self.both(lambda store: store.read_run(run)) == expected
        assert self.both(lambda store: store.has_run(run)) is (run in self.run_files)

    @rule(run=st.sampled_from(RUNS))
    def remove_run(self, run: str) -> None:
        self.both(lambda store: store.remove_run(run))
        self.run_files.pop(run, None)
        for name, key in list(self.journals):
            if name == run:
                del self.journals[name, key]

    # -- journals

    @rule(
        run=st.sampled_from(RUNS),
        key=st.sampled_from(KEYS),
        size=st.none() | st.integers(0, 12),
        lines=st.lists(st.tuples(st.binary(max_size=8), st.booleans()), max_size=3),
    )
    def journal(
        self, run: str, key: str, size: int | None, lines: list[tuple[bytes, bool]]
    ) -> None:
        def act(store: Store) -> None:
            file = store.open_journal(run, key, size=size)
            for data, durable in lines:
                file.append(data, durable=durable)
            file.close()

        self.both(act)
        data = self.journals.get((run, key), b"")[:size] + b"".join(data for data, _ in lines)
        self.journals[run, key] = data

    @rule(run=st.sampled_from(RUNS), key=st.sampled_from(KEYS))
    def read_journal(self, run: str, key: str) -> None:
        assert self.both(lambda store: store.read_journal(run, key)) == self.journals.get(
            (run, key)
        )

    @rule(run=st.sampled_from(RUNS), key=st.sampled_from(KEYS))
    def remove_journal(self, run: str, key: str) -> None:
        self.both(lambda store: store.remove_journal(run, key))
        self.journals.pop((run, key), None)

    # -- locks

    @rule(run=st.none() | st.sampled_from(RUNS))
    def lock(self, run: str | None) -> None:
        """`None` is the exclusive lock."""
        stacks = [contextlib.ExitStack() for _ in self.stores]

        def act(store: Store) -> None:
            stack = stacks[self.stores.index(store)]
            stack.enter_context(store.exclusive() if run is None else store.writer(run))

        told = self.both(act)
        holders = [holder for holder, _ in self.held]
        if holders if run is None else None in holders or run in holders:
            assert told is UsageError
        else:
            assert told is None
            self.held.append((run, stacks))

    @rule(choice=st.integers(0, 9))
    def unlock(self, choice: int) -> None:
        if self.held:
            _, stacks = self.held.pop(choice % len(self.held))
            for stack in stacks:
                stack.close()

    # -- what others leave behind

    @rule(
        name=st.sampled_from(
            [
                "runs/.a.json.1-2.tmp",
                "runs/x.tmp",
                "runs/notes.txt",
                "runs/..json",
                "runs/sub/deep.json",
                "runs/ends-with-a-dot..json",
                "journal/a/.t@1.jsonl.1-2.tmp",
                "journal/a/x/y.jsonl",
                "journal/a/core",
                "journal/README",
                "journal/x.tmp/t@1.jsonl",
                "journal/.hidden/t@1.jsonl",
                "objects/sha256/00/.0.1-2.tmp",
                "objects/sha256/00/README",
                "objects/sha256/AB/" + "0" * 62,
                "objects/sha256/0/0" + "0" * 62,
                "objects/sha256/" + "0" * 64,
            ]
        )
    )
    def leave(self, name: str) -> None:
        self.write(name, b"foreign")

    @invariant()
    def lists_agree(self) -> None:
        assert self.both(lambda store: store.objects()) == sorted(self.objects)
        assert self.both(lambda store: store.runs()) == sorted(
            self.run_files, key=lambda run: run + ".json"
        )
        for run in RUNS:
            keys = sorted(key + ".jsonl" for name, key in self.journals if name == run)
            found = self.both(partial(Store.journals, run=run))
            assert [key + ".jsonl" for key in found] == keys
        assert sorted(self.both(Store.all_journals)) == sorted(self.journals)


TestAgreement = Agreement.TestCase
TestAgreement.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


# ------------------------------------------------------------------------------ verified reads


@pytest.mark.parametrize("at", [0, 7, -1])
def test_one_flipped_byte_is_damage(each: Store, at: int) -> None:
    name = each.put(b"line one\nline two\n")
    data = bytearray(b"line one\nline two\n")
    data[at] ^= 1
    each.files.write(object_path(name), bytes(data))
    with pytest.raises(DamageError) as caught:
        each.get(name, "the cassette of sample 'x'")
    told = str(caught.value)
    assert told.startswith("the cassette of sample 'x' is damaged")
    assert object_path(name) in told
    assert "SHA-256" in told
    assert caught.value.exit_code == 1


def test_a_cut_or_missing_object_is_damage(each: Store) -> None:
    name = each.put(b"line one\nline two\n")
    for data in (b"", b"line one\n", b"line one\nline two"):
        each.files.write(object_path(name), data)
        with pytest.raises(DamageError, match="is damaged"):
            each.get(name)
    each.files.remove(object_path(name))
    with pytest.raises(DamageError, match=r"the thing is missing: .*" + object_path(name)):
        each.get(name, "the thing")


def test_changed_line_endings_are_called_that(each: Store) -> None:
    """A checkout that rewrites LF as CRLF (E13)."""
    name = each.put(b"line one\nline two\n")
    each.files.write(object_path(name), b"line one\r\nline two\r\n")
    with pytest.raises(DamageError, match="line endings") as caught:
        each.get(name)
    assert "-text" in str(caught.value)


@pytest.mark.parametrize("kind", ["folder", "fifo", "link"])
def test_what_is_no_file_is_damage_of_the_thing_that_was_read(tmp_path: Path, kind: str) -> None:
    store = Store(tmp_path / "s")
    store.create()
    path = tmp_path / "s" / object_path(NOWHERE)
    path.parent.mkdir(parents=True)
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to(tmp_path / "s" / "layout.json")
    with pytest.raises(DamageError, match=r"the thing is damaged: .* is not a regular file"):
        store.get(NOWHERE, "the thing")
    assert store.has(NOWHERE)


def test_damage_is_mended_by_the_same_bytes_only(each: Store) -> None:
    name = each.put(b"content")
    each.files.write(object_path(name), b"other")
    assert each.put(b"different") != name
    with pytest.raises(DamageError):
        each.get(name)
    assert each.put(b"content") == name
    assert each.get(name) == b"content"


def test_writing_an_object_again_touches_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.create()
    path = tmp_path / object_path(store.put(b"x"))
    before = path.stat()
    store.put(b"x")
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert path.stat().st_ino == before.st_ino


# ---------------------------------------------------------------------------------------- names


@given(st.binary())
def test_an_object_is_named_by_its_bytes_in_lower_case_hex(data: bytes) -> None:
    store = Store.in_memory()
    name = store.put(data)
    assert name == name_of(data)
    assert re.fullmatch(r"objects/sha256/[0-9a-f]{2}/[0-9a-f]{62}", object_path(name))
    assert store.get(name) == data
    assert store.objects() == [name]


@pytest.mark.parametrize(
    "name",
    [
        "",
        "sha256:",
        "0" * 64,
        "sha256:" + "A" * 64,
        "sha256:" + "0" * 63,
        "sha256:" + "0" * 65,
        "sha256:" + "0" * 63 + "\n",
        "sha256:" + "../" * 21 + "x",
        "SHA256:" + "0" * 64,
        "sha256:sha256:" + "0" * 57,
        "sha256:" + "٣" * 64,
        "md5:" + "0" * 64,
    ],
)
def test_only_lower_case_hex_names_an_object(each: Store, name: str) -> None:
    for refused in (each.get, each.has, object_path):
        with pytest.raises(DamageError, match="no object name"):
            refused(name)


@pytest.mark.parametrize(
    "run",
    [
        "",
        ".",
        "..",
        ".hidden",
        "-x",
        "_x",
        "a/b",
        "a\\b",
        "../x",
        "a b",
        "a:b",
        "a\0",
        "a\n",
        "ä",
        "x.",
        "x.tmp",
        "x" * 101,
        "~",
        "%41",
    ],
)
def test_what_cannot_name_a_run(each: Store, run: str) -> None:
    acts: list[Callable[[], object]] = [
        lambda: check_run_name(run),
        lambda: each.read_run(run),
        lambda: each.write_run(run, b""),
        lambda: each.remove_run(run),
        lambda: each.has_run(run),
        lambda: each.journals(run),
        lambda: each.open_journal(run, "k"),
        lambda: each.writer(run).__enter__(),
    ]
    for act in acts:
        with pytest.raises(UsageError, match="cannot name a run"):
            act()


@pytest.mark.parametrize("run", ["a", "0", "qwen3-max_2.5", "A" * 100, "x.json", "a..b"])
def test_what_can_name_a_run(each: Store, run: str) -> None:
    each.write_run(run, b"{}")
    assert each.runs() == [run]
    assert each.read_run(run) == b"{}"
    assert len(run_path(run)) < 120


def test_a_run_that_is_not_there_is_told_with_those_that_are(each: Store) -> None:
    each.write_run("one", b"{}")
    each.write_run("two", b"{}")
    with pytest.raises(UsageError, match=r"no run 'three' .*\(runs: one, two\)") as caught:
        each.read_run("three")
    assert caught.value.hint == "harness ls"


def test_two_runs_that_differ_in_case_alone_are_refused(each: Store) -> None:
    """They are one file on some disks (E14)."""
    each.write_run("Demo", b"{}")
    with pytest.raises(UsageError, match="'Demo'"):
        each.write_run("demo", b"{}")
    each.write_run("Demo", b"{1}")
    assert each.runs() == ["Demo"]


ids = texts | st.text("aA.%@-/_0", max_size=12) | st.text("aB/", min_size=60, max_size=130)


@given(st.lists(st.tuples(ids, st.integers(1, 10**6)), max_size=8, unique=True))
def test_sample_keys_are_file_names_that_differ_on_every_disk(pairs: list[tuple[str, int]]) -> None:
    """Different samples have different keys, also where case does not count (E14)."""
    keys = [sample_key(task_id, epoch) for task_id, epoch in pairs]
    assert len({key.lower() for key in keys}) == len(pairs)
    for key in keys:
        assert re.fullmatch(r"[a-z0-9%_@-][a-z0-9%._@-]*", key)
        assert len(key) <= 88
        assert len(os.fsencode(f".{key}.jsonl.4194304-9999999.tmp")) < 255


@pytest.mark.parametrize(
    ("task_id", "key"),
    [
        ("e1fc63a2-da7a-432f-be78-7c4a95598703", "e1fc63a2-da7a-432f-be78-7c4a95598703@1"),
        ("..", "%2e.@1"),
        (".a", "%2ea@1"),
        ("a/b", "a%2fb@1"),
        ("A", "%41@1"),
        ("a@1", "a%401@1"),
        ("", "@1"),
        ("é", "%c3%a9@1"),
    ],
)
def test_how_a_sample_key_looks(task_id: str, key: str) -> None:
    """Fixed: journals of older versions are found by it."""
    assert sample_key(task_id, 1) == key


def test_a_long_id_is_cut_and_told_apart_by_its_digest() -> None:
    one, other = sample_key("x" * 200 + "1", 1), sample_key("x" * 200 + "2", 1)
    assert one != other
    assert one.startswith("x" * 40 + "%-")
    assert sample_key("x" * 80, 1) == "x" * 80 + "@1"


def test_the_file_names_of_a_recorded_store(store: Store, tmp_path: Path) -> None:
    """Each unique after lower(), without a colon, shorter than 120 characters (E14)."""
    data = dataset(tmp_path / "d", [("A/b", 1, "x"), ("a/B", 2, "y"), ("..", 3, "z")])
    take(store, config(data, run="Run-" + "x" * 96), Backend())
    names = list(everything(tmp_path / "cassettes"))
    assert len(names) >= 7
    assert len({name.lower() for name in names}) == len(names)
    for name in names:
        assert ":" not in name
        assert len(name) < 120
        if name.startswith("objects/"):
            assert name == name.lower()


# --------------------------------------------------------------------------------------- layout


def test_a_new_store_is_private_and_keeps_its_line_endings(tmp_path: Path) -> None:
    Store(tmp_path / "a" / "s").create()
    assert everything(tmp_path / "a" / "s") == {
        ".gitignore": b"*\n",
        ".gitattributes": b"* -text\n",
        "layout.json": b'{"format": "gaia-harness-store", "version": 1}\n',
    }


def test_git_ignores_a_new_store_and_leaves_its_bytes_alone(tmp_path: Path) -> None:
    """With git itself: nothing is added unless forced, and CRLF conversion does not reach it."""

    def git(*args: str) -> str:
        command = ["git", "-c", "core.autocrlf=true", "-c", "core.safecrlf=false", *args]
        return subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=30
        ).stdout

    git("init", "-q")
    store = Store(tmp_path / "cassettes")
    store.create()
    name = store.put(b"one\ntwo\n")
    git("add", ".")
    assert git("ls-files") == ""
    git("add", "--force", "cassettes")
    (tmp_path / "cassettes" / object_path(name)).unlink()
    git("checkout", "--", "cassettes")
    assert store.get(name) == b"one\ntwo\n"


def test_creating_a_store_again_changes_nothing(each: Store) -> None:
    each.files.write(".gitignore", b"the owner's own\n")
    each.write_run("r", b"{}")
    Store(each.files).create()
    assert each.files.read(".gitignore") == b"the owner's own\n"
    assert each.runs() == ["r"]


@pytest.mark.parametrize("name", [".gitignore", ".gitattributes"])
def test_a_folder_that_is_something_else_is_not_made_a_store(tmp_path: Path, name: str) -> None:
    """`--store .` in a project must not replace the project's own files."""
    (tmp_path / name).write_bytes(b"my own\n")
    with pytest.raises(UsageError, match="used for something else"):
        Store(tmp_path).create()
    assert (tmp_path / name).read_bytes() == b"my own\n"
    assert not (tmp_path / "layout.json").exists()


def test_a_creation_that_was_cut_short_is_finished(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_bytes(b"*\n")
    Store(tmp_path).create()
    assert Store(tmp_path).runs() == []


@pytest.mark.parametrize(
    ("layout", "error", "told"),
    [
        (b'{"format": "gaia-harness-store", "version": 2}', UsageError, "version 2;.*version 1"),
        (b'{"format": "gaia-harness-store", "version": "1"}', UsageError, "version '1'"),
        (b'{"format": "gaia-harness-store"}', UsageError, "version None"),
        (b'{"format": "other", "version": 1}', UsageError, "no store of this program"),
        (b"[]", UsageError, "no store of this program"),
        (b"{", DamageError, r"layout\.json"),
        (b"\xff", DamageError, r"layout\.json"),
        (b'{"format": "\xff"}', DamageError, r"layout\.json"),
        (b"[" * 1_000_000, DamageError, r"layout\.json"),
        (b"", DamageError, r"layout\.json"),
    ],
)
def test_other_layouts_are_refused_by_name(
    each: Store, layout: bytes, error: type[HarnessError], told: str
) -> None:
    each.write_run("r", b"{}")
    each.files.write("layout.json", layout)
    fresh = Store(each.files)
    for act in (fresh.check, fresh.runs, lambda: fresh.read_run("r"), fresh.create):
        with pytest.raises(error, match=told):
            act()
    assert each.files.read("layout.json") == layout


def test_crlf_in_the_layout_does_no_harm(each: Store) -> None:
    each.files.write("layout.json", each.files.read("layout.json").replace(b"\n", b"\r\n"))
    assert Store(each.files).runs() == []


def test_what_is_no_store_is_refused_and_nothing_is_made(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="it has no layout") as caught:
        Store(tmp_path / "none").runs()
    assert "--store" in str(caught.value)
    assert str(tmp_path / "none") in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("root", [".", "..", "x", "x/y..", "/tmp/x"])
def test_what_a_store_calls_itself(root: str) -> None:
    assert Store(root).label == str(Path(root))


# ------------------------------------------------------------------- whole or absent (E16), disk


def test_a_run_file_and_an_object_are_whole_or_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path)
    store.create()
    store.write_run("r", b"old")
    store.put(b"before")
    before = everything(tmp_path)

    def dies(*args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", dies)
        acts: list[Callable[[], object]] = [
            lambda: store.write_run("r", b"new" * 1000),
            lambda: store.write_run("s", b"new"),
            lambda: store.put(b"new"),
        ]
        for act in acts:
            with pytest.raises(KeyboardInterrupt):
                act()
    assert everything(tmp_path) == before


def test_a_file_in_the_place_of_the_store(tmp_path: Path) -> None:
    (tmp_path / "s").write_bytes(b"")
    with pytest.raises((DamageError, UsageError)):
        Store(tmp_path / "s").runs()
    with pytest.raises(LackError) as caught:
        Store(tmp_path / "s").create()
    assert caught.value.exit_code == 3
    assert (tmp_path / "s").read_bytes() == b""


def test_removing_a_run_takes_its_journals_first(tmp_path: Path) -> None:
    """A journal without its run would be taken for one of a later run of the same name."""
    order: list[str] = []

    class Watching(Memory):
        def remove(self, name: str) -> None:
            order.append(name)
            super().remove(name)

    files: Files = Watching()
    store = Store(files)
    store.create()
    store.write_run("r", b"{}")
    store.open_journal("r", "k").append(b"x\n", durable=True)
    store.open_journal("other", "k").append(b"x\n", durable=True)
    store.remove_run("r")
    assert order == [journal_path("r", "k"), run_path("r")]
    assert store.read_journal("other", "k") == b"x\n"


def test_the_exclusive_holder_sweeps_what_dead_writers_left(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.create()
    store.put(b"x")
    leftover = tmp_path / "objects" / "sha256" / ".x.99-0.tmp"
    leftover.write_bytes(b"half")
    with store.writer("r"):
        assert leftover.exists()
    with store.exclusive():
        assert not leftover.exists()
    assert store.objects() == [name_of(b"x")]


@pytest.mark.parametrize("read", [read_cassette, read_end])
def test_a_cassette_of_another_version_is_refused_by_name(store: Store, read: Any) -> None:
    """By everybody who reads it, also where the last line is all that is wanted."""
    first = {"type": "cassette", "format": "gaia-harness-cassette", "version": 7}
    end = {"type": "end", "status": "ok", "answer": "42", "trajectory": "00", "totals": {}}
    for last in (end, {"type": "finale"}):
        name = store.put(b"".join(json.dumps(line).encode() + b"\n" for line in (first, last)))
        with pytest.raises(DamageError, match="the thing is of cassette version 7"):
            read(store, name, "the thing")


# ----------------------------------------------------------------------- locks between processes

HOLD = """
import sys
from harness.store import Store
store = Store(sys.argv[1])
with store.exclusive() if sys.argv[2] == "*" else store.writer(sys.argv[2]):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def holder(root: Path, what: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds a lock until told otherwise."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(root), what],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def test_locks_between_processes(tmp_path: Path) -> None:
    """One writer to a run, several to a store, nobody beside the exclusive one; no waiting."""
    store = Store(tmp_path)
    store.create()
    with holder(tmp_path, "r"):
        with pytest.raises(UsageError, match="another harness process"), store.writer("r"):
            pass
        with pytest.raises(UsageError, match="another harness process"), store.exclusive():
            pass
        with store.writer("s"), holder(tmp_path, "t"):
            pass
    with holder(tmp_path, "*"):
        for lock in (store.writer("r"), store.writer("s"), store.exclusive()):
            with pytest.raises(UsageError, match="another harness process"), lock:
                pass
    # both were killed, and their locks went with them
    with store.writer("r"):
        pass
    with store.exclusive():
        pass


def test_a_lock_survives_the_removal_of_what_it_guards(tmp_path: Path) -> None:
    """Removing the journals of a run must not let a second writer in beside the first."""
    store = Store(tmp_path)
    store.create()
    store.open_journal("r", "k").append(b"x\n", durable=True)
    with store.writer("r"):
        store.remove_run("r")
        assert store.journals("r") == []
        with pytest.raises(UsageError), store.writer("r"):
            pass


def test_a_refused_writer_lets_go_of_the_store(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.create()
    with store.writer("r"), pytest.raises(UsageError), store.writer("r"):
        pass
    with store.exclusive():
        pass


READ = """
import sys
from harness.store import Store
store = Store(sys.argv[1])
for run in store.runs():
    store.read_run(run)
    for key in store.journals(run):
        store.read_journal(run, key)
for name in store.objects():
    store.get(name)
    store.has(name)
store.read_journal("none", "k")
print("read")
"""


def test_readers_take_no_lock_and_make_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.create()
    store.put(b"x")
    store.write_run("r", b"{}")
    store.open_journal("r", "k").append(b"x\n", durable=True)
    with holder(tmp_path, "*"):
        before = everything(tmp_path), sorted(map(str, tmp_path.rglob("*")))
        done = subprocess.run(
            [sys.executable, "-c", READ, str(tmp_path)],
            capture_output=True, text=True, timeout=60, check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        assert done.stdout == "read\n", done.stderr
        assert (everything(tmp_path), sorted(map(str, tmp_path.rglob("*")))) == before


def test_opening_and_asking_make_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path / "none")
    assert not store.has(NOWHERE)
    assert store.objects() == []
    assert store.journals("r") == []
    assert store.read_journal("r", "k") is None
    assert not store.has_run("r")
    assert list(tmp_path.iterdir()) == []
