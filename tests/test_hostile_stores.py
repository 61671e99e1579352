"""Stores that were written to attack: one clear error, nothing outside touched, nothing executed.

Whoever sends a store can choose every byte of it, names and digests included. A command on it ends
with a status of ours and a line that says what is wrong, or reads it rightly; it never ends with a
traceback, never follows a link, never sends a control character to the terminal.
"""

from __future__ import annotations

import ast
import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from click.testing import Result
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from harness.bundling import write_bundle
from harness.cassette import Tape, decode_lines, read_cassette
from harness.errors import DamageError, HarnessError
from harness.records import Settings
from harness.runfile import read_run, write_run
from harness.store import Store, journal_path, object_path, run_path, sample_key
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
]
"""Commands that change nothing in the store."""

WRITING: list[tuple[str, ...]] = [
    (*recording("r", "--agent", hostile.AGENT, "--max-steps", "9", "-g", "seed=1",
                "-g", 'extra_body={"x": [1]}', "--retry-errors"),),
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
    assert result.exit_code in (0, 1, 2, 4), (args, result.output)
    assert not steers(result.output), (args, steers(result.output), result.output)
    if result.exit_code in (1, 2) and "--json" not in args:
        assert result.output.strip(), args
    if result.exit_code == 2:
        assert len(result.stderr.splitlines()) < 10, result.stderr


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
    assert statuses == [0, 0, 0, 0, 0]


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


@pytest.mark.skipif(not LONG, reason="every place and value: minutes (HARNESS_LONG=1)")
def test_every_value_of_every_type() -> None:
    for place in all_places():
        for new in NEW:
            attack(place, new)
