"""How things are measured: CPU seconds, medians of interleaved rounds, one process per figure."""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent.parent
"""The project's folder."""

# Runs a command and tells what it used. Its own process is small: what Linux counts as the peak of
# a process begins with that of the one it was forked from.
_LAUNCHER = """
import json, os, sys
pid = os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ)
_, status, used = os.wait4(pid, 0)
told = [os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, used.ru_maxrss]
print(json.dumps(told), file=sys.stderr)
"""


class Used(NamedTuple):
    """What a command took, and printed."""

    cpu: float
    """Seconds, user and system."""
    wall: float
    """Seconds; those of starting it included."""
    memory: float
    """MB at its peak."""
    stdout: str
    status: int


def cache_folder() -> Path:
    """Where the benchmark keeps what it needs again: `$XDG_CACHE_HOME/gaia-harness/bench`."""
    shared = os.environ.get("XDG_CACHE_HOME", "")
    home = Path(shared) if os.path.isabs(shared) else Path.home() / ".cache"
    return home / "gaia-harness" / "bench"


def environment(**more: str) -> dict[str, str]:
    """For commands: package and benchmark importable, nothing of the user's own settings.

    Byte code is kept, as that of an installed package is, but not in this tree.
    """
    dropped = ("HARNESS_", "PYTHON", "OPENAI_", "COVERAGE")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    return {
        **kept,
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'scripts'}",
        "PYTHONPYCACHEPREFIX": str(cache_folder() / "bytecode"),
        **more,
    }


def run(
    *command: str,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    expect: Sequence[int] = (0,),
) -> Used:
    """Run a command to its end; RuntimeError when it ends otherwise than expected."""
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _LAUNCHER, *command],
        capture_output=True, text=True, check=False, env=dict(env or environment()), cwd=cwd,
    )  # fmt: skip
    wall = time.perf_counter() - began
    lines = done.stderr.splitlines()
    try:
        status, cpu, peak = json.loads(lines[-1])
    except (ValueError, IndexError):
        raise RuntimeError(f"{command[:4]} could not be run: {done.stderr[-2000:]}") from None
    if status not in expect:
        said = "\n".join(lines[:-1])[-2000:]
        raise RuntimeError(f"{' '.join(command)[:200]} ended with {status}: {said}")
    scale = 1 << 20 if sys.platform == "darwin" else 1 << 10
    return Used(cpu, wall, peak / scale, done.stdout, status)


def harness(*args: str, **more: Any) -> Used:
    """Run a `harness` command."""
    return run(sys.executable, "-m", "harness", *args, **more)


def task(name: str, **given: Any) -> dict[str, Any]:
    """Run a function of `benchmarks.tasks` in a process of its own, and take its result."""
    done = run(sys.executable, "-m", "benchmarks.tasks", name, json.dumps(given))
    found: dict[str, Any] = json.loads(done.stdout)
    return {**found, "process_cpu_s": done.cpu, "process_memory_mb": round(done.memory, 1)}


def cpu_of(work: Callable[[], object]) -> float:
    """CPU seconds of this process for one call."""
    began = time.process_time()
    work()
    return time.process_time() - began


def rounds(works: Mapping[str, Callable[[], float]], count: int) -> dict[str, list[float]]:
    """Each piece of work measured `count` times, in turn, so that all see the same weather."""
    found: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(count):
        for name, work in works.items():
            found[name].append(work())
    return found


def median_ratio(above: Sequence[float], below: Sequence[float]) -> float:
    """The median of the ratios of measurements that were taken in pairs."""
    return statistics.median(a / b for a, b in zip(above, below, strict=True))


median = statistics.median


class Syncs:
    """What `counted_syncs` saw."""

    def __init__(self) -> None:
        self.count = 0
        self.wall = 0.0


@contextlib.contextmanager
def counted_syncs() -> Iterator[Syncs]:
    """Counts the calls of `os.fsync` and how long they took, by standing in its place."""
    seen, real = Syncs(), os.fsync

    def fsync(fd: Any) -> None:
        began = time.perf_counter()
        try:
            real(fd)
        finally:
            seen.count += 1
            seen.wall += time.perf_counter() - began

    os.fsync = fsync
    try:
        yield seen
    finally:
        os.fsync = real


def machine() -> dict[str, Any]:
    """What is measured on: processor, number of cores, system, Python; no name of a person."""
    import platform

    model = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None,
    }
