"""Where truths are found again, and that nothing else leaves the data set."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from harness import truths
from harness.dataset import MINI, Dataset, load
from harness.errors import DamageError, DataError, LackError, UsageError
from tests.gaia_folder import row, write_folder

NOWHERE = "sha256:" + "0" * 64


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("HARNESS_CACHE", str(folder))
    return folder


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    rows = [row("a"), row("b\ud800", Level=2, Final_answer="St. Gr\u00fcn\ud800\n"), row("c")]
    rows[2]["Final answer"] = "?"
    return load(write_folder(tmp_path / "set", rows))


def test_what_was_remembered_is_found(dataset: Dataset) -> None:
    assert truths.find(dataset.digest) is None
    truths.remember(dataset)
    assert truths.find(dataset.digest) == {
        "a": "green a",
        "b\ud800": "St. Gr\u00fcn\ud800\n",
        "c": "?",
    }
    assert truths.find(NOWHERE) is None


def test_a05_a_withheld_truth_comes_back_as_such(dataset: Dataset) -> None:
    truths.remember(dataset)
    for given in (None, dataset):
        found = truths.find(dataset.digest, dataset=given)
        assert found is not None
        assert found["c"] == "?"


def test_the_packaged_set_is_found_without_a_cache() -> None:
    mini = load(MINI)
    found = truths.find(mini.digest)
    assert found == {item.sample.task_id: item.truth for item in mini.items}


def test_a_given_data_set_comes_first_and_must_be_the_one(dataset: Dataset, tmp_path: Path) -> None:
    truths.remember(dataset)
    corrected = [row("a", Final_answer="red"), row("b\ud800", Level=2), row("c")]
    same = load(write_folder(tmp_path / "corrected", corrected))
    assert same.digest == dataset.digest
    found = truths.find(dataset.digest, dataset=same)
    assert found is not None
    assert found["a"] == "red"
    other = load(write_folder(tmp_path / "other", [row("z")]))
    with pytest.raises(UsageError) as caught:
        truths.find(dataset.digest, dataset=other)
    assert dataset.digest in caught.value.message
    assert other.digest in caught.value.message


def test_the_latest_data_set_of_a_digest_wins(dataset: Dataset, tmp_path: Path) -> None:
    truths.remember(dataset)
    corrected = [row("a", Final_answer="red"), row("b\ud800", Level=2), row("c")]
    truths.remember(load(write_folder(tmp_path / "corrected", corrected)))
    found = truths.find(dataset.digest)
    assert found is not None
    assert found["a"] == "red"


@pytest.mark.skipif(os.name == "nt", reason="POSIX modes")
def test_the_file_is_private_holds_no_question_and_leaves_no_temporary(
    dataset: Dataset, cache: Path
) -> None:
    path = truths.remember(dataset)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    assert "shed" not in path.read_text()
    assert [file for file in cache.rglob("*") if file.is_file()] == [path]
    assert len(path.read_text().splitlines()) == 1 + len(dataset.items)


def test_remembering_again_writes_nothing(dataset: Dataset) -> None:
    path = truths.remember(dataset)
    before = path.stat()
    truths.remember(dataset)
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_an_interrupted_write_leaves_the_old_file(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = truths.remember(dataset)
    corrected = [row("a", Final_answer="red"), row("b\ud800", Level=2), row("c")]
    newer = load(write_folder(tmp_path / "corrected", corrected))

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(LackError, match="No space left"):
        truths.remember(newer)
    assert list(path.parent.iterdir()) == [path]
    found = truths.find(dataset.digest)
    assert found is not None
    assert found["a"] == "green a"


def damages(good: bytes) -> dict[str, bytes]:
    head, _, rows = good.partition(b"\n")
    return {
        "empty": b"",
        "cut": good[:-5],
        "lines lost": b"\n".join(good.split(b"\n")[:2]) + b"\n",
        "flipped": good.replace(b"green a", b"green b"),
        "line ends": good.replace(b"\n", b"\r\n"),
        "head lost": rows,
        "noise": b"\x00\xff" * 99,
        "deep": b"[" * 100_000,
        "other set": good.replace(head[-150:-80], head[-150:-80][::-1]),
    }


@pytest.mark.parametrize("kind", sorted(damages(b"x\n")))
def test_a_damaged_file_is_named_and_not_used(dataset: Dataset, kind: str) -> None:
    path = truths.remember(dataset)
    path.write_bytes(damages(path.read_bytes())[kind])
    with pytest.raises(DamageError) as caught:
        truths.find(dataset.digest)
    assert str(path) in caught.value.message
    assert "green" not in str(caught.value)
    assert truths.find(dataset.digest, dataset=dataset)
    truths.remember(dataset)
    assert truths.find(dataset.digest)


def test_a_file_under_another_name_is_damage(dataset: Dataset) -> None:
    path = truths.remember(dataset)
    path.rename(path.with_name("0" * 64 + ".jsonl"))
    with pytest.raises(DamageError, match="another data set"):
        truths.find(NOWHERE)


def test_another_version_is_refused_by_name(dataset: Dataset) -> None:
    path = truths.remember(dataset)
    path.write_bytes(path.read_bytes().replace(b'"version": 1', b'"version": 2'))
    with pytest.raises(DataError, match="version 2"):
        truths.find(dataset.digest)


@pytest.mark.parametrize("digest", ["", "sha256:../../../etc/passwd", "0" * 64, NOWHERE + "\n"])
def test_what_is_no_digest_names_no_file(digest: str) -> None:
    with pytest.raises(DataError, match="no data-set digest"):
        truths.find(digest)


def test_a_cache_that_cannot_be_written_says_so(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "file"))
    with pytest.raises(LackError, match="HARNESS_CACHE"):
        truths.remember(dataset)
    assert truths.find(dataset.digest) is None


@pytest.mark.skipif(os.name == "nt", reason="POSIX places")
def test_the_place_of_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert truths.cache_folder() == tmp_path / "cache"
    monkeypatch.setenv("HARNESS_CACHE", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert truths.cache_folder() == tmp_path / "xdg" / "gaia-harness"
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for unusable in ("", "relative/folder"):
        monkeypatch.setenv("XDG_CACHE_HOME", unusable)
        assert truths.cache_folder() == tmp_path / "home" / ".cache" / "gaia-harness"


def test_without_a_home_there_is_no_cache(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    def homeless() -> Path:
        raise RuntimeError

    for name in ("HARNESS_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(LackError, match="HARNESS_CACHE"):
        truths.remember(dataset)
    assert truths.find(dataset.digest) is None
