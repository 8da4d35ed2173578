"""Names the kernels of a call, without a profiler: the call is captured into a CUDA graph, whose nodes are read.

A profiler takes seconds to start, and calls that are timed after it run slower.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from perfsuite.problems.base import Inputs
from perfsuite.problems.differentiated import prepared

KERNEL_NODE = 0  # CU_GRAPH_NODE_TYPE_KERNEL, cuda.h


class _KernelNode(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2, cuda.h."""

    _fields_ = [
        ("func", ctypes.c_void_p),
        ("dimensions", ctypes.c_uint * 6),
        ("shared_bytes", ctypes.c_uint),
        ("parameters", ctypes.c_void_p),
        ("extra", ctypes.c_void_p),
        ("kern", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
    ]


def captured(function: Callable[..., Any], inputs: Inputs) -> Any:
    """A torch.cuda.CUDAGraph of one call, its nodes kept; RuntimeError if the call cannot be captured.

    Of backward alone, the forward pass runs before the capture and is no part of it.
    """
    import torch

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.no_grad(), torch.cuda.stream(stream):
        function = prepared(function, inputs)  # its backward runs on the stream of its forward pass
        inputs.call(function)
        stream.synchronize()
        graph = torch.cuda.CUDAGraph(keep_graph=True)
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            result = inputs.call(function)
        finally:
            graph.capture_end()
        del result
    return graph


def kernels(function: Callable[..., Any], inputs: Inputs) -> list[str]:
    """The names of one call's kernels, one for each launch, mangled for C++; empty if the driver has no name.

    RuntimeError: the call cannot be captured, or the driver does not answer. OSError, AttributeError: the driver is
    missing or too old.
    """
    graph = captured(function, inputs)  # must live until its nodes are read
    return kernels_in(graph)


def kernels_in(captured: Any) -> list[str]:
    """The kernels in a torch.cuda.CUDAGraph with keep_graph=True, as `kernels` names them."""
    graph = captured.raw_cuda_graph()
    driver = ctypes.CDLL("libcuda.so.1")
    count = ctypes.c_size_t()
    _ask(driver.cuGraphGetNodes, ctypes.c_void_p(graph), None, ctypes.byref(count))
    nodes = (ctypes.c_void_p * count.value)()
    _ask(driver.cuGraphGetNodes, ctypes.c_void_p(graph), nodes, ctypes.byref(count))
    found = []
    for node in nodes:
        kind, params, name = ctypes.c_int(), _KernelNode(), ctypes.c_char_p()
        _ask(driver.cuGraphNodeGetType, ctypes.c_void_p(node), ctypes.byref(kind))
        if kind.value != KERNEL_NODE:
            continue
        _ask(driver.cuGraphKernelNodeGetParams_v2, ctypes.c_void_p(node), ctypes.byref(params))
        if params.func:
            _ask(driver.cuFuncGetName, ctypes.byref(name), ctypes.c_void_p(params.func))
        else:
            _ask(driver.cuKernelGetName, ctypes.byref(name), ctypes.c_void_p(params.kern))
        found.append((name.value or b"").decode(errors="replace"))
    return found


def _ask(function: Any, *arguments: Any) -> None:
    if (error := function(*arguments)) != 0:
        raise RuntimeError(f"the driver answers {function.__name__} with error {error}")
