"""Whether a result is what it claims to be, before any number in it is looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perfsuite.oracle.judgement import Judgement, wrong
from perfsuite.outcome import Reason
from perfsuite.problems.base import Inputs
from perfsuite.problems.tensors import tensors_in

if TYPE_CHECKING:
    import torch


def check_kind(output: Any, inputs: Inputs) -> Judgement | None:
    """Whether `output` is a plain tensor with memory of its own, or several; None where nothing is wrong.

    Asked before anything is done with the output. A subclass of Tensor is wrong even if it behaves: it can put the
    work off until the checker looks. So is a result that lies in an input's memory.
    """
    given = _as_list(output)
    if isinstance(given, Judgement):
        return given
    input_memory = {tensor.untyped_storage().data_ptr() for tensor in tensors_in(inputs) if tensor.numel()}
    for place, one in enumerate(given):
        fault = _kind(_what(place, given), one, input_memory)
        if fault is not None:
            return fault
    return None


def check_form(output: Any, expected: Any, inputs: Inputs) -> Judgement | None:
    """`check_kind`, and shape, dtype and device against `expected`, the library's result."""
    fault = check_kind(output, inputs)
    if fault is not None:
        return fault
    given, wanted = list(tensors_in(output)), list(tensors_in(expected))
    if len(given) != len(wanted):
        return wrong(Reason.BAD_SHAPE, f"the candidate returns {len(given)} tensors, the library {len(wanted)}")
    for place, (one, other) in enumerate(zip(given, wanted, strict=True)):
        fault = _form(_what(place, given), one, other)
        if fault is not None:
            return fault
    return None


def _what(place: int, given: list[torch.Tensor]) -> str:
    return "the output" if len(given) == 1 else f"output {place}"


def _as_list(output: Any) -> list[torch.Tensor] | Judgement:
    import torch

    items = list(output) if type(output) in (tuple, list) else [output]
    for item in items:
        if not isinstance(item, torch.Tensor):
            return wrong(
                Reason.BAD_TYPE,
                f"the candidate returns {_type_name(item)}; allowed are a torch.Tensor, or a tuple or list of them",
            )
    return items


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
        return wrong(Reason.BAD_DTYPE, f"{what} is {_plain(one.dtype)}; it must be {_plain(other.dtype)}")
    if one.device != other.device:
        return wrong(Reason.BAD_DEVICE, f"{what} is on {one.device}; it must be on {other.device}")
    return None


def _type_name(value: Any) -> str:
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _plain(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
