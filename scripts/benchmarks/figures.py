"""Each figure of the table, measured. Every function returns figures by name, and what they are
made of."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.measuring import Used, environment, harness, median, median_ratio, run, task
from benchmarks.tasks import RUN

Figures = dict[str, float | None]
Details = dict[str, Any]

BANNED = [
    "openai", "docker", "modelscope", "huggingface_hub", "httpx", "httpx2", "httpcore", "pydantic",
    "mcp", "vcr", "pyarrow", "requests", "urllib3",
]  # fmt: skip
"""What replay has no use for."""


class Sizes(NamedTuple):
    """How much is measured."""

    samples: int
    steps: int
    rounds: int
    """Interleaved pairs, and repetitions of commands."""
    runs: int
    """Of the store for `--jobs`."""


class Place(NamedTuple):
    """Where the benchmark's stores are."""

    memory: Path
    """On a file system in memory, where there is one."""
    disk: Path
    main: Path
    """The workload's own folder, with its data set, store and cache."""

    def commands(self, folder: Path) -> dict[str, str]:
        """The environment of commands on that folder's store."""
        return environment(HARNESS_CACHE=str(folder / "cache"))


def replays(place: Place, sizes: Sizes) -> tuple[Figures, Details]:
    """Replay over the floor, and the whole command."""
    found = task("replay", folder=str(place.main), pairs=sizes.rounds)
    commands = [_replay(place, "--json").cpu for _ in range(sizes.rounds)]
    figures: Figures = {
        "replay_over_floor": median_ratio(found["replay"], found["floor"]),
        "floor_cpu_ms": 1e3 * median(found["floor"]),
        "replay_cpu_ms": 1e3 * median(found["replay"]),
        "replay_command_cpu_s": median(commands),
    }
    parts = task("parts", folder=str(place.main))
    return figures, {
        "pairs": {"floor": found["floor"], "replay": found["replay"]},
        "commands_cpu_s": commands,
        "parts_ms": {name: value for name, value in parts.items() if " " in name or name in _PARTS},
    }


_PARTS = ("floor", "whole")


def _replay(place: Place, *args: str, **more: Any) -> Used:
    folder = place.main
    store = str(folder / "store")
    return harness("replay", RUN, "--store", store, *args, env=place.commands(folder), **more)


def start_up(place: Place, sizes: Sizes) -> tuple[Figures, Details]:
    """Commands above a bare interpreter; what they load; what a score takes."""
    env, store = place.commands(place.main), str(place.main / "store")
    one = ("--task-id", "00000")
    works: dict[str, Callable[[], Used]] = {
        "bare": lambda: run(sys.executable, "-c", "pass", env=env),
        "version": lambda: harness("--version", env=env),
        "one": lambda: _replay(place, *one),
        "score": lambda: harness("score", RUN, "--store", store, env=env),
        "all": lambda: _replay(place),
    }
    used: dict[str, list[Used]] = {name: [] for name in works}
    for number in range(sizes.rounds + 1):
        for name, work in works.items():
            done = work()
            if number:  # the first round fills caches
                used[name].append(done)
    cpu = {name: [one.cpu for one in found] for name, found in used.items()}
    peak = {name: statistics.median(one.memory for one in found) for name, found in used.items()}

    def above(name: str) -> float:
        return 1e3 * median([a - b for a, b in zip(cpu[name], cpu["bare"], strict=True)])

    loaded = run(sys.executable, "-c", _LOADED, RUN, "--store", store, env=env).stdout
    banned = sorted(set(BANNED) & set(json.loads(loaded.splitlines()[-1])))
    figures: Figures = {
        "version_cpu_ms": above("version"),
        "one_sample_cpu_ms": above("one"),
        "start_over_bare": median_ratio(cpu["one"], cpu["bare"]),
        "banned_imports": float(len(banned)),
        "score_cpu_ms": above("score"),
        "replay_memory_growth_mb": peak["all"] - peak["one"],
    }
    return figures, {"cpu_s": cpu, "memory_mb": peak, "banned": banned}


_LOADED = """
import json, sys
from harness.__main__ import main
sys.argv = ["harness", "replay", *sys.argv[1:]]
try:
    main()
except SystemExit as error:
    assert not error.code, error.code
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


def depths(place: Place, sizes: Sizes, samples: int = 6) -> tuple[Figures, Details]:
    """What a step costs late in a long sample."""
    folders: dict[str, str] = {}
    stored: dict[str, int] = {}
    for name, steps, limit in (
        ("20", 20, None),
        ("80", 80, None),
        ("320", 320, None),
        ("80 shortened", 80, 30_000),
        ("320 shortened", 320, 30_000),
    ):
        folder = place.memory / f"depth-{name.replace(' ', '-')}"
        made = task("make", folder=str(folder), samples=samples, steps=steps, limit=limit)
        folders[name], stored[name] = str(folder), made["cassette_bytes"]
    cpu = task("depth", folders=folders, count=2 * sizes.rounds + 1)
    figures: Figures = {
        "depth_320_over_80": median_ratio(cpu["320"], cpu["80"]),
        "depth_shortened": median_ratio(cpu["320 shortened"], cpu["80 shortened"]),
        "stored_80_over_20": stored["80"] / stored["20"],
    }
    return figures, {
        "cpu_s": {name: cpu[name] for name in folders},
        "cassette_bytes": stored,
        "samples": samples,
    }


def stored(place: Place, made: Details, wired: Details) -> tuple[Figures, Details]:
    """Bytes, as `make` counted them without and with wire evidence, and of a bundle."""
    target = place.main / "run.bundle"
    store = str(place.main / "store")
    harness("bundle", RUN, "--store", store, "-o", str(target))
    whole, own = made["distinct_bytes"], made["distinct_per_cassette_bytes"]
    readable = made["cassette_bytes"] + made["run_file_bytes"]
    figures: Figures = {
        "stored_over_distinct": readable / whole,
        "stored_bare_over_distinct": (readable - made["metadata_bytes"]) / whole,
        "stored_over_own": readable / own,
        "bundle_over_distinct": target.stat().st_size / whole,
        "wire_over_distinct": wired["wire_bytes"] / wired["distinct_bytes"],
    }
    return figures, {"bundle_bytes": target.stat().st_size, "made": made, "with wire": wired}


def recordings(place: Place, sizes: Sizes, made: Details) -> tuple[Figures, Details]:
    """What the Recorder takes beyond the world that it records."""
    count = max(1, sizes.samples // 5)
    found: dict[str, Any] = {}
    for name, root, wire in (
        ("tmpfs", place.memory, False),
        ("disk", place.disk, False),
        ("wire", place.memory, True),
    ):
        folder = str(root / f"recorder-{name}")
        found[name] = task("recorder", folder=folder, samples=count, steps=sizes.steps, wire=wire)
    steps = sizes.steps * (100 if sizes.samples > 100 else 30)
    memory = task("recording_memory", folder=str(place.memory / "memory"), steps=steps)
    history = memory["history_bytes"] / (1 << 20)
    figures: Figures = {
        "record_tmpfs_cpu_ms": found["tmpfs"]["cpu_ms_per_effect"],
        "record_disk_cpu_ms": found["disk"]["cpu_ms_per_effect"],
        "record_wire_cpu_ms": found["wire"]["cpu_ms_per_effect"],
        "record_all_cpu_ms": 1e3 * (made["cpu_s"] - made["world_cpu_s"]) / made["effects"],
        "fsyncs_per_effect": found["tmpfs"]["fsyncs_per_effect"],
        "fsyncs_per_effect_wire": found["wire"]["fsyncs_per_effect"],
        "fsync_wall_ms": found["disk"]["fsync_wall_ms_per_effect"],
        "record_memory": (memory["recorded_mb"] - memory["before_mb"]) / history,
        "seal_memory": (memory["sealed_mb"] - memory["before_mb"]) / history,
    }
    return figures, {**found, "memory": memory}


def many_runs(place: Place, sizes: Sizes) -> tuple[Figures, Details]:
    """`--jobs 2` over one process, and many runs over few."""
    folder = place.memory / "runs"
    task("make", folder=str(folder), samples=sizes.samples, steps=sizes.steps)
    task("many_runs", folder=str(folder), runs=sizes.runs)
    env, store = place.commands(folder), str(folder / "store")
    few = [f"run-{number:04d}" for number in range(max(2, sizes.runs // 10))]

    def replayed(*args: str) -> Used:
        return harness("replay", *args, "--store", store, "--json", env=env)

    one: list[Used] = []
    two: list[Used] = []
    for _ in range(max(1, sizes.rounds // 2)):
        one.append(replayed())
        two.append(replayed("--jobs", "2"))
    less = replayed(*few, "--jobs", "2")
    cpus = [done.cpu for done in one], [done.cpu for done in two]
    printed = two[0].stdout
    figures: Figures = {
        "jobs_overhead": median_ratio(cpus[1], cpus[0]),
        "runs_growth": (median(cpus[1]) / sizes.runs) / (less.cpu / len(few)),
        "jobs_same": float(one[0].stdout == printed and printed.startswith(less.stdout)),
    }
    kinds = {"1": one, "2": two, f"2, {len(few)} runs": [less]}
    return figures, {
        "runs": sizes.runs,
        "cpu_s": {name: [done.cpu for done in found] for name, found in kinds.items()},
        "wall_s": {name: [done.wall for done in found] for name, found in kinds.items()},
        "memory_mb": {name: max(done.memory for done in found) for name, found in kinds.items()},
    }
