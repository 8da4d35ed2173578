"""Turns what the operators throw into the Python error that fits; it runs only once something is wrong.

The operators check their arguments in C++ and begin their message with the name of a Python error. What never reaches
them (a list instead of a tensor, a sparse tensor) is refused by torch's dispatcher in words of its own, which name
neither the argument nor what is allowed; those are found here.
"""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from typing import Any

import torch

from . import _C

OPTIONAL = ("c", "block_table", "k_scale", "v_scale", "bias", "zeros")
_NAMED: dict[str, type[Exception]] = {
    "ValueError": ValueError,
    "TypeError": TypeError,
    "NotImplementedError": NotImplementedError,
    "OutOfMemoryError": torch.OutOfMemoryError,
    "RuntimeError": RuntimeError,
}


def translated(
    op: str, error: Exception, tensors: Mapping[str, Any], options: Mapping[str, tuple[str, Any]]
) -> Exception:
    """The error to raise for `error`, thrown by a call of the operator `op`.

    `tensors` are the tensor arguments by name (None for an optional one left out), `options` the others, each with
    what it must be: "bool", "number", or "number or None".
    """
    name, separator, message = str(error).partition(": ")
    if separator and name in _NAMED:
        return _NAMED[name](message)
    if "functorch transforms" in str(error):  # torch.library's autograd has no rule for them
        return NotImplementedError(f"{op}: torch.func does not differentiate it; use backward() or torch.autograd.grad")
    return (
        _wrong_type(op, tensors, options)
        or _wrong_kind_of_tensor(op, tensors)
        or (error if not isinstance(error, RuntimeError) or isinstance(error, NotImplementedError) else None)
        or (TypeError(f"{op}: {error}") if str(error).startswith(f"cuda_llm_ops::{op}()") else error)
    )


def _wrong_type(op: str, tensors: Mapping[str, Any], options: Mapping[str, tuple[str, Any]]) -> Exception | None:
    for name, value in tensors.items():
        if not isinstance(value, torch.Tensor) and not (name in OPTIONAL and value is None):
            return TypeError(f"{op}: {name} is of type {type(value).__name__}; it must be a torch.Tensor")
    for name, (allowed, value) in options.items():
        if allowed == "bool":
            right = isinstance(value, bool)
        else:
            right = isinstance(value, numbers.Real) or (value is None and allowed.endswith("None"))
        if not right:
            return TypeError(f"{op}: {name} is of type {type(value).__name__}; it must be a {allowed}")
        if isinstance(value, numbers.Real) and not _fits_float(value):
            return ValueError(f"{op}: {name} is beyond the range of a float")
    return None


def _fits_float(value: numbers.Real) -> bool:
    try:
        float(value)
    except OverflowError:
        return False
    return True


def _wrong_kind_of_tensor(op: str, tensors: Mapping[str, Any]) -> Exception | None:
    given = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    for name, tensor in given.items():
        if tensor.is_nested:
            return NotImplementedError(f"{op}: {name} is a nested tensor; it must be one dense tensor")
        if tensor.layout != torch.strided:
            return NotImplementedError(f"{op}: {name} has layout {tensor.layout}; it must be torch.strided")
        if tensor.is_quantized:
            return TypeError(f"{op}: {name} is {str(tensor.dtype).removeprefix('torch.')}; it must not be quantized")
        if tensor.device.type == "cuda" and _C.build_info()["flavour"] != "cuda":
            return NotImplementedError(
                f"{op}: {name} is on {tensor.device}, but cuda_llm_ops is built portable, for the CPU alone "
                f"({_C.build_info()['reason']})"
            )
        if tensor.device.type not in ("cpu", "cuda", "meta"):
            return NotImplementedError(f"{op}: {name} is on {tensor.device}; it must be on a CUDA device or the CPU")
    devices = {str(tensor.device) for tensor in given.values()}
    if len(devices) > 1:
        places = ", ".join(f"{name} on {tensor.device}" for name, tensor in given.items())
        return ValueError(f"{op}: the tensors are on several devices ({places}); all must be on one")
    return None
