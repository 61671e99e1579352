"""What is loaded when: replay and scoring need little, and start fast."""

from __future__ import annotations

import ast
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import harness
from harness.records import BashRequest, ModelRequest, Reply, Request, Sample
from harness.store import Store
from tests.scripted import Backend, call, config, counting, dataset, says, take

ROOT = Path(__file__).parent.parent

NEVER = {
    "openai", "docker", "modelscope", "huggingface_hub", "httpx", "httpx2", "httpcore", "pydantic",
    "mcp", "vcr", "pyarrow", "requests", "urllib3", "yaml",
}  # fmt: skip
SELDOM = {"rich", "asyncio", "difflib"}
"""Slow to load; only for a bar, a server, or something that has to be explained."""

RUN = """
import json, sys
sys.argv = ["harness", *json.loads(sys.argv[1])]
status = 0
try:
    from harness.__main__ import main
    main()
except SystemExit as error:
    status = error.code or 0
sys.stdout.flush()
print(json.dumps([status, sorted(sys.modules)]), file=sys.stderr)
"""


def python(code: str, *args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Another interpreter, which can import the package and nothing of the tests' doing."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("HARNESS_")}
    env |= {"PYTHONPATH": str(ROOT), "HARNESS_CACHE": str(cwd / "cache")}
    return subprocess.run(
        [sys.executable, "-c", code, *args],
        capture_output=True, text=True, timeout=120, check=False, cwd=cwd, env=env,
    )  # fmt: skip


def command(*args: str, cwd: Path) -> tuple[Any, set[str], str]:
    """Run a command: its exit status, the modules that it loaded, what it printed."""
    done = python(RUN, json.dumps(args), cwd=cwd)
    lines = done.stderr.splitlines()
    assert lines, done
    status, loaded = json.loads(lines[-1])
    return status, set(loaded), done.stdout


def packages(loaded: set[str]) -> set[str]:
    return {name.split(".")[0] for name in loaded}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store in it, and a run of every kind of ending in that."""
    found = tmp_path_factory.mktemp("recorded")

    def policy(sample: Sample, request: Request) -> Reply:
        if sample.task_id == "c" and not isinstance(request, BashRequest):
            return says("I give up", error="refused")
        return counting(sample, request)

    data = dataset(found / "data", [("a", 1, "a"), ("b", 2, "x"), ("c", 3, "c")])
    store = Store(found / "cassettes")
    take(store, config(data), Backend(policy))
    take(store, config(data, run="s"), Backend(policy))
    return found


COMMANDS: list[Sequence[str]] = [
    ("replay",),
    ("replay", "r", "--json"),
    ("replay", "r", "--dataset", "data"),
    ("replay", "r", "--task-id", "a", "--match-on", "messages,tools"),
    ("score",),
    ("score", "r", "--json", "--dataset", "data"),
    ("show", "r"),
    ("show", "r", "a"),
    ("show", "r", "a", "--raw"),
    ("verify",),
    ("ls",),
    ("ls", "--json"),
    ("diff", "r", "s"),
]


@pytest.mark.parametrize("args", COMMANDS, ids=" ".join)
def test_what_needs_nothing_live_loads_nothing_live(folder: Path, args: Sequence[str]) -> None:
    status, loaded, printed = command(*args, cwd=folder)
    assert status == 0, printed  # also for a looser replay that follows: it is marked instead
    assert printed
    # the exact tests of `diff` come from scipy, which loads what it likes
    assert packages(loaded) & (NEVER if args[0] == "diff" else NEVER | SELDOM) == set()
    assert not any(name.startswith(("harness.live", "harness.interop")) for name in loaded)


def test_a_command_loads_only_its_own_module(folder: Path) -> None:
    _, loaded, _ = command("ls", cwd=folder)
    own = {name for name in loaded if name.startswith("harness.cli.")}
    assert own == {"harness.cli.common", "harness.cli.look"}


def test_a_divergence_may_load_what_explains_it(folder: Path) -> None:
    """But nothing live."""
    (folder / "mine.py").write_text(
        "from harness import BashRequest\n"
        "def agent(sample, world, settings):\n"
        "    world.perform(BashRequest('other'))\n"
    )
    status, loaded, _ = command("replay", "r", "--agent", "mine:agent", cwd=folder)
    assert status == 1
    assert packages(loaded) & NEVER == set()
    assert not any(name.startswith(("harness.live", "harness.interop")) for name in loaded)


def test_the_version_costs_next_to_nothing(tmp_path: Path) -> None:
    status, loaded, printed = command("--version", cwd=tmp_path)
    assert (status, printed) == (0, f"harness {harness.__version__}\n")
    assert {name for name in loaded if name.startswith("harness")} == {
        "harness", "harness.__main__",
    }  # fmt: skip
    assert packages(loaded) & {*NEVER, *SELDOM, "click", "msgspec"} == set()


def test_importing_the_package_imports_nothing_else(tmp_path: Path) -> None:
    code = (
        "import sys, json, typing, __future__; before = set(sys.modules); import harness; "
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    assert json.loads(python(code, cwd=tmp_path).stdout) == ["harness"]


def test_the_loop_s_types_load_nothing_live(tmp_path: Path) -> None:
    """What a user's loop imports."""
    code = (
        "import sys, json; from harness import *; "
        "print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"
    )
    done = python(code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)) & NEVER == set()


@pytest.mark.parametrize("name", harness.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(harness, name) is not None


def test_what_is_not_public_is_not_there() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        harness.nonsense  # noqa: B018
    with pytest.raises(ImportError):
        importlib.import_module("harness.nonsense")


def test_type_checkers_see_the_same_names() -> None:
    """The imports under TYPE_CHECKING are those that happen when a name is first used."""
    tree = ast.parse(Path(str(harness.__file__)).read_text())
    seen = {
        alias.asname: str(node.module).removeprefix("harness.")
        for statement in tree.body
        if isinstance(statement, ast.If)
        for node in statement.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == harness._PUBLIC
    assert set(harness.__all__) == {"__version__", *seen}
    assert len(set(harness.__all__)) == len(harness.__all__)


def test_the_seam_s_types_are_those_of_the_loop() -> None:
    """A name imported from the package is the very class that the package itself uses."""
    assert harness.ModelRequest is ModelRequest
    assert call("bash", command="ls").function.name == "bash"
