"""Stress: what grows with what. Each curve should be a straight line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.figures import Figures, Place
from benchmarks.measuring import harness, task
from benchmarks.server import serving

Points = list[tuple[float, float]]


class Curve(NamedTuple):
    """Some figure over some size."""

    title: str
    x: str
    y: str
    lines: dict[str, Points]


def curves(place: Place, told: Callable[[str], None], scale: float = 1.0) -> list[Curve]:
    """All curves; `scale` below 1 makes everything smaller."""
    found = []
    for curve in (_steps, _outputs, _samples, _runs, _in_flight):
        done = curve(place, scale)
        told(f"stress: {done.title}")
        found.append(done)
    return found


def growth(found: Iterable[Curve]) -> tuple[Figures, dict[str, float]]:
    """What one more costs in the second half of each line, over what one cost in the first.

    At most 1 for a straight line, 3 for a quadratic one. Returns the worst, and each.
    """
    each = {
        f"{curve.title}: {name}": _growth(points)
        for curve in found
        for name, points in curve.lines.items()
        if curve.y.startswith("CPU")
    }
    return {"stress_growth": max(each.values())}, each


def _growth(points: Points) -> float:
    x2, y2 = points[-1]
    x1, y1 = min(points, key=lambda point: abs(point[0] - x2 / 2))
    return ((y2 - y1) / (x2 - x1)) / (y1 / x1)


def _sizes(largest: float, scale: float) -> list[int]:
    top = max(8, round(largest * scale))
    return [top // 8, top // 4, top // 2, top]


def _folder(place: Place, name: str) -> str:
    return str(place.memory / f"stress-{name}")


def _steps(place: Place, scale: float) -> Curve:
    lines: dict[str, Points] = {"record": [], "replay": []}
    for steps in _sizes(2000, scale):
        found = task("long_sample", folder=_folder(place, f"steps-{steps}"), steps=steps)
        for name, points in lines.items():
            points.append((steps, found[f"{name}_cpu_s"]))
    return Curve("one sample of many steps", "steps", "CPU s", lines)


def _outputs(place: Place, scale: float) -> Curve:
    lines: dict[str, Points] = {}
    for capped in (False, True):
        kept = "first and last half MiB kept" if capped else "kept whole"
        for size in _sizes(50, scale):
            folder = _folder(place, f"output-{size}-{capped}")
            found = task("big_output", folder=folder, megabytes=size, capped=capped)
            cpu = found["record_cpu_s"] + found["replay_cpu_s"]
            lines.setdefault(kept, []).append((size, cpu))
    return Curve("one large output", "MB printed", "CPU s, record and replay", lines)


def _samples(place: Place, scale: float) -> Curve:
    count = max(8, round(10_000 * scale))
    found = task("many_samples", folder=_folder(place, "samples"), samples=count)
    lines = {name: [(x, y) for x, y in found[name]] for name in ("record", "replay")}
    return Curve("a run of many samples", "samples", "CPU s so far", lines)


def _runs(place: Place, scale: float) -> Curve:
    points: Points = []
    for runs in _sizes(1000, scale):
        folder = _folder(place, f"runs-{runs}")
        task("make", folder=folder, samples=24, steps=1)
        task("many_runs", folder=folder, runs=runs)
        store = str(Path(folder) / "store")
        used = min(harness("ls", "--store", store).cpu for _ in range(3))
        points.append((runs, used))
    return Curve("`harness ls`, 24 samples a run", "runs", "CPU s", {"ls": points})


def _in_flight(place: Place, scale: float) -> Curve:
    """From an endpoint that takes 0.2 s for each reply; the sandboxes are scripted."""
    lines: dict[str, Points] = {"measured": [], "the endpoint's share": []}
    steps, delay = 20, 0.2
    most = max(4, round(50 * scale))
    for samples in sorted({1, most // 4, most // 2, most}):
        folder = _folder(place, f"flight-{samples}")
        with serving(samples, steps, env=place.commands(Path(folder)), delay=delay) as port:
            found = task("in_flight", folder=folder, port=port, samples=samples, steps=steps)
        lines["measured"].append((samples, found["wall_s"]))
        lines["the endpoint's share"].append((samples, delay * (steps + 1)))
    return Curve("samples in flight at once", "samples", "wall s until all are sealed", lines)


def as_json(found: Sequence[Curve]) -> list[dict[str, Any]]:
    """The curves as they are written."""
    whole: list[dict[str, Any]] = json.loads(json.dumps([curve._asdict() for curve in found]))
    return whole
