"""Draws a case's history as a picture of a word's size."""

from __future__ import annotations

from collections.abc import Sequence

WIDTH, HEIGHT, MARGIN = 110, 40, 4


def spark(values: Sequence[float | None], target: float | None, label: str) -> str:
    """An SVG picture of the values, oldest first, with the target as a dashed line; empty for fewer than two values."""
    known = [(index, value) for index, value in enumerate(values) if value is not None]
    if len(known) < 2:
        return ""
    heights = [value for _, value in known] + ([target] if target is not None else [])
    low, high = min(heights), max(heights)
    span = (high - low) or abs(high) or 1.0

    def x(index: int) -> float:
        return MARGIN + (WIDTH - 2 * MARGIN) * index / (len(values) - 1)

    def y(value: float) -> float:
        return HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * (value - low) / span

    points = " ".join(f"{x(index):.1f},{y(value):.1f}" for index, value in known)
    last, end = known[-1]
    parts = [f'<polyline points="{points}" fill="none" stroke="var(--own)" stroke-width="2"/>']
    parts.append(f'<circle cx="{x(last):.1f}" cy="{y(end):.1f}" r="3" fill="var(--own)"/>')
    if target is not None:
        line = f'x1="{MARGIN}" x2="{WIDTH - MARGIN}" y1="{y(target):.1f}" y2="{y(target):.1f}"'
        parts.insert(0, f'<line {line} stroke="var(--quiet)" stroke-dasharray="4 3"/>')
    size = f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
    return f'<svg role="img" aria-label="{label}" {size}><title>{label}</title>{"".join(parts)}</svg>'
