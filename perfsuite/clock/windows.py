"""One operand of all sets of a rotation, which gets other values by a window that slides along a line of them."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from perfsuite.problems.host_memory import FIRST, host_memory, in_view

if TYPE_CHECKING:
    import torch

ALIGNMENT = 512
"""Bytes to which an operand is aligned, as by torch's allocator."""
STEP_BYTES = 128
"""A window begins at a multiple of these, so that copies stay fast. Small operands have any beginning."""
FEW_WINDOWS = 1024
"""An operand with at most this number of windows has each of them before one comes again."""
PART_BYTES = 1 << 28
"""Bytes of the line of a large operand, from which stretches are dealt."""


@dataclass
class Windows:
    """One floating-point operand of all sets. Each set gets a window of a long line of values, at an offset drawn
    anew: all windows hold values that were drawn for this operand, and no two windows hold the same."""

    place: int
    """The operand, by its place among the tensors of a set."""
    line: torch.Tensor
    """Values of one set more than there are; of a large operand those of a part of one set."""
    rows: list[torch.Tensor]
    """The operand of each set; where torch moves values, as a vector in the order of its memory."""
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
    """The rows' first bytes in the memory of the process, where the host moves them; None where torch does."""

    def __post_init__(self) -> None:
        self.use(self.rows)

    def use(self, rows: list[torch.Tensor]) -> None:
        """Take these for the operand of each set."""
        self.plain = not any(row.is_conj() or row.is_neg() for row in (self.line, *rows))
        self.rows, self.places = rows, None
        if self.plain and self.stack is None and all(row.is_cpu for row in (self.line, *rows)):
            places, most = [row.data_ptr() for row in rows], max(self.line.nbytes, rows[0].nbytes)
            if in_view([*places, self.line.data_ptr()], most):
                self.places = [place - FIRST for place in places]
                return
        if self.stack is None and self.plain and (stack := stacked(rows)) is not None:
            self.stack, self.rows = stack, list(stack.unbind())  # in one call, where there may be a thousand
            return
        self.rows = [in_memory_order(row) for row in rows]
        if self.stack is None and self.plain:
            self.stack = stacked(self.rows)

    def draw(self, secret: random.Random, share: float) -> None:
        """Draw the next window, and the stretch of the operand that gets it: about that share."""
        size = self.rows[0].numel()
        room = self.line.numel() // 2 if self.large else size
        length = min(room, max(self.step, math.ceil(share * size / self.step) * self.step))
        rest = (size - length) // self.step
        self.stretch = secret.randrange(rest + 1) * self.step if rest else 0, length
        windows = (self.line.numel() - length if self.large else size) // self.step
        if windows > FEW_WINDOWS:
            self.offset = secret.randrange(windows) * self.step
            return
        if not self.left:
            self.left = list(range(windows))
        drawn = secret.randrange(len(self.left))
        self.left[drawn], self.left[-1] = self.left[-1], self.left[drawn]
        self.offset = self.left.pop() * self.step

    def deal(self, start: int, count: int) -> None:
        import torch

        size, (begin, length) = self.rows[0].numel(), self.stretch
        if self.places is not None:
            item = self.line.element_size()
            skip, step = begin * item, 0 if self.large else size * item
            source = self.line.data_ptr() - FIRST + self.offset * item + (0 if self.large else start * step + skip)
            memory, size_in_bytes = host_memory(), length * item
            for place in self.places[start : start + count]:
                into = place + skip
                memory[into : into + size_in_bytes] = memory[source : source + size_in_bytes]
                source += step
            return
        if self.large:
            values = [self.line[self.offset : self.offset + length]] * len(self.rows[start : start + count])
        else:
            taken = self.line[start * size + self.offset : (start + count) * size + self.offset].view(count, size)
            if self.stack is not None:
                self.stack[start : start + count, begin : begin + length].copy_(taken[:, begin : begin + length])
                return
            values = [value[begin : begin + length] for value in taken.unbind()]
        rows = [row[begin : begin + length] for row in self.rows[start : start + count]]
        if self.plain:
            torch._foreach_copy_(rows, values)
            return
        for row, value in zip(rows, values, strict=True):  # the call of all together takes no conjugates
            row.copy_(value)


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


def windows(place: int, operands: list[torch.Tensor], spare: torch.Tensor, *, stacked: bool, large: bool) -> Windows:
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
        part = in_memory_order(rows[0])[: PART_BYTES // item].clone()
        return Windows(place, part, rows, None, step, large=True)
    line = torch.cat([(row.view(torch.uint8) if item == 1 else row) for row in (*rows, last)])
    line = line.view(spare.dtype).view(-1)
    stack = None
    if stacked:
        each = max(1, ALIGNMENT // item)
        stack = torch.empty((len(rows), -(-size // each) * each), dtype=spare.dtype, device=spare.device)
        rows = [row[:size] for row in stack.unbind()]
    made = Windows(place, line, rows, stack, step, stretch=(0, size))
    if stack is not None:  # else the values lie there
        made.deal(0, len(rows))
    return made
