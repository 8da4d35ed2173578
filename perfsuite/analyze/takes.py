"""Finds, without a profiler, the peak memory of a call and the number of kernels that it launches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perfsuite.analyze.resources import peak_bytes
from perfsuite.guards.kernel_names import kernels
from perfsuite.problems.base import Problem


def takes(problem: Problem, candidate: Callable[..., Any], *, seed: int = 0) -> dict[str, float]:
    """{"peak_bytes": ..., "launches": ...} of one call on a card, for a call that the graph clock could capture.

    A profiler could count launches too, but it disturbs later timings. A figure that cannot be found (no memory left,
    a call that is not captured, a driver that does not answer) is left out.
    """
    found: dict[str, float] = {}
    try:
        found["peak_bytes"] = float(peak_bytes(problem, candidate, seed=seed))
        count = captured_kernels(problem, candidate, seed=seed)
    except RuntimeError:  # torch's OutOfMemoryError is one, and so is what a capture raises
        return found
    if count is not None:
        found["launches"] = float(count)
    return found


def captured_kernels(problem: Problem, candidate: Callable[..., Any], *, seed: int = 0) -> int | None:
    """Kernels in a CUDA graph of one call, or None if the driver cannot list them. RuntimeError if it has no graph."""
    import torch

    inputs = problem.inputs(torch.Generator(device="cuda").manual_seed(seed))
    try:
        return len(kernels(candidate, inputs))
    except (OSError, AttributeError):
        return None
