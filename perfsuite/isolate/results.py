"""Reads results where they lie in the memory of a stopped process, as they are when their time ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from perfsuite.guards.as_they_are import AbsentError, read_memory
from perfsuite.isolate.errors import CandidateError, FormError
from perfsuite.isolate.receipt import MOST_RESULT_BYTES, Described, View
from perfsuite.outcome import Reason
from perfsuite.problems.nests import Flat, nest_of, outline
from perfsuite.problems.tensors import leaves_in, turned


def read_result(memory: int, form: Any, told: Sequence[Described], addresses: Sequence[int]) -> Any:
    """A copy of a result.

    memory: the descriptor of the process's memory. form: a result of the same structure, with other tensors.
    told, addresses: the result's tensors and where they lie, as the process says. Raises FormError.
    """
    import torch

    def copied(one: Described, address: int) -> Any:
        if not one.span:
            return turned(torch.empty(one.shape, dtype=one.dtype), one.turns)
        if one.span > MOST_RESULT_BYTES["cpu"]:
            raise FormError(Reason.BAD_SHAPE, f"a timed call's result reaches over {one.span} bytes of memory")
        try:
            found = torch.frombuffer(read_memory(memory, address, one.span), dtype=one.dtype)
        except AbsentError as error:
            raise FormError(error.reason, str(error)) from None
        return turned(found.as_strided(one.shape, one.stride), one.turns)

    return landed(form, told, addresses, copied)


def landed(form: Any, told: Sequence[Described], places: Sequence[int], tensor: Callable[[Described, int], Any]) -> Any:
    """A result of the form. tensor: makes each of its tensors of its description and its place."""
    import torch

    left = list(zip(told, places, strict=True))

    def leaf_of(like: Any) -> Any:
        if not isinstance(like, torch.Tensor):
            return like
        one, place = left.pop(0) if left else (None, 0)
        if one is None or (one.shape, one.dtype) != (tuple(like.shape), like.dtype):
            said = "fewer tensors" if one is None else f"{one.dtype}{one.shape}"
            said = f"a timed call returned {said}; before it was {like.dtype}{tuple(like.shape)}"
            raise FormError(Reason.BAD_SHAPE, said)
        return tensor(one, place)

    leaves = tuple(leaf_of(leaf) for _, leaf in leaves_in(form))
    return leaves[0] if nest_of(form) is None else Flat(outline(form), leaves)


def view_of(given: Sequence[Any], one: Described, view: View) -> Any:
    """A result that is a view of one of these arguments, made anew of that argument. Raises CandidateError."""
    try:
        start = given[view.of].storage_offset() + view.apart
        return given[view.of].as_strided(one.shape, one.stride, start)
    except (IndexError, RuntimeError):
        raise CandidateError("its process describes an impossible view of an argument") from None
