"""Draws charts with logarithmic axes: rows of marks on a ratio axis, and lines over two axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from perfsuite.report import svg
from perfsuite.report.svg import COLOURS, WIDTH, Axis

LABELS, RIGHT, TOP, BOTTOM, ROW = 330, 30, 26, 36, 18
HEIGHT, SIDE, LEGEND = 420, 90, 345
_MIDDLE = 'text-anchor="middle"'


@dataclass(frozen=True)
class Mark:
    """A point of a row; with `low` and `high` an interval around it. `note` appears under the pointer."""

    value: float
    colour: str
    note: str
    low: float | None = None
    high: float | None = None
    ring: bool = False


@dataclass(frozen=True)
class Row:
    """A line of a chart of rows. `tick` is a target or a limit."""

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
    bottom = TOP + ROW * len(lines)
    x = Axis(min(values) / 1.1, max(values) * 1.1, LABELS, WIDTH - RIGHT)
    parts = svg.grid(x, (TOP, bottom), x.ticks())
    parts.append(svg.line((x(reference), TOP), (x(reference), bottom), 'class="reference"'))
    for place, line in enumerate(lines):
        y = TOP + ROW * place + ROW / 2
        parts.append(svg.text(LABELS - 8, y + 4, line.label, 'text-anchor="end"'))
        if line.tick:
            parts.append(svg.line((x(line.tick), y - 7), (x(line.tick), y + 7), 'class="tick"'))
        for mark in line.marks:
            drawn = [svg.mark(x(mark.value), y, mark.colour, fill="none" if mark.ring else None)]
            if mark.low and mark.high:
                style = f'stroke="{mark.colour}" stroke-width="2.5" stroke-opacity="0.5"'
                drawn.insert(0, svg.line((x(mark.low), y), (x(mark.high), y), style))
            parts.append(svg.group(drawn, mark.note))
    parts.append(svg.text((LABELS + WIDTH - RIGHT) / 2, bottom + 32, axis, _MIDDLE))
    return svg.document(bottom + BOTTOM, parts, label=axis)


def lines(series: Sequence[Series], *, x_axis: str, y_axis: str, text: Callable[[float], str]) -> str:
    """Lines over logarithmic axes; `text` formats a value of the y axis."""
    xs = [point[0] for one in series for point in one.points]
    ys = [point[1] for one in series for point in one.points]
    edge, bottom = WIDTH - LEGEND, HEIGHT - BOTTOM - 10
    x, y = Axis(min(xs) / 1.1, max(xs) * 1.1, SIDE, edge), Axis(min(ys) / 1.3, max(ys) * 1.3, bottom, TOP)
    parts = svg.grid(x, (TOP, bottom), sorted(set(xs)), [(y(value), value) for value in y.ticks()], text)
    for place, one in enumerate(series):
        colour, dash = COLOURS[place % len(COLOURS)], ' stroke-dasharray="6 4"' if one.dashed else ""
        style = f'stroke="{colour}" stroke-width="1.8"{dash}'
        points = sorted(one.points)
        parts.append(svg.polyline(((x(at), y(value)) for at, value in points), style))
        for at, value in points:
            note, fill = f"{one.name} at {at:g}: {text(value)}", "white" if one.dashed else colour
            parts.append(svg.mark(x(at), y(value), colour, size=3.5, fill=fill, note=note))
        row = TOP + ROW * place + 10
        parts.append(svg.line((edge + 12, row), (edge + 36, row), style))
        parts.append(svg.text(edge + 42, row + 4, one.name))
    parts.append(svg.text((SIDE + edge) / 2, bottom + 34, x_axis, _MIDDLE))
    parts.append(svg.text(SIDE, TOP - 10, y_axis))
    return svg.document(max(HEIGHT, TOP + ROW * len(series)), parts, label=y_axis)
