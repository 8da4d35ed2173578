"""One operand of all sets of a rotation, which gets other values by windows that slide along a line of them."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from perfsuite.clock.mixed import Mask, words_of
from perfsuite.problems.host_memory import FIRST, host_memory, in_view

if TYPE_CHECKING:
    import torch

ALIGNMENT = 512
"""Bytes to which an operand is aligned, as by torch's allocator."""
STEP_BYTES = 128
"""A window begins at a multiple of these, so that copies stay fast. Small operands have any beginning."""
PART_BYTES = 1 << 28
"""Bytes of the line of a large operand, from which stretches are dealt."""
SCRATCH_BYTES = {"cpu": 1 << 20, "cuda": 1 << 25}
"""Bytes that are mixed before they are copied to small operands in allocations of their own."""
IN_PLACE = 16
"""An operand of more than such a part of these bytes is mixed where it lies."""


@dataclass
class Windows:
    """One operand of all sets. Each set gets a window of a long line of drawn values, at an offset drawn anew, mixed
    by a window of a mask (`clock/mixed.py`)."""

    place: int
    """The operand, by its place among the tensors of a set."""
    line: torch.Tensor
    """Values of one set more than there are; of a large operand those of a part of one set."""
    mask: Mask
    rows: list[torch.Tensor]
    """The operand of each set; where torch moves values, as a vector in the order of its memory, and as words."""
    stack: torch.Tensor | None
    """All rows as a matrix, if they lie in one allocation."""
    step: int
    large: bool = False
    """True for an operand of which only stretches are dealt, since it has no line of its length."""
    offset: int = 0
    other: int = 0
    """The beginning of the window of which the mask may choose elements."""
    masked: int = 0
    """The beginning of the window of the mask."""
    stretch: tuple[int, int] = (0, 0)
    """The part of the operand that is dealt: its beginning and its length."""
    places: list[int] | None = field(init=False)
    """The rows' first bytes in the memory of the process, where the host moves them; None where torch does."""
    scratch: torch.Tensor | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.size, self.words = self.rows[0].numel(), words_of(self.line)
        self.use(self.rows)

    def use(self, rows: list[torch.Tensor]) -> None:
        """Take these for the operand of each set."""
        self.plain = not any(row.is_conj() or row.is_neg() for row in rows)
        self.rows, self.places, self.scratch = rows, None, None
        self.room = SCRATCH_BYTES.get(self.line.device.type, SCRATCH_BYTES["cuda"])
        self.small = IN_PLACE * rows[0].nbytes <= self.room
        if self.small and self.plain and self.stack is None and all(row.is_cpu for row in rows):
            places = [row.data_ptr() for row in rows]
            if in_view(places, rows[0].nbytes):
                self.places = [place - FIRST for place in places]
                return
        if self.stack is None and self.plain and (stack := stacked(rows)) is not None:
            self.stack, self.rows = stack, list(stack.unbind())  # in one call, where there may be a thousand
            return
        self.rows = [in_memory_order(row) for row in rows]
        if self.stack is None and self.plain:
            self.stack = stacked(self.rows)

    def draw(self, secret: random.Random, share: float) -> None:
        """Draw the next windows, and the stretch of the operand that gets them: about that share."""
        size = self.size
        room = self.line.numel() // 2 if self.large else size
        length = min(room, max(self.step, math.ceil(share * size / self.step) * self.step))
        rest = (size - length) // self.step
        self.stretch = secret.randrange(rest + 1) * self.step if rest else 0, length
        windows = (self.line.numel() - length if self.large else size) // self.step
        self.offset, self.masked = secret.randrange(windows) * self.step, self.mask.draw(secret)
        self.other = (self.offset // self.step + secret.randrange(1, max(2, windows))) % windows * self.step

    def deal(self, start: int, count: int) -> None:
        import torch

        begin, length = (self.mask.each * number for number in self.stretch)
        if self.stack is not None:
            self._mix(start, count, words_of(self.stack)[start : start + count, begin : begin + length])
            return
        if self.plain and not self.small:
            for number, row in enumerate(self.rows[start : start + count], start):
                self._mix(number, 1, words_of(row)[None, begin : begin + length])
            return
        for first, mixed in self._parts(start, count):
            rows = self.rows[first : first + len(mixed)]
            if self.places is not None:
                memory, size, item = host_memory(), mixed[0].nbytes, mixed.element_size()
                source = mixed.data_ptr() - FIRST
                for place in self.places[first : first + len(mixed)]:
                    into = place + begin * item
                    memory[into : into + size] = memory[source : source + size]
                    source += size
            elif self.plain:
                torch._foreach_copy_([words_of(row)[begin : begin + length] for row in rows], list(mixed.unbind()))
            else:  # the call of all together takes no conjugates
                for row, value in zip(rows, mixed.view(self.line.dtype), strict=True):
                    row[self.stretch[0] : sum(self.stretch)].copy_(value)

    def _parts(self, start: int, count: int) -> Iterator[tuple[int, torch.Tensor]]:
        """(first set, values of some sets) of the sets from `start` on, in memory that the next ones overwrite."""
        import torch

        length = self.mask.each * self.stretch[1]
        at_once = min(len(self.rows), max(1, self.room // (length * self.words.element_size())))
        if self.scratch is None or self.scratch.numel() < at_once * length:
            # As much as any share may take, so that no later deal fetches memory from the card.
            whole = self.mask.each * self.size
            most = min(len(self.rows) * whole, max(whole, self.room // self.words.element_size()))
            self.scratch = torch.empty(most, dtype=self.words.dtype, device=self.words.device)
        for first in range(start, start + count, at_once):
            sets = min(at_once, start + count - first)
            mixed = self.scratch[: sets * length].view(sets, length)
            self._mix(first, sets, mixed)
            yield first, mixed

    def _mix(self, start: int, count: int, into: torch.Tensor) -> None:
        """Write the values of these sets, as words."""
        one = self._window(self.offset, start, count)
        self.mask.mix(self.masked, one, lambda: self._window(self.other, start, count), into)

    def _window(self, offset: int, start: int, count: int) -> torch.Tensor:
        """The windows at that offset of the line, of these sets, as words."""
        begin, length = self.stretch
        first = offset if self.large else start * self.size + offset + begin
        steps = (0 if self.large else self.size * self.mask.each, 1)
        return self.words.as_strided((count, length * self.mask.each), steps, first * self.mask.each)


def stacked(rows: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """Vectors of one length at equal distances in one allocation, as a matrix; None if they do not lie so."""
    first = rows[0]
    if len(rows) < 2 or not first.is_contiguous():
        return None
    storage, begin, size = first.untyped_storage().data_ptr(), first.storage_offset(), first.numel()
    pitch = rows[1].storage_offset() - begin
    if pitch < size or first.requires_grad:
        return None
    for number, row in enumerate(rows):
        if row.storage_offset() != begin + number * pitch or row.untyped_storage().data_ptr() != storage:
            return None
        if row.dtype != first.dtype or row.shape != first.shape or row.stride() != first.stride():
            return None
    return first.as_strided((len(rows), size), (pitch, 1), begin)


def in_memory_order(tensor: torch.Tensor) -> torch.Tensor:
    """The elements of a dense tensor as a vector over the same memory."""
    if tensor.dim() == 1 and tensor.is_contiguous() and not tensor.requires_grad:
        return tensor
    return tensor.detach().as_strided((tensor.numel(),), (1,), tensor.storage_offset())


def windows(
    place: int,
    operands: list[torch.Tensor],
    spare: torch.Tensor,
    secret: random.Random,
    *,
    stacked: bool,
    large: bool,
) -> Windows:
    """The windows of the operand at that place among the tensors of a set.

    operands: that of each set. spare: another with other values. stacked: the rows get one allocation together.
    large: they get no line of their length.
    """
    import torch

    size, item = spare.numel(), spare.element_size()
    rows, last = operands, spare
    if not all(one.is_contiguous() and not one.requires_grad for one in (*operands, spare)):
        rows, last = [in_memory_order(one) for one in operands], in_memory_order(spare)
    step = STEP_BYTES // item if size * item >= 32 * STEP_BYTES else 1
    if large:
        part = in_memory_order(rows[0])[: PART_BYTES // item].clone().resolve_conj().resolve_neg()
        mask = Mask(part, len(part) // 2, secret)
        return Windows(place, part, mask, rows, None, step, large=True)
    line = torch.cat([(row.view(torch.uint8) if item == 1 else row) for row in (*rows, last)])
    line = line.resolve_conj().resolve_neg().view(spare.dtype).view(-1)
    mask, stack = Mask(line, size, secret), None
    if stacked:
        each = max(1, ALIGNMENT // item)
        stack = torch.empty((len(rows), -(-size // each) * each), dtype=spare.dtype, device=spare.device)
        rows = [row[:size] for row in stack.unbind()]
    made = Windows(place, line, mask, rows, stack, step, stretch=(0, size))
    if stack is not None:  # else the values lie there
        made.deal(0, len(rows))
    return made
