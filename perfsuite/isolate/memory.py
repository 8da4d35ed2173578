"""Tensors shared by two processes: anonymous memory on the host, a separate allocation on a card."""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perfsuite.isolate.card_memory import CardMemory
from perfsuite.problems.nests import nest_of
from perfsuite.problems.tensors import map_tensors, tensors_in

if TYPE_CHECKING:
    import torch

ALIGNMENT, STACK_ALIGNMENT = 512, 1 << 21
"""Bytes, as in torch's allocator: of a tensor, and of a large allocation."""


def sealed(size: int) -> int:
    """The descriptor of new memory whose size nobody can change.

    If a worker could make the file shorter, the parent's next access would kill the parent.
    """
    descriptor = os.memfd_create("perfsuite", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, size)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return descriptor


@dataclass(frozen=True)
class Place:
    """The place of a tensor in the shared memory: offset in bytes, strides in elements."""

    offset: int
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    on_card: bool = False


@dataclass(frozen=True)
class Rows:
    """The places of tensors of one form that lie behind one another. first: of the first; pitch: elements between."""

    first: Place
    pitch: int
    count: int


@dataclass(frozen=True)
class Repeated:
    """A list of nests of one structure, with a `Rows` for each tensor: as long to send as one of them."""

    nest: Any
    count: int

    def each(self, tensors: Callable[[Rows], list[torch.Tensor]]) -> list[Any]:
        """The nests. tensors: those of a `Rows`, which is asked for once.

        It walks over the nest once, not once for each of hundreds.
        """
        return self._column(self.nest, tensors, {})

    def _column(
        self, nest: Any, tensors: Callable[[Rows], list[torch.Tensor]], there: dict[int, list[torch.Tensor]]
    ) -> list[Any]:
        """This part of each nest. there: the tensors of each `Rows` so far."""
        if isinstance(nest, Rows):
            if id(nest) not in there:
                there[id(nest)] = tensors(nest)
            return there[id(nest)]
        if (found := nest_of(nest)) is None:
            return [nest] * self.count
        parts = [self._column(part, tensors, there) for _, part in found.parts]
        return [found.rebuild(list(row)) for row in (zip(*parts, strict=True) if parts else [()] * self.count)]


@dataclass(frozen=True)
class Handle:
    """The arguments from which torch opens a card's tensor in the other process, with its whole segment."""

    arguments: tuple[Any, ...]


class Arena:
    """Shared memory for the tensors of nests of values (tuples, lists and dicts). `close` frees it.

    With `on_card`, tensors of a card lie in a separate allocation. Otherwise they stay where they are, and the driver
    hands over the segments in which they lie.
    """

    def __init__(self, nest: Any, *, on_card: bool, stacks: int = 0) -> None:
        """nest: the values that will be placed, or others of the same sizes. Raises CardMemoryError.

        stacks: times that `begin_stack` will be called.
        """
        near, far, device = _needed(nest)
        self._card = CardMemory(far + stacks * STACK_ALIGNMENT, device) if device is not None and on_card else None
        # Whole pages: after each place there is a whole number of elements of any dtype.
        self._host = sealed((near // mmap.PAGESIZE + 1) * mmap.PAGESIZE)
        self._map = mmap.mmap(self._host, 0)
        self._used = {"cpu": 0, "cuda": 0}

    @property
    def descriptors(self) -> list[int]:
        """Those that the other process needs: of the host's memory, and of the card's if there is any."""
        return [self._host, *([] if self._card is None else [self._card.descriptor])]

    @property
    def size(self) -> int:
        """Bytes of the host's memory."""
        return len(self._map)

    @property
    def bytes(self) -> int:
        """Bytes of all its memory."""
        return len(self._map) + (0 if self._card is None else self._card.size)

    @property
    def card(self) -> tuple[int, int] | None:
        """Bytes and number of the card's memory; None if there is none."""
        return None if self._card is None else (self._card.size, self._card.device)

    def empty(self, nest: Any, *, on_card: bool) -> bool:
        """Give up all places, if there is room for the tensors of this nest instead; False if there is not."""
        near, far, device = _needed(nest)
        if device is not None and on_card:
            if self._card is None or self._card.device != device or self._card.size < far:
                return False
            import torch

            torch.cuda.synchronize(device)  # what still reads it
        self._used = {"cpu": 0, "cuda": 0}
        return len(self._map) > near

    def begin_stack(self) -> None:
        """Place the next tensor of a card where an allocation could begin, as the first of a rotation's operand."""
        self._used["cuda"] = -(-self._used["cuda"] // STACK_ALIGNMENT) * STACK_ALIGNMENT

    def place(self, tensor: torch.Tensor, *, blank: bool = False) -> torch.Tensor:
        """A copy of `tensor`, of the same shape and strides, in the arena; or itself if it stays on its card.

        blank: with zeros. What torch leaves in new memory of this process may be a right answer.
        """
        kind = tensor.device.type
        if kind != "cpu" and self._card is None:
            return tensor
        where = _place(tensor, self._used[kind])
        self._used[kind] += -(-_span(tensor) * tensor.element_size() // ALIGNMENT) * ALIGNMENT
        placed = _at(where, self._map, self._card)
        if blank:
            placed.zero_()
        elif tensor.numel():
            copy_values(tensor, placed)
        return placed

    def place_rows(self, tensors: Sequence[torch.Tensor]) -> tuple[Rows, list[torch.Tensor]] | None:
        """Copies of tensors that lie behind one another, in one copy; None if they do not, or stay on their card.

        They lie as `place` would put them one by one: each begins at a multiple of ALIGNMENT.
        """
        kind, pitch = tensors[0].device.type, _pitch(tensors)
        if pitch is None or (kind != "cpu" and self._card is None):
            return None
        rows = Rows(_place(tensors[0], self._used[kind]), pitch, len(tensors))
        self._used[kind] += len(tensors) * pitch * tensors[0].element_size()
        there = _rows_at(rows, self._map, self._card)
        given = tensors[0].detach()
        shape, stride = (len(tensors), _span(given)), (pitch, 1)
        whole = there[0].as_strided(shape, stride, there[0].storage_offset())
        whole.copy_(given.as_strided(shape, stride, given.storage_offset()))
        return rows, there

    def describe(self, nest: Any) -> Any:
        """The nest with every tensor replaced by its place; host tensors must lie in this arena."""
        import torch

        start = torch.frombuffer(self._map, dtype=torch.uint8).data_ptr()

        def where(tensor: torch.Tensor) -> Any:
            if tensor.device.type == "cpu":
                return _place(tensor, tensor.data_ptr() - start if tensor.numel() else 0)
            offset = None if self._card is None else self._card.offset(tensor)
            if offset is not None or (self._card is not None and not tensor.numel()):
                return _place(tensor, offset or 0)
            from torch.multiprocessing.reductions import reduce_tensor

            return Handle(reduce_tensor(tensor)[1])

        return map_tensors(nest, where)

    def close(self) -> None:
        """Free the memory; nobody may use its tensors afterwards."""
        if self._card is not None:
            import torch

            torch.cuda.synchronize(self._card.device)  # what still reads it
            self._card = None
        os.close(self._host)


class Opened:
    """The other process's side of an arena."""

    def __init__(self, descriptors: Sequence[int], card: tuple[int, int] | None) -> None:
        """descriptors, card: those of the arena. Raises CardMemoryError."""
        self._map = mmap.mmap(descriptors[0], 0)
        os.close(descriptors[0])
        self._card = None if card is None else CardMemory(*card, descriptor=descriptors[1])

    @property
    def card_memory(self) -> CardMemory | None:
        """The card's memory, if it has any."""
        return self._card

    @property
    def address(self) -> int:
        """Where the host's memory begins in this process."""
        import torch

        return torch.frombuffer(self._map, dtype=torch.uint8).data_ptr()

    def rebuild(self, nest: Any) -> Any:
        """The nest that `Arena.describe` described."""
        if isinstance(nest, Place):
            return _at(nest, self._map, self._card)
        if isinstance(nest, Handle):
            from torch.multiprocessing.reductions import rebuild_cuda_tensor

            return rebuild_cuda_tensor(*nest.arguments)
        if isinstance(nest, Repeated):
            return nest.each(lambda rows: _rows_at(rows, self._map, self._card))
        found = nest_of(nest)
        return nest if found is None else found.rebuild([self.rebuild(part) for _, part in found.parts])


def _needed(nest: Any) -> tuple[int, int, int | None]:
    """(bytes of the host, bytes of a card, the card's number or None) that the tensors of a nest need."""
    tensors = list(tensors_in(nest))
    far = [one for one in tensors if one.is_cuda]
    near = _room(one for one in tensors if one.device.type == "cpu")
    return near, _room(far), far[0].device.index if far else None


def _room(tensors: Iterable[torch.Tensor]) -> int:
    """Bytes that tensors need in shared memory."""
    return sum(_span(tensor) * tensor.element_size() + ALIGNMENT for tensor in tensors)


def _at(where: Place, host: mmap.mmap, card: CardMemory | None) -> torch.Tensor:
    """The tensor at that place."""
    import torch

    dtype = getattr(torch, where.dtype)
    if where.on_card:
        assert card is not None
        return card.tensor(where.offset, dtype, where.shape, where.stride)
    return torch.frombuffer(host, dtype=dtype, offset=where.offset).as_strided(where.shape, where.stride)


def _pitch(tensors: Sequence[torch.Tensor]) -> int | None:
    """Elements between the beginnings of tensors of one form that lie behind one another; None if they do not."""
    first, item = tensors[0], tensors[0].element_size()
    span = _span(first)
    if len(tensors) < 2 or not span or first.is_conj() or first.is_neg():
        return None
    apart = tensors[1].data_ptr() - first.data_ptr()
    if apart % ALIGNMENT or not span * item <= apart <= span * item + ALIGNMENT:
        return None
    storage, begin = first.untyped_storage().data_ptr(), first.data_ptr()
    form = first.shape, first.stride(), first.dtype
    for number, one in enumerate(tensors):
        if one.data_ptr() != begin + number * apart or (one.shape, one.stride(), one.dtype) != form:
            return None
        if one.untyped_storage().data_ptr() != storage or one.requires_grad:
            return None
    return apart // item


def _rows_at(rows: Rows, host: mmap.mmap, card: CardMemory | None) -> list[torch.Tensor]:
    """The tensors at these places, as views of one: to make each by itself takes ten times as long."""
    first, span = rows.first, 1 + sum((n - 1) * s for n, s in zip(rows.first.shape, rows.first.stride, strict=True))
    shape, stride = (rows.count, span), (rows.pitch, 1)
    whole = _at(Place(first.offset, first.dtype, shape, stride, first.on_card), host, card)
    start = whole.storage_offset()
    return [whole.as_strided(first.shape, first.stride, start + n * rows.pitch) for n in range(rows.count)]


def copy_values(tensor: torch.Tensor, into: torch.Tensor) -> None:
    """Copy the values of a tensor into one of the same shape and strides."""
    into.copy_(tensor) if 0 not in tensor.stride() else _once(into).copy_(_once(tensor))


def _place(tensor: torch.Tensor, offset: int) -> Place:
    return Place(offset, str(tensor.dtype)[6:], tuple(tensor.shape), tuple(tensor.stride()), tensor.is_cuda)


def _span(tensor: torch.Tensor) -> int:
    """The number of elements from a tensor's first to its last in memory."""
    if tensor.is_contiguous():  # of thousands, nearly all
        return tensor.numel()
    if not tensor.numel():
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def _once(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with every broadcast axis cut to one element."""
    for axis, stride in enumerate(tensor.stride()):
        if stride == 0 and tensor.shape[axis] > 1:
            tensor = tensor.narrow(axis, 0, 1)
    return tensor
