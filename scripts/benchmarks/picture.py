"""The curves as a picture: SVG, written by hand."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from benchmarks.stress import Curve

Point = tuple[float, float]

WIDTH, HEIGHT = 300, 200
"""Of one panel's plot, in pixels."""
LEFT, TOP, RIGHT, BOTTOM = 56, 44, 24, 46
HEADROOM = 1.3
"""Above the highest point, for the lines' names."""
ACROSS = 3
COLOURS = ("#1f5fa8", "#c2571a", "#3d7a3d")


def picture(curves: Sequence[Curve]) -> str:
    """All panels; with CPU time, a dashed line goes straight from nothing to the last point."""
    rows = -(-len(curves) // ACROSS)
    wide, high = LEFT + WIDTH + RIGHT, TOP + HEIGHT + BOTTOM
    panels = "".join(
        f'<g transform="translate({number % ACROSS * wide},{number // ACROSS * high})">'
        f"{_panel(curve)}</g>\n"
        for number, curve in enumerate(curves)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{ACROSS * wide}" height="{rows * high}" '
        f'viewBox="0 0 {ACROSS * wide} {rows * high}" font-family="sans-serif" font-size="12">\n'
        f'<rect width="100%" height="100%" fill="white"/>\n{panels}</svg>\n'
    )


def _panel(curve: Curve) -> str:
    most_x = max(x for points in curve.lines.values() for x, _ in points)
    most_y = max(y for points in curve.lines.values() for _, y in points) or 1.0
    right, bottom = LEFT + WIDTH, TOP + HEIGHT

    def at(x: float, y: float) -> tuple[float, float]:
        return LEFT + WIDTH * x / most_x, bottom - HEIGHT * y / (most_y * HEADROOM)

    parts = [
        _text(LEFT, 18, curve.title, "start", bold=True),
        _text(LEFT, 34, curve.y, "start"),
        _text(right, bottom + 34, curve.x, "end"),
        f'<path d="M{LEFT} {TOP}V{bottom}H{right}" fill="none" stroke="#444"/>',
    ]
    for share in (0.0, 0.5, 1.0):
        x, y = at(share * most_x, share * most_y)
        parts.append(_text(x, bottom + 17, f"{share * most_x:g}", "middle"))
        parts.append(_text(LEFT - 6, y + 4, f"{share * most_y:.3g}", "end"))
    for number, (name, points) in enumerate(curve.lines.items()):
        places = [at(x, y) for x, y in points]
        if curve.y.startswith("CPU"):
            parts.append(_straight(at(0, 0), places[-1], COLOURS[number % len(COLOURS)]))
        parts += _line(places, COLOURS[number % len(COLOURS)])
        key = TOP + 14 + 16 * number
        colour = COLOURS[number % len(COLOURS)]
        parts.append(f'<rect x="{LEFT + 10}" y="{key - 8}" width="10" height="8" fill="{colour}"/>')
        parts.append(_text(LEFT + 26, key, name, "start"))
    return "\n".join(parts)


def _straight(start: Point, end: Point, colour: str) -> str:
    (x0, y0), (x1, y1) = start, end
    return (
        f'<path d="M{x0:.1f} {y0:.1f}L{x1:.1f} {y1:.1f}" stroke="{colour}" fill="none" '
        'stroke-dasharray="4 4" opacity="0.5"/>'
    )


def _line(places: Sequence[Point], colour: str) -> list[str]:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dots = [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
    return [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>', *dots]


def _text(x: float, y: float, text: str, anchor: str, *, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="#222"{weight}>'
        f"{escape(text.replace('`', ''))}</text>"
    )
