"""The sets of inputs of a rotation, and a reserve from which whole operands are dealt to them anew.

A candidate that keeps results, or that computes only what has changed, must not gain by it. Before every half of a
round, each operand therefore gets other values throughout. Values come from the reserve, which no side ever sees: a
few kernels copy them, at the speed of the memory. To draw them would take longer than the round.
"""

from __future__ import annotations

import ctypes
import math
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from perfsuite.clock.turned import sets_like
from perfsuite.problems.base import Inputs
from perfsuite.problems.orders import Move, is_value, reordered, same_numbers
from perfsuite.problems.tensors import copy_in_place, dense, map_tensors, memory_of, tensors_in

if TYPE_CHECKING:
    import torch

Moves = Literal["elements", "sets", "none"]
"""Parts of the inputs that may move: elements of independent operands, whole sets whose tensors belong together, or
nothing, since the tensors are the caller's own."""
ALIGNMENT = 512
"""Bytes to which an operand is aligned, as by torch's allocator."""
STEP_BYTES = 128
"""A window begins at a multiple of these, so that copies stay fast. Small operands have any beginning."""
FEW_WINDOWS = 1024
"""An operand with at most this number of windows has each of them before one comes again."""
LINE_BYTES, PART_BYTES = 1 << 31, 1 << 28
"""An operand that takes more than the first in all sets gets a line of the second, from which stretches are dealt."""
RESERVE_BYTES = 1 << 31
"""Bytes of the reserve of tensors that move as they are. Larger ones stay, unless a call writes them."""
FEWEST_RESERVES, HOT_RESERVES = 2, 4


@dataclass
class _Windows:
    """One floating-point operand of all sets. Each set gets a window of a long line of values, at an offset drawn
    anew: all windows hold values that were drawn for this operand, and no two windows hold the same."""

    place: int
    """The operand, by its place among the tensors of a set."""
    line: torch.Tensor
    """Values of one set more than there are; of a large operand those of a part of one set."""
    rows: list[torch.Tensor]
    """The operand of each set, as a vector in the order of its memory."""
    stack: torch.Tensor | None
    """All rows as a matrix, if they lie in one allocation."""
    step: int
    large: bool = False
    """True for an operand of which only stretches are dealt, since it has no line of its length."""
    offset: int = 0
    stretch: tuple[int, int] = (0, 0)
    """The part of the operand that is dealt: its beginning and its length."""
    left: list[int] = field(default_factory=list)
    """Windows that have not been used, of an operand that has few."""
    places: list[int] | None = field(init=False)
    """Addresses of the rows where the host moves bytes, which takes a third of the time of as many calls of torch."""

    def __post_init__(self) -> None:
        self.use(self.rows)

    def use(self, rows: list[torch.Tensor]) -> None:
        """Take these for the operand of each set."""
        self.plain = not any(row.is_conj() or row.is_neg() for row in (self.line, *rows))
        by_host = self.plain and self.stack is None and not any(row.is_cuda for row in (self.line, *rows))
        self.rows, self.places = rows, [row.data_ptr() for row in rows] if by_host else None

    def draw(self, secret: random.Random, share: float) -> None:
        """Draw the next window, and the stretch of the operand that gets it: about that share."""
        size = self.rows[0].numel()
        room = self.line.numel() // 2 if self.large else size
        length = min(room, max(self.step, math.ceil(share * size / self.step) * self.step))
        self.stretch = secret.randrange((size - length) // self.step + 1) * self.step, length
        windows = (self.line.numel() - length if self.large else size) // self.step
        if windows > FEW_WINDOWS:
            self.offset = secret.randrange(windows) * self.step
            return
        if not self.left:
            self.left = secret.sample(range(windows), windows)
        self.offset = self.left.pop() * self.step

    def deal(self, start: int, count: int) -> None:
        import torch

        size, (begin, length) = self.rows[0].numel(), self.stretch
        if self.places is not None:
            item = self.line.element_size()
            skip, step = begin * item, 0 if self.large else size * item
            source = self.line.data_ptr() + self.offset * item + (0 if self.large else start * step + skip)
            write, size_in_bytes = ctypes.memmove, length * item
            for place in self.places[start : start + count]:
                write(place + skip, source, size_in_bytes)
                source += step
            return
        rows = [row[begin : begin + length] for row in self.rows[start : start + count]]
        if self.large:
            values = [self.line[self.offset : self.offset + length]] * len(rows)
        else:
            taken = self.line[start * size + self.offset : (start + count) * size + self.offset].view(count, size)
            if self.stack is not None:
                self.stack[start : start + count, begin : begin + length].copy_(taken[:, begin : begin + length])
                return
            values = [value[begin : begin + length] for value in taken.unbind()]
        if self.plain:
            torch._foreach_copy_(rows, values)
            return
        for row, value in zip(rows, values, strict=True):  # the call of all together takes no conjugates
            row.copy_(value)


@dataclass
class _Whole:
    """Tensors that move together, as they are: indices, masks, and inputs that belong together."""

    live: list[list[torch.Tensor]]
    """By set."""
    reserve: list[list[torch.Tensor]]
    order: list[int] = field(default_factory=list)
    """The reserve that each set has."""
    orders: dict[int, Move] = field(default_factory=dict)
    """Tensors of whole numbers whose order changes in each deal -> the way; by their places among these tensors."""
    seeds: list[int] = field(default_factory=list)
    """Of the order of the rows, by set."""

    def draw(self, secret: random.Random, share: float) -> None:
        sets, reserves = len(self.live), len(self.reserve)
        once = secret.sample(range(reserves), min(sets, reserves))
        self.order = once + [secret.randrange(reserves) for _ in range(sets - len(once))]
        self.seeds = [secret.getrandbits(62) for _ in range(sets)]

    def deal(self, start: int, count: int) -> None:
        import torch

        places = range(start, start + count)
        into = [memory_of(tensor.detach()) for place in places for tensor in self.live[place]]
        values = [memory_of(tensor) for place in places for tensor in self.reserve[self.order[place]]]
        if into:
            torch._foreach_copy_(into, values)
        for place in places if self.orders and self.seeds else ():
            moved = reordered(self.reserve[self.order[place]], self.orders, self.seeds[place])
            for number, values_there in moved.items():
                self.live[place][number].detach().copy_(values_there)


class Deck:
    """Sets of inputs at fixed addresses, `sets`, whose values are dealt anew by `deal`.

    To deal takes as long as to read the operands and to write them. Where that is long beside the work, as for operands
    of gigabytes, a stretch of each operand is dealt, at a place drawn anew (`share`). To find out which, a side would
    have to read everything.
    """

    share = 1.0
    """The part of each operand that is dealt anew."""

    def __init__(
        self,
        make_inputs: Callable[[], Inputs],
        first: Inputs,
        count: int,
        moves: Moves,
        *,
        stacked: bool = False,
        written: Collection[int] = (),
        integers: Mapping[int, Move] | None = None,
    ) -> None:
        """count: sets. stacked: an operand of all sets lies in one allocation, so that one kernel moves it.

        written: places of the tensors that a call writes, which can always be restored whole.
        integers: the moves of wider integers and truth values, by place. Numbers drawn anew are dealt as values.
        """
        self._written = frozenset(written)
        self._secret = random.SystemRandom()
        self._moving: list[_Windows | _Whole] = []
        self.sets = sets_like(first, make_inputs, count, self._secret if stacked and moves == "elements" else None)
        if moves == "none":
            return
        leaves = [list(tensors_in(one)) for one in self.sets]
        size = sum(tensor.numel() * tensor.element_size() for tensor in leaves[0])
        # Where there is room, the reserve holds values that no set has had.
        spare = list(tensors_in(make_inputs())) if count * size <= RESERVE_BYTES else leaves[0]
        if any(_layout(one) != _layout(spare) for one in leaves):
            return
        free = set(_windowed(first)) if moves == "elements" else set()
        orders = integers if moves == "elements" and integers else {}
        values = [place for place, move in orders.items() if is_value(spare[place], move) and alone(leaves[0], place)]
        free |= {place for place in values if not same_numbers(leaves[0][place], spare[place])}
        new: dict[int, torch.Tensor] = {}
        for place in sorted(free):
            large = count * spare[place].numel() * spare[place].element_size() > LINE_BYTES
            if large and place in self._written:
                free.remove(place)
                continue
            operands = [one[place] for one in leaves]
            group = _windows(place, operands, spare[place], stacked=stacked and not large, large=large)
            self._moving.append(group)
            for one, row in zip(leaves, group.rows, strict=True):
                old = one[place]
                if row.data_ptr() == old.data_ptr() and old.is_leaf:
                    continue
                one[place] = row.as_strided(old.shape, old.stride(), row.storage_offset())
                new[old.data_ptr()] = one[place].requires_grad_(old.requires_grad)
        self.sets = [_with(inputs, new) for inputs in self.sets] if new else self.sets
        whole = [place for place in range(len(spare)) if place not in free and _has_memory(spare[place])]
        each = sum(spare[place].numel() * spare[place].element_size() for place in whole)
        if FEWEST_RESERVES * each > RESERVE_BYTES:  # two copies of these would be too much
            whole = [place for place in whole if place in self._written]
        if whole:
            together = _whole([[one[place] for place in whole] for one in leaves], whole, spare, make_inputs)
            together.orders = {whole.index(place): move for place, move in orders.items() if place in whole}
            self._moving.append(together)

    def adopt(self, sets: list[Inputs]) -> None:
        """Use `sets`, copies of this deck's sets at other addresses, from here on."""
        leaves, before = [list(tensors_in(one)) for one in sets], [list(tensors_in(one)) for one in self.sets]
        at = {tensor.data_ptr(): (number, place) for number, one in enumerate(before)
                  for place, tensor in enumerate(one)}  # fmt: skip
        for group in self._moving:
            if isinstance(group, _Windows):
                found = [at[row.data_ptr()] for row in group.rows]
                group.stack = None
                group.use([_in_memory_order(leaves[number][place]) for number, place in found])
            else:
                group.live = [[leaves[n][at[one.data_ptr()][1]] for one in live] for n, live in enumerate(group.live)]
        self.sets = sets

    def bytes_dealt(self, sets: int) -> int:
        """Bytes that are dealt to that number of sets if each operand is dealt whole."""
        groups = [one for one in self._moving if isinstance(one, _Windows)]
        return sets * sum(group.rows[0].numel() * group.rows[0].element_size() for group in groups)

    @property
    def moves(self) -> bool:
        """True if anything is dealt anew."""
        return bool(self._moving)

    def deal(self, places: Sequence[tuple[int, int]] | None = None) -> None:
        """Deal other values to the sets in `places`, (first, number of sets) each; to all sets by default.

        The values that come last belong to the sets that come last.
        """
        for group in self._moving:
            whole = isinstance(group, _Windows) and group.place in self._written
            group.draw(self._secret, 1.0 if whole else self.share)
        self.restore(places)

    def restore(self, places: Sequence[tuple[int, int]] | None = None, only: Collection[int] | None = None) -> None:
        """Deal the values of the last `deal` again. only: the tensors, by their places in a set, that need it."""
        for start, count in [(0, len(self.sets))] if places is None else places:
            for group in self._moving:
                if only is None or isinstance(group, _Whole) or group.place in only:
                    group.deal(start, count)


def put(inputs: Inputs, values: Inputs) -> None:
    """Overwrite the tensors of `inputs` in place with those of `values`, of the same shapes."""
    for old, new in zip(tensors_in(inputs), tensors_in(values), strict=True):
        if _has_memory(old):
            memory_of(old.detach()).copy_(memory_of(new.detach()))


def ranges(start: int, count: int, of: int) -> list[tuple[int, int]]:
    """(first, number) of the stretches of a ring of `of` places that `count` places from `start` on cover."""
    start %= of
    count = min(count, of)
    head = min(count, of - start)
    return [(start, head)] if head == count else [(start, head), (0, count - head)]


def _with(inputs: Inputs, new: dict[int, torch.Tensor]) -> Inputs:
    """The inputs with new tensors in place of those at these addresses."""
    moved: Inputs = map_tensors(inputs, lambda tensor: new.get(tensor.data_ptr(), tensor))
    return moved


def _layout(tensors: Iterable[torch.Tensor]) -> list[tuple[object, ...]]:
    """Facts that agree for tensors which can take each other's values; one without strides equals no other."""
    import torch

    return [
        (one.shape, one.stride(), one.dtype, one.device) if one.layout is torch.strided else (object(),)
        for one in tensors
    ]


def _has_memory(tensor: torch.Tensor) -> bool:
    return tensor.numel() > 0 and not (tensor.dim() == 0 and tensor.device.type == "cpu")


def _windowed(inputs: Inputs) -> Iterator[int]:
    """The places of the operands that windows can fill: dense values, not indices, each in an allocation of its own."""
    import torch

    for place, tensor in enumerate(tensors := list(tensors_in(inputs))):
        values = tensor.is_floating_point() or tensor.is_complex() or tensor.dtype in (torch.int8, torch.uint8)
        if values and alone(tensors, place) and type(tensor) is torch.Tensor and tensor.numel() > 1 and dense(tensor):
            yield place


def alone(tensors: Sequence[torch.Tensor], place: int) -> bool:
    """True if no other tensor lies in that one's allocation."""
    storages = [tensor.untyped_storage().data_ptr() for tensor in tensors]
    return storages.count(storages[place]) == 1


def _in_memory_order(tensor: torch.Tensor) -> torch.Tensor:
    """The elements of a dense tensor as a vector over the same memory."""
    return tensor.detach().as_strided((tensor.numel(),), (1,), tensor.storage_offset())


def _windows(place: int, operands: list[torch.Tensor], spare: torch.Tensor, *, stacked: bool, large: bool) -> _Windows:
    import torch

    size, item = spare.numel(), spare.element_size()
    rows = [_in_memory_order(one) for one in operands]
    step = STEP_BYTES // item if size * item >= 32 * STEP_BYTES else 1
    if large:
        return _Windows(place, rows[0][: PART_BYTES // item].clone(), rows, None, step, large=True)
    line = torch.cat([(row.view(torch.uint8) if item == 1 else row) for row in (*rows, _in_memory_order(spare))])
    line = line.view(spare.dtype)
    stack = None
    if stacked:
        each = max(1, ALIGNMENT // item)
        stack = torch.empty((len(rows), -(-size // each) * each), dtype=spare.dtype, device=spare.device)
        rows = [row[:size] for row in stack.unbind()]
    made = _Windows(place, line, rows, stack, step, stretch=(0, size))
    if stack is not None:  # else the values lie there
        made.deal(0, len(rows))
    return made


def _whole(
    live: list[list[torch.Tensor]], places: list[int], spare: list[torch.Tensor], make_inputs: Callable[[], Inputs]
) -> _Whole:
    reserve = [[copy_in_place(spare[place]) for place in places]]
    each = max(1, sum(tensor.numel() * tensor.element_size() for tensor in reserve[0]))
    wanted = max(1, min(max(len(live), HOT_RESERVES), RESERVE_BYTES // each))
    while len(reserve) < wanted:
        made = list(tensors_in(make_inputs()))
        reserve.append([made[place].detach() for place in places])
    group = _Whole(live, reserve)
    group.order = [number % wanted for number in range(len(live))]
    group.deal(0, len(live))
    return group
