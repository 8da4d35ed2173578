"""A roofline as a picture: SVG written here, PNG by matplotlib where it is installed. Both axes are logarithmic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from perfsuite.analyze.roofline import Ceiling
from perfsuite.analyze.roofline_ceilings import Ceilings
from perfsuite.analyze.roofline_points import Point

WIDTH, HEIGHT = 960, 600
LEFT, RIGHT, TOP, BOTTOM = 100, 220, 50, 60
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#666666", "#000000")
"""Okabe and Ito's, which colour-blind readers can tell apart."""
DASHES = ("", "8 4", "2 3")
SHAPES = {"o": "circle", "s": "square", "D": "diamond"}
"""By matplotlib's name: the first for as many kernels as there are colours, then the next."""


class Frame:
    """Decades that hold every point and every ridge, and where they lie in the picture."""

    def __init__(self, points: Sequence[Point], ceilings: Ceilings) -> None:
        roofs = list(ceilings.by_dtype.values())
        xs = [point.intensity for point in points] + [roof.ridge for roof in roofs]
        self.x_low, self.x_high = math.floor(math.log10(min(xs))), math.ceil(math.log10(max(xs)) + 0.2)
        least = min(roof.attainable(10.0**self.x_low) for roof in roofs)
        ys = [point.achieved for point in points] + [least]
        self.y_low = math.floor(math.log10(min(ys)))
        self.y_high = math.ceil(math.log10(max([roof.flops_a_second for roof in roofs] + ys)) + 0.02)

    def x(self, intensity: float) -> float:
        """Pixels from the left."""
        return LEFT + (math.log10(intensity) - self.x_low) / (self.x_high - self.x_low) * (WIDTH - LEFT - RIGHT)

    def y(self, flops_a_second: float) -> float:
        """Pixels from the top."""
        share = (math.log10(flops_a_second) - self.y_low) / (self.y_high - self.y_low)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


def svg(points: Sequence[Point], ceilings: Ceilings, *, title: str) -> str:
    """The picture as SVG; hovering over a point tells its case. Candidates are filled, rivals are rings."""
    frame = Frame(points, ceilings)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="24" font-size="16">{escape(title)}</text>',
        f'<text x="{LEFT}" y="41" fill="#555">ceilings: {escape(ceilings.source)}</text>',
    ]
    lines += _grid(frame)
    for place, (dtype, roof) in enumerate(_distinct(ceilings).items()):
        corners = [(10.0**frame.x_low), roof.ridge, 10.0**frame.x_high]
        path = " ".join(f"{frame.x(each):.1f},{frame.y(roof.attainable(each)):.1f}" for each in corners)
        dash = DASHES[place % len(DASHES)]
        lines.append(
            f'<polyline points="{path}" fill="none" stroke="#333" stroke-width="1.5" stroke-dasharray="{dash}"/>'
        )
        lines.append(
            f'<text x="{WIDTH - RIGHT + 6}" y="{frame.y(roof.flops_a_second) + 4:.1f}">{escape(dtype)}: '
            f"{rate_text(roof.flops_a_second)}</text>"
        )
    kernels = list(dict.fromkeys(point.kernel for point in points))
    looks = {kernel: look(place) for place, kernel in enumerate(kernels)}
    rivals = {point.kernel for point in points if point.rival}
    for point in points:
        share = f"{point.share:.0%} of {rate_text(point.attainable)} ({point.bound})"
        told = f"{point.label}: {rate_text(point.achieved)}, {share}"
        at = frame.x(point.intensity), frame.y(point.achieved)
        lines.append(_mark(*at, *looks[point.kernel], filled=not point.rival, told=told))
    for place, kernel in enumerate(kernels):
        y = HEIGHT - BOTTOM - 18 * (len(kernels) - place)
        lines.append(_mark(WIDTH - RIGHT + 14, y - 4, *looks[kernel], filled=kernel not in rivals))
        lines.append(f'<text x="{WIDTH - RIGHT + 26}" y="{y}">{escape(kernel)}</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def look(place: int) -> tuple[str, str]:
    """Colour and shape of the kernel at a place in the legend."""
    return COLOURS[place % len(COLOURS)], list(SHAPES)[place // len(COLOURS) % len(SHAPES)]


def _mark(x: float, y: float, colour: str, shape: str, *, filled: bool, told: str = "") -> str:
    """A point of the picture; `told` appears under the pointer."""
    style = f'fill="{colour if filled else "none"}" stroke="{colour}" stroke-width="1.5"'
    title = f"<title>{escape(told)}</title>" if told else ""
    if SHAPES[shape] == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" {style}>{title}</circle>'
    turned = f' transform="rotate(45 {x:.1f} {y:.1f})"' if SHAPES[shape] == "diamond" else ""
    return f'<rect x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8"{turned} {style}>{title}</rect>'


def _distinct(ceilings: Ceilings) -> dict[str, Ceiling]:
    """Roofs by the dtypes that share them."""
    by_roof: dict[Ceiling, list[str]] = {}
    for dtype, roof in ceilings.by_dtype.items():
        by_roof.setdefault(roof, []).append(dtype)
    return {", ".join(dtypes): roof for roof, dtypes in by_roof.items()}


def _grid(frame: Frame) -> list[str]:
    right, bottom, lines = WIDTH - RIGHT, HEIGHT - BOTTOM, []
    for power in range(frame.x_low, frame.x_high + 1):
        x = frame.x(10.0**power)
        lines.append(f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{bottom}" stroke="#ddd"/>')
        lines.append(f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{10.0**power:g}</text>')
    for power in range(frame.y_low, frame.y_high + 1):
        y = frame.y(10.0**power)
        lines.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="#ddd"/>')
        lines.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{rate_text(10.0**power)}</text>')
    middle = (LEFT + right) / 2
    lines.append(f'<text x="{middle}" y="{HEIGHT - 16}" text-anchor="middle">arithmetic intensity, FLOPs a byte</text>')
    return lines


def rate_text(flops_a_second: float) -> str:
    """ "312 TFLOPS", "45.2 GFLOPS": FLOPs a second with the unit that suits."""
    for size, unit in ((1e15, "PFLOPS"), (1e12, "TFLOPS"), (1e9, "GFLOPS"), (1e6, "MFLOPS")):
        if flops_a_second >= size * 0.9995:
            return (
                f"{flops_a_second / size:.3g} {unit}"
                if flops_a_second < 999.5 * size
                else f"{flops_a_second / size:.0f} {unit}"
            )
    return f"{flops_a_second:.3g} FLOPS"


def write_png(path: Path, points: Sequence[Point], ceilings: Ceilings, *, title: str) -> None:
    """The same as PNG. Raises ImportError where matplotlib is not installed."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # type: ignore[import-not-found, unused-ignore]
    from matplotlib.figure import Figure  # type: ignore[import-not-found, unused-ignore]

    frame = Frame(points, ceilings)
    figure = Figure(figsize=(WIDTH / 100, HEIGHT / 100), dpi=150)
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(10.0**frame.x_low, 10.0**frame.x_high)
    axes.set_ylim(10.0**frame.y_low, 10.0**frame.y_high)
    for place, (dtype, roof) in enumerate(_distinct(ceilings).items()):
        corners = [10.0**frame.x_low, roof.ridge, 10.0**frame.x_high]
        style = ("-", "--", ":")[place % 3]
        axes.plot(corners, [roof.attainable(each) for each in corners], color="#333333", linestyle=style, label=dtype)
    for place, kernel in enumerate(dict.fromkeys(point.kernel for point in points)):
        own = [point for point in points if point.kernel == kernel]
        colour, shape = look(place)
        face = "none" if own[0].rival else colour
        xs, ys = [p.intensity for p in own], [p.achieved for p in own]
        axes.scatter(xs, ys, marker=shape, edgecolors=colour, facecolors=face, label=kernel)
    axes.set_xlabel("arithmetic intensity, FLOPs a byte")
    axes.set_ylabel("FLOPs a second")
    axes.set_title(f"{title}\nceilings: {ceilings.source}", fontsize=10)
    axes.grid(color="#dddddd")
    axes.legend(fontsize=8)
    figure.savefig(path)
