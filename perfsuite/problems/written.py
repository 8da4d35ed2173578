"""Arguments that a call writes: in place, or as `out=`. Their new values are part of the answer."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import update_wrapper
from typing import TYPE_CHECKING, Any

from perfsuite.problems.base import Inputs
from perfsuite.problems.tensors import copy_in_place, map_tensors, same_bits, tensors_in

if TYPE_CHECKING:
    import torch

RESULT = "result"
"""The name of what a call returns, beside the names of the arguments that it writes."""


@dataclass(frozen=True)
class Written:
    """The tensors that calls write: their places among those of the inputs, in order, and the names of these."""

    places: tuple[int, ...]
    names: tuple[str, ...]

    def tensors(self, inputs: Inputs) -> list[torch.Tensor]:
        """The written tensors of these inputs."""
        tensors = list(tensors_in(inputs))
        return [tensors[place] for place in self.places]

    def answer(self, result: Any, inputs: Inputs) -> Any:
        """The answer of a call on `inputs`: the written tensors, and what it returned beside them, by name."""
        if not self.places:
            return result
        written = self.tensors(inputs)
        answer: dict[str, Any] = dict(zip(self.names, written, strict=True))
        returned = list(tensors_in(result))
        beside = [one for one in returned if not any(_same_memory(one, other) for other in written)]
        if result is not None and (beside or not returned):
            answer[RESULT] = result
        return answer

    def copied(self, inputs: Inputs) -> Inputs:
        """The inputs with copies of the written tensors."""
        mine = {id(tensor) for tensor in self.tensors(inputs)}
        copied: Inputs = map_tensors(inputs, lambda tensor: copy_in_place(tensor) if id(tensor) in mine else tensor)
        return copied

    def pure(self, function: Callable[..., Any], reset: Callable[..., Any] | None = None) -> Callable[..., Any]:
        """`function` without its effects: it writes copies of its arguments, and returns them in its answer.

        A function that writes nothing may return the new values instead, as a reference does. reset: called before it.
        """

        def call(*args: Any, **kwargs: Any) -> Any:
            given = Inputs(args, kwargs)
            copies = self.copied(given)
            if reset is not None:
                reset(copies)
            result = copies.call(function)
            answer = self.answer(result, copies)
            if not self.places:
                return answer
            instead = list(tensors_in(result))
            if len(instead) == len(self.places) == len(list(tensors_in(answer.get(RESULT)))):
                alike = all(one.shape == other.shape for one, other in zip(instead, self.tensors(given), strict=True))
                if alike and same_bits(self.tensors(copies), self.tensors(given)):
                    return dict(zip(self.names, instead, strict=True))
            return answer

        return update_wrapper(call, function, updated=())


def _same_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    """True for one tensor, and for two that show the same elements: a captured call's results are made anew."""
    if one is other:
        return True
    if one.layout is not other.layout or one.dtype is not other.dtype or one.shape != other.shape or not one.numel():
        return False
    try:
        return one.data_ptr() == other.data_ptr() and one.stride() == other.stride()
    except RuntimeError:  # of another layout, without a memory of its own
        return False


def written_by(function: Callable[..., Any], inputs: Inputs) -> list[int]:
    """The places of the tensors of `inputs` that a call of `function` changes. The call runs on copies."""
    copies: Inputs = map_tensors(inputs, copy_in_place)
    copies.call(function)
    pairs = zip(tensors_in(inputs), tensors_in(copies), strict=True)
    return [place for place, (one, other) in enumerate(pairs) if not same_bits(one, other)]


def written(places: Sequence[int], inputs: Inputs, function: Callable[..., Any]) -> Written:
    """`Written` for these places, with the names of the parameters of `function` where they are known."""
    names: list[str] = []
    for name, value in _named(inputs, function):
        several = len(list(tensors_in(value)))
        names += [name if several == 1 else f"{name}[{number}]" for number in range(several)]
    return Written(tuple(places), tuple(names[place] for place in places))


def places_of(names: Sequence[str | int], inputs: Inputs, function: Callable[..., Any]) -> list[int]:
    """The places of the tensors of the arguments of these names or positions; ValueError for an unknown one."""
    places: list[int] = []
    known = list(_named(inputs, function))
    wanted = [known[one][0] if isinstance(one, int) and 0 <= one < len(inputs.args) else one for one in names]
    if missing := [one for one in wanted if one not in [name for name, _ in known]]:
        allowed = ", ".join(repr(name) for name, _ in known)
        raise ValueError(f"writes names {missing[0]!r}; allowed are the arguments {allowed}, or their positions")
    place = 0
    for name, value in known:
        count = len(list(tensors_in(value)))
        places += range(place, place + count) if name in wanted else ()
        place += count
    return places


def _named(inputs: Inputs, function: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """(name, value) of every argument, in the order of `tensors_in`."""
    try:
        parameters = [
            one.name
            for one in inspect.signature(function).parameters.values()
            if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
        ]
    except (TypeError, ValueError):  # a built-in without a signature
        parameters = []
    for place, value in enumerate(inputs.args):
        yield parameters[place] if place < len(parameters) else f"argument {place}", value
    yield from inputs.kwargs.items()
