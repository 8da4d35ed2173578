"""Finds where integers stem from: rounded numbers, or the order of values that they point to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perfsuite.problems.answers import Mark, Pointer

from .twins import Twins, inexact, plain

if TYPE_CHECKING:
    import torch

# Operators that choose places -> (position of the result that holds them, True if no place may come twice).
_CHOOSERS = {
    "aten::sort": (1, True),
    "aten::topk": (1, True),
    "aten::argsort": (0, True),
    "aten::argmax": (0, False),
    "aten::argmin": (0, False),
    "aten::max": (1, False),
    "aten::min": (1, False),
    "aten::kthvalue": (1, False),
    "aten::median": (1, False),
    "aten::nanmedian": (1, False),
    "aten::mode": (1, False),
    "aten::cummax": (1, False),
    "aten::cummin": (1, False),
}
_COPIES = frozenset({"aten::clone", "aten::_to_copy", "aten::contiguous"})


def mark_results(twins: Twins, name: str, schema: Any, args: Any, kwargs: Any, seen: Any, wide: Any, own: Any) -> None:
    """Mark the integers in `own`, the results of the operator `name` on `args`.

    seen: the tensors in the arguments. wide: the first argument in float64.
    """
    from torch import Tensor

    results = own if isinstance(own, tuple | list) else (own,)
    whole = [one for one in results if isinstance(one, Tensor) and not inexact(one) and plain(one)]
    if not whole:
        return
    marks = [mark for tensor in seen if (mark := twins.mark(tensor)) is not None]
    rounded = any(mark.rounded for mark in marks) or any(inexact(one) and twins.made_here(one) for one in seen)
    pointer = None
    if name in _COPIES and marks:
        pointer = marks[0].pointer
    for place, one in enumerate(results):
        if not isinstance(one, Tensor) or inexact(one) or not plain(one):
            continue
        chosen = _CHOOSERS.get(name)
        if chosen is not None and chosen[0] == place and isinstance(wide, Tensor) and inexact(wide):
            pointer = _pointer(args[0], wide, _axis(schema, args, kwargs), distinct=chosen[1])
        if rounded or pointer is not None:
            twins.set_mark(one, Mark(rounded, pointer))


def _pointer(given: torch.Tensor, wide: torch.Tensor, axis: int | None, *, distinct: bool) -> Pointer:
    slack = 0.0
    if given.numel() and given.shape == wide.shape:
        slack = 2.0 * float((given.to(wide.dtype) - wide).abs().nan_to_num(0.0, 0.0, 0.0).amax())
    return Pointer(wide.detach().clone(), axis, slack, distinct)


def _axis(schema: Any, args: Any, kwargs: Any) -> int | None:
    """The operator's argument `dim`; its default if it is not given."""
    for place, argument in enumerate(schema.arguments):
        if argument.name == "dim":
            found = kwargs.get("dim", args[place] if place < len(args) else argument.default_value)
            return None if found is None else int(found)
    return None
