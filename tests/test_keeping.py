"""gc removes only what nothing stands on; a bundle carries a whole run, verified both ways."""

from __future__ import annotations

import gzip
import io
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from harness import runfile
from harness.bundling import read_bundle, write_bundle
from harness.collecting import collect, unused
from harness.dataset import Dataset, load
from harness.errors import DamageError, DataError, HarnessError, UsageError
from harness.records import Reply, Request, Sample
from harness.replaying import replay_run
from harness.runfile import read_run
from harness.store import Store, object_path
from harness.verifying import verify_store
from tests.scripted import Backend, config, counting, dataset, take
from tests.test_recording import failing

ROWS = [("a", 1, "a"), ("b", 2, "x"), ("c", 3, "c")]


@pytest.fixture
def data(tmp_path: Path) -> Dataset:
    return dataset(tmp_path / "data", ROWS)


@pytest.fixture
def chained(store: Store, data: Dataset) -> Store:
    """A store whose run `r` has one cassette with a parent."""
    take(store, config(data), Backend(failing))
    take(store, config(data, retry_errors=True), Backend())
    return store


def clean(store: Store) -> bool:
    return not any(bad for _, bad in verify_store(store))


def test_gc_keeps_parents_and_removes_what_nothing_names(chained: Store, data: Dataset) -> None:
    assert len(chained.objects()) == 4
    assert unused(chained) == []
    stray = chained.put(b"stray")
    assert collect(chained, dry_run=True) == ([stray], 5)
    assert chained.has(stray)
    assert collect(chained) == ([stray], 5)
    assert not chained.has(stray)
    assert len(chained.objects()) == 4
    chained.remove_run("r")
    assert len(collect(chained)[0]) == 4
    assert chained.objects() == []


def test_gc_keeps_what_a_journal_stands_on(store: Store, data: Dataset) -> None:
    take(store, config(data), Backend(failing))
    (parent,) = [e.cassette for e in read_run(store, "r").samples if e.status == "error"]
    assert parent is not None

    class Killed(BaseException):
        pass

    def dying(sample: Sample, request: Request) -> Reply:
        return Killed() if request.kind == "model" else counting(sample, request)

    with pytest.raises(Killed):
        take(store, config(data, retry_errors=True), Backend(dying))
    store.files.remove("runs/r.json")  # even where only the journal is left
    assert collect(store)[0] != []
    assert store.has(parent)


def test_gc_keeps_the_parent_of_a_cassette_whose_question_is_no_utf_8(
    store: Store, tmp_path: Path
) -> None:
    """Its lines are written by another encoder, and are still a cassette's."""
    dataset(tmp_path / "data", ROWS)
    path = tmp_path / "data" / "2023" / "validation" / "metadata.jsonl"
    path.write_text(path.read_text().replace("name of task", "name \\ud800 of task"))
    odd = load(tmp_path / "data", id="odd")
    take(store, config(odd), Backend(failing))
    take(store, config(odd, retry_errors=True), Backend())
    assert collect(store) == ([], 0)
    assert len(store.objects()) == 4
    assert clean(store)


def test_a_run_file_that_cannot_be_read_stops_gc(chained: Store) -> None:
    stray = chained.put(b"stray")
    chained.files.write("runs/r.json", b"{}")
    with pytest.raises(DamageError):
        collect(chained)
    assert chained.has(stray)


def test_gc_waits_for_no_writer_and_harms_none(chained: Store) -> None:
    stray = chained.put(b"stray")
    with chained.writer("other"), pytest.raises(UsageError, match="lock"):
        collect(Store(Path(chained.label)))
    assert chained.has(stray)


def test_gc_removes_what_dead_writers_left(chained: Store) -> None:
    left = Path(chained.label) / "runs" / ".r.json.123.tmp"
    left.write_bytes(b"half")
    collect(chained)
    assert not left.exists()


def test_gc_is_safe_beside_a_recording_process(chained: Store, tmp_path: Path) -> None:
    """A writer in another process holds the store; gc says so and removes nothing."""
    code = (
        "import sys, time\n"
        "from harness.store import Store\n"
        f"with Store({chained.label!r}).writer('w'):\n"
        "    print('ready', flush=True); sys.stdin.read()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == b"ready\n"
    stray = chained.put(b"stray")
    with pytest.raises(UsageError, match="another"):
        collect(chained)
    process.stdin.close()
    process.wait()
    assert collect(chained)[0] == [stray]


def test_a_bundle_carries_a_run_with_its_parents(
    chained: Store, data: Dataset, tmp_path: Path
) -> None:
    file = str(tmp_path / "r.bundle")
    count, size = write_bundle(chained, "r", file)
    assert count == 4
    assert size == Path(file).stat().st_size
    other = Store(tmp_path / "other")
    assert read_bundle(other, file) == ("r", 4)
    assert other.read_run("r") == chained.read_run("r")
    assert clean(other)
    report, findings = replay_run(other, "r", dataset=data)
    assert not findings
    assert all(result.identical for result in report.samples)
    again = str(tmp_path / "again.bundle")
    write_bundle(other, "r", again)
    assert Path(again).read_bytes() == Path(file).read_bytes()
    assert read_bundle(other, file, "copy") == ("copy", 4)
    assert read_run(other, "copy").name == "copy"
    assert read_bundle(other, file) == ("r", 4)  # the same again changes nothing


def test_a_bundle_does_not_replace_another_run(
    chained: Store, data: Dataset, tmp_path: Path
) -> None:
    file = str(tmp_path / "r.bundle")
    write_bundle(chained, "r", file)
    other = Store(tmp_path / "other")
    take(other, config(data, epochs=2), Backend())
    before = other.read_run("r")
    with pytest.raises(UsageError, match="another run"):
        read_bundle(other, file)
    assert other.read_run("r") == before


def test_every_flipped_byte_of_a_bundle_is_noticed(chained: Store, tmp_path: Path) -> None:
    file = tmp_path / "r.bundle"
    write_bundle(chained, "r", str(file))
    content = gzip.decompress(file.read_bytes())
    original = read_run(chained, "r")
    for at in range(0, len(content), 997):
        data = bytearray(content)
        data[at] ^= 1
        file.write_bytes(gzip.compress(bytes(data), 1))
        other = Store(tmp_path / f"other{at}")
        try:
            read_bundle(other, str(file))
        except HarnessError:
            assert not Path(other.label).exists()
        else:  # padding, or a field of the archive that nobody reads
            assert read_run(other, "r") == original
            assert clean(other)


@pytest.mark.parametrize("at", [0, 1, 10, 100, 500, -1, -8, -20])
def test_a_cut_bundle_is_refused(chained: Store, tmp_path: Path, at: int) -> None:
    file = tmp_path / "r.bundle"
    write_bundle(chained, "r", str(file))
    file.write_bytes(file.read_bytes()[:at])
    with pytest.raises(HarnessError):
        read_bundle(Store(tmp_path / "other"), str(file))
    assert not (tmp_path / "other").exists()


def archive(path: Path, members: dict[str, bytes], link: str | None = None) -> str:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
        if link:
            info = tarfile.TarInfo("objects/link")
            info.type, info.linkname = tarfile.SYMTYPE, link
            tar.addfile(info)
    return str(path)


HEAD = b'{"format": "gaia-harness-bundle", "version": 1, "run": "r"}\n'


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"other": b"x"},
        {"bundle.json": b"[" * 100_000},
        {"bundle.json": b'{"format": "other"}'},
        {"bundle.json": HEAD.replace(b"1", b"2")},
        {"bundle.json": HEAD},
        {"bundle.json": HEAD, "../../evil": b"x"},
        {"bundle.json": HEAD, "/etc/evil": b"x"},
        {"bundle.json": HEAD, "runs/../../x.json": b"{}"},
        {"bundle.json": HEAD, "objects/sha256/../../x": b"{}"},
        {"bundle.json": HEAD, object_path("sha256:" + "0" * 64): b"x"},
    ],
)
def test_hostile_bundles_leave_the_store_untouched(
    tmp_path: Path, members: dict[str, bytes]
) -> None:
    file = archive(tmp_path / "x.bundle", members)
    with pytest.raises(HarnessError) as caught:
        read_bundle(Store(tmp_path / "other"), file)
    assert caught.value.exit_code in (1, 2)
    assert not (tmp_path / "other").exists()
    assert not list(tmp_path.rglob("evil"))


def test_links_and_bombs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = archive(tmp_path / "x.bundle", {"bundle.json": HEAD}, link="/etc/passwd")
    with pytest.raises(DataError, match="no plain file"):
        read_bundle(Store(tmp_path / "other"), file)
    monkeypatch.setattr("harness.bundling.MAX_FILE", 1000)
    file = archive(tmp_path / "y.bundle", {"bundle.json": HEAD, "objects/x": b"\0" * 10_000})
    with pytest.raises(DataError, match="more than is read"):
        read_bundle(Store(tmp_path / "other"), file)


def test_a_damaged_run_is_not_bundled(chained: Store, tmp_path: Path) -> None:
    name = chained.objects()[0]
    path = object_path(name)
    chained.files.write(path, chained.files.read(path) + b" ")
    with pytest.raises(DamageError):
        write_bundle(chained, "r", str(tmp_path / "r.bundle"))
    assert not (tmp_path / "r.bundle").exists()


def test_verify_says_what_is_wrong_where(chained: Store, data: Dataset) -> None:
    assert clean(chained)
    run = read_run(chained, "r")
    run.samples[0].cassette, run.samples[1].cassette = (
        run.samples[1].cassette,
        run.samples[0].cassette,
    )
    runfile.write_run(chained, run)
    bad = [line for line, is_bad in verify_store(chained) if is_bad]
    assert len(bad) == 2
    assert "holds sample 'b'" in bad[0]
    root = Path(chained.label)
    (root / "objects" / "sha256" / "AB").mkdir()
    (root / "objects" / "sha256" / "AB" / ("0" * 62)).write_bytes(b"x")
    assert any("no object's name" in line for line, is_bad in verify_store(chained) if is_bad)


def test_verify_computes_every_digest_again(chained: Store) -> None:
    """A cassette that was edited and renamed to its new digest is still found out."""
    run = read_run(chained, "r")
    entry = run.samples[0]
    assert entry.cassette is not None
    for old, new in [
        (b"look 1", b"look 2"),
        (b'"command":"echo 1"', b'"command":"echo 7"'),
        (b'"answer":"a"', b'"answer":"b"'),
        (b"a: echo 2", b"a: echo 3"),
    ]:
        content = chained.get(entry.cassette)
        assert old in content
        run.samples[0].cassette = chained.put(content.replace(old, new))
        runfile.write_run(chained, run)
        bad = [line for line, is_bad in verify_store(chained, ["r"]) if is_bad]
        assert len(bad) == 1, old
        assert "digest" in bad[0]
        run.samples[0].cassette = entry.cassette = chained.put(content)
