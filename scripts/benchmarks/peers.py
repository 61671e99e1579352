"""The peers, in the same run: their environment, and what they take for the same samples."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.measuring import cache_folder, environment, run
from benchmarks.peer import PEERS
from benchmarks.server import serving

PACKAGES = ("openai==2.45.0", "vcrpy==9.4.2", "cassetter==0.16.1", "frozentrace==0.1.0")
SCALE = 5
"""Peers are measured with a fifth of the samples: each sample costs them the same."""

QUOTED = {
    "EvalScope 1.14.1, re-score only": 6.1,
    "inspect_ai 0.3.285, `score` only": 20.0,
}
"""CPU seconds for 165 samples, measured once and not run here: they never run the loop again."""


def interpreter(told: Callable[[str], None]) -> str:
    """The peers' interpreter, in an environment of its own, made when it is not there.

    RuntimeError when the packages cannot be had.
    """
    folder = cache_folder() / "peers"
    python = folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    mark = folder / "packages.txt"
    wanted = "\n".join(PACKAGES)
    if mark.is_file() and mark.read_text(encoding="utf-8") == wanted:
        return str(python)
    told(f"installing the peers into {folder}")
    for command in (
        [sys.executable, "-m", "venv", "--clear", str(folder)],
        [str(python), "-m", "pip", "install", "--quiet", *PACKAGES],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"the peers cannot be installed: {done.stderr[-500:]}")
    mark.write_text(wanted, encoding="utf-8")
    return str(python)


def measured(
    folder: Path, samples: int, steps: int, told: Callable[[str], None]
) -> dict[str, dict[str, Any]]:
    """Recording and replay of each peer, scaled to all samples: CPU seconds and bytes."""
    python, few = interpreter(told), max(1, samples // SCALE)
    scale = samples / few
    env = environment()
    found: dict[str, dict[str, Any]] = {}
    with serving(few, steps, env=env) as port:
        for name in PEERS:
            given = (str(folder / name), str(port), str(few), str(steps))
            told(f"{name}: {few} samples of {steps} steps")
            results = {}
            for mode in ("record", "replay"):
                used = run(python, "-m", "benchmarks.peer", name, mode, *given, env=env)
                results[mode] = _json(used.stdout)
            replay = results["replay"]
            found[name] = {
                "record_cpu_s": scale * results["record"]["cpu_s"],
                "replay_cpu_s": scale * replay["cpu_s"],
                "replay_command_cpu_s": replay["start_cpu_s"] + scale * replay["cpu_s"],
                "bytes": round(scale * replay["bytes"]),
                "wrong_replies": replay["wrong"],
                "samples": few,
            }
    return found


def _json(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text.splitlines()[-1])
    return found
