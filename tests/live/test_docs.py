"""The examples marked `<!-- live -->`, run against the scripted policy and real containers."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from tests.doc_examples import PAGES, ROOT, blocks, commands, folder_with_commands
from tests.live.line import environment, policy

pytestmark = pytest.mark.usefixtures("full_image")

PORT = "8321"
"""The scripted policy's port in the examples."""
LIVE = [page for page in PAGES if any(block.mark == "live" for block in blocks(page))]


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def typed(text: str, folder: Path, seconds: float = 300) -> None:
    """Run a script in its own process group; what it left in the background is ended after it."""
    bin = folder / ".venv" / "bin"
    process = subprocess.Popen(
        ["bash", "-c", f"set -e\n{text}"],
        cwd=folder,
        env=environment(PATH=f"{bin}{os.pathsep}{os.environ['PATH']}"),
        stdin=subprocess.DEVNULL,
        stdout=(folder / "printed").open("ab"),
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        status = process.wait(seconds)
    finally:
        with contextlib.suppress(ProcessLookupError):  # nothing was left
            os.killpg(process.pid, signal.SIGKILL)
    assert status == 0, f"{text}\n{(folder / 'printed').read_text()}"


@pytest.mark.parametrize("page", LIVE, ids=[page.name for page in LIVE])
def test_live_examples(page: Path, tmp_path: Path) -> None:
    """Top to bottom in one folder that looks like a checkout with its environment installed."""
    folder_with_commands(tmp_path)
    (tmp_path / "scripts").symlink_to(ROOT / "scripts")
    shutil.copytree(ROOT / "cassettes", tmp_path / "cassettes")
    for block in blocks(page):
        if block.mark == "file":
            (tmp_path / block.note).write_text(block.text, encoding="utf-8")
        if block.mark != "live":
            continue
        lines = "\n".join(commands(block))
        if "scripted_policy.py" in lines:  # the example starts it itself
            typed(lines.replace(PORT, str(free_port())), tmp_path)
            continue
        with policy(tmp_path / "server") as server:
            typed(lines.replace(PORT, server.url.rpartition(":")[2]), tmp_path)
    left = shlex.join(["docker", "ps", "-aq", "--filter", "label=gaia-harness.run=try"])
    assert subprocess.run(left, shell=True, capture_output=True, check=True).stdout == b""
