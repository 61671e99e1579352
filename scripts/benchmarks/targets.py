"""The targets, and how a figure is held against its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class Target(NamedTuple):
    """What a figure has to be. `limit` None: reported, with no target of its own."""

    figure: str
    """The figure's name in the JSON."""
    told: str
    unit: str
    limit: float | None = None
    least: bool = False
    """The figure must be at least, not at most, the limit."""
    gate: float | None = None
    """`--quick` fails beyond this: a gross regression. Only for ratios within one run."""


TARGETS: tuple[Target, ...] = (
    # replay
    Target("replay_over_floor", "replay's CPU over the floor's", "x", 2.0, gate=3.5),
    Target("floor_cpu_ms", "the floor", "ms CPU"),
    Target("replay_cpu_ms", "replay, integrity checked, scored", "ms CPU"),
    Target("replay_command_cpu_s", "`harness replay`, as a whole command", "s CPU", 0.3),
    Target("fastest_peer_over_replay", "the fastest peer's CPU over that", "x", 10.0, least=True),
    # start-up
    Target("version_cpu_ms", "`--version`, above a bare interpreter", "ms CPU", 90.0),
    Target("one_sample_cpu_ms", "replay of one sample, above a bare interpreter", "ms CPU", 130.0),
    Target("start_over_bare", "replay of one sample over a bare interpreter", "x", gate=20.0),
    Target("banned_imports", "packages loaded that replay has no use for", "", 0.0, gate=0.0),
    # depth
    Target("depth_320_over_80", "CPU, 320 steps over 80", "x", 4.4, gate=8.0),
    Target("depth_shortened", "the same, old outputs shortened", "x", 4.4, gate=8.0),
    # bytes
    Target("stored_over_distinct", "stored, over the distinct content", "x", 1.3),
    Target("stored_bare_over_distinct", "the same without metadata of replies", "x", 1.3, gate=1.5),
    Target("stored_over_own", "stored, over what is distinct in each cassette", "x", 1.2, gate=1.3),
    Target("bundle_over_distinct", "bundle, over the distinct content", "x", 0.45, gate=0.6),
    Target("stored_80_over_20", "stored, 80 steps over 20", "x", 4.1, gate=4.4),
    Target("wire_over_distinct", "wire evidence, over the distinct content (apart)", "x"),
    # memory
    Target("replay_memory_mb", "peak of a replay, less 4 x the largest cassette", "MB", 40.0),
    Target("replay_memory_growth_mb", "peak, 165 samples less 1", "MB", 5.0),
    # scores
    Target("score_cpu_ms", "`harness score`, above a bare interpreter", "ms CPU", 150.0),
    Target("score_over_floor", "`harness score`, above a bare interpreter, over the floor", "x",
           gate=6.0),
    # recording
    Target("record_tmpfs_cpu_ms", "Recorder, per effect, tmpfs", "ms CPU", 0.2),
    Target("record_disk_cpu_ms", "Recorder, per effect, disk", "ms CPU", 1.0),
    Target("record_wire_cpu_ms", "the same with wire evidence, tmpfs", "ms CPU", 0.2),
    Target("record_all_cpu_ms", "`record` in all, sealing and self-check too, tmpfs", "ms CPU"),
    Target("record_over_floor", "`record` in all over the floor", "x", gate=16.0),
    Target("fsyncs_per_effect", "fsyncs per effect", "", 2.0, gate=2.0),
    Target("fsyncs_per_effect_wire", "fsyncs per effect with wire evidence", "", 2.0),
    Target("fsync_wall_ms", "wall of fsync, per effect, disk", "ms"),
    Target("record_memory", "memory of the Recorder, over the history's bytes", "x", 2.0, gate=4.0),
    Target("seal_memory", "memory of sealing and self-check, over the history's bytes", "x"),
    # live
    Target("live_overhead_ms", "a live sample, beyond its container's four calls", "ms", 100.0),
    Target("teardown_s", "removal of a sample's sandbox", "s", 0.5),
    # many runs
    Target("runs_growth", "CPU per run, 100 runs over 10 (`--jobs 2`)", "x", 1.1),
    Target("jobs_overhead", "CPU of `--jobs 2` over one process", "x", 1.1),
    Target("jobs_same", "the same results in the same order with `--jobs 2`", "", 1.0, least=True,
           gate=1.0),
    # stress
    Target("stress_growth", "stress: dearest second half of a curve, over its first", "x", 2.0),
)  # fmt: skip


class Row(NamedTuple):
    """One line of the table."""

    target: Target
    value: float | None
    """None: not measured."""
    why: str
    """Why not."""

    @property
    def verdict(self) -> str:
        """`met`, `MISSED`, `-` (no target) or `not measured`."""
        if self.value is None:
            return "not measured"
        if self.target.limit is None:
            return "-"
        return "met" if _holds(self.value, self.target.limit, self.target.least) else "MISSED"

    @property
    def broken(self) -> bool:
        """Whether it is beyond its gate: a gross regression."""
        gate = self.target.gate
        if gate is None or self.value is None:
            return False
        return not _holds(self.value, gate, self.target.least)


def _holds(value: float, limit: float, least: bool) -> bool:
    return value >= limit if least else value <= limit


def judge(figures: Mapping[str, float | None], why: Mapping[str, str]) -> list[Row]:
    """Every target with its figure, or with why there is none. KeyError for an unknown figure."""
    known = {target.figure for target in TARGETS}
    if unknown := sorted(set(figures) - known):
        raise KeyError(f"figures without a line in the table: {unknown}")
    return [
        Row(target, figures.get(target.figure), why.get(target.figure, "")) for target in TARGETS
    ]


def table(rows: Sequence[Row]) -> list[str]:
    """The rows as text."""
    lines = []
    for row in rows:
        target = row.target
        sign = "at least" if target.least else "at most"
        limit = "" if target.limit is None else f"{sign} {target.limit:g}"
        value, unit = ("", "") if row.value is None else (f"{row.value:.3g}", target.unit)
        verdict = f"{row.verdict}: {row.why}" if row.value is None else row.verdict
        lines.append(f"{target.told:58} {value:>7} {unit:6} {limit:>13}  {verdict}")
    return lines


def markdown(rows: Sequence[Row]) -> list[str]:
    """The rows as a table of a page."""
    lines = ["| figure | value | target | |", "|---|---|---|---|"]
    for row in rows:
        target = row.target
        sign = "≥" if target.least else "≤"
        limit = "" if target.limit is None else f"{sign} {target.limit:g}"
        value = "" if row.value is None else f"{row.value:.3g} {target.unit}".rstrip()
        lines.append(f"| {target.told} | {value} | {limit} | {row.verdict} |")
    return lines


def as_json(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The rows as they are written."""
    return [
        {
            "figure": row.target.figure,
            "told": row.target.told,
            "unit": row.target.unit,
            "value": row.value,
            "limit": row.target.limit,
            "verdict": row.verdict,
            **({"why": row.why} if row.value is None else {}),
        }
        for row in rows
    ]
