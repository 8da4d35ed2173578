"""Draws a roofline as SVG. Both axes are logarithmic."""

from __future__ import annotations

import math
from collections.abc import Sequence

from perfsuite.analyze.roofline import Ceiling
from perfsuite.analyze.roofline_ceilings import Ceilings
from perfsuite.analyze.roofline_points import Point
from perfsuite.report import svg as pictures
from perfsuite.report.svg import COLOURS, WIDTH, Axis

HEIGHT = 600
LEFT, RIGHT, TOP, BOTTOM = 100, 220, 50, 60
DASHES = ("", "8 4", "2 3")
SHAPES = ("circle", "square", "diamond")
"""The first shape serves one kernel of each colour, then the next shape follows."""


def axes(points: Sequence[Point], ceilings: Ceilings) -> tuple[Axis, Axis]:
    """Whole decades that hold every point and every ridge."""
    roofs = list(ceilings.by_dtype.values())
    xs = [point.intensity for point in points] + [roof.ridge for roof in roofs]
    left, right = 10.0 ** math.floor(math.log10(min(xs))), 10.0 ** math.ceil(math.log10(max(xs)) + 0.2)
    ys = [point.achieved for point in points] + [min(roof.attainable(left) for roof in roofs)]
    top = math.ceil(math.log10(max([roof.flops_a_second for roof in roofs] + ys)) + 0.02)
    low, high = 10.0 ** math.floor(math.log10(min(ys))), 10.0**top
    return Axis(left, right, LEFT, WIDTH - RIGHT), Axis(low, high, HEIGHT - BOTTOM, TOP)


def svg(points: Sequence[Point], ceilings: Ceilings, *, title: str) -> str:
    """The picture. Candidates are filled marks, and rivals are rings. The mark under the pointer shows its case."""
    x, y = axes(points, ceilings)
    edge, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    parts = [
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        pictures.text(LEFT, 24, title, 'font-size="16"'),
        pictures.text(LEFT, 41, f"ceilings: {ceilings.source}", 'fill="#555"'),
        *pictures.grid(x, (TOP, bottom), _decades(x), [(y(value), value) for value in _decades(y)], rate_text),
        pictures.text((LEFT + edge) / 2, HEIGHT - 16, "arithmetic intensity, FLOPs a byte", 'text-anchor="middle"'),
    ]
    for place, (dtype, roof) in enumerate(_distinct(ceilings).items()):
        corners = ((x(at), y(roof.attainable(at))) for at in (x.low, roof.ridge, x.high))
        style = f'stroke="#333" stroke-width="1.5" stroke-dasharray="{DASHES[place % len(DASHES)]}"'
        parts.append(pictures.polyline(corners, style))
        name = f"{dtype}: {rate_text(roof.flops_a_second)}"
        parts.append(pictures.text(edge + 6, y(roof.flops_a_second) + 4, name))
    kernels = list(dict.fromkeys(point.kernel for point in points))
    looks = {kernel: look(place) for place, kernel in enumerate(kernels)}
    rivals = {point.kernel for point in points if point.rival}
    for point in points:
        share = f"{point.share:.0%} of {rate_text(point.attainable)} ({point.bound})"
        note = f"{point.label}: {rate_text(point.achieved)}, {share}"
        parts.append(_mark(x(point.intensity), y(point.achieved), *looks[point.kernel], point.rival, note))
    for place, kernel in enumerate(kernels):
        row = bottom - 18 * (len(kernels) - place)
        parts.append(_mark(edge + 14, row - 4, *looks[kernel], kernel in rivals))
        parts.append(pictures.text(edge + 26, row, kernel))
    return pictures.document(HEIGHT, parts, label=title, size=12) + "\n"


def look(place: int) -> tuple[str, str]:
    """Colour and shape of the kernel at a place in the legend."""
    return COLOURS[place % len(COLOURS)], SHAPES[place // len(COLOURS) % len(SHAPES)]


def _mark(x: float, y: float, colour: str, shape: str, ring: bool, note: str = "") -> str:
    return pictures.mark(x, y, colour, shape=shape, size=4.5, fill="none" if ring else colour, note=note)


def _decades(axis: Axis) -> list[float]:
    return [10.0**power for power in range(round(math.log10(axis.low)), round(math.log10(axis.high)) + 1)]


def _distinct(ceilings: Ceilings) -> dict[str, Ceiling]:
    """Each different roof, by the names of the dtypes that share it."""
    by_roof: dict[Ceiling, list[str]] = {}
    for dtype, roof in ceilings.by_dtype.items():
        by_roof.setdefault(roof, []).append(dtype)
    return {", ".join(dtypes): roof for roof, dtypes in by_roof.items()}


def rate_text(flops_a_second: float) -> str:
    """FLOPs a second in a suitable unit: "312 TFLOPS", "45.2 GFLOPS"."""
    for size, unit in ((1e15, "PFLOPS"), (1e12, "TFLOPS"), (1e9, "GFLOPS"), (1e6, "MFLOPS")):
        if flops_a_second >= size * 0.9995:
            return f"{flops_a_second / size:{'.3g' if flops_a_second < 999.5 * size else '.0f'}} {unit}"
    return f"{flops_a_second:.3g} FLOPS"
