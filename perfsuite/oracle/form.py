"""Checks the type, memory, shape, dtype and device of a result before its numbers are read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perfsuite.oracle.judgement import Judgement, wrong
from perfsuite.outcome import Reason
from perfsuite.problems.base import Inputs
from perfsuite.problems.checks import plain_name
from perfsuite.problems.tensors import tensors_in

if TYPE_CHECKING:
    import torch


def check_kind(output: Any, inputs: Inputs) -> Judgement | None:
    """None if `output` is one plain tensor or several, each with its own memory; otherwise the fault.

    This runs before anything else reads the output. A subclass of Tensor is a fault even if it behaves: it can put the
    work off until the checker looks. A result that lies in an input's memory is a fault too.
    """
    import torch

    given = list(output) if type(output) in (tuple, list) else [output]
    for item in given:
        if not isinstance(item, torch.Tensor):
            allowed = "allowed are a torch.Tensor, or a tuple or list of them"
            return wrong(Reason.BAD_TYPE, f"the candidate returns {_type_name(item)}; {allowed}")
    input_memory = {tensor.untyped_storage().data_ptr() for tensor in tensors_in(inputs) if tensor.numel()}
    for place, one in enumerate(given):
        if (fault := _kind(_what(place, given), one, input_memory)) is not None:
            return fault
    return None


def check_form(output: Any, expected: Any, inputs: Inputs) -> Judgement | None:
    """`check_kind`, and shape, dtype and device against `expected`, the library's result."""
    if (fault := check_kind(output, inputs)) is not None:
        return fault
    given, wanted = list(tensors_in(output)), list(tensors_in(expected))
    if len(given) != len(wanted):
        return wrong(Reason.BAD_SHAPE, f"the candidate returns {len(given)} tensors, the library {len(wanted)}")
    for place, (one, other) in enumerate(zip(given, wanted, strict=True)):
        if (fault := _form(_what(place, given), one, other)) is not None:
            return fault
    return None


def _what(place: int, given: list[torch.Tensor]) -> str:
    return "the output" if len(given) == 1 else f"output {place}"


def _kind(what: str, one: torch.Tensor, input_memory: set[int]) -> Judgement | None:
    import torch

    if type(one) is not torch.Tensor:
        return wrong(Reason.BAD_TYPE, f"{what} is a {_type_name(one)}; it must be a plain torch.Tensor")
    if vars(one):
        names = ", ".join(sorted(vars(one)))
        return wrong(
            Reason.BAD_TYPE, f"{what} carries attributes of its own ({names}); it must be a plain torch.Tensor"
        )
    if one.layout is not torch.strided or one.is_meta or one.is_quantized:
        return wrong(Reason.BAD_TYPE, f"{what} is {one.layout} on {one.device}; it must be strided and have memory")
    if one.numel() and one.untyped_storage().data_ptr() in input_memory:
        return wrong(Reason.BAD_TYPE, f"{what} lies in the memory of an input; it must have memory of its own")
    return None


def _form(what: str, one: torch.Tensor, other: torch.Tensor) -> Judgement | None:
    if one.shape != other.shape:
        return wrong(Reason.BAD_SHAPE, f"{what} has shape {tuple(one.shape)}; it must be {tuple(other.shape)}")
    if one.dtype is not other.dtype:
        return wrong(Reason.BAD_DTYPE, f"{what} is {plain_name(one.dtype)}; it must be {plain_name(other.dtype)}")
    if one.device != other.device:
        return wrong(Reason.BAD_DEVICE, f"{what} is on {one.device}; it must be on {other.device}")
    return None


def _type_name(value: Any) -> str:
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
