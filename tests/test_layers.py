"""How the package is cut: data flows one way, the loop is pure, nothing is patched."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = Path(__file__).parent.parent / "harness"

# The design's ranks from the ground up, each in steps; a module imports only from steps before
# its own. What knows the outside is at the edge: see EDGE.
RANKS: tuple[tuple[str, str], ...] = (
    ("0 values, rules, errors", "answers canonical errors mcp_secrets scorer terminal"),
    ("0 made of them", "difference exchange files mcp_config metadata records rewrites"),
    ("0 what was spent", "costs"),
    ("1 store, prompts, figures", "attachments dialogue explain redact report store"),
    ("1 data, runs", "dataset progress runfile"),
    ("1 results; truths; names", "names results truths"),
    ("2 cassettes", "cassette"),
    ("2 journals; reading tapes", "causes drift journal"),
    ("3 why a tape was left", "cuts matching"),
    ("3", "model_causes"),
    ("3", "divergence"),
    ("3 the seam", "world"),
    ("4 the loop; one attempt", "agent attempt"),
    ("4 where two runs part; sealed keys", "parting sealing vouching"),
    ("5 verdicts; what to record", "opening verdicts"),
    ("5 replay", "replaying"),
    ("5 continuing, scores, upkeep", "collecting comparing continuing exporting scoring sharing"),
    ("5 record, bundles", "bundling recording verifying"),
    ("5 forks, transcripts", "forking showing"),
    ("6 options", "config"),
    ("6 command line", "cli.options cli.common"),
    ("6", "cli.compare cli.export cli.imports cli.keep cli.look cli.record cli.score"),
    ("6", "cli.replay cli"),
    ("6 Python", "api"),
    ("6 pytest", "testing.sockets"),
    ("6", "testing testing.sample"),
    ("6", "testing.items"),
    ("6", "pytest_plugin"),
    ("6", "__main__"),
)
RANK = {
    f"harness.{name}": number for number, (_, names) in enumerate(RANKS) for name in names.split()
}
EDGE = ("harness.live", "harness.interop")

OUTSIDE = {
    "docker", "httpx", "httpx2", "huggingface_hub", "mcp", "modelscope", "openai", "pyarrow",
    "pydantic", "requests", "rich", "urllib3", "vcr", "zstandard", "inspect_ai", "yaml",
}  # fmt: skip
"""Packages that come with an extra, or know a network."""


class Import(NamedTuple):
    """One import statement, per name."""

    module: str
    """What is loaded by it: a module of ours in full, or another's name."""
    name: str | None
    inside: bool
    """Within a function: loaded when that runs."""
    typing: bool
    """Only for type checkers."""
    line: int


def modules() -> dict[str, Path]:
    """Every module of the package; `data` holds attachments that may be Python files."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        if parts[1] != "data":
            found[".".join(parts).removesuffix(".__init__")] = path
    return found


MODULES = modules()
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in MODULES.items()}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def imports(name: str) -> list[Import]:
    """All that a module imports, wherever it does so."""
    found: list[Import] = []

    def visit(node: ast.AST, inside: bool, typing: bool) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for statement in node.body:
                visit(statement, inside, True)
            for statement in node.orelse:
                visit(statement, inside, typing)
            return
        if isinstance(node, ast.Import):
            found.extend(
                Import(alias.name, None, inside, typing, node.lineno) for alias in node.names
            )
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}:{node.lineno}: a relative import"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                module = full if full in MODULES else str(node.module)
                found.append(Import(module, alias.name, inside, typing, node.lineno))
        for child in ast.iter_child_nodes(node):
            visit(child, inside or isinstance(node, FUNCTIONS), typing)

    visit(TREES[name], False, False)
    return found


IMPORTS = {name: imports(name) for name in MODULES}


def is_edge(name: str) -> bool:
    return name.startswith(EDGE)


def ours(name: str, *, typing: bool = False) -> list[Import]:
    """A module's imports from this package, itself and the bare package aside."""
    return [
        found
        for found in IMPORTS[name]
        if found.module.startswith("harness.") and found.module != name
        and (typing or not found.typing)
    ]  # fmt: skip


# --------------------------------------------------------------------------------------- ranks


def test_every_module_has_its_place() -> None:
    """A new module is added to RANKS, or stands at the edge."""
    known = {name for name in MODULES if name != "harness" and not is_edge(name)}
    assert known == set(RANK)


@pytest.mark.parametrize("name", sorted(RANK))
def test_a_module_imports_lower_ranks_only(name: str) -> None:
    wrong = [
        f"{MODULES[name].name}:{found.line} imports {found.module}"
        for found in ours(name, typing=True)
        if not is_edge(found.module) and RANK[found.module] >= RANK[name]
    ]
    assert wrong == []


@pytest.mark.parametrize("name", sorted(RANK))
def test_the_edge_is_imported_when_it_is_needed(name: str) -> None:
    """From below the edge, only within functions, or for type checkers."""
    wrong = [
        f"{MODULES[name].name}:{found.line} imports {found.module}"
        for found in IMPORTS[name]
        if is_edge(found.module) and not found.inside and not found.typing
    ]
    assert wrong == []


MAY_USE_THE_EDGE = {
    "api", "config", "cli.export", "cli.imports", "cli.keep", "cli.record", "cli.replay",
    "cli.score",
}  # fmt: skip


def test_who_uses_the_edge_at_all() -> None:
    """Options and commands; the pipeline is handed what is live."""
    users = {
        name.removeprefix("harness.")
        for name in RANK
        if any(is_edge(found.module) for found in IMPORTS[name])
    }
    assert users <= MAY_USE_THE_EDGE


@pytest.mark.parametrize("name", sorted(filter(is_edge, MODULES)))
def test_the_edge_stands_on_the_core(name: str) -> None:
    """It imports neither loop nor pipeline nor command line: it is below the seam."""
    loop = RANK["harness.world"]
    wrong = [
        f"{MODULES[name].name}:{found.line} imports {found.module}"
        for found in ours(name)
        if not is_edge(found.module) and RANK[found.module] >= loop
    ]
    assert wrong == []


def test_no_two_modules_import_each_other() -> None:
    """No cycle among the imports that are made at once; within functions only at the edge."""
    graph = {
        name: {
            found.module
            for found in ours(name)
            if not (found.inside and is_edge(name))
        }
        for name in MODULES
    }  # fmt: skip
    done: set[str] = set()

    def walk(name: str, above: tuple[str, ...]) -> None:
        assert name not in above, " → ".join([*above[above.index(name) :], name])
        if name not in done:
            for other in sorted(graph.get(name, ())):
                walk(other, (*above, name))
            done.add(name)

    for name in MODULES:
        walk(name, ())


def test_the_package_itself_imports_nothing_at_once() -> None:
    assert [f.module for f in IMPORTS["harness"] if not f.inside and not f.typing] == [
        "__future__",
        "typing",
        "typing",
    ]


@pytest.mark.parametrize("name", sorted(MODULES))
def test_what_knows_the_outside_is_at_the_edge_and_within_functions(name: str) -> None:
    """`rich` is how progress is shown, `pyarrow` how the newer layout is read: within functions."""
    wrong = []
    for found in IMPORTS[name]:
        package = found.module.split(".")[0]
        if package not in OUTSIDE or found.typing:
            continue
        elsewhere = {"harness.progress": "rich", "harness.metadata": "pyarrow"}.get(name)
        if not found.inside or not (is_edge(name) or package == elsewhere):
            wrong.append(f"{MODULES[name].name}:{found.line} imports {found.module}")
    assert wrong == []


# ------------------------------------------------------------------------------------ the pure loop

SEAM = "harness.world"
"""The loop reaches the outside through it, and through nothing else: what is behind it may."""

PURE = {
    "__future__": "no code",
    "collections.abc": "types",
    "typing": "types",
    "math": "arithmetic",
    "re": "arithmetic on texts",
    "json": "arithmetic on texts",
    "json.encoder": "arithmetic on texts",
    "hashlib": "SHA-256 of bytes that are given",
    "msgspec": "frozen structs and JSON in C; neither clock nor I/O nor state",
}
"""All that the loop and what it imports may import, and why it is harmless."""

MEMOS = {"harness.canonical": {"_numbers"}}
"""What is remembered between calls: results of pure functions, which no order of calls changes."""

IMPURE_CALLS = {"open", "input", "print", "eval", "exec", "__import__", "compile", "id", "globals"}


def loop_modules() -> Iterator[str]:
    """The loop and all that it imports, up to the seam."""
    waiting, seen = ["harness.agent"], {SEAM}
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        yield name
        waiting += [found.module for found in ours(name)]


LOOP = sorted(loop_modules())


def test_what_the_loop_is_made_of() -> None:
    assert [name.removeprefix("harness.") for name in LOOP] == [
        "agent", "answers", "canonical", "dialogue", "records",
    ]  # fmt: skip
    assert [f.name for f in IMPORTS["harness.agent"] if f.module == SEAM] == ["World"]


@pytest.mark.parametrize("name", LOOP)
def test_the_loop_imports_nothing_but_arithmetic(name: str) -> None:
    """No time, random, os, uuid, socket, datetime, threading, subprocess, …: none is listed."""
    used = {found.module for found in IMPORTS[name] if not found.module.startswith("harness")}
    assert used <= set(PURE)


@pytest.mark.parametrize("name", LOOP)
def test_the_loop_calls_nothing_that_reaches_out(name: str) -> None:
    calls = [
        f"{MODULES[name].name}:{node.lineno} {node.func.id}()"
        for node in ast.walk(TREES[name])
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        and node.func.id in IMPURE_CALLS
    ]  # fmt: skip
    assert calls == []


@pytest.mark.parametrize("name", LOOP)
def test_the_loop_keeps_nothing_from_one_sample_to_the_next(name: str) -> None:
    """No `global`, and no module-level dict, list or set that a function changes."""
    tree = TREES[name]
    mutable = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
        and isinstance(node.value, ast.Dict | ast.List | ast.Set | ast.Call)
    } - MEMOS.get(name, set())
    changed = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Global | ast.Nonlocal):
            changed.append(f"line {node.lineno}: {ast.unparse(node)}")
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            if isinstance(node.value, ast.Name) and node.value.id in mutable:
                changed.append(f"line {node.lineno}: {ast.unparse(node)}")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            changing = {"append", "update", "add", "setdefault", "pop", "extend", "clear"}
            value = node.func.value
            if node.func.attr in changing and isinstance(value, ast.Name) and value.id in mutable:
                changed.append(f"line {node.lineno}: {ast.unparse(node)}")
    assert changed == []


# ------------------------------------------------------------------------------- nothing is patched


@pytest.mark.parametrize("name", sorted(MODULES))
def test_nothing_of_another_module_is_changed(name: str) -> None:
    """No assignment to, or deletion of, an attribute of something imported; no `setattr` on it."""
    imported = {
        (node.asname or node.name).split(".")[0]
        for statement in ast.walk(TREES[name])
        if isinstance(statement, ast.Import | ast.ImportFrom)
        for node in statement.names
    }
    wrong = []
    for node in ast.walk(TREES[name]):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            base: ast.expr = node
            while isinstance(base, ast.Attribute):
                base = base.value
            if isinstance(base, ast.Name) and base.id in imported:
                wrong.append(f"{MODULES[name].name}:{node.lineno}: {ast.unparse(node)} = …")
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("setattr", "delattr"):
            if isinstance(node.args[0], ast.Name) and node.args[0].id in imported:
                wrong.append(f"{MODULES[name].name}:{node.lineno}: {ast.unparse(node)}")
        elif isinstance(node, ast.Call) and "patch" in ast.unparse(node.func).split("."):
            wrong.append(f"{MODULES[name].name}:{node.lineno}: {ast.unparse(node)}")
    assert wrong == []


# ---------------------------------------------------------------------------------- documented

Documented = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def definitions(name: str) -> Iterator[tuple[Documented, bool, str]]:
    """Public functions, classes and methods: the node, whether it is a method, its name."""

    def visit(
        node: ast.Module | ast.ClassDef, prefix: str
    ) -> Iterator[tuple[Documented, bool, str]]:
        for child in node.body:
            if not isinstance(child, Documented) or child.name.startswith("_"):
                continue
            yield child, isinstance(node, ast.ClassDef), prefix + child.name
            if isinstance(child, ast.ClassDef):
                yield from visit(child, f"{prefix}{child.name}.")

    yield from visit(TREES[name], "")


TOLD_ELSEWHERE = {
    node.name
    for name in MODULES
    for node, is_method, _ in definitions(name)
    if is_method and ast.get_docstring(node)
} | {"handle_request"}
"""Methods that a protocol or base documents, of ours or (the last) of httpx; not once more at
each class that has them."""


@pytest.mark.parametrize("name", sorted(MODULES))
def test_what_is_public_is_documented(name: str) -> None:
    missing = [
        f"{MODULES[name].relative_to(PACKAGE.parent)}:{node.lineno} {full}"
        for node, is_method, full in definitions(name)
        if not ast.get_docstring(node) and not (is_method and node.name in TOLD_ELSEWHERE)
    ]
    assert missing == []
    if MODULES[name].read_text().strip():
        assert ast.get_docstring(TREES[name]), "the module says nothing about itself"


def test_what_the_package_exports_is_documented() -> None:
    """`help(harness.X)` says something of each public name."""
    package = importlib.import_module("harness")
    silent = [
        name
        for name in package.__all__
        if name != "__version__" and not (getattr(package, name).__doc__ or "").strip()
    ]
    assert silent == []
