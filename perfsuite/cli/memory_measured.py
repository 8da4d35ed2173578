"""Measurements for `perfsuite memory --measure`: peaks of torch's allocator beside the model's predictions."""

from __future__ import annotations

import argparse
from typing import Any

from perfsuite.analyze import resources
from perfsuite.cli.callables import load_callable
from perfsuite.cli.cards import cards, held, tell
from perfsuite.memory import training_measured
from perfsuite.memory.measured import hold_against
from perfsuite.memory.training_step import Shape
from perfsuite.outcome import UserError
from perfsuite.problems import Attention
from perfsuite.report import units

Rows = list[dict[str, Any]]


def attention(arguments: argparse.Namespace) -> tuple[Rows, bool]:
    """A row for each length, and True if every prediction holds."""
    dtype = units.LONG_NAMES.get(arguments.dtype)
    if dtype is None:
        raise UserError(f"--dtype is {arguments.dtype}; --measure takes one of {', '.join(units.LONG_NAMES)}")
    problems = [
        Attention(arguments.batch, arguments.heads, seq, arguments.head_dim, kv_heads=arguments.kv_heads, dtype=dtype)
        for seq in arguments.seq_lengths
    ]
    candidate = load_callable(arguments.measure)
    options = {"algorithm": arguments.algorithm, "scores_dtype": arguments.scores_dtype}
    with held(cards()[:1]):
        found = [hold_against(problem, candidate, resources.peak_bytes, **options) for problem in problems]
    rows = [
        {"length": length, "predicted bytes": one.predicted, "measured bytes": one.measured, "off": one.off}
        for length, one in zip(arguments.seq_lengths, found, strict=True)
    ]
    return rows, all(one.holds for one in found)


def training(arguments: argparse.Namespace) -> tuple[Rows, bool]:
    """A row for each way to keep activations, and True if every prediction holds."""
    if arguments.states != "adamw-mixed":
        raise UserError(f"--states is {arguments.states}; --measure trains with adamw-mixed")
    shape = Shape(arguments.layers, arguments.hidden, arguments.heads, arguments.seq, arguments.batch)
    found: list[training_measured.TrainingPeak] = []
    with held(cards()[:1]):
        for kept in ("standard", "flash", "checkpointed"):
            tell(f"[{len(found) + 1}/3] activations {kept}")
            try:
                found.append(training_measured.measure(shape, kept))
            except RuntimeError as error:
                if "out of memory" not in str(error):
                    raise
                raise UserError(f"{kept} activations do not fit into this GPU's memory; choose less") from None
    sizes = ("state", "activations", "predicted", "measured")
    rows = [
        {"activations": one.kept, "parameters": shape.parameters}
        | {f"{name} bytes": getattr(one, name) for name in sizes}
        | {"off": one.off}
        for one in found
    ]
    return rows, all(one.holds for one in found)
