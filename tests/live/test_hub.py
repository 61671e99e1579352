"""The real clients of both hubs against hubs of our own. All content is invented."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.dataset import Dataset, load
from harness.errors import DataError, LackError, UsageError
from harness.live import hub as hub_module
from harness.live import hub_clients
from harness.live.hub import Fetched, fetch
from harness.live.hub_clients import Listing, RemoteFile
from harness.live.hub_errors import SITES, told
from tests.gaia_folder import LAYOUTS, row, write_folder
from tests.hubs.base import Fault, Hub, Kind
from tests.hubs.huggingface import LFS_OVER, SIGNATURE, HuggingFaceHub
from tests.hubs.modelscope import ModelScopeHub

pytest.importorskip("modelscope_hub")
pytest.importorskip("huggingface_hub")
pytest.importorskip("pyarrow")

HUBS = ("modelscope", "huggingface")
ID = "shed/colours"
TOKEN = "hf_token-canary-0123456789"
ROWS = [
    row("t1", Level=1),
    row("t2", Level=2, file_name="t2.bin"),
    row("t3", Level=3, file_name="t3.csv"),
    row("t4", Level=1, file_name="t4.txt"),
]
LARGE = bytes(range(256)) * 150
FILES = {"t2.bin": LARGE, "t3.csv": b"a,b\n1,2\n", "t4.txt": "größer\n".encode() * 200}
PART = "2023/validation"
T2, T3 = f"{PART}/t2.bin", f"{PART}/t3.csv"
assert len(LARGE) > LFS_OVER > max(len(FILES["t3.csv"]), len(FILES["t4.txt"]))


class Served:
    """One hub, the user's folders for it, and what `fetch` said."""

    def __init__(self, name: str, server: Hub) -> None:
        self.name, self.server = name, server
        self.said: list[str] = []

    @property
    def main(self) -> str:
        return "master" if self.name == "modelscope" else "main"

    def put(self, layout: str = "jsonl", *, id: str = ID, revision: str = "", **more: Any) -> Path:
        """Publish the data set, replacing the revision, with more in it than a split."""
        root = self.server.root / id / (revision or self.main)
        shutil.rmtree(root, ignore_errors=True)
        write_folder(root, ROWS, split="test", files=FILES)
        (root / "README.md").write_text("about\n")
        (root / "2022" / "validation").mkdir(parents=True)
        (root / "2022" / "validation" / "metadata.jsonl").write_text("old\n")
        return write_folder(root, more.get("rows", ROWS), layout=layout, files=FILES)

    def fetch(self, id: str = ID, **options: Any) -> Fetched:
        options.setdefault("progress", self.said.append)
        return fetch(self.name, id, **options)  # type: ignore[arg-type]

    def load(self, **options: Any) -> Dataset:
        fetched = self.fetch(**options)
        return load(fetched.root, id=fetched.id, revision=fetched.revision)

    def split_files(self) -> list[str]:
        """What there is of the split on the server."""
        root = self.server.root / ID / self.main
        return sorted(path.relative_to(root).as_posix() for path in (root / PART).iterdir())

    def cached(self) -> list[Path]:
        """All regular files that the client keeps of the data set."""
        owner = "datasets/shed--colours" if self.name == "modelscope" else "datasets--shed--colours"
        found = (Path(os.environ["CLIENT_CACHE"]) / owner).rglob("*")
        return [path for path in found if path.is_file() and not path.is_symlink()]


@pytest.fixture(scope="module", params=HUBS)
def _serving(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Hub]]:
    kind = ModelScopeHub if request.param == "modelscope" else HuggingFaceHub
    with kind(tmp_path_factory.mktemp(request.param)) as running:
        yield request.param, running


@pytest.fixture
def served(_serving: tuple[str, Hub], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Served:
    name, server = _serving
    server.forget()
    server.root = tmp_path / "hub"
    _use(name, server.url, tmp_path, monkeypatch)
    return Served(name, server)


def _use(name: str, url: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Point a client at a server and at folders of the test's own."""
    import modelscope_hub._legacy_api
    from huggingface_hub import constants

    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("MODELSCOPE_HOME", str(home / "modelscope"))
    monkeypatch.setenv("MODELSCOPE_CACHE", str(home / "cache"))
    monkeypatch.setenv("CLIENT_CACHE", str(home / "cache"))
    for site in SITES.values():
        monkeypatch.delenv(site.token_variable, raising=False)
    monkeypatch.setenv(SITES[name].endpoint_variable, url)
    # this client reads its variables when it is imported; test_silence sees them work
    template = url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "ENDPOINT", url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(home / "cache"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(home / "token"))
    # patience is theirs and is not what is tested
    monkeypatch.setattr(hub_clients, "_PAUSES", (0.0, 0.0))
    monkeypatch.setattr(modelscope_hub._legacy_api, "REPO_TREE_PAGE_MAX_ATTEMPTS", 2)
    monkeypatch.setattr(
        modelscope_hub._legacy_api, "REPO_TREE_PAGE_RETRY_MAX_DELAY_SECONDS", 0, raising=False
    )


# -------------------------------------------------------------------------------- what is fetched


@pytest.mark.parametrize("layout", LAYOUTS)
def test_only_the_split(served: Served, layout: str) -> None:
    served.put(layout)
    dataset = served.load()
    assert [item.sample.task_id for item in dataset.items] == ["t1", "t2", "t3", "t4"]
    assert [item.sample.level for item in dataset.items] == [1, 2, 3, 1]
    by_name = {item.sample.file_name: item.path for item in dataset.items if item.path}
    assert {name: path.read_bytes() for name, path in by_name.items()} == FILES
    assert served.server.files_sent() == served.split_files()
    root = served.fetch().root
    assert sorted(path.name for path in root.iterdir()) == ["2023"]
    assert sorted(path.name for path in (root / "2023").iterdir()) == ["validation"]


def test_the_other_split(served: Served) -> None:
    served.put()
    root = served.fetch(split="test").root
    assert len(load(root, split="test").items) == 4
    assert {path.rpartition("/")[0] for path in served.server.files_sent()} == {"2023/test"}


def test_one_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """B11: two hubs, two layouts, the same samples."""
    digests, ids = set(), set()
    for name, kind in (("modelscope", ModelScopeHub), ("huggingface", HuggingFaceHub)):
        for layout in LAYOUTS:
            home = tmp_path / name / layout
            with kind(home / "hub") as server:
                _use(name, server.url, home, monkeypatch)
                served = Served(name, server)
                served.put(layout)
                dataset = served.load()
            digests.add(dataset.digest)
            ids.add(tuple(item.sample.task_id for item in dataset.items))
            assert dataset.revision
            assert len(dataset.revision) == 40
    assert len(digests) == 1
    assert ids == {("t1", "t2", "t3", "t4")}


def test_again_without_a_download(served: Served) -> None:
    served.put()
    first = served.fetch()
    served.server.asked.clear()
    assert served.fetch() == first
    assert served.server.files_sent() == []
    assert served.said[-1] == (
        f"shed/colours (validation) from {SITES[served.name].label}: 4 of 4 files here and checked,"
        " 0.0 MB of 0.0 MB"
    )


def test_progress(served: Served) -> None:
    """Plain lines, from the thread that called."""
    import threading

    served.put()
    threads = set()
    lines: list[str] = []

    def progress(line: str) -> None:
        threads.add(threading.current_thread())
        lines.append(line)

    revision = served.fetch(progress=progress).revision
    assert f"revision {revision}, 4 files" in lines[0]
    assert threads == {threading.current_thread()}
    assert all(line and line.isprintable() for line in lines)


# -------------------------------------------------------------------------------------- revisions


def test_a_branch_is_pinned(served: Served) -> None:
    served.put()
    old = served.load()
    served.put(rows=ROWS[:1])
    new = served.load()
    assert (len(old.items), len(new.items)) == (4, 1)
    assert old.revision != new.revision
    # the old state is still where it was, and can be asked for
    assert served.load(revision=old.revision).digest == old.digest
    assert served.load(revision=served.main).revision == new.revision


def test_a_tag(served: Served) -> None:
    served.put()
    served.put(revision="v1", rows=ROWS[:2])
    tagged = served.load(revision="v1")
    assert len(tagged.items) == 2
    assert tagged.revision != served.fetch().revision
    assert len(str(tagged.revision)) == 40


def test_a_commit_needs_no_request(served: Served) -> None:
    served.put()
    fetched = served.fetch()
    served.server.asked.clear()
    assert served.fetch(revision=fetched.revision) == fetched
    assert served.server.asked == []
    assert served.said[-1].endswith(f"revision {fetched.revision} is here and unchanged")


def test_a_commit_asked_for_first(served: Served) -> None:
    served.put()
    revision = served.fetch().revision
    shutil.rmtree(os.environ["CLIENT_CACHE"])
    assert served.load(revision=revision).revision == revision


def test_no_commits_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the revision is the name, and what a former state left in its folder is not read."""
    with ModelScopeHub(tmp_path / "hub") as server:
        server.commits = False
        _use("modelscope", server.url, tmp_path, monkeypatch)
        served = Served("modelscope", server)
        served.put("jsonl")
        assert served.load().revision == "master"
        served.put("parquet", rows=ROWS[:3])
        dataset = served.load()
    assert dataset.revision == "master"
    assert len(dataset.items) == 3
    removed = [line for line in served.said if line.startswith("removed")]
    assert len(removed) == 1
    assert "metadata.jsonl: revision master does not have it" in removed[0]


def test_a_commit_of_another_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ModelScope names the commit that last touched a file; a later one may have removed others."""
    with ModelScopeHub(tmp_path / "hub") as server:
        _use("modelscope", server.url, tmp_path, monkeypatch)
        served = Served("modelscope", server)
        served.put(revision="v1")
        server.tells = served.fetch(revision="v1").revision
        served.put(rows=ROWS[:2])
        dataset = served.load()
    assert dataset.revision == "master"
    assert len(dataset.items) == 2


def test_a_shared_store_of_blobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """huggingface_hub 2 keeps one copy of a file for all data sets, behind a second link."""
    with HuggingFaceHub(tmp_path / "hub") as server:
        _use("huggingface", server.url, tmp_path, monkeypatch)
        served = Served("huggingface", server)
        served.put()
        blob = (served.fetch().root / T2).resolve()
        shared = tmp_path / "cache" / "blobs" / "ab" / ("ab" * 32)
        shared.parent.mkdir(parents=True)
        blob.rename(shared)
        blob.symlink_to(shared)
        path = served.load().items[1].path
    assert path is not None
    assert path.read_bytes() == LARGE


# ----------------------------------------------------------------------------------------- faults


@pytest.mark.parametrize("path", [T2, T3])
@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("cut", {"at": 3}),
        ("reset", {"at": 3}),
        ("short", {"at": 3}),
        ("corrupt", {}),
        ("status", {"status": 429, "headers": {"Retry-After": "0"}}),
        ("slow", {"pause": 0.01}),
    ],
)
def test_one_bad_transfer(served: Served, path: str, kind: Kind, more: dict[str, Any]) -> None:
    """It costs another request, and nothing else."""
    served.put()
    served.server.fault(path, kind, **more)
    dataset = served.load()
    assert {
        item.sample.file_name: item.path.read_bytes() for item in dataset.items if item.path
    } == (FILES)
    count = served.server.files_sent().count(path)
    assert count == (1 if kind in ("slow", "status") else 2)


def test_a_cut_download_goes_on(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    # what has arrived of a piece is lost, and a piece is 10 MB at Hugging Face
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 1000)
    served.put()
    served.server.fault(T2, "cut", at=20_000)
    served.fetch()
    again = [ask for ask in served.server.asked if ask.file == T2 and ask.method == "GET"]
    assert [ask.status for ask in again] == [200, 206]
    assert again[1].headers["range"] == "bytes=20000-"


@pytest.mark.parametrize("kind", ["corrupt", "short"])
@pytest.mark.parametrize("path", [T2, T3])
def test_always_wrong_bytes(served: Served, path: str, kind: Kind) -> None:
    """Refused at last, and not left in the cache for this or another program to trust."""
    served.put()
    served.server.fault(path, kind, times=-1, at=3)
    with pytest.raises(LackError) as caught:
        served.fetch()
    assert path in caught.value.message
    assert "\n" not in caught.value.message
    assert SIGNATURE not in str(caught.value)
    if kind == "corrupt":
        assert "arrives spoiled, 3 times: its " in caught.value.message
    sound = {path.read_bytes() for path in (served.server.root / ID).rglob("*") if path.is_file()}
    kept = {path.read_bytes() for path in served.cached() if path.parent.name != "refs"}
    assert not kept - sound
    served.server.forget()
    assert len(served.load().items) == 4


def test_rot_in_the_cache(served: Served) -> None:
    """What went bad on the disk is fetched again, alone."""
    served.put()
    root = served.fetch().root
    (root / T3).resolve().write_bytes(b"b,a\n2,1\n")
    served.server.asked.clear()
    assert served.load().items[2].path.read_bytes() == FILES["t3.csv"]  # type: ignore[union-attr]
    assert served.server.files_sent() == [T3]


def test_a_folder_in_the_place_of_a_file(served: Served) -> None:
    served.put()
    root = served.fetch().root
    (root / T3).unlink()
    (root / T3).mkdir()
    with pytest.raises(LackError, match=r"t3\.csv: Is a directory"):
        served.fetch()


def test_more_files_than_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"n{number}.txt" for number in range(230)]
    with ModelScopeHub(tmp_path / "hub") as server:
        _use("modelscope", server.url, tmp_path, monkeypatch)
        served = Served("modelscope", server)
        rows = [row(name, file_name=name) for name in names]
        root = server.root / ID / "master"
        write_folder(root, rows, files={name: name.encode() for name in names})
        assert len(served.load().items) == 230
    assert len(server.files_sent()) == 231


def test_an_interrupted_fetch_goes_on(served: Served) -> None:
    served.put()
    served.server.fault(T3, "status", status=404, times=-1)
    with pytest.raises(LackError, match=r"lists 2023/validation/t3\.csv in 'shed/colours', and"):
        served.fetch()
    done = served.server.files_sent()
    served.server.forget()
    assert len(served.load().items) == 4
    # what had arrived is not asked for again; what was under way may or may not have
    assert sorted({*done, *served.server.files_sent()}) == served.split_files()
    assert T3 in served.server.files_sent()
    assert not set(done) & set(served.server.files_sent())


@pytest.mark.parametrize("request_", ["tree", "info"])
def test_a_busy_listing(served: Served, request_: str) -> None:
    served.put()
    served.server.fault(request_, "status", status=429, headers={"Retry-After": "0"})
    assert len(served.load().items) == 4


# ----------------------------------------------------------------------------- who is not let in


@pytest.mark.parametrize("gate", ["files", "all"])
@pytest.mark.parametrize("sent", [None, "hf_wrong-canary-0123456789"])
def test_gated(
    served: Served, gate: Any, sent: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B05: one line: gated, where the terms are, which variable holds the token."""
    site = SITES[served.name]
    served.put()
    served.server.token, served.server.gate = TOKEN, gate
    if sent:
        monkeypatch.setenv(site.token_variable, sent)
    with pytest.raises(LackError) as caught:
        served.fetch()
    status = "(403): it is gated or private" if sent else "(401): it is gated, private or not there"
    assert caught.value.message == (
        f"{site.label} refuses access to 'shed/colours' {status}; accept its terms at"
        f" {served.server.url}/datasets/shed/colours, then put a token of that account into"
        f" {site.token_variable}"
    )
    assert caught.value.hint
    assert site.token_variable in caught.value.hint
    assert "canary" not in str(caught.value) + "".join(served.said)


def test_let_in(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    served.put()
    served.server.token, served.server.gate = TOKEN, "all"
    monkeypatch.setenv(SITES[served.name].token_variable, TOKEN)
    assert len(served.load().items) == 4
    assert TOKEN not in "".join(served.said)
    apart = [ask for ask in served.server.asked if SIGNATURE in ask.query.values()]
    assert (len(apart) > 0) == (served.name == "huggingface")
    assert not any("authorization" in ask.headers for ask in apart)


def test_a_refused_hub_is_not_replaced_by_the_cache(served: Served) -> None:
    served.put()
    served.fetch()
    served.server.token, served.server.gate = TOKEN, "all"
    with pytest.raises(LackError, match="gated"):
        served.fetch()


# ------------------------------------------------------------------------------- what is not there


def test_no_such_data_set(served: Served) -> None:
    served.put()
    site = SITES[served.name]
    with pytest.raises(LackError) as caught:
        served.fetch("shed/colors")
    assert caught.value.message == (
        f"{site.label} at {served.server.url} has no data set 'shed/colors', or hides it from you"
    )


@pytest.mark.parametrize("revision", ["v9", "0" * 40])
def test_no_such_revision(served: Served, revision: str) -> None:
    """One of the clients gives an empty folder and no error."""
    served.put()
    with pytest.raises(LackError) as caught:
        served.fetch(revision=revision)
    there = "; there are: master" if served.name == "modelscope" else ""
    assert caught.value.message == f"'shed/colours' has no revision '{revision}'{there}"
    assert served.server.files_sent() == []


def test_nothing_of_the_split(served: Served) -> None:
    """B01: both layouts are named."""
    root = served.put()
    shutil.rmtree(root / PART)
    with pytest.raises(DataError) as caught:
        served.fetch()
    assert f"{PART}/metadata.jsonl nor {PART}/metadata.parquet" in caught.value.message
    assert "shed/colours at revision " in caught.value.message


def test_attachments_alone(served: Served) -> None:
    """B01: refused before anything is fetched."""
    root = served.put()
    (root / PART / "metadata.jsonl").unlink()
    with pytest.raises(DataError, match="no samples"):
        served.fetch()
    assert served.server.files_sent() == []


@pytest.mark.parametrize("layout", ["jsonl", "parquet"])
def test_zero_samples(served: Served, layout: str) -> None:
    """B01: a metadata file without rows is fetched, and is an error when it is read."""
    served.put(layout, rows=[])
    with pytest.raises(DataError, match="no samples"):
        served.load()


@pytest.mark.parametrize("id", ["colours", "a/b/c", "../colours", "shed/..", "shed/a b", ""])
def test_malformed_id(id: str) -> None:
    with pytest.raises(UsageError, match="owner/name"):
        fetch("modelscope", id, progress=print)


def test_malformed_arguments() -> None:
    with pytest.raises(UsageError, match="validation and test"):
        fetch("modelscope", split="../..", progress=print)
    with pytest.raises(UsageError, match="modelscope and huggingface"):
        fetch("github", progress=print)  # type: ignore[arg-type]


@pytest.mark.parametrize("path", [f"{PART}/../../../x", "/etc/x", f"{PART}/..\\x", "2023/x"])
def test_a_hub_that_lists_paths_of_the_user(path: str) -> None:
    listing = Listing("main", (RemoteFile(f"{PART}/metadata.jsonl", 1), RemoteFile(path, 1)))
    with pytest.raises(DataError, match="the hub lists"):
        hub_module._check(listing, ID, PART)


@pytest.mark.parametrize("hub", HUBS)
def test_no_package(hub: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("modelscope_hub", "huggingface_hub"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(LackError, match="not installed") as caught:
        fetch(hub, progress=print)
    assert caught.value.hint == "pip install 'gaia-harness[record]'"


# --------------------------------------------------------------------------------- without the hub


@pytest.fixture
def down(served: Served) -> Callable[[], None]:
    """Called, it makes the hub answer no listing any more."""

    def stop() -> None:
        for request in ("tree", "info"):
            served.server.fault(request, "status", times=-1, status=503)

    return stop


def test_no_network(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    site = SITES[served.name]
    monkeypatch.setenv(site.endpoint_variable, "http://user:password-canary@127.0.0.1:9")
    with pytest.raises(LackError) as caught:
        served.fetch()
    assert caught.value.message.startswith(
        f"{site.label} at http://127.0.0.1:9 cannot be reached ("
    )
    assert "\n" not in caught.value.message
    assert caught.value.hint
    assert site.endpoint_variable in caught.value.hint
    assert "canary" not in str(caught.value)


def test_the_last_fetch_serves_without_the_hub(served: Served, down: Callable[[], None]) -> None:
    served.put()
    before = served.fetch()
    down()
    assert served.fetch() == before
    assert "answers with status 503" in served.said[-1]
    assert served.said[-1].endswith(f"is used as last fetched, revision {before.revision}")
    assert served.server.files_sent().count(T3) == 1


@pytest.mark.parametrize("harm", ["changed", "gone"])
def test_it_does_not_when_it_is_not_whole(
    served: Served, down: Callable[[], None], harm: str
) -> None:
    served.put()
    revision = served.fetch().revision
    down()
    for path in served.cached():
        if path.read_bytes() == FILES["t3.csv"]:
            path.unlink() if harm == "gone" else path.write_bytes(b"b,a\n2,1\n")
    for asked in (None, revision):
        with pytest.raises(LackError, match="503"):
            served.fetch(revision=asked)


@pytest.mark.parametrize("asked", [{"split": "test"}, {"id": "shed/other"}, {"revision": "v1"}])
def test_nor_for_what_was_not_asked(
    served: Served, down: Callable[[], None], asked: dict[str, str]
) -> None:
    served.put()
    served.put(id="shed/other")
    served.put(revision="v1")
    served.fetch()
    down()
    with pytest.raises(LackError, match="503"):
        served.fetch(**asked)


def test_memory_is_not_needed(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "file" / "below"))
    served.put()
    assert len(served.load().items) == 4
    assert "will not be found without the hub" in served.said[-1]


def test_a_cache_that_cannot_be_written(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MODELSCOPE_CACHE", str(tmp_path / "file"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "file"))
    served.put()
    with pytest.raises(LackError, match="cannot be written") as caught:
        served.fetch()
    assert caught.value.hint
    assert SITES[served.name].cache_variable in caught.value.hint


# ----------------------------------------------------------------------------------------- errors


class _Refused(Exception):
    status_code = 403


def test_the_cause_counts() -> None:
    """Clients wrap what they were told in exceptions that tell less."""

    def fail() -> None:
        try:
            raise _Refused
        except _Refused as error:
            raise OSError("something went wrong, check your connection") from error

    with (
        pytest.raises(LackError, match="refuses access"),
        told(SITES["huggingface"], "http://h", ID),
    ):
        fail()


def test_an_unknown_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    with pytest.raises(LackError) as caught, told(SITES["huggingface"], "http://h", ID):
        raise TypeError(f"{TOKEN} is not good for https://h/x?{SIGNATURE}\nsecond line")
    assert caught.value.message == (
        "the client of Hugging Face failed at http://h (TypeError: … is not good for …)"
    )


# ---------------------------------------------------------------------------------------- silence

_SCRIPT = """
import logging, sys
logging.basicConfig(level=logging.INFO)
from harness.live.hub import fetch
with open(sys.argv[2], "w") as said:
    fetched = fetch(sys.argv[1], "shed/colours", progress=lambda line: print(line, file=said))
    print(fetched.root, file=said)
"""


def _in_a_terminal(command: list[str], env: dict[str, str]) -> tuple[int, bytes]:
    """Status and output of a command that sees a terminal: some bars are shown nowhere else."""
    ours, theirs = pytest.importorskip("pty").openpty()
    pytest.importorskip("termios").tcsetwinsize(theirs, (24, 80))
    with subprocess.Popen(
        command, env=env, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # how the end of a terminal is told
            while piece := os.read(ours, 4096):
                shown += piece
        os.close(ours)
        return process.wait(timeout=120), shown


def test_silence(served: Served, tmp_path: Path) -> None:
    """No bar, warning or log line of a client; its variables work from a fresh start."""
    served.put()
    served.server.fault(T2, "cut", at=20_000)
    served.server.fault(T3, "corrupt")
    served.server.fault("tree", "status", status=429, headers={"Retry-After": "0"})
    keep = {name: os.environ[name] for name in ("PATH", "HARNESS_CACHE") if name in os.environ}
    fresh = keep | {
        "PYTHONPATH": os.pathsep.join(sys.path),
        "HOME": str(tmp_path),
        "MODELSCOPE_HOME": str(tmp_path / "modelscope"),
        "MODELSCOPE_CACHE": str(tmp_path / "fresh"),
        "HF_HOME": str(tmp_path / "fresh"),
        SITES[served.name].endpoint_variable: served.server.url,
        "PYTHONWARNINGS": "always",
        "API_TIMEOUT": "60",  # an old name, of which one client warns
    }
    command = [sys.executable, "-c", _SCRIPT, served.name, str(tmp_path / "said")]
    assert _in_a_terminal(command, fresh) == (0, b"")
    *_, root = (tmp_path / "said").read_text().splitlines()
    assert Path(root).is_relative_to(tmp_path / "fresh")
    assert len(load(Path(root)).items) == 4


def test_what_was_muted_speaks_again(served: Served) -> None:
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled
    from modelscope_hub import _download

    def state() -> tuple[Any, ...]:
        levels = [logging.getLogger(name).level for name in hub_clients._CHATTY]
        return levels, vars(_download)["tqdm"], are_progress_bars_disabled()

    before = state()
    served.put()
    served.fetch()
    with pytest.raises(LackError):
        served.fetch("shed/none")
    assert state() == before


def test_faults_hit_as_often_as_ordered(tmp_path: Path) -> None:
    """The hub of these tests keeps its word."""
    server = ModelScopeHub(tmp_path)
    server.fault("x", "cut", times=2, at=1)
    taken = [server.take_fault("x") for _ in range(3)]
    assert [fault.kind if isinstance(fault, Fault) else None for fault in taken] == [
        "cut",
        "cut",
        None,
    ]
