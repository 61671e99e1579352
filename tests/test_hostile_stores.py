"""Stores that were written to attack: one clear error, nothing outside touched, nothing executed.

Whoever sends a store can choose every byte of it, names and digests included. A command on it ends
with a status of ours and a line that says what is wrong, or reads it rightly; it never ends with a
traceback, never follows a link, never sends a control character to the terminal.
"""

from __future__ import annotations

import ast
import json
import os
import socket
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from click.testing import Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.bundling import write_bundle
from harness.cassette import Tape, decode_lines, read_cassette
from harness.errors import DamageError
from harness.records import BashReply, BashRequest, Settings
from harness.runfile import read_run, write_run
from harness.store import Store, journal_path, object_path, sample_key
from tests import hostile
from tests.commands import NOWHERE, Commands, command, recording
from tests.hostile import STEERING, all_places, assemble, change, parts
from tests.scripted import Backend, call, config, counting, dataset, says, take
from tests.test_files import everything

ROOT = Path(__file__).parent.parent
LONG = os.environ.get("HARNESS_LONG") == "1"
MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None  # nothing to wait for there

READING: list[tuple[str, ...]] = [
    ("ls",),
    ("ls", "--json"),
    ("show", "r"),
    ("show", "r", "--json"),
    ("show", "r", "--raw"),
    ("show", "r", "a"),
    ("show", "r", "a", "--raw"),
    ("verify",),
    ("verify", "r"),
    ("score", "--dataset", "data", "--explain", "--show-truths"),
    ("score", "r", "--json"),
    ("replay", "--dataset", "data"),
    ("replay", "r", "--json"),
    ("replay", "r", "--agent", "tests.hostile:other"),
    ("replay", "r", "--agent", "tests.hostile:other", "--json"),
    ("replay", "r", "--match-on", "model"),
    ("replay", "r", "--plan", "--agent", "tests.hostile:other", "--on-divergence", "fork"),
    ("diff", "r", "s"),
    ("diff", "s", "r", "--json"),
    ("gc", "--dry-run"),
    ("bundle", "r", "-o", "r.bundle"),
    ("export", "r", "--format", "jsonl", "-o", "r.jsonl"),
    ("export", "s", "--format", "leaderboard", "--traces", "-o", "-"),
    ("export", "r", "--format", "leaderboard", "--traces", "--pad", "-o", "-"),
]
"""Commands that change nothing in the store."""

WRITING: list[tuple[str, ...]] = [
    recording("r", *hostile.OPTIONS, "--retry-errors"),
    ("replay", "r", "--agent", "tests.hostile:other", "--on-divergence", "fork", "--as", "f",
     "--dataset", "data", "--mcp", "mcp.json", "--api-url", NOWHERE),
    ("replay", "r", "--match-on", "model", "--as", "l"),
    ("gc",),
    ("rm", "r"),
]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _scripted() -> Iterator[None]:
    """What a recording or a fork asks is scripted."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("harness.cli.record.connect", lambda *_: hostile.RichBackend())
        patched.delenv("OPENAI_API_KEY", raising=False)
        patched.delenv("HARNESS_STORE", raising=False)
        yield


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    """A folder with the data set and a whole run `r`."""
    dataset(tmp_path / "data", [("a", 1, "a"), ("b", 2, "x")])
    found = Commands(tmp_path, monkeypatch)
    found.record()
    return found


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to assemble a store in, which the commands find."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HARNESS_STORE", str(tmp_path / "st"))
    (tmp_path / "mcp.json").write_text('{"mcpServers": {"web": {"command": "false"}}}')
    return tmp_path


def steers(text: str) -> set[str]:
    """Characters in an output that a terminal would obey."""
    return {c for c in text if (ord(c) < 32 and c not in "\n\t") or c in "\x7f\u202e\u2028\x85\x9b"}


def decent(result: Result, args: tuple[str, ...]) -> None:
    """The promise, for one command: a status of ours, an error that is told, no control character.

    `command` has seen to it that there was no traceback.
    """
    # a loop that the run file names, an image that it was recorded with: these may be lacking
    lacks = "cannot be imported" in result.stderr or "recorded with" in result.stderr
    assert result.exit_code in (0, 1, 2, 4, *((3,) if lacks else ())), (args, result.output)
    assert not steers(result.output), (args, steers(result.output), result.output)
    if result.exit_code in (1, 2) and "--json" not in args:
        assert result.output.strip(), args
    if result.exit_code == 2:
        assert len(result.stderr.splitlines()) < 30, result.stderr


def decent_all(commands: list[tuple[str, ...]]) -> list[Result]:
    found = []
    for args in commands:
        found.append(command(*args))
        decent(found[-1], args)
    return found


def test_the_store_that_is_taken_apart_is_whole(work: Path) -> None:
    """Put together unchanged, everything about it is right: what follows tests the changes."""
    assemble(work, parts())
    for args, result in zip(READING, decent_all(READING), strict=True):
        leaves = "tests.hostile:other" in args and "--plan" not in args
        if "--match-on" not in args:
            assert result.exit_code == (1 if leaves else 0), (args, result.output)
    tape = read_cassette(Store(work / "st"), child_of(work), "x")
    kinds = {type(line).__name__ for line in tape.lines}
    assert kinds >= {
        "Header", "Tools", "MessageLine", "ModelEffect", "BashEffect", "ToolEffect", "ValueEffect",
        "Resumed", "End",
    }  # fmt: skip
    assert len(tape.parents()) == 1
    statuses = [result.exit_code for result in decent_all(WRITING)]
    assert statuses[:2] + statuses[3:] == [0, 0, 0, 0]


def child_of(work: Path) -> str:
    name = read_run(Store(work / "st"), "r").samples[0].cassette
    assert name is not None
    return name


# ---------------------------------------------------------------------------------- wrong types

DEEP: Any = None
for _ in range(600):
    DEEP = [DEEP]

NEW: tuple[Any, ...] = (
    None, True, -1, 0, 10**30, 1.5, "", "x", STEERING, "sha256:" + "../" * 21 + "x",
    [], {}, [None], [[]], {"x": None}, [{"x": 1}], DEEP,
)  # fmt: skip
"""What is put in the place of a value."""


def attack(place: hostile.Path_, new: Any) -> None:
    """Every command on a store with one value changed."""
    with TemporaryDirectory(dir=MEMORY) as name, pytest.MonkeyPatch.context() as patched:
        folder = Path(name)
        changed = parts()
        change(changed, place, new)
        assemble(folder, changed)
        (folder / "mcp.json").write_text('{"mcpServers": {"web": {"command": "false"}}}')
        patched.chdir(folder)
        patched.setenv("HARNESS_STORE", str(folder / "st"))
        decent_all(READING)
        before = everything(folder / "data")
        decent_all(WRITING)
        assert everything(folder / "data") == before


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_value_of_another_type(data: st.DataObject) -> None:
    """One JSON value of a valid store becomes another; digests and names are made to fit it."""
    place = data.draw(st.sampled_from(all_places()), label="place")
    attack(place, data.draw(st.sampled_from(NEW), label="new"))


@pytest.mark.parametrize(
    "place", [("samples", 0, "task_id"), ("samples", 1, "task_id"), ("samples", 1, "epoch")]
)
def test_a_sample_that_the_data_set_does_not_have(place: hostile.Path_) -> None:
    """Found by the test above: it is told, and the others are recorded."""
    attack(("run", *place), 7 if place[-1] == "epoch" else "x")


@pytest.mark.skipif(not LONG, reason="every place and value: minutes (HARNESS_LONG=1)")
def test_every_value_of_every_type() -> None:
    for place in all_places():
        for new in NEW:
            attack(place, new)


def test_numbers_that_are_none(cli: Commands) -> None:
    """NaN, infinities, numbers beyond all bounds: no JSON, whatever Python's own reader says."""
    original = cli.store.get(entry(cli).cassette or "")
    for number in (b"NaN", b"-Infinity", b"1e999", b"9" * 5000):
        line = (
            b'{"type":"value","digest":"00","request":{"name":"\\ud800"},"reply":' + number + b"}"
        )
        first, _, rest = original.partition(b"\n")
        name = cli.store.put(first + b"\n" + line + b"\n" + rest)
        point_to(cli, name)
        for args in (("replay", "r"), ("verify", "r"), ("show", "r", "a"), ("gc",)):
            result = cli(*args, status=None)
            assert result.exit_code == 1, (number[:9], args, result.output)
            assert "damaged" in result.output


def entry(cli: Commands, run: str = "r") -> Any:
    """The line of sample a in the run file."""
    return read_run(cli.store, run).samples[0]


def point_to(cli: Commands, cassette: str) -> None:
    """Make the run file name another cassette for sample a."""
    run = read_run(cli.store, "r")
    run.samples[0].cassette = cassette
    write_run(cli.store, run)


# -------------------------------------------------------------------- names that lead out

UP = "../" * 12 + "etc/passwd"
NAMES = [
    UP,
    "/etc/passwd",
    "..",
    ".",
    "a/../../b",
    "C:\\x",
    "\\\\host\\x",
    "a\0b",
    "%2e%2e%2f",
    "\n",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_run_name_leads_nowhere(cli: Commands, name: str) -> None:
    """On the command line of every command that takes one."""
    before = everything(cli.folder)
    for args in (
        ("replay", name), ("score", name), ("show", name), ("verify", name), ("rm", name),
        ("diff", name, "r"), ("diff", "r", name), ("bundle", name, "-o", "x"),
        ("replay", "r", "--match-on", "model", "--as", name),
    ):  # fmt: skip
        decent(cli(*args, status=None), args)
        assert cli(*args, status=None).exit_code in (1, 2), args
    assert cli.record(run=name, status=None).exit_code == 2
    assert everything(cli.folder) == before


@pytest.mark.parametrize("name", NAMES)
def test_a_task_id_or_a_file_name_on_a_tape_leads_nowhere(
    cli: Commands, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A task id becomes a journal's file name, escaped; a file name is shown and nothing else."""
    sample = {"task_id": name, "question": "?", "level": 1, "file_name": name}
    lines = cli.store.get(entry(cli).cassette or "").splitlines(keepends=True)
    header = json.loads(lines[0])
    header["sample"] = sample
    run = read_run(cli.store, "r")
    run.samples[0].task_id = name
    run.samples[0].cassette = cli.store.put(
        json.dumps(header).encode() + b"\n" + b"".join(lines[1:])
    )
    write_run(cli.store, run)
    key = sample_key(name, 1)
    assert "/" not in key
    outside = everything(cli.folder / "data")
    for args in (("replay", "r"), ("show", "r"), ("verify",), ("score",), ("show", "r", name)):
        decent(cli(*args, status=None), args)
    # a fork writes a journal and a cassette for that sample
    decent_all([("replay", "r", "--match-on", "model", "--as", "f")])
    assert everything(cli.folder / "data") == outside
    written = {path.name for path in cli.folder.iterdir()}
    assert written <= {"data", "st"}, written


@pytest.mark.parametrize(
    "name", ["sha256:" + "../" * 21 + "x", "../../etc/passwd", "sha256:" + "A" * 64, "", STEERING]
)
@pytest.mark.parametrize("place", ["run", "parent", "wire"])
def test_an_object_name_leads_nowhere(cli: Commands, name: str, place: str) -> None:
    if place == "run":
        point_to(cli, name)
    else:
        lines = cli.store.get(entry(cli).cassette or "").splitlines(keepends=True)
        at = (
            0 if place == "parent" else next(i for i, x in enumerate(lines) if b'"model"' in x[:20])
        )
        line = json.loads(lines[at])
        if place == "parent":
            line["parent"] = {"cassette": name, "lines": 1, "effects": 0}
        else:
            line["meta"] = {"wire": [name]}
        lines[at] = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        point_to(cli, cli.store.put(b"".join(lines)))
    for args in (("verify",), ("gc",), ("bundle", "r", "-o", "x.bundle"), ("replay", "r")):
        result = cli(*args, status=None)
        decent(result, args)
        if place != "wire" or args[0] != "replay":
            assert result.exit_code == 1, (args, result.output)
            assert "no object name" in result.output, (args, result.output)
    assert len(cli.store.objects()) >= 2  # gc stopped


# ------------------------------------------------------------------------------ what is no file

WRITES: list[tuple[str, ...]] = [
    recording("r", "--overwrite"), recording("new"), ("gc",), ("rm", "r"),
    ("replay", "r", "--match-on", "model", "--as", "l"), ("unbundle", "r.bundle", "--as", "u"),
]  # fmt: skip


@pytest.mark.parametrize(
    "where",
    ["runs", "journal", "journal/r", "journal/new", "objects", "objects/sha256", "object folder",
     "runs/r.json", "object", "layout.json", "journal/.lock"],
)  # fmt: skip
def test_a_link_is_not_followed(cli: Commands, where: str) -> None:
    """To a file or a folder outside: nothing there is read as part of the store, written, removed.

    A link to a folder is the worse one: `rm` would empty it.
    """
    write_bundle(cli.store, "r", "r.bundle")
    outside = cli.folder / "outside"
    outside.mkdir()
    hexes = (entry(cli).cassette or "").removeprefix("sha256:")
    place = cli.folder / "st" / {
        "object folder": f"objects/sha256/{hexes[:2]}",
        "object": f"objects/sha256/{hexes[:2]}/{hexes[2:]}",
    }.get(where, where)  # fmt: skip
    if place.is_file():
        target = outside / "file"
        place.rename(target)
    else:
        target = outside / "folder"
        if place.exists():
            place.rename(target)
        else:
            target.mkdir()
        (target / "precious.jsonl").write_bytes(b"mine")
        (target / ".precious.tmp").write_bytes(b"mine")
    place.symlink_to(target)
    before = everything(outside)
    if where not in ("journal/.lock", "journal/new"):
        assert cli("verify", status=None).exit_code == 1
    for args in [*READING, *WRITES]:
        if args[0] == "diff" or "tests.hostile:other" in args:
            continue
        result = cli(*args, status=None)
        assert result.exit_code in (0, 1, 2, 3), (args, result.output)
        assert everything(outside) == before, args


@pytest.mark.parametrize("kind", ["folder", "fifo", "socket"])
@pytest.mark.parametrize("where", ["runs/r.json", "object", "layout.json", "journal/r/a@1.jsonl"])
def test_what_is_no_file_is_told_at_once(cli: Commands, where: str, kind: str) -> None:
    """A pipe that nobody writes to is not waited for."""
    write_bundle(cli.store, "r", "r.bundle")
    name = object_path(entry(cli).cassette or "") if where == "object" else where
    place = cli.folder / "st" / name
    place.unlink(missing_ok=True)
    place.parent.mkdir(exist_ok=True)
    if kind == "folder":
        place.mkdir()
    elif kind == "fifo":
        os.mkfifo(place)
    else:
        with socket.socket(socket.AF_UNIX) as found:
            os.chdir(place.parent)  # the name of a socket may not be long
            found.bind(place.name)
            os.chdir(cli.folder)
    for args in [*READING, ("gc",), recording("r", "--retry-errors")]:
        if args[0] == "diff" or "tests.hostile:other" in args:
            continue
        result = cli(*args, status=None)
        assert result.exit_code in (0, 1, 2, 3), (args, result.output)
    if kind != "folder":  # one is simply not in the list of runs, or of journals
        assert "not a regular file" in cli("verify", status=1).output
    elif not where.startswith("journal"):
        assert "not a regular file" in cli("show", "r", "a", status=1).output


# ---------------------------------------------------------------------------- sizes and depths

NESTED = {"lists": b"[" * 1_000_000, "objects": b'{"a":' * 1_000_000}


@pytest.mark.parametrize("nested", NESTED)
@pytest.mark.parametrize("place", ["run", "layout", "header", "line", "end", "journal"])
def test_a_million_levels(cli: Commands, place: str, nested: str) -> None:
    deep = NESTED[nested]
    closed = deep + b"1" + (b"]" if nested == "lists" else b"}") * 1_000_000
    for data in (deep, closed):
        lines = cli.store.get(entry(cli).cassette or "").splitlines(keepends=True)
        files = cli.store.files
        saved = {name: files.read(name) for name in ("layout.json", "runs/r.json")}
        if place == "run":
            files.write("runs/r.json", b'{"environment":' + data + b"," + saved["runs/r.json"][1:])
        elif place == "layout":
            files.write("layout.json", data)
        elif place == "journal":
            files.write(journal_path("r", sample_key("a", 1)), lines[0] + data + b"\n")
        else:
            at = {"header": 0, "line": 2, "end": -1}[place]
            lines[at] = (
                b'{"type":"value","digest":"","request":{"name":""},"reply":' + data + b"}\n"
            )
            point_to(cli, cli.store.put(b"".join(lines)))
        for args in (("verify",), ("replay", "r"), ("score", "r"), ("show", "r", "a"), ("gc",)):
            result = cli(*args, status=None)
            assert result.exit_code in (0, 1, 2), args
            assert len(result.output) < 5000, args
        told = cli("verify", status=None)
        assert told.exit_code in (1, 2)
        assert {"run": "run file of 'r'", "layout": "layout.json", "journal": "journal"}.get(
            place, "sample 'a'"
        ) in told.output
        for name, content in saved.items():
            files.write(name, content)
        cli.store.remove_journals("r")


@pytest.mark.parametrize("depth", [60, 200, 500, 950])
def test_a_value_that_is_read_but_cannot_be_worked_on(cli: Commands, depth: int) -> None:
    """Nested as deep as the reader takes: what comes later stands on a higher stack."""
    deep = b"[" * depth + b"]" * depth
    lines = cli.store.get(entry(cli).cassette or "").splitlines(keepends=True)
    at = next(i for i, line in enumerate(lines) if line.startswith(b'{"type":"message"'))
    lines[at] = b'{"type":"message","message":{"role":"user","content":' + deep + b"}}\n"
    point_to(cli, cli.store.put(b"".join(lines)))
    commands: list[tuple[str, ...]] = [
        ("verify",), ("replay", "r"), ("show", "r", "a"), ("diff", "r", "r"),
        ("replay", "r", "--agent", "tests.hostile:other"), ("bundle", "r", "-o", "x.bundle"),
        ("replay", "r", "--match-on", "model", "--as", "l"), recording("r", "--retry-errors"),
    ]  # fmt: skip
    decent_all(commands)
    assert "sample 'a'" in cli("verify", status=1).output
    replayed = cli("replay", "r", status=None)
    assert replayed.exit_code == 0 or "sample 'a'" in replayed.output


@pytest.mark.parametrize("megabytes", [20, pytest.param(200, marks=pytest.mark.skipif(
    not LONG, reason="200 MB lines (HARNESS_LONG=1)"))])  # fmt: skip
@pytest.mark.parametrize("kind", ["text", "garbage", "numbers"])
def test_a_very_long_line(cli: Commands, kind: str, megabytes: int) -> None:
    """Read once, told in a few words or in none at all; a file beyond the bound is not read."""
    size = megabytes << 20
    filling = {"text": b'"' + b"x" * size + b'"', "garbage": b"[" + b"x" * size,
               "numbers": b"[" + b"1," * (size // 2) + b"1]"}[kind]  # fmt: skip
    lines = cli.store.get(entry(cli).cassette or "").splitlines(keepends=True)
    line = b'{"type":"value","digest":"00","request":{"name":"x"},"reply":' + filling + b"}\n"
    point_to(cli, cli.store.put(b"".join([lines[0], line, *lines[1:]])))
    for args in (("verify", "r"), ("replay", "r"), ("show", "r", "a"), ("score", "r")):
        result = cli(*args, status=None)
        assert len(result.output) < 100_000, args
        # the line has a digest that is not its own, or is no JSON; answers stand in the last line
        if args[0] in ("verify", "replay") or (args[0] == "show" and kind == "garbage"):
            assert result.exit_code == 1, (args, result.output[:500])
        else:
            assert result.exit_code == 0, (args, result.output[:500])


def test_a_file_beyond_the_bound_is_not_read(
    cli: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bound is on what is read into memory, whatever a file says it holds (a sparse one)."""
    path = cli.folder / "st" / object_path(entry(cli).cassette or "")
    with path.open("r+b") as file:
        file.truncate(600 << 20)
    for args in (("replay", "r"), ("verify",), ("show", "r", "a"), ("score", "r")):
        result = cli(*args, status=1)
        assert "larger than 512 MiB" in result.output, args


# --------------------------------------------------------------------------------- chains and bombs


def chain(cli: Commands, length: int) -> None:
    """Give the run's cassette that many parents; each child keeps all but its parent's end."""
    name = entry(cli).cassette or ""
    lines = cli.store.get(name).splitlines(keepends=True)
    kept = len(lines) - 1
    header, end = json.loads(lines[0]), lines[-1]
    for _ in range(length):
        header["parent"] = {"cassette": name, "lines": kept, "effects": 0}
        data = json.dumps(header, separators=(",", ":")).encode() + b"\n" + end
        kept += 1
        name = "sha256:" + sha256(data).hexdigest()
        path = cli.folder / "st" / object_path(name)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)  # without the store's syncing: nobody waits for ten thousand
    point_to(cli, name)


def test_ten_thousand_parents(cli: Commands) -> None:
    """No recursion, and one pass: a chain is read in a time that grows with its length."""
    chain(cli, 10_000)
    for args in (("replay", "r"), ("verify", "r"), ("gc", "--dry-run"), ("score", "r")):
        result = cli(*args)
        assert len(result.output) < 10_000, args
    tape = read_cassette(cli.store, entry(cli).cassette, "x")
    assert len(tape.parents()) == 10_000


@pytest.mark.parametrize(
    ("lines", "told"),
    [(0, "no line 0"), (-1, "no line -1"), (99, "no line 99"), (10**9, "no line")],
)
def test_a_parent_that_is_too_short(cli: Commands, lines: int, told: str) -> None:
    name = entry(cli).cassette or ""
    first, _, rest = cli.store.get(name).partition(b"\n")
    header = json.loads(first)
    header["parent"] = {"cassette": name, "lines": lines, "effects": 0}
    point_to(cli, cli.store.put(json.dumps(header).encode() + b"\n" + rest))
    assert told in cli("verify", status=1).output
    assert told in cli("replay", "r", status=1).output


def test_a_circle_of_parents_is_damage(cli: Commands) -> None:
    """It cannot be made without breaking SHA-256; with names that lie, the lie is told."""
    name = entry(cli).cassette or ""
    first, _, rest = cli.store.get(name).partition(b"\n")
    header = json.loads(first)
    header["parent"] = {"cassette": name, "lines": 1, "effects": 0}
    cli.store.files.write(object_path(name), json.dumps(header).encode() + b"\n" + rest)
    for args in (("replay", "r"), ("verify",), ("gc",), ("show", "r", "a")):
        assert "no longer has the SHA-256" in cli(*args, status=1).output, args


def unfolding(*contents: str) -> Tape:
    """A tape whose messages, from line 3 on, are made of these parts."""
    head = (
        '{"type":"cassette","format":"gaia-harness-cassette","version":1,"sample":{"task_id":"a",'
        '"question":"?","level":1},"agent":{"name":"x","source":""}}'
    )
    text = "x" * 100
    first = json.dumps({"type": "message", "message": {"role": "user", "content": text}})
    more = [
        '{"type":"message","message":{"role":"tool"},"content":' + content + "}"
        for content in contents
    ]
    return Tape(decode_lines("\n".join([head, first, *more]).encode(), "x"), "x")


def test_texts_made_of_texts_are_no_bomb(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line doubles the one before: sixty lines would be 10^20 characters."""
    monkeypatch.setattr("harness.cassette.MAX_FILE", 1 << 20)
    doubling = [f'[[{n},"message",0,{2**70}],[{n},"message",0,{2**70}]]' for n in range(2, 62)]
    with pytest.raises(DamageError, match="unfold to more than is read"):
        unfolding(*doubling).message(62)
    # or nothing is kept of it, and only the work doubles
    busy = [f'[[{n},"message",0,1],[{n},"message",0,1]]' for n in range(2, 3000)]
    assert unfolding(*busy).message(3000)["content"] == "xx"
    wide = "[" + ",".join(['[2,"message",0,100]'] * 11_000) + "]"
    with pytest.raises(DamageError, match="unfold to more than is read"):
        unfolding(wide).message(3)


@pytest.mark.parametrize(
    "part", ['[3,"message",0,1]', '[4,"message",0,1]', '[0,"message",0,1]', '[-1,"message",0,1]']
)
def test_a_text_that_refers_to_itself_is_damage(part: str) -> None:
    with pytest.raises(DamageError, match="refers to"):
        unfolding(f"[{part}]").message(3)


# ------------------------------------------------------------------------------- terminal escapes


def nasty(sample: Any, request: Any) -> Any:
    """Steering characters in all that a model and a command can say."""
    if isinstance(request, BashRequest):
        return BashReply(STEERING.encode(), STEERING.encode())
    if len(request.messages) > 4:
        return says(STEERING, call("submit", answer=STEERING), reasoning=STEERING)
    return counting(sample, request)


def test_nothing_in_a_store_steers_the_terminal(cli: Commands) -> None:
    """Task ids, questions, models, texts, answers, notes, file names: by every command, in every
    form, errors and tracebacks included."""
    task = f"t{STEERING}"
    data = dataset(cli.folder / "data", [("a", 1, "a"), (task, 2, STEERING)])
    loop = Settings(model=STEERING, prompt_template=STEERING + "{question}")
    take(cli.store, config(data, "n", loop=loop), Backend(nasty))
    run = read_run(cli.store, "n")
    run.marks, run.harness = [STEERING], STEERING
    run.dataset = type(run.dataset)(id=STEERING, digest=run.dataset.digest)
    run.environment = {"image": {"reference": STEERING, "id": STEERING, "layers": []}}
    write_run(cli.store, run)
    store = cli.folder / "st"
    (store / "journal" / "n").mkdir(exist_ok=True)
    (store / "journal" / "n" / "x\x1b[2J@1.jsonl").write_bytes(b"{}\n")
    (store / "journal" / "n" / "y\x9b@1.jsonl").write_bytes(b"x")
    (store / "objects" / "sha256" / "z\x1b[2J").write_bytes(b"x")
    Path("two").write_text("{question}")
    for args in (
        ("ls",), ("ls", "--json"), ("show", "n"), ("show", "n", task), ("show", "n", task, "--raw"),
        ("show", "n", "--raw"), ("show", "n", "--json"), ("show", "n", "t"), ("verify",),
        ("replay", "n", "--dataset", "data"), ("replay", "n", "--json"),
        ("replay", "n", "--prompt-template", "two"), ("replay", "n", "--task-id", "zz"),
        ("replay", "n", "--prompt-template", "two", "--json"),
        ("score", "n", "--dataset", "data", "--explain", "--show-truths"),
        ("score", "n", "--scorer", "tests.bad_scorers:casefold", "--dataset", "data"),
        ("score", "n", "--json"), ("diff", "n", "r"), ("diff", "n", "n", "--json"),
        ("--debug", "show", "n", f"zz{STEERING}"), ("show", "n", STEERING), ("gc", "--dry-run"),
        ("--debug", "show", "r", f"zz{STEERING}"),
        ("--debug", "ls", "--store", "none\x1b[2J\x9b"), ("ls", "--store", "none\x1b[2J\x9b"),
    ):  # fmt: skip
        result = cli(*args, status=None)
        assert not steers(result.output), (args, result.output)


def test_raw_lines_mean_what_they_meant(cli: Commands) -> None:
    """`show --raw` escapes what would steer the terminal as JSON does: the values are the same."""
    take(cli.store, config(dataset(cli.folder / "data", [("a", 1, "a")]), "n"), Backend(nasty))
    raw = cli("show", "n", "a", "--raw").stdout
    stored = cli.store.get(read_run(cli.store, "n").samples[0].cassette or "")
    assert [json.loads(line) for line in raw.splitlines()] == [
        json.loads(line) for line in stored.splitlines()
    ]
    assert json.loads(cli("show", "n", "--raw").stdout) == json.loads(cli.store.read_run("n"))


def test_bytes_that_are_no_tape_are_shown_harmlessly(cli: Commands) -> None:
    """`--raw` parses nothing: what it prints may be no JSON at all."""
    point_to(cli, cli.store.put(STEERING.encode() + b"\xff\xfe"))
    assert not steers(cli("show", "r", "a", "--raw").output)
    cli.store.files.write("runs/r.json", STEERING.encode() + b"\x9b\xff")
    assert not steers(cli("show", "r", "--raw").output)


# ------------------------------------------------------------------------- nothing is executed

FORBIDDEN_IMPORTS = {
    "pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "jsonpickle", "runpy", "code",
    "codeop", "joblib",
}  # fmt: skip
FORBIDDEN_CALLS = {
    "eval", "exec", "compile", "__import__", "os.system", "os.popen", "os.execv", "os.execvp",
    "os.spawnv", "os.posix_spawn", "yaml.load", "yaml.unsafe_load", "yaml.full_load",
    "yaml.load_all", "extractall", "extract", "shutil.unpack_archive", "subprocess.getoutput",
    "subprocess.getstatusoutput",
}  # fmt: skip
# the loops and scorers that the user names; our own modules by name; the HTTP library in use
IMPORTS_BY_NAME = {
    "__init__.py", "attempt.py", "cli/__init__.py", "cli/imports.py", "live/wire.py"
}  # fmt: skip


def spelled(node: ast.AST) -> str:
    """`a.b.c` of a name or an attribute; the last name alone for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = spelled(node.value)
        return f"{before}.{node.attr}" if before else node.attr
    return ""


@pytest.mark.parametrize(
    "path", sorted((ROOT / "harness").rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT))
)
def test_nothing_stored_can_become_code(path: Path) -> None:
    """No unpickling, no evaluation, no shell, no unpacking by somebody else's names."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found = {alias.name.partition(".")[0] for alias in node.names}
            assert not found & FORBIDDEN_IMPORTS, node.lineno
        elif isinstance(node, ast.ImportFrom):
            assert (node.module or "").partition(".")[0] not in FORBIDDEN_IMPORTS, node.lineno
        elif isinstance(node, ast.Call):
            name = spelled(node.func)
            assert name not in FORBIDDEN_CALLS, (name, node.lineno)
            last = name.rpartition(".")[2]
            assert last not in ("extractall", "unpack_archive"), node.lineno
            if last == "import_module":
                where = path.relative_to(ROOT / "harness").as_posix()
                assert where in IMPORTS_BY_NAME, node.lineno
            for keyword in node.keywords:
                assert keyword.arg != "shell" or (
                    isinstance(keyword.value, ast.Constant) and not keyword.value.value
                ), node.lineno


def test_looking_at_a_run_imports_nothing_that_it_names(cli: Commands) -> None:
    """A run file names the loop that it was recorded with. Only what runs the loop imports it:
    `replay`, `record` and a fork, which is what they are for. All else leaves it alone."""
    (cli.folder / "stranger.py").write_text("open('PROOF', 'w').close()\n\ndef loop(*_): ...\n")
    run = read_run(cli.store, "r")
    run.settings = type(run.settings)(
        **{name: getattr(run.settings, name) for name in run.settings.__struct_fields__
           if name not in ("agent", "agent_source")},
        agent="stranger:loop",
    )  # fmt: skip
    write_run(cli.store, run)
    for args in (
        ("ls",), ("ls", "--json"), ("show", "r"), ("show", "r", "a"), ("show", "r", "a", "--raw"),
        ("score", "r", "--explain"), ("verify",), ("diff", "r", "r"), ("gc",),
        ("bundle", "r", "-o", "b"), ("unbundle", "b", "--as", "c"), ("rm", "c"),
    ):  # fmt: skip
        cli(*args)
        assert not Path("PROOF").exists(), args
    cli("replay", "r", status=None)
    assert Path("PROOF").exists()


def test_a_store_s_own_python_files_are_not_importable(cli: Commands) -> None:
    """A module that lies in a store is no module: only the current folder and the path count."""
    (cli.folder / "st" / "stranger2.py").write_text("open('PROOF', 'w').close()\n")
    result = cli("replay", "r", "--agent", "stranger2:loop", status=3)
    assert "cannot be imported" in result.output
    assert not Path("PROOF").exists()
