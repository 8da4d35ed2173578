"""The picture of the training run: losses, and how far they are from those with SDPA's first backend.

`cuda_llm_ops.training` writes the record. The weights and texts are those of its first seed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from perfsuite.report import svg

LABEL = "Losses of a small GPT trained with flash_attention and with SDPA, and their differences"
LEFT, RIGHT, TOP, HIGH, GAP = 80, 700, 34, 210, 56
"""Pixels: ends of both panels, top of the first, height of each, and what lies between."""
LEAST = 1e-5
"""Differences below it are drawn as this: the losses are recorded with six digits."""
COLOURS = (svg.COLOURS[7], svg.COLOURS[5], svg.COLOURS[2], svg.COLOURS[1])


def farthest(losses: Sequence[float], first: Sequence[float]) -> list[float]:
    """The greatest difference so far, at every step."""
    most, found = LEAST, []
    for one, other in zip(losses, first, strict=True):
        most = max(most, abs(one - other))
        found.append(most)
    return found


def parts(losses: dict[str, list[float]], where: str) -> Iterator[tuple[float, str]]:
    names = list(losses)
    first = losses[names[0]]
    steps = len(first)

    def x(step: int) -> float:
        return LEFT + (RIGHT - LEFT) * step / max(1, steps - 1)

    most = math.ceil(max(one for run in losses.values() for one in run))

    def curves(loss: float) -> float:
        return TOP + HIGH * (1 - loss / most)

    gaps = {name: farthest(losses[name], first) for name in names[1:]}
    top = TOP + HIGH + GAP
    differences = svg.Axis(LEAST, 2 * max(run[-1] for run in gaps.values()), top + HIGH, top)
    panels = (
        ("loss", TOP, [(curves(one), one) for one in range(most + 1)]),
        ("greatest difference of loss so far", top, [(differences(one), one) for one in differences.ticks()]),
    )
    for title, y, ticks in panels:
        yield y, svg.text(LEFT, y - 10, title, 'font-weight="bold" fill="#222"')
        for pixel, value in ticks:
            yield pixel, svg.line((LEFT, pixel), (RIGHT, pixel), 'stroke="#ddd"')
            yield pixel, svg.text(LEFT - 7, pixel + 4, f"{value:g}", 'text-anchor="end" fill="#222"')
    for number, (name, run) in enumerate(losses.items()):
        # Thinner from run to run, so that those below show.
        style = f'stroke="{COLOURS[number]}" stroke-width="{(7, 5, 3, 1)[number]}"'
        yield TOP + HIGH, svg.polyline(((x(step), curves(one)) for step, one in enumerate(run)), style)
        if name in gaps:
            thin = f'stroke="{COLOURS[number]}" stroke-width="2"'
            yield top, svg.polyline(((x(step), differences(one)) for step, one in enumerate(gaps[name])), thin)
        y = TOP + 20 * (number + 1)
        yield y, svg.line((RIGHT + 14, y - 4), (RIGHT + 38, y - 4), style)
        yield y, svg.text(RIGHT + 44, y, name, 'fill="#222"')
    for step in range(0, steps + 1, max(1, steps // 4)):
        yield top + HIGH + 18, svg.text(x(step), top + HIGH + 18, str(step), 'text-anchor="middle" fill="#222"')
    yield top + HIGH + 44, svg.text(12, top + HIGH + 44, f"by step; measured on one {where}", 'fill="#555"')


def drawn(record: Any, where: str) -> list[tuple[float, str]]:
    """(bottom, element) of every element; `where` says what the record was measured on."""
    return list(parts(record["losses"][0], where))
