"""README.md and docs/: every example runs, or says why it does not and has its options checked."""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest

import harness
from harness import pytest_plugin
from harness.cli import COMMANDS, cli
from tests.doc_examples import (
    PAGES,
    ROOT,
    RUN,
    Block,
    blocks,
    commands,
    folder_with_commands,
    imports,
    matches,
    programs,
    run_shell,
)

SECONDS = 300.0
ALL = [block for page in PAGES for block in blocks(page) if block.language in RUN]
IDS = [block.place for block in ALL]


def environment(folder: Path) -> dict[str, str]:
    """A user without Docker, endpoint and key, whose `harness` is this one."""
    path = folder_with_commands(folder)
    return {
        "PATH": f"{path}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HOME": str(folder / "home"),
        "HARNESS_CACHE": str(folder / "cache"),
        "DOCKER_HOST": f"unix://{folder}/no.sock",
        "NO_COLOR": "1",
        "LC_ALL": "C.UTF-8",
    }


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_examples_run_as_they_are_shown(page: Path, tmp_path: Path) -> None:
    """Top to bottom in one folder, with a copy of the committed runs in it."""
    found = [block for block in blocks(page) if block.mark not in ("not run", "live")]
    if not any(block.language in RUN and block.mark != "file" for block in found):
        return  # nothing to run: a checkable page all the same
    shutil.copytree(ROOT / "cassettes", tmp_path / "cassettes")
    variables = environment(tmp_path)
    for block in found:
        if block.mark == "file":
            (tmp_path / block.note).write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            run_python(block, tmp_path, variables)
        elif block.language in RUN:
            run_shell(block, tmp_path, variables, SECONDS)


def run_python(block: Block, folder: Path, variables: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", block.text],
        capture_output=True, text=True, cwd=folder, env=variables, timeout=SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{block.place}:\n{done.stderr}"


# ---------------------------------------------------------------------- what is checked of them all


@pytest.mark.parametrize("block", ALL, ids=IDS)
def test_marks_give_a_reason(block: Block) -> None:
    if block.mark == "not run":
        assert len(block.note) > 10, f"{block.place} says `not run` and not why"
    if block.mark == "file":
        assert re.fullmatch(r"[\w.-]+", block.note), block.place


@pytest.mark.parametrize(
    "block", [block for block in ALL if block.language != "python"],
    ids=[block.place for block in ALL if block.language != "python"],
)  # fmt: skip
def test_options_exist(block: Block) -> None:
    """Every command of ours in every shell example takes the options and arguments it is given."""
    for line in commands(block):
        for words in programs(line):
            check_words(words, f"{block.place}: {line}")


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_options_in_running_text_exist(page: Path) -> None:
    """`harness …` between single backticks; brackets and alternatives are read as one of them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    for found in re.findall(r"`((?:harness|pytest --harness)[^`\n]*(?:\n[^`\n]+)?)`", text):
        line = re.sub(r"[\[\]]", "", found.replace("\n", " ").replace("\\|", "|"))
        line = re.sub(r"(--[\w-]+)$", r"\1 …", re.sub(r"(\w)\|[\w|]+", r"\1", line))
        for words in programs(line):
            check_words(words, f"{page.name}: {found}")


def check_words(words: list[str], place: str) -> None:
    name = words[0].rpartition("/")[2]
    if name.startswith("python") and words[1:3] == ["-m", "harness"]:
        name, words = "harness", words[2:]
    if name.startswith("python") and len(words) > 1 and words[1].endswith(".py"):
        assert (ROOT / words[1]).is_file(), f"{place}: no {words[1]}"
        check_script(ROOT / words[1], words[2:], place)
    elif words[0].startswith("scripts/"):
        assert (ROOT / words[0]).is_file(), f"{place}: no {words[0]}"
    elif name == "harness":
        check_harness(words[1:], place)
    elif name == "pytest":
        for word in words[1:]:
            if word.startswith("--harness"):
                assert f'"{word.partition("=")[0]}"' in inspect.getsource(pytest_plugin), place
    elif name == "pip":
        check_extras(" ".join(words), place)


def check_harness(words: list[str], place: str) -> None:
    while words[:1] == ["--debug"]:
        words = words[1:]
    if not words or words[0].startswith("-"):
        assert set(words) <= {"--help", "-h", "--version"}, place
        return
    assert words[0] in COMMANDS, f"{place}: there is no command {words[0]!r}"
    with click.Context(cli) as parent:
        command = cli.get_command(parent, words[0])
        assert command is not None
        with click.Context(command, info_name=words[0], parent=parent) as context:
            if "--help" in words:
                return
            try:
                values, left, _ = command.make_parser(context).parse_args(words[1:])
            except click.UsageError as error:
                raise AssertionError(f"{place}: {error.message}") from None
            assert set(left) <= {"…"}, f"{place}: {left} is too much"
            for param in command.params:
                check_value(param, values.get(str(param.name)), place, context)


def check_value(param: click.Parameter, value: Any, place: str, context: click.Context) -> None:
    """Choices and numbers are what the option takes; paths need not exist."""
    given = value if isinstance(value, list | tuple) else [value]
    for one in given:
        placeholder = isinstance(one, str) and (one.isupper() or "…" in one or "$" in one)
        if isinstance(one, str) and not placeholder and not isinstance(param.type, click.Path):
            try:
                param.type.convert(one, param, context)
            except click.UsageError as error:
                raise AssertionError(f"{place}: {error.message}") from None


def check_script(script: Path, words: list[str], place: str) -> None:
    source = script.read_text()
    for word in words:
        if word.startswith("--"):
            assert f'"{word.partition("=")[0]}"' in source, f"{place}: {script.name} has no {word}"


def check_extras(text: str, place: str) -> None:
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for extras in re.findall(r"(?:gaia-harness|\.)\[([\w,]+)\]", text):
        for extra in extras.split(","):
            assert extra in known, f"{place}: there is no extra {extra!r}"


@pytest.mark.parametrize(
    "block", [block for block in ALL if block.language == "python"],
    ids=[block.place for block in ALL if block.language == "python"],
)  # fmt: skip
def test_python_compiles_and_names_import(block: Block) -> None:
    tree = ast.parse(block.text, block.place)
    for node in imports(tree):
        if isinstance(node, ast.ImportFrom):
            module = importlib.import_module(str(node.module))
            for alias in node.names:
                assert hasattr(module, alias.name), f"{block.place}: no {alias.name}"
    check_keywords(tree, block.place)


def check_keywords(tree: ast.Module, place: str) -> None:
    """What is given by name to what we export is taken by that name."""
    from harness.api import _FIELDS

    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
            continue
        name = node.func.id
        if name not in harness.__all__:
            continue
        if name == "TaskConfig":
            known = set(_FIELDS)
        else:
            parameters = inspect.signature(getattr(harness, name)).parameters
            if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
                continue
            known = set(parameters)
        for keyword in node.keywords:
            assert keyword.arg in known, f"{place}: {name} takes no {keyword.arg}"


# ------------------------------------------------------------------------------------------- links

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def anchors(page: Path) -> set[str]:
    """The places that a link can name, as code hosts make them of headings."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    bare = [re.sub(r"[^\w\s-]", "", title.lower()).strip() for title in titles]
    return {re.sub(r"\s", "-", title) for title in bare}


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    for target in _LINK.findall(text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), f"{page.name}: {target} is not there"
        if anchor:
            assert anchor in anchors(there), f"{page.name}: {target} has no such heading"


def test_every_page_can_be_reached_from_the_readme() -> None:
    seen, todo = set(), [ROOT / "README.md"]
    while todo:
        page = todo.pop()
        if page in seen:
            continue
        seen.add(page)
        for target in _LINK.findall(page.read_text(encoding="utf-8")):
            there = (page.parent / target.partition("#")[0]).resolve()
            if there.suffix == ".md" and there.exists():
                todo.append(there)
    assert set(PAGES) <= seen


def test_every_command_is_in_an_example_or_a_table() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    for command in COMMANDS:
        assert f"harness {command}" in text, command


# ---------------------------------------------------------------------- the checks can tell a fault


def made(language: str, text: str) -> Block:
    return Block(ROOT / "docs" / "made-up.md", 1, language, text, "", "")


@pytest.mark.parametrize(
    "line",
    [
        "harness recrod --run x",
        "harness record --run x --model m --max-step 3",
        "cd x && FOO=1 harness show demo a b | head",
        "harness replay demo --on-divergence stop",
        "harness record --run x --model m --limit many  # five",
        "python scripts/scripted_policy.py --prot 1",
        "python scripts/no_such.py",
        "pip install 'gaia-harness[recrod]'",
        "pytest --harness-runs demo",
    ],
)
def test_a_stale_command_is_found(line: str) -> None:
    with pytest.raises(AssertionError):
        test_options_exist(made("bash", line + "\n"))


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("a\nb\n", "a\nb\n", True),
        ("a …\n…\nz\n", "a lot\nb\nc\nz\n", True),
        ("…\n", "", True),
        ("a\n", "a\nb\n", False),
        ("a …\n", "b lot\n", False),
        ("a.c\n", "abc\n", False),
    ],
)
def test_output_is_compared(shown: str, printed: str, same: bool) -> None:
    assert matches(shown, printed) is same


def test_a_wrong_status_and_a_wrong_output_are_found(tmp_path: Path) -> None:
    variables = environment(tmp_path)
    right = made("console", "$ echo one; \\\n  echo two >&2\none\ntwo\n"
                 "$ exit_with() { return 3; }\n$ exit_with\n$ echo $?\n3\n")  # fmt: skip
    run_shell(right, tmp_path, variables, 60)
    for wrong in ("$ echo one\ntwo\n", "$ false\n", "$ true\n$ echo $?\n1\n"):
        with pytest.raises(AssertionError):
            run_shell(made("console", wrong), tmp_path, variables, 60)
    with pytest.raises(AssertionError):
        run_shell(made("bash", "true\nfalse\n"), tmp_path, variables, 60)


def test_a_name_that_is_not_exported_is_found() -> None:
    for text in ("from harness import TaskConfigs\n", "from harness import TaskConfig\n"
                 "TaskConfig(model='m', limits=3)\n"):  # fmt: skip
        with pytest.raises(AssertionError):
            test_python_compiles_and_names_import(made("python", text))
