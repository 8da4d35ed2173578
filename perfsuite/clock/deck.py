"""The sets of inputs of a rotation, and a reserve from which whole operands are dealt to them anew.

A candidate that keeps results, or that computes only what has changed, must not gain by it. Before every half of a
round, each operand therefore gets other values throughout. They are made of values in the reserve, which no side ever
sees, and a stretch of them hardly ever comes twice (`clock/mixed.py`): a few kernels write them, at the speed of the
memory. To draw them would take longer than the round.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from perfsuite.clock.turned import flat, sets_like
from perfsuite.clock.windows import Windows, windows
from perfsuite.problems.base import Inputs
from perfsuite.problems.orders import Move, is_value, reordered, same_numbers
from perfsuite.problems.tensors import copy_in_place, dense, map_tensors, memory_of, tensors_in

if TYPE_CHECKING:
    import torch

Moves = Literal["elements", "sets", "none"]
"""Parts of the inputs that may move: elements of independent operands, whole sets whose tensors belong together, or
nothing, since the tensors are the caller's own."""
LINE_BYTES = 1 << 31
"""An operand that takes more in all sets gets a line of PART_BYTES, from which stretches are dealt."""
RESERVE_BYTES = 1 << 31
"""Bytes of the reserve of tensors that move as they are. Larger ones stay, unless a call writes them."""
FEWEST_RESERVES, HOT_RESERVES = 2, 4


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
    places: list[int] = field(default_factory=list)
    """The tensors, by their places among those of a set."""
    _into: list[list[torch.Tensor]] = field(default_factory=list)
    _values: list[list[torch.Tensor]] = field(default_factory=list)
    """The memory of the tensors by set, and of the reserve: to find it each time takes longer than to copy there."""

    def use(self, live: list[list[torch.Tensor]]) -> None:
        """Take these for the tensors of each set."""
        self.live, self._into = live, []

    def draw(self, secret: random.Random, share: float) -> None:
        sets, reserves = len(self.live), len(self.reserve)
        once = secret.sample(range(reserves), min(sets, reserves))
        self.order = once + [secret.randrange(reserves) for _ in range(sets - len(once))]
        self.seeds = [secret.getrandbits(62) for _ in range(sets)]

    def deal(self, start: int, count: int) -> None:
        import torch

        if not self._into:
            self._into = [[memory_of(tensor.detach()) for tensor in one] for one in self.live]
            self._values = [[memory_of(tensor) for tensor in one] for one in self.reserve]
        places = range(start, start + count)
        into = [tensor for place in places for tensor in self._into[place]]
        values = [tensor for place in places for tensor in self._values[self.order[place]]]
        if into:
            torch._foreach_copy_(into, values)
        for place in places if self.orders and self.seeds else ():
            moved = reordered(self.reserve[self.order[place]], self.orders, self.seeds[place])
            for number, values_there in moved.items():
                self.live[place][number].detach().copy_(values_there)


class Deck:
    """Sets of inputs at fixed addresses, `sets`, whose values are dealt anew by `deal`.

    To deal takes as long as to read the operands twice and to write them. Where that is long beside the work, as for
    operands of gigabytes, a stretch of each operand is dealt, at a place drawn anew (`share`). To find out which, a
    side would have to read everything.
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
        self._moving: list[Windows | _Whole] = []
        self.sets = sets_like(first, make_inputs, count, self._secret if stacked and moves == "elements" else None)
        if moves == "none":
            return
        leaves = [list(tensors_in(one)) for one in self.sets]
        size = sum(tensor.numel() * tensor.element_size() for tensor in leaves[0])
        # Where there is room, the reserve holds values that no set has had.
        spare = list(tensors_in(make_inputs())) if count * size <= RESERVE_BYTES else leaves[0]
        layout = _layout(spare)
        if any(_layout(one) != layout for one in leaves):
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
            group = windows(place, operands, spare[place], self._secret, stacked=stacked and not large, large=large)
            self._moving.append(group)
            for one, row in zip(leaves, group.rows, strict=True):
                old = one[place]
                if row.data_ptr() == old.data_ptr() and old.is_leaf:
                    continue
                one[place] = row.as_strided(old.shape, old.stride(), row.storage_offset())
                new[old.data_ptr()] = one[place].requires_grad_(old.requires_grad)
        if new and all(map(flat, self.sets)):
            self.sets = [Inputs(tuple(one)) for one in leaves]
        elif new:
            self.sets = [_with(inputs, new) for inputs in self.sets]
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
            if isinstance(group, Windows):
                found = [at[row.data_ptr()] for row in group.rows]
                group.stack = None
                group.use([leaves[number][place] for number, place in found])
            else:
                group.use([[leaves[n][at[one.data_ptr()][1]] for one in live] for n, live in enumerate(group.live)])
        self.sets = sets

    def bytes_dealt(self, sets: int) -> int:
        """Bytes that are dealt to that number of sets if each operand is dealt whole."""
        groups = [one for one in self._moving if isinstance(one, Windows)]
        return sets * sum(group.rows[0].numel() * group.rows[0].element_size() for group in groups)

    def words_dealt(self, sets: int) -> int:
        """The words that these bytes are mixed as."""
        groups = [one for one in self._moving if isinstance(one, Windows)]
        return sets * sum(group.rows[0].numel() * group.mask.each for group in groups)

    @property
    def moves(self) -> bool:
        """True if anything is dealt anew."""
        return bool(self._moving)

    @property
    def dealt(self) -> list[int]:
        """The tensors that are dealt anew, by their places among those of a set."""
        groups = [[one.place] if isinstance(one, Windows) else one.places for one in self._moving]
        return sorted(place for group in groups for place in group)

    def deal(self, places: Sequence[tuple[int, int]] | None = None) -> None:
        """Deal other values to the sets in `places`, (first, number of sets) each; to all sets by default.

        The values that come last belong to the sets that come last.
        """
        for group in self._moving:
            whole = isinstance(group, Windows) and group.place in self._written
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


def _whole(
    live: list[list[torch.Tensor]], places: list[int], spare: list[torch.Tensor], make_inputs: Callable[[], Inputs]
) -> _Whole:
    reserve = [[copy_in_place(spare[place]) for place in places]]
    each = max(1, sum(tensor.numel() * tensor.element_size() for tensor in reserve[0]))
    wanted = max(1, min(max(len(live), HOT_RESERVES), RESERVE_BYTES // each))
    while len(reserve) < wanted:
        made = list(tensors_in(make_inputs()))
        reserve.append([made[place].detach() for place in places])
    group = _Whole(live, reserve, places=places)
    group.order = [number % wanted for number in range(len(live))]
    group.deal(0, len(live))
    return group
