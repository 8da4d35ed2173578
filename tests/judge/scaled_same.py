"""Identical code, gated on one card and on all cards at once: what other busy cards change of a verdict.

The noise of the gates is measured on the first card alone, as a user calibrates. The gates on all cards assume the
same noise. So an alarm there is one that a user would see.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from perfsuite.calibrate.parts import Part, read_part
from perfsuite.calibrate.running import Calibration, Order
from perfsuite.outcome import UserError
from perfsuite.settings import DeviceKind

BESIDE = 2
"""Processes on each card, which set up beside one another and time in turns: twice as many gates in the same time."""
PROCESSES = 2
"""Of each of these, one after another."""
MOST_CARDS = 8


def same(
    device: DeviceKind,
    cards: Sequence[str | None],
    gates: int,
    seconds: float,
    alone_seconds: float,
    noise: Path | None = None,
) -> Iterator[tuple[str, dict[str, Any]]]:
    """(name, figures) of `gates` gates on the first card, then on all at once. cards: None for processors.

    seconds: of all cards at once. alone_seconds: of the one card, its noise included. noise: a part of a calibration
    of such a card, whose noise is used instead.
    """
    beside = BESIDE if device == "cuda" else 1
    with tempfile.TemporaryDirectory(prefix="perfsuite-same-") as folder:
        known = None if noise is None else noise_of(noise)
        for number in sorted({1, len(cards)}):
            file = Path(folder, f"{number}.jsonl")
            order = Order(
                device=device,
                gates={0.0: gates},
                seconds=alone_seconds if number == 1 else seconds,
                processes=PROCESSES * beside * number,
                peers_seconds=0.0,
                isolated=False,
                beside=beside,
                output=None,
                part=file,
                after=[] if known is None else [known],
            )
            own = Path(folder, str(number))
            own.mkdir()
            summary = Calibration(order, list(cards[:number]), own).run()
            yield f"identical-{number}", {**told(summary, number), "noise": "of this run" if known is None else "known"}
            if known is None:
                with suppress(UserError):  # the time was over before its first gate: the others measure their own noise
                    known = noise_of(file)


def noise_of(file: Path) -> Part:
    """A part with the noise of that one and no gates: what follows takes over its noise, and leaves out no gate."""
    return replace(read_part(file), rows=[])


def told(summary: dict[str, Any], cards: int) -> dict[str, Any]:
    """What a calibration found, for the record."""
    cases = [
        {key: one[key] for key in ("case", "seconds", "setup_noise", "setup_noise_seen", "aa")}
        for one in summary["cases"]
    ]
    return {
        "cards": cards,
        "beside": summary.get("beside", 1),
        "gates": summary["aa"]["gates"],
        "aa": summary["aa"],
        "wall_seconds_per_gate_median": summary["wall_seconds_per_gate_median"],
        "process_noise_seen": summary["process_noise_seen"],
        "cases": cases,
    }
