"""Seconds of a call of each attention kernel by length. Made by records/choice.py: do not edit.

From records/h200/gates.jsonl: one NVIDIA H200, torch 2.11.0+cu130; float16, batch 2, 8 heads of 64,
full attention; inputs not in the L2.
"""

from __future__ import annotations

H200: tuple[tuple[int, float, float, float], ...] = (
    # length, naive, tiled, flash
    (512, 0.001282, 0.000216, 6.609e-06),
)
