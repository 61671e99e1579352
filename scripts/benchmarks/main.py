"""The command: measures, prints the table, writes JSON."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import figures, peers, picture, stress, targets
from benchmarks.figures import Place, Sizes
from benchmarks.measuring import cache_folder, environment, machine, median, task
from benchmarks.server import serving
from harness import __version__

FULL = Sizes(samples=165, steps=20, rounds=7, runs=100)
QUICK = Sizes(samples=33, steps=20, rounds=5, runs=4)


MARKS = ("<!-- table -->", "<!-- end of table -->")


def told(line: str) -> None:
    """Progress goes to stderr."""
    print(f"  {line}", file=sys.stderr, flush=True)


def main() -> None:
    """Exit status 1 when a figure is beyond its gate: a gross regression."""
    options = _options()
    if options.show:
        known = json.loads(options.show.read_text(encoding="utf-8"))
        rows = targets.judge(known["figures"], known["not_measured"])
        print("\n".join(_text(known, rows)))
        if options.into:
            into_page(options.into, rows)
        if options.picture and (curves := known["details"].get("stress")):
            _draw(options.picture, [stress.Curve(**curve) for curve in curves["curves"]])
        return
    sizes = QUICK if options.quick else FULL
    sizes = sizes._replace(
        samples=options.samples or sizes.samples, steps=options.steps or sizes.steps
    )
    began = time.perf_counter()
    with _place(options.disk) as place:
        report = measure(place, sizes, options)
    rows = targets.judge(report["figures"], report["not_measured"])
    report = {
        "benchmark": 1,
        "harness": __version__,
        "quick": options.quick,
        "machine": machine(),
        "seconds": round(time.perf_counter() - began, 1),
        "sizes": sizes._asdict(),
        "table": targets.as_json(rows),
        **report,
    }
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print("\n".join(_text(report, rows)))
    broken = [row for row in rows if row.broken]
    for row in broken:
        gate = row.target.gate
        print(f"GROSS REGRESSION: {row.target.told}: {row.value:.3g}, gate {gate:g}")
    sys.exit(1 if broken else 0)


def into_page(page: Path, rows: list[targets.Row]) -> None:
    """Put the table between its two marks in a page of the documentation."""
    before, _, rest = page.read_text(encoding="utf-8").partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    table = "\n".join(targets.markdown(rows))
    page.write_text(f"{before}{MARKS[0]}\n{table}\n{MARKS[1]}{after}", encoding="utf-8")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench",
        description="Measure speed, size and memory against the targets and the peers.",
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="a minute: small, no peers, no containers, no stress")
    add("--json", type=Path, metavar="FILE", help="write all figures there")
    add("--picture", type=Path, metavar="FILE", help="write the stress curves there, as SVG")
    add("--show", type=Path, metavar="FILE", help="measure nothing; print what --json wrote there")
    add("--into", type=Path, metavar="PAGE", help="with --show: put the table into that page")
    add("--samples", type=int, metavar="N", help=f"of the workload [{FULL.samples}]")
    add("--steps", type=int, metavar="N", help=f"of a sample [{FULL.steps}]")
    add("--disk", type=Path, metavar="DIR", help="a folder on a disk [the cache folder]")
    add("--image", default="python:3.11", help="of the live samples' containers [python:3.11]")
    add("--no-peers", action="store_true", help="do not install and run the peers")
    add("--no-docker", action="store_true", help="no live samples")
    add("--no-stress", action="store_true", help="no stress curves")
    return parser.parse_args()


@contextlib.contextmanager
def _place(disk: Path | None) -> Iterator[Place]:
    """Folders in memory and on a disk, gone afterwards."""
    shared = Path("/dev/shm")
    root = str(shared) if shared.is_dir() and os.access(shared, os.W_OK) else None
    disk = disk or cache_folder()
    disk.mkdir(parents=True, exist_ok=True)
    memory = Path(tempfile.mkdtemp(prefix="harness-bench-", dir=root))
    on_disk = Path(tempfile.mkdtemp(prefix="disk-", dir=disk))
    try:
        yield Place(memory, on_disk, memory / "main")
    finally:
        for folder in (memory, on_disk):
            shutil.rmtree(folder, ignore_errors=True)


def measure(place: Place, sizes: Sizes, options: argparse.Namespace) -> dict[str, Any]:
    """All figures and what they are made of; why some were not measured."""
    found: figures.Figures = {}
    details: dict[str, Any] = {}
    why: dict[str, str] = {}

    def take(name: str, result: tuple[figures.Figures, figures.Details]) -> None:
        found.update(result[0])
        details[name] = result[1]

    told(f"recording {sizes.samples} samples of {sizes.steps} steps")
    given = {"samples": sizes.samples, "steps": sizes.steps}
    made = task("make", folder=str(place.main), **given)
    wired = task("make", folder=str(place.memory / "wire"), wire=True, **given)
    told("replay and floor")
    take("replay", figures.replays(place, sizes))
    told("start-up, score, memory")
    take("start-up", figures.start_up(place, sizes))
    _combine(found, details, made)
    told("depth")
    take("depth", figures.depths(place, sizes, samples=4 if options.quick else 6))
    take("stored", figures.stored(place, made, wired))
    told("recording")
    take("recording", figures.recordings(place, sizes, made))
    told("many runs, two processes")
    take("jobs", figures.many_runs(place, sizes))
    if options.quick or options.no_docker:
        _leave_out(why, "live", "left out")
    else:
        told("live samples")
        _live(place, options.image, found, details, why)
    if options.quick or options.no_peers:
        _leave_out(why, "peers", "left out")
    else:
        _peers(place, sizes, found, details, why)
    if options.quick or options.no_stress:
        _leave_out(why, "stress", "left out")
    else:
        curves = stress.curves(place, told)
        growth, each = stress.growth(curves)
        found.update(growth)
        details["stress"] = {"curves": stress.as_json(curves), "growth": each}
        if options.picture:
            _draw(options.picture, curves)
    return {"figures": found, "not_measured": why, "details": details}


def _draw(file: Path, curves: list[stress.Curve]) -> None:
    file.write_text(picture.picture(curves), encoding="utf-8")


_OUTSIDE = {
    "live": ("live_overhead_ms", "teardown_s"),
    "peers": ("fastest_peer_over_replay",),
    "stress": ("stress_growth",),
}


def _leave_out(why: dict[str, str], part: str, reason: str) -> None:
    why.update(dict.fromkeys(_OUTSIDE[part], reason))


def _combine(found: figures.Figures, details: dict[str, Any], made: dict[str, Any]) -> None:
    """Figures that two measurements make."""
    floor, score = found["floor_cpu_ms"], found["score_cpu_ms"]
    assert floor is not None
    assert score is not None
    found["score_over_floor"] = score / floor
    found["record_over_floor"] = 1e3 * (made["cpu_s"] - made["world_cpu_s"]) / floor
    largest = made["largest_cassette_bytes"] / (1 << 20)
    found["replay_memory_mb"] = details["start-up"]["memory_mb"]["all"] - 4 * largest


def _live(
    place: Place,
    image: str,
    found: figures.Figures,
    details: dict[str, Any],
    why: dict[str, str],
) -> None:
    samples = 10
    folder = place.memory / "live"
    try:
        with serving(samples + 1, 1, env=environment(), command="true") as port:
            result = task("live", folder=str(folder), port=port, samples=samples, image=image)
    except RuntimeError as error:
        told(f"no live samples: {str(error)[-300:]}")
        _leave_out(why, "live", "no Docker engine with that image")
        return
    found["live_overhead_ms"] = 1e3 * (median(result["samples_s"]) - median(result["bare_s"]))
    found["teardown_s"] = median(result["removals_s"])
    details["live"] = result


def _peers(
    place: Place,
    sizes: Sizes,
    found: figures.Figures,
    details: dict[str, Any],
    why: dict[str, str],
) -> None:
    try:
        results = peers.measured(place.memory / "peers", sizes.samples, sizes.steps, told)
    except RuntimeError as error:
        told(str(error)[-300:])
        _leave_out(why, "peers", "the peers cannot be installed")
        return
    fastest = min(result["replay_command_cpu_s"] for result in results.values())
    own = found["replay_command_cpu_s"]
    assert own is not None
    found["fastest_peer_over_replay"] = fastest / own
    details["peers"] = {"measured": results, "quoted, not run": peers.QUOTED}


def _text(report: dict[str, Any], rows: list[targets.Row]) -> list[str]:
    on, sizes = report["machine"], report["sizes"]
    lines = [
        f"{on['processor']}, {on['cores']} cores, {on['system']}, Python {on['python']}, "
        f"load {on['load']}; {sizes['samples']} samples x {sizes['steps']} steps; "
        f"{report['seconds']:.0f} s",
        "",
        *targets.table(rows),
    ]
    if "peers" in report["details"]:
        lines += ["", f"{'replay of the same samples':28} {'CPU s':>8} {'stored MB':>10}"]
        made = report["details"]["stored"]["made"]
        own = report["figures"]["replay_command_cpu_s"]
        measured = {
            "harness": {"replay_command_cpu_s": own, "bytes": made["cassette_bytes"]},
            **report["details"]["peers"]["measured"],
        }
        for name, result in measured.items():
            cpu, size = result["replay_command_cpu_s"], result["bytes"] / 1e6
            lines.append(f"{name:28} {cpu:8.2f} {size:10.1f}")
        for name, seconds in peers.QUOTED.items():
            lines.append(f"{name:28} {seconds:8.1f} {'quoted':>10}")
    counts = {
        verdict: sum(row.verdict == verdict for row in rows)
        for verdict in ("met", "MISSED", "not measured")
    }
    return [*lines, "", ", ".join(f"{count} {verdict}" for verdict, count in counts.items())]
