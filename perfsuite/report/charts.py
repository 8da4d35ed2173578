"""Pictures of a record as SVG, without any library: rows of marks on a ratio axis, and lines over two axes.

All axes are logarithmic. Every mark tells its figures when it is hovered over.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#666666", "#000000")
"""Okabe and Ito's, which colour-blind readers can tell apart."""
WIDTH = 960
LABELS, RIGHT, TOP, BOTTOM, ROW = 330, 30, 26, 36, 18
HEIGHT, SIDE, LEGEND = 420, 90, 345
STEPS = (1, 2, 5)


@dataclass(frozen=True)
class Mark:
    """A point of a row; with `low` and `high` an interval around it."""

    value: float
    colour: str
    told: str
    low: float | None = None
    high: float | None = None
    ring: bool = False


@dataclass(frozen=True)
class Row:
    """A line of a chart of rows. `tick` is a value to be reached, or not to be passed."""

    label: str
    marks: tuple[Mark, ...]
    tick: float | None = None


@dataclass(frozen=True)
class Series:
    """Points that are joined, in the order of x."""

    name: str
    points: tuple[tuple[float, float], ...]
    dashed: bool = False


def rows(lines: Sequence[Row], *, axis: str, reference: float = 1.0) -> str:
    """One line a case: marks, intervals and ticks over a common ratio axis with a reference line."""
    values = [reference]
    for line in lines:
        values += [end for mark in line.marks for end in (mark.value, mark.low, mark.high) if end]
        values += [line.tick] if line.tick else []
    low, high = min(values) / 1.1, max(values) * 1.1
    bottom = TOP + ROW * len(lines)

    def x(value: float) -> float:
        return LABELS + math.log(value / low) / math.log(high / low) * (WIDTH - LABELS - RIGHT)

    parts = [_open(bottom + BOTTOM, axis)]
    for value in ticks(low, high):
        parts.append(f'<line x1="{x(value):.1f}" y1="{TOP}" x2="{x(value):.1f}" y2="{bottom}" class="grid"/>')
        parts.append(f'<text x="{x(value):.1f}" y="{bottom + 16}" text-anchor="middle">{value:g}</text>')
    parts.append(f'<line x1="{x(reference):.1f}" y1="{TOP}" x2="{x(reference):.1f}" y2="{bottom}" class="reference"/>')
    for place, line in enumerate(lines):
        y = TOP + ROW * place + ROW / 2
        parts.append(f'<text x="{LABELS - 8}" y="{y + 4:.1f}" text-anchor="end">{escape(line.label)}</text>')
        if line.tick:
            parts.append(
                f'<line x1="{x(line.tick):.1f}" y1="{y - 7}" x2="{x(line.tick):.1f}" y2="{y + 7}" class="tick"/>'
            )
        parts += [_mark(mark, x, y) for mark in line.marks]
    middle = (LABELS + WIDTH - RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{bottom + 32}" text-anchor="middle">{escape(axis)}</text>')
    return "\n".join([*parts, "</svg>"])


def lines(series: Sequence[Series], *, x_axis: str, y_axis: str, text: Callable[[float], str]) -> str:
    """Lines over logarithmic axes; `text` writes a value of the y axis."""
    xs = [point[0] for one in series for point in one.points]
    ys = [point[1] for one in series for point in one.points]
    left, right, low, high = min(xs) / 1.1, max(xs) * 1.1, min(ys) / 1.3, max(ys) * 1.3
    edge, bottom = WIDTH - LEGEND, HEIGHT - BOTTOM - 10

    def x(value: float) -> float:
        return SIDE + math.log(value / left) / math.log(right / left) * (edge - SIDE)

    def y(value: float) -> float:
        return bottom - math.log(value / low) / math.log(high / low) * (bottom - TOP)

    parts = [_open(max(HEIGHT, TOP + ROW * len(series)), y_axis)]
    for value in sorted(set(xs)):
        parts.append(f'<line x1="{x(value):.1f}" y1="{TOP}" x2="{x(value):.1f}" y2="{bottom}" class="grid"/>')
        parts.append(f'<text x="{x(value):.1f}" y="{bottom + 16}" text-anchor="middle">{value:g}</text>')
    for value in ticks(low, high):
        parts.append(f'<line x1="{SIDE}" y1="{y(value):.1f}" x2="{edge}" y2="{y(value):.1f}" class="grid"/>')
        parts.append(f'<text x="{SIDE - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{escape(text(value))}</text>')
    for place, one in enumerate(series):
        colour, dash = COLOURS[place % len(COLOURS)], ' stroke-dasharray="6 4"' if one.dashed else ""
        points = sorted(one.points)
        path = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.8"{dash}/>')
        for at, value in points:
            told = escape(f"{one.name} at {at:g}: {text(value)}")
            fill = "white" if one.dashed else colour
            parts.append(
                f'<circle cx="{x(at):.1f}" cy="{y(value):.1f}" r="3.5" fill="{fill}" stroke="{colour}">'
                f"<title>{told}</title></circle>"
            )
        row = TOP + ROW * place + 10
        parts.append(
            f'<line x1="{edge + 12}" y1="{row}" x2="{edge + 36}" y2="{row}" stroke="{colour}" '
            f'stroke-width="1.8"{dash}/>'
        )
        parts.append(f'<text x="{edge + 42}" y="{row + 4}">{escape(one.name)}</text>')
    parts.append(f'<text x="{(SIDE + edge) / 2}" y="{bottom + 34}" text-anchor="middle">{escape(x_axis)}</text>')
    parts.append(f'<text x="{SIDE}" y="{TOP - 10}">{escape(y_axis)}</text>')
    return "\n".join([*parts, "</svg>"])


def ticks(low: float, high: float) -> list[float]:
    """1, 2, 5, 10, ... between the ends; only decades where there would be more than a dozen."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    fine = [step * 10.0**power for power in powers for step in STEPS]
    shown = [value for value in fine if low <= value <= high]
    return shown if len(shown) <= 12 else [value for value in shown if math.log10(value) % 1 < 1e-9]


def _mark(mark: Mark, x: Callable[[float], float], y: float) -> str:
    fill = "none" if mark.ring else mark.colour
    drawn = ""
    if mark.low and mark.high:
        drawn = (
            f'<line x1="{x(mark.low):.1f}" y1="{y}" x2="{x(mark.high):.1f}" y2="{y}" stroke="{mark.colour}" '
            'stroke-width="2.5" stroke-opacity="0.5"/>'
        )
    return (
        f'<g>{drawn}<circle cx="{x(mark.value):.1f}" cy="{y}" r="4" fill="{fill}" stroke="{mark.colour}" '
        f'stroke-width="1.5"/><title>{escape(mark.told)}</title></g>'
    )


def _open(height: float, label: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" role="img" '
        f'aria-label="{escape(label, {chr(34): "&quot;"})}" font-family="sans-serif" font-size="11">'
    )
