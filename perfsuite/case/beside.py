"""Looks at the rival beside the candidate: strides of results, settings of precision, and code that both run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perfsuite.clock.base import Clock
from perfsuite.guards.library_use import precisions_apart, ran, shared_kernels, shared_operators, strides_apart
from perfsuite.problems.base import Inputs
from perfsuite.problems.differentiated import needs_preparing

MOST_STRIDES = 4
"""The number of results whose strides are reported."""


def differences(candidate: Callable[..., Any], rival: Callable[..., Any], inputs: Inputs) -> list[str]:
    """A sentence for each stride and each setting of precision that differs; empty if that cannot be seen."""
    if needs_preparing(candidate):
        return []
    try:
        mine, theirs = ran(candidate, inputs), ran(rival, inputs)
    except Exception:  # a call that refuses a dispatch mode, no memory for one more call
        return []
    return strides_apart(mine, theirs)[:MOST_STRIDES] + precisions_apart(mine, theirs)


def code_of_both(
    candidate: Callable[..., Any], rival: Callable[..., Any], inputs: Inputs, clock: Clock, rival_name: str | None
) -> list[str]:
    """A sentence if the candidate runs the rival's code, or if that cannot be determined."""
    try:
        names = shared_operators(ran(candidate, inputs), ran(rival, inputs))
        if not names and (launched := clock.kernels()) is not None:
            names = shared_kernels(*launched)
    except Exception as error:  # the same, or a silent driver
        said = f"{type(error).__name__}: {error}".splitlines()[0]
        return [f"whether the candidate runs what {rival_name} runs was not seen ({said})"]
    return [f"the candidate runs what {rival_name} runs: {', '.join(names)}"] if names else []
