"""Looks at the rival beside the candidate: strides of results, settings of precision, and code that both run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perfsuite.clock.base import Clock
from perfsuite.guards.library_use import Ran, precisions_apart, ran, shared_kernels, shared_operators, strides_apart
from perfsuite.problems.base import Inputs

MOST_STRIDES = 4
"""The number of results whose strides are reported."""


def both(candidate: Callable[..., Any], rival: Callable[..., Any], inputs: Inputs) -> tuple[Ran, Ran] | Exception:
    """One call of each side as it was seen, or what kept it from being seen."""
    try:
        return ran(candidate, inputs), ran(rival, inputs)
    except Exception as error:  # a call that refuses a dispatch mode, no memory for one more call
        return error


def differences(seen: tuple[Ran, Ran] | Exception) -> list[str]:
    """A sentence for each stride and each setting of precision that differs; empty if that cannot be seen."""
    if isinstance(seen, Exception):
        return []
    return strides_apart(*seen)[:MOST_STRIDES] + precisions_apart(*seen)


def code_of_both(seen: tuple[Ran, Ran] | Exception, clock: Clock, rival_name: str | None) -> list[str]:
    """A sentence if the candidate runs the rival's code, or if that cannot be determined."""
    try:
        if isinstance(seen, Exception):
            raise seen
        names = shared_operators(*seen)
        if not names and (launched := clock.kernels()) is not None:
            names = shared_kernels(*launched)
    except Exception as error:  # the same, or a silent driver
        said = f"{type(error).__name__}: {error}".splitlines()[0]
        return [f"whether the candidate runs what {rival_name} runs was not seen ({said})"]
    return [f"the candidate runs what {rival_name} runs: {', '.join(names)}"] if names else []
