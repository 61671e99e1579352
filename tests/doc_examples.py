"""The examples in README.md and docs/: finds them, says how each is to be tried.

A fenced block of `console`, `bash` or `python` is run, unless a comment in front of it says
otherwise; the blocks of a page share one folder and are run from top to bottom:

    <!-- not run: REASON -->   its options, imports and names are checked, no more
    <!-- live -->              the same, and tests/live/test_docs.py runs it
    <!-- file: NAME -->        it is the content of a file that later blocks use

In a `console` block a line with `$ ` is typed and what follows must be printed, both streams
together; `…` stands for any text, alone on a line for any lines. A command must exit with 0 unless
`$ echo $?` is typed after it.
"""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
RUN = ("console", "bash", "python")

_FENCE = re.compile(r"^(`{3,})([\w-]*)[ \t]*\n(.*?)^\1[ \t]*$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!--\s*(not run|live|file)(?::\s*([^>]*?))?\s*-->\s*\Z")


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    page: Path
    line: int
    language: str
    text: str
    mark: str
    """`not run`, `live`, `file`, or empty."""
    note: str
    """The reason, or the file's name."""

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> Iterator[Block]:
    """All fenced blocks of a page, from top to bottom."""
    text = page.read_text(encoding="utf-8")
    for found in _FENCE.finditer(text):
        before = _COMMENT.search(text[: found.start()])
        mark, note = (before[1], before[2] or "") if before else ("", "")
        line = text.count("\n", 0, found.start()) + 1
        yield Block(page, line, found[2], found[3], mark, note)


def commands(block: Block) -> Iterator[str]:
    """What is typed in a shell block: one text per command line, continued lines joined."""
    text = block.text.replace("\\\n", " ")
    for line in text.splitlines():
        if block.language == "console":
            if line.startswith("$ "):
                yield line[2:]
        elif line.strip() and not line.lstrip().startswith("#"):
            yield line


def programs(line: str) -> Iterator[list[str]]:
    """The words of each simple command of a command line, without variables put before it."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.commenters, lexer.whitespace_split = "#", True
    words: list[str] = []
    skip = False
    for token in [*lexer, ";"]:
        if set(token) <= set("();|&"):
            if words:
                yield words
            words, skip = [], False
        elif set(token) <= set("<>") and token:
            if words and words[-1].isdigit():
                words.pop()
            skip = True  # the file of a redirection
        elif skip:
            skip = False
        elif not words and re.match(r"\w+=", token):
            continue
        else:
            words.append(token)


def imports(tree: ast.Module) -> Iterator[ast.Import | ast.ImportFrom]:
    """The import statements of a program."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node


# ----------------------------------------------------------------------------------------- running


def folder_with_commands(folder: Path) -> Path:
    """A folder to work in, where `harness`, `python` and `.venv/bin/…` are those of this run."""
    bin = folder / ".venv" / "bin"
    bin.mkdir(parents=True)
    for name, start in (
        ("harness", f'exec {shlex.quote(sys.executable)} -m harness "$@"'),
        ("python", f'exec {shlex.quote(sys.executable)} "$@"'),
        ("python3", f'exec {shlex.quote(sys.executable)} "$@"'),
        ("pytest", f'exec {shlex.quote(sys.executable)} -m pytest -p harness.pytest_plugin "$@"'),
        ("pip", "exit 0  # all is installed"),
    ):
        (bin / name).write_text(f"#!/bin/sh\n{start}\n")
        (bin / name).chmod(0o755)
    return bin


def run_shell(block: Block, folder: Path, variables: Mapping[str, str], seconds: float) -> None:
    """Type the block into one bash; AssertionError where its end or its output is another."""
    typed = list(commands(block))
    script = "exec 2>&1\n" + "".join(
        f"{command}\n__status=$?; printf '\\n\\036%d\\036' $__status; (exit $__status)\n"
        for command in typed
    )
    done = subprocess.run(
        ["bash", "-c", script],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds,
        cwd=folder, env=dict(variables), check=False,
    )  # fmt: skip
    parts = re.split("\n\x1e(\\d+)\x1e", done.stdout)
    outputs, statuses = parts[0:-1:2], [int(status) for status in parts[1::2]]
    assert len(statuses) == len(typed), f"{block.place}: {done.stdout}"
    shown = expected_outputs(block) if block.language == "console" else [None] * len(typed)
    for at, (command, output, status) in enumerate(zip(typed, outputs, statuses, strict=True)):
        told = at + 1 < len(typed) and typed[at + 1] == "echo $?"
        if not told:
            assert status == 0, f"{block.place}: {command}\nexits with {status}\n{output}"
        expected = shown[at]
        if expected is not None:
            assert matches(expected, output), (
                f"{block.place}: {command}\nprints\n{output}\nand the page shows\n{expected}"
            )


def expected_outputs(block: Block) -> list[str]:
    """The output that a console block shows for each of its commands."""
    text = block.text.replace("\\\n", " ")
    parts = re.split(r"^\$ .*\n?", text, flags=re.MULTILINE)
    return parts[1:]


def matches(expected: str, output: str) -> bool:
    """Whether the output is what is shown, `…` being any text, and any lines where alone."""
    pattern = ""
    for line in expected.strip("\n").split("\n"):
        if line.strip() == "…":
            pattern += "(?:.*\n)*"
        else:
            pattern += ".*".join(map(re.escape, line.rstrip().split("…"))) + "\n"
    text = "\n".join(line.rstrip() for line in output.strip("\n").split("\n")) + "\n"
    return re.fullmatch(pattern, text) is not None
