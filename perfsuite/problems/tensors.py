"""Walking over the tensors of nested arguments and results, copying them, and comparing them bit by bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from perfsuite.problems.base import Inputs
from perfsuite.problems.nests import nest_of

if TYPE_CHECKING:
    import torch


def leaves_in(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(path, leaf) of every leaf of a nest, in order; the path is that of an expression: '[1].values'."""
    nest = nest_of(value)
    if nest is None:
        yield path, value
        return
    for step, part in nest.parts:
        yield from leaves_in(part, path + step)


def tensors_in(value: Any, *, layouts: bool = True) -> Iterator[torch.Tensor]:
    """Every plain tensor in a nest, in an order that the nest's structure fixes; subclasses of Tensor included.

    Of a sparse or nested tensor come the tensors that it consists of. layouts: False to leave out those of them that
    say where its values lie (indices, offsets).
    """
    import torch

    # As `nest_of` would say, without its objects: most values are such tensors, and most nests are such.
    kind = type(value)
    if kind is torch.Tensor and value.layout is torch.strided and not value.is_nested:
        yield value
        return
    if kind is tuple or kind is list or kind is Inputs:
        for part in (*value.args, dict(value.kwargs)) if kind is Inputs else value:
            if type(part) is torch.Tensor and part.layout is torch.strided and not part.is_nested:
                yield part
            elif part is not None:
                yield from tensors_in(part, layouts=layouts)
        return
    if kind is dict and not value:
        return
    if (nest := nest_of(value)) is None:
        if isinstance(value, torch.Tensor):
            yield value
        return
    for step, part in nest.parts:
        if layouts or not nest.layout or step == ".values":
            yield from tensors_in(part, layouts=layouts)


def map_tensors(
    value: Any,
    change: Callable[[torch.Tensor], torch.Tensor],
    *,
    of_layouts: Callable[[torch.Tensor], torch.Tensor] | None = None,
) -> Any:
    """The same nest with `change(tensor)` in place of every tensor; the same tensor in two places stays one.

    of_layouts: replaces the tensors that say where the values of a sparse or nested tensor lie; by default `change`.
    """
    return _mapped(value, change, of_layouts, {})


def _mapped(
    value: Any,
    change: Callable[[torch.Tensor], torch.Tensor],
    of_layouts: Callable[[torch.Tensor], torch.Tensor] | None,
    made: dict[int, tuple[torch.Tensor, torch.Tensor]],
) -> Any:
    """made: the given tensor and the new one, by the number of the first. That of a sparse tensor may be gone at once.

    A function inside of `map_tensors` that calls itself would keep all tensors until the garbage collector runs.
    """
    import torch

    # As `nest_of` would say, without its objects, for what most nests consist of.
    kind = type(value)
    if kind is torch.Tensor and value.layout is torch.strided and not value.is_nested:
        if id(value) not in made:
            made[id(value)] = value, change(value)
        return made[id(value)][1]
    if kind is tuple or kind is list:
        return kind([_mapped(part, change, of_layouts, made) for part in value])
    if kind is Inputs:
        args = tuple([_mapped(part, change, of_layouts, made) for part in value.args])
        return Inputs(args, _mapped(dict(value.kwargs), change, of_layouts, made))
    if kind is dict and not value:
        return {}
    if (nest := nest_of(value)) is not None:
        where = change if of_layouts is None or not nest.layout else of_layouts
        parts = [_mapped(part, change if step == ".values" else where, of_layouts, made) for step, part in nest.parts]
        return nest.rebuild(parts)
    if not isinstance(value, torch.Tensor):
        return value
    if id(value) not in made:
        made[id(value)] = value, change(value)
    return made[id(value)][1]


def copy_in_place(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of the same shape and strides at another address; elements that share memory do so in the copy."""
    import torch

    given = tensor.detach()
    if given.is_contiguous():
        return given.clone()
    if overlapping(given):
        return memory_of(given).clone().as_strided(given.shape, given.stride())
    copy = torch.empty_strided(given.shape, given.stride(), dtype=given.dtype, device=given.device)
    return copy.copy_(given)


def memory_of(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself, or if its elements may share memory, this memory as a vector, in which no two do."""
    if not overlapping(tensor):
        return tensor
    return tensor.as_strided((span(tensor),), (1,), tensor.storage_offset())


def overlapping(tensor: torch.Tensor) -> bool:
    """True if elements of a strided tensor may share memory, as those of an expanded tensor do."""
    if tensor.is_contiguous():
        return False
    axes = sorted((stride, size) for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1)
    reach = 0
    for stride, size in axes:
        if stride <= reach:
            return tensor.numel() > 0
        reach += stride * (size - 1)
    return False


def span(tensor: torch.Tensor) -> int:
    """Elements of memory from the first of a strided tensor to its last."""
    if not tensor.numel():
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def own_attributes(tensor: torch.Tensor) -> list[str]:
    """Names of attributes that a tensor carries, but for those by which torch marks the parts of nested tensors."""
    return sorted(name for name in vars(tensor) if not name.startswith("_dynamo_"))


def keep(value: Any) -> Any:
    """A nest with copies of its plain tensors. Other tensors are not copied; the oracle refuses them.

    Copying a subclass of Tensor would run its code, and the work may be done there.
    """
    import torch

    def copy(tensor: torch.Tensor) -> torch.Tensor:
        plain = type(tensor) is torch.Tensor and not own_attributes(tensor) and tensor.layout is torch.strided
        return turned(copy_in_place(turned(tensor, of := turns(tensor))), of) if plain else tensor

    return map_tensors(value, copy)


Turns = tuple[bool, bool]
"""(conjugated, negated) by marks of a tensor: its memory holds other values, and whoever reads it does the work."""
PLAIN: Turns = (False, False)


def turns(tensor: torch.Tensor) -> Turns:
    """The marks of a tensor."""
    return tensor.is_conj(), tensor.is_neg()


def turned(tensor: torch.Tensor, by: Turns) -> torch.Tensor:
    """A view of the same memory with these marks where the tensor has none, and with none where it has these."""
    import torch

    tensor = tensor.conj() if by[0] else tensor
    return torch._neg_view(tensor) if by[1] else tensor


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's bytes as integers, so that a NaN equals itself and -0 differs from 0."""
    import torch

    tensor = tensor.detach().resolve_conj().resolve_neg()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.view(integers[tensor.element_size()])


def words(tensor: torch.Tensor) -> torch.Tensor:
    """The memory of a tensor as a vector of integers, of 64 bits where its size and its place allow that.

    Such integers need no wider type for their sum. A tensor with gaps in its memory comes as `bits` gives it.
    """
    import torch

    given = tensor.detach()
    if given.is_conj() or given.is_neg():
        given = given.resolve_conj().resolve_neg()
    if given.layout is not torch.strided or not given.numel():
        return bits(tensor)
    if given.is_contiguous() and not given.is_nested:
        flat = given.view(-1)
    elif dense(memory := memory_of(given)):
        flat = memory.as_strided((memory.numel(),), (1,), memory.storage_offset())
    else:
        return bits(tensor)
    size, begin = flat.nbytes, flat.storage_offset() * flat.element_size()
    kinds = ((8, torch.int64), (4, torch.int32), (2, torch.int16), (1, torch.uint8))
    return flat.view(next(kind for width, kind in kinds if not size % width and not begin % width))


def dense(tensor: torch.Tensor) -> bool:
    """True if a strided tensor has each element of its memory, from the first to the last, exactly once."""
    if tensor.is_contiguous():
        return True
    expected = 1
    for size, stride in sorted(zip(tensor.shape, tensor.stride(), strict=True), key=lambda pair: pair[1]):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def same_bits(one: Any, other: Any) -> bool:
    """True if two nests hold the same tensors bit by bit, shapes and dtypes included, and the same numbers."""
    import torch

    def alike(a: Any, b: Any) -> bool:
        if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
            return a.shape == b.shape and a.dtype == b.dtype and torch.equal(*_comparable(a, b))
        return not isinstance(a, int | float | complex) or repr(a) == repr(b)

    ones, others = ([leaf for _, leaf in leaves_in(nest)] for nest in (one, other))
    return len(ones) == len(others) and all(alike(a, b) for a, b in zip(ones, others, strict=True))


def _comparable(one: torch.Tensor, other: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The bits of two tensors of one shape and dtype, in words where both lie alike: there are fewer of these."""
    if one.stride() == other.stride():
        ones, others = words(one), words(other)
        if ones.dtype == others.dtype:
            return ones, others
    return bits(one), bits(other)
