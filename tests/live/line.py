"""The whole line from outside: the installed command, a real HTTP server, real containers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

ROOT = Path(__file__).parent.parent.parent
RUN = f"t{os.getpid()}"
"""Name of the runs of this process: other workers look for containers of their own."""
PER_SAMPLE = 120.0
"""Seconds after which a command under test is given up."""


class Endpoint(Protocol):
    """Where a recording asks."""

    url: str


class Policy:
    """The scripted policy server, as a process of its own."""

    def __init__(self, folder: Path, *options: str) -> None:
        port = folder / "port"
        self._process = subprocess.Popen(
            [
                sys.executable, str(ROOT / "scripts" / "scripted_policy.py"),
                "--port", "0", "--port-file", str(port), *options,
            ],
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        for _ in range(200):
            if port.exists() and port.read_text().strip():
                break
            time.sleep(0.05)
        self.url = f"http://127.0.0.1:{port.read_text().strip()}"

    def completions(self) -> int:
        """How many replies were given so far."""
        with urllib.request.urlopen(f"{self.url}/count") as response:
            return int(json.load(response)["completions"])

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


@contextmanager
def policy(folder: Path, *options: str) -> Iterator[Policy]:
    """A running policy server."""
    folder.mkdir(parents=True, exist_ok=True)
    server = Policy(folder, *options)
    try:
        yield server
    finally:
        server.stop()


def environment(**more: str) -> dict[str, str]:
    """The environment of a user without keys."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "HARNESS_STORE")
    }
    return {**kept, "PYTHONPATH": str(ROOT), **more}


def command(*args: str) -> list[str]:
    return [sys.executable, "-m", "harness", *args]


def harness(
    *args: str,
    timeout: float = PER_SAMPLE,
    cwd: Path | None = None,
    variables: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run `harness` to its end."""
    return subprocess.run(
        command(*args),
        capture_output=True,
        text=True,
        timeout=timeout,
        env=environment(**(variables or {})),
        cwd=cwd,
        check=False,
    )


def recording(store: Path, server: Endpoint, *more: str, run: str = RUN) -> list[str]:
    """The arguments of a recording over `mini` as the demo makes it."""
    return [
        "record", "--run", run, "--store", str(store), "--dataset", "mini",
        "--model", "scripted-policy", "--api-url", f"{server.url}/v1", "--no-network",
        "--max-steps", "12", "--command-timeout", "5", *more,
    ]  # fmt: skip


def offline(folder: Path) -> dict[str, str]:
    """Variables with which nothing live can be reached."""
    return {"DOCKER_HOST": f"unix://{folder}/no.sock", "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}


def samples(output: str) -> dict[tuple[str, int], dict[str, Any]]:
    """The samples of a `--json` line by task id and epoch."""
    found = json.loads(output)
    return {(sample["task_id"], sample["epoch"]): sample for sample in found["samples"]}


def containers_of(run: str) -> list[str]:
    """Containers that a run left on the engine."""
    listed = subprocess.run(
        ["docker", "ps", "-aq", "--filter", "label=gaia-harness.run"],
        capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    found = []
    for container in listed:
        label = subprocess.run(
            [
                "docker", "inspect", "-f", '{{index .Config.Labels "gaia-harness.run"}}', container,
            ],
            capture_output=True, text=True, check=False,
        ).stdout.strip()  # fmt: skip
        if label == run:
            found.append(container)
    return found
