"""Builds SVG: logarithmic axes, grids, lines, text and marks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#666666", "#000000")
"""Okabe and Ito's palette, which colour-blind readers can distinguish."""
WIDTH = 960


@dataclass(frozen=True)
class Axis:
    """A logarithmic axis from the value `low` at pixel `start` to the value `high` at pixel `end`."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """The pixel of a value."""
        return self.start + math.log(value / self.low) / math.log(self.high / self.low) * (self.end - self.start)

    def ticks(self) -> list[float]:
        """1, 2, 5, 10, ... between the ends; decades only, if there were more than a dozen."""
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        shown = [step * 10.0**power for power in powers for step in (1, 2, 5)]
        shown = [value for value in shown if self.low <= value <= self.high]
        return shown if len(shown) <= 12 else [value for value in shown if math.log10(value) % 1 < 1e-9]


def document(height: float, parts: Iterable[str], *, label: str, size: int = 11) -> str:
    """A picture of the common width; `label` describes it to screen readers, `size` is the text's."""
    name = escape(label, {'"': "&quot;"})
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{name}"'
    return "\n".join([f'{head} font-family="sans-serif" font-size="{size}">', *parts, "</svg>"])


def line(start: tuple[float, float], end: tuple[float, float], style: str) -> str:
    """A straight line; `style` holds further attributes."""
    (x1, y1), (x2, y2) = start, end
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" {style}/>'


def polyline(points: Iterable[tuple[float, float]], style: str) -> str:
    """Points joined by lines."""
    return f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}" fill="none" {style}/>'


def text(x: float, y: float, content: str, style: str = "") -> str:
    """Text that begins at a pixel; a `text-anchor` in `style` changes that."""
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(content)}</text>'


def mark(
    x: float, y: float, colour: str, *, shape: str = "circle", size: float = 4, fill: str | None = None, note: str = ""
) -> str:
    """A circle, square or diamond; `note` appears under the pointer, `fill` is the colour unless given."""
    style = f'fill="{fill or colour}" stroke="{colour}" stroke-width="1.5"'
    title = f"<title>{escape(note)}</title>" if note else ""
    if shape == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size:g}" {style}>{title}</circle>'
    turned = f' transform="rotate(45 {x:.1f} {y:.1f})"' if shape == "diamond" else ""
    return f'<rect x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8"{turned} {style}>{title}</rect>'


def group(parts: Sequence[str], note: str) -> str:
    """Elements that show one note under the pointer."""
    return f"<g>{''.join(parts)}<title>{escape(note)}</title></g>"


def grid(
    x: Axis,
    y: tuple[float, float],
    xs: Sequence[float],
    ys: Sequence[tuple[float, float]] = (),
    label: Callable[[float], str] = str,
) -> list[str]:
    """Vertical lines at the values `xs`, horizontal ones at (pixel, value) of `ys`, each with its value."""
    top, bottom = y
    parts = []
    for value in xs:
        parts.append(line((x(value), top), (x(value), bottom), _GRID))
        parts.append(text(x(value), bottom + 16, f"{value:g}", 'text-anchor="middle"'))
    for pixel, value in ys:
        parts.append(line((x.start, pixel), (x.end, pixel), _GRID))
        parts.append(text(x.start - 7, pixel + 4, label(value), 'text-anchor="end"'))
    return parts


_GRID = 'class="grid" stroke="#ddd"'
