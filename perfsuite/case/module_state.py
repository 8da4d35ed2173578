"""Finds modules whose results depend on buffers that each call changes, and makes a reset of these buffers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perfsuite.oracle.chance import Dice
from perfsuite.problems.base import Inputs, Problem
from perfsuite.problems.modules import module_of
from perfsuite.problems.tensors import same_bits

RESTORED = "the buffers of both modules are restored before every call, for each call changes them"


def reset_of_buffers(
    candidate: Callable[..., Any], rival: Callable[..., Any], problem: Problem, make_inputs: Callable[[], Inputs]
) -> Callable[[Inputs], None] | None:
    """A function that restores the buffers of both modules; None where the rival's result needs no such thing.

    The problem's own reset takes precedence.

    Without it, both sides would go on from states of their own, since they are not called equally often. Running
    statistics of a batch norm change too, but no result of a call in training mode depends on them.
    """
    import torch

    mine, theirs = module_of(candidate), module_of(rival)
    if mine is None or theirs is None or getattr(problem, "reset", None) is not None:
        return None
    saved = [(buffer, buffer.clone()) for module in (mine, theirs) for buffer in module.buffers()]
    if not saved:
        return None

    def restore(_: Inputs) -> None:
        with torch.no_grad():
            for buffer, value in saved:
                buffer.copy_(value)

    inputs = make_inputs()
    dice = Dice(next(iter(saved))[0].device)

    def called() -> Any:
        dice.rewind()
        with torch.no_grad():
            return inputs.call(rival)

    try:
        first = called()
        if all(torch.equal(buffer, value) for buffer, value in saved):
            return None
        goes_on = called()
        restore(inputs)
        again = called()
    except Exception:  # the checks call it again, and say so
        return None
    finally:
        restore(inputs)
        dice.rewind()
    return restore if same_bits(first, again) and not same_bits(first, goes_on) else None
