"""Damaged, foreign, huge and hostile files: one line, status 2, the store as it was.

Whoever sends a log can choose every byte of it. Nothing of it is executed, no name of it is a path,
and no size that it claims is believed.
"""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.errors import HarnessError
from harness.interop import archive, evalscope, inspect_log, reading
from harness.interop.inspect_export import write_log
from harness.replaying import replay_run
from harness.runfile import read_run
from harness.showing import transcript
from harness.store import Store
from harness.verifying import verify_store
from tests.commands import Commands
from tests.hostile import STEERING, change, places
from tests.import_fixtures import (
    header,
    log_a,
    plain_archive,
    prediction,
    scope_a,
    zstd_archive,
)
from tests.test_files import everything

FIXTURES = Path(__file__).parent / "data" / "imports"
HEAD = "header.json"
OTHERS: list[Any] = [None, True, -1, 2**70, 1e308, "", "x", STEERING, [], [[]], {}, {"a": 1}]
"""What may stand where something else is expected."""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    shutil.copytree(FIXTURES / "evalscope", tmp_path / "scope")
    shutil.copytree(FIXTURES / "inspect", tmp_path / "logs")
    commands = Commands(tmp_path, monkeypatch)
    commands("import", "--from", "inspect", "logs/started.eval", "--run", "there")
    return commands


def refused(run: Commands, tool: str, path: str, *told: str) -> str:
    """The import must fail by one error that says this, and leave the store alone."""
    before = everything(run.folder / "st")
    result = run("import", "--from", tool, path, "--run", "new", status=2)
    lines = result.stderr.splitlines()
    assert len(lines) <= 2, lines  # the error and its hint
    assert lines[0].startswith("error: ")
    for text in told:
        assert text in result.stderr
    assert everything(run.folder / "st") == before
    return lines[0]


def log(*samples: Any, **more: bytes) -> bytes:
    """An archive of these samples."""
    head = header(["t-a"], epochs=1, status="success", results=None)
    members = {HEAD: json.dumps(head).encode(), **more}
    for number, sample in enumerate(samples):
        data = sample if isinstance(sample, bytes) else json.dumps(sample).encode()
        members[f"samples/{number}.json"] = data
    return plain_archive(members)


# ----------------------------------------------------------------------------------- chosen attacks


def test_files_that_are_nothing_of_the_kind(run: Commands) -> None:
    """Garbage, empty, cut off, other archives, other JSON."""
    whole = (run.folder / "logs/log.eval").read_bytes()
    other = io.BytesIO()
    with zipfile.ZipFile(other, "w") as made:
        made.writestr("a.txt", "x")
    for name, data, told in (
        ("empty.eval", b"", "no zip file"),
        ("garbage.eval", random.Random(1).randbytes(5000), "no zip file"),
        ("cut.eval", whole[: len(whole) // 2], "cut off"),
        ("tail.eval", whole[-3000:], ""),
        ("other.eval", other.getvalue(), "no inspect log"),
        ("empty.json", b"", "no JSON"),
        ("other.json", b'{"samples": []}', "eval"),
        ("list.json", b"[]", "object"),
        ("utf.json", b'{"eval": "\xff"}', ""),
    ):
        Path(name).write_bytes(data)
        refused(run, "inspect", name, told)
    refused(run, "inspect", "logs", "is a folder")
    refused(run, "evalscope", "logs", "no folder `predictions`")
    Path("bare/predictions").mkdir(parents=True)
    refused(run, "evalscope", "bare", "is empty")
    Path("bare/predictions/m").mkdir()
    refused(run, "evalscope", "bare", "gaia_<subset>.jsonl")
    Path("bare/predictions/m/gaia_x.jsonl").write_text("\n")
    refused(run, "evalscope", "bare", "no sample")


def test_names_that_lead_outside(run: Commands) -> None:
    for name in ("../x.json", "samples/../../x.json", "/etc/x.json", "..\\x"):
        Path("a.eval").write_bytes(log(**{name: b"{}"}))
        refused(run, "inspect", "a.eval", "leads outside")


def test_what_unpacks_to_too_much(run: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both compressions; the sizes that the archive claims are not believed."""
    monkeypatch.setattr(archive.Archive.read, "__defaults__", (1 << 20,))
    bomb = b'{"id": "' + b" " * (40 << 20) + b'"}'
    head = json.dumps(header(["a"], epochs=1, status="success", results=None)).encode()
    for make in (plain_archive, zstd_archive):
        Path("a.eval").write_bytes(make({HEAD: head, "samples/a.json": bomb}))
        tracemalloc.start()
        refused(run, "inspect", "a.eval", "unpacks to more than")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 30 << 20


def test_a_list_of_members_that_would_take_the_memory(run: Commands) -> None:
    data = bytearray(log(log_a(1)))
    at = data.rfind(b"PK\x05\x06")
    data[at + 12 : at + 16] = struct.pack("<I", 0x7FFFFFFF)
    Path("a.eval").write_bytes(data)
    refused(run, "inspect", "a.eval", "its list of members has")


def test_lines_without_end(run: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line longer than the limit is not read to its end; the limit itself is 64 MiB."""
    assert reading.MAX_RECORD == 64 << 20
    monkeypatch.setattr(reading, "MAX_RECORD", 1 << 20)
    path = Path("scope/predictions/toy-model/gaia_2023_level1.jsonl")
    with path.open("ab") as file:
        file.write(b'{"index": 9, "messages": [')
        file.truncate(200 << 20)  # zeros, and no disk for them
    tracemalloc.start()
    refused(run, "evalscope", "scope", "longer than")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 30 << 20
    with Path("big.json").open("wb") as file:
        file.truncate(inspect_log.MAX_LOG + 1)
    monkeypatch.setattr(inspect_log, "MAX_LOG", 1 << 20)
    refused(run, "inspect", "big.json", "larger than")


def test_a_line_of_quotes(run: Commands) -> None:
    """What is no JSON is looked through once, not once for each quote in it."""
    path = run.folder / "scope/predictions/toy-model/gaia_2023_level1.jsonl"
    path.write_bytes(b'{"index": "' + b'\\"' * 4_000_000 + b"\n")
    refused(run, "evalscope", "scope", "is no JSON")


@pytest.mark.parametrize("where", ["message", "arguments", "unknown"])
def test_deep_nesting(run: Commands, where: str) -> None:
    deep = "[" * 100_000 + "]" * 100_000
    sample, line = log_a(1), prediction(scope_a(), 0)
    if where == "message":
        sample["messages"][0]["content"] = line["messages"][0]["content"] = "DEEP"
    elif where == "arguments":
        sample["messages"][2]["tool_calls"][0]["arguments"] = "DEEP"
        line["messages"][2]["tool_calls"][0]["function"]["arguments"] = "DEEP"
    else:
        sample["unknown"] = line["unknown"] = "DEEP"
    Path("a.eval").write_bytes(log(json.dumps(sample).replace('"DEEP"', deep).encode()))
    refused(run, "inspect", "a.eval")
    path = Path("scope/predictions/toy-model/gaia_2023_level1.jsonl")
    path.write_text(json.dumps(line).replace('"DEEP"', deep))
    refused(run, "evalscope", "scope")


def test_other_versions(run: Commands) -> None:
    head = header(["a"], epochs=1, status="success", results=None)
    for version in (0, 3, 2**40):
        data = plain_archive({HEAD: json.dumps({**head, "version": version}).encode()})
        Path("a.eval").write_bytes(data)
        refused(run, "inspect", "a.eval", f"version {version}")


def test_settings_that_would_build_objects(run: Commands) -> None:
    path = Path("scope/configs/task_config.yaml")
    for text in (
        "model: !!python/object/apply:os.system ['touch owned']\n",
        "a:\n- !!python/name:os.system\n",
    ):
        path.write_text(text)
        refused(run, "evalscope", "scope", "YAML tag")
    assert not Path("owned").exists()
    path.write_bytes(b"\xff\xfe\x00")
    refused(run, "evalscope", "scope", "no UTF-8")
    path.write_text("a:\n" * 3 + "".join(" " * n + "b:\n" for n in range(1, 199)))
    run("import", "--from", "evalscope", "scope", "--run", "deep")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_what_is_no_regular_file(run: Commands) -> None:
    """A pipe is not waited for, a circle of links not walked."""
    os.mkfifo("pipe.eval")
    refused(run, "inspect", "pipe.eval", "no regular file")
    path = Path("scope/predictions/toy-model/gaia_2023_level1.jsonl")
    path.unlink()
    os.mkfifo(path)
    refused(run, "evalscope", "scope", "no regular file")
    path.unlink()
    path.symlink_to(path)
    refused(run, "evalscope", "scope")
    Path("scope/predictions/loop").symlink_to("..", target_is_directory=True)
    refused(run, "evalscope", "scope", "of 2 models")
    Path("self.eval").symlink_to("self.eval")
    result = run("import", "--from", "inspect", "self.eval", "--run", "new", status=2)
    assert "self.eval" in result.stderr


def test_counts_that_are_claimed(run: Commands) -> None:
    head = header(["a"], epochs=1, status="success", results=None)
    for where, value in (("epochs", 10**9), ("epochs", -1)):
        head["eval"]["config"][where] = value
        Path("a.eval").write_bytes(plain_archive({HEAD: json.dumps(head).encode()}))
        refused(run, "inspect", "a.eval", "epochs")
    report = {"execution_summary": {"subsets": {"2023_level1": {"requested": 10**15}}}}
    Path("scope/reports/toy-model/gaia.json").write_text(json.dumps(report))
    refused(run, "evalscope", "scope", "samples were asked for")


def test_texts_that_would_steer_a_terminal(run: Commands) -> None:
    sample = log_a(1)
    sample["id"] = STEERING
    sample["messages"][2]["content"] = STEERING
    sample["error"] = {"message": STEERING}
    Path("a.eval").write_bytes(log(sample))
    shown = [run("import", "--from", "inspect", "a.eval", "--run", "new").output]
    shown += [run(*command).output for command in (("show", "new"), ("replay", "new"))]
    assert not set("\x1b\x07\x00\x7f\u202e\x9b\x85\u2028") & set("".join(shown))


def test_the_same_sample_twice(run: Commands) -> None:
    Path("a.eval").write_bytes(log(log_a(1), log_a(1)))
    refused(run, "inspect", "a.eval", "is there twice")
    other = log_a(2)
    other["metadata"]["level"] = "3"
    Path("a.eval").write_bytes(log(log_a(1), other))
    refused(run, "inspect", "a.eval", "two levels")


def test_a_full_disk_leaves_nothing_behind(run: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    before = everything(run.folder / "st")
    puts = 0

    def put(self: Store, data: bytes) -> str:
        nonlocal puts
        puts += 1
        if puts == 3:
            raise OSError(28, "No space left on device")
        return original(self, data)

    original = Store.put
    monkeypatch.setattr(Store, "put", put)
    result = run("import", "--from", "inspect", "logs/log.eval", "--run", "new", status=3)
    assert "No space left" in result.stderr
    after = everything(run.folder / "st")
    assert {name for name in after if "journal" not in name} == {
        name for name in before if "journal" not in name
    }


# ------------------------------------------------------------------------------------ random damage


def scope_files() -> dict[str, bytes]:
    return everything(FIXTURES / "evalscope")


def members() -> dict[str, bytes]:
    found = archive.Archive(FIXTURES / "inspect" / "log.eval")
    try:
        return {name: found.read(name) for name in found.names}
    finally:
        found.close()


SCOPE, LOG = scope_files(), members()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("damage")


def attempt(place: Path, reader: Callable[..., Any], path: Path) -> None:
    """An import of damaged files: it works, or it fails by an error of ours and changes nothing."""
    shutil.rmtree(place / "st", ignore_errors=True)
    store = Store(place / "st")
    failed: HarnessError | None = None
    try:
        reader(store, str(path), "r")
    except HarnessError as error:
        failed = error
    if failed is not None:
        assert failed.exit_code in (2, 3), failed
        assert "\n" not in failed.message
        assert not (place / "st").exists()
        return
    report, _ = replay_run(store, "r")  # what was taken can be worked with
    assert all(sample.identical is None for sample in report.samples)
    assert not [line for line, bad in verify_store(store, ["r"]) if bad]
    write_log(store, read_run(store, "r"), str(place / "out.eval"))
    for sample in report.samples:
        if sample.cassette is not None:
            list(transcript(store, "r", sample.task_id, sample.epoch))


def damaged(draw: st.DataObject, data: bytes) -> bytes:
    """Bytes flipped, cut, or doubled."""
    at = draw.draw(st.integers(0, max(len(data) - 1, 0)))
    kind = draw.draw(st.sampled_from(("flip", "cut", "drop", "double")))
    if kind == "flip":
        return data[:at] + bytes([data[at] ^ (1 << draw.draw(st.integers(0, 7)))]) + data[at + 1 :]
    if kind == "cut":
        return data[:at]
    size = draw.draw(st.integers(1, 200))
    return data[:at] + data[at + size :] if kind == "drop" else data[:at] + data[at - size :]


def changed(draw: st.DataObject, value: Any) -> Any:
    """One value replaced by one of another type."""
    where = draw.draw(st.sampled_from(list(places(value))))
    value = json.loads(json.dumps(value))
    change(value, where, draw.draw(st.sampled_from(OTHERS)))
    return value


RANDOM = settings(
    max_examples=int(os.environ.get("HARNESS_EXAMPLES", "150")),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@RANDOM
@given(draw=st.data())
def test_a_damaged_folder(place: Path, draw: st.DataObject) -> None:
    shutil.rmtree(place / "scope", ignore_errors=True)
    name = draw.draw(st.sampled_from(sorted(SCOPE)))
    data = SCOPE[name]
    if name.endswith(".jsonl") and draw.draw(st.booleans()):
        lines = data.splitlines()
        at = draw.draw(st.integers(0, len(lines) - 1))
        lines[at] = json.dumps(changed(draw, json.loads(lines[at]))).encode()
        data = b"\n".join(lines)
    elif name.endswith(".json") and draw.draw(st.booleans()):
        data = json.dumps(changed(draw, json.loads(data))).encode()
    else:
        data = damaged(draw, data)
    for other, content in {**SCOPE, name: data}.items():
        path = place / "scope" / other
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    attempt(place, evalscope.import_run, place / "scope")


@RANDOM
@given(draw=st.data())
def test_a_damaged_log(place: Path, draw: st.DataObject) -> None:
    make = draw.draw(st.sampled_from((plain_archive, zstd_archive)))
    found = dict(LOG)
    name = draw.draw(st.sampled_from(sorted(found)))
    if draw.draw(st.integers(0, 2)):
        found[name] = json.dumps(changed(draw, json.loads(found[name]))).encode()
    data = make(found)
    if draw.draw(st.booleans()):
        data = damaged(draw, data)
    path = place / "a.eval"
    path.write_bytes(data)
    attempt(place, inspect_log.import_run, path)
