"""What a call of a timed case takes besides time, found without a profiler: bytes at once, and kernels it launches."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from perfsuite.analyze.resources import peak_bytes
from perfsuite.oracle.kernel_names import KERNEL_NODE, captured
from perfsuite.problems.base import Problem


def takes(problem: Problem, candidate: Callable[..., Any], *, seed: int = 0) -> dict[str, float]:
    """{"peak_bytes": ..., "launches": ...} of one call, on a card; for a call that the graph clock could capture.

    A profiler would tell the launches too, but stays in the way of what is timed afterwards. What cannot be found (no
    memory left, a call that is not captured, a driver that does not answer) is left out.
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
    """Kernel nodes in a CUDA graph of one call; None where the driver does not tell them.

    Raises RuntimeError where the call cannot be captured.
    """
    import torch

    inputs = problem.inputs(torch.Generator(device="cuda").manual_seed(seed))
    return _kernel_nodes(captured(candidate, inputs).raw_cuda_graph())


def _kernel_nodes(graph: int) -> int | None:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    handle, count = ctypes.c_void_p(graph), ctypes.c_size_t()
    if driver.cuGraphGetNodes(handle, None, ctypes.byref(count)) != 0:
        return None
    nodes = (ctypes.c_void_p * count.value)()
    if driver.cuGraphGetNodes(handle, nodes, ctypes.byref(count)) != 0:
        return None
    kinds = []
    for node in nodes:
        kind = ctypes.c_int()
        if driver.cuGraphNodeGetType(ctypes.c_void_p(node), ctypes.byref(kind)) != 0:
            return None
        kinds.append(kind.value)
    return kinds.count(KERNEL_NODE)
