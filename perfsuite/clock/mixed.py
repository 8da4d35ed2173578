"""Makes values that nobody has seen of values that were drawn, at the speed of the memory.

A candidate that has seen all values once could keep results of windows, rows or blocks, and put later results together
from them: a sum from two sums of prefixes, in no time. So a stretch of values comes again only if two deals draw
the same distance between the windows of values and of the mask. Of two deals of a large operand that is one pair in
65,536. A factor drawn anew, or a sum of two drawn values, would not do, since linear functions follow it. They do not
follow exchanged bits. Where each element is one of two that were drawn, single elements do come again.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

SPAN = 1 << 12
"""Beginnings of a window of the mask."""
TILE = 1 << 16
"""Elements of such a window, at most. A longer window of values gets it again and again."""
SAMPLE = 1 << 12
"""Elements, at most, that tell whether bits of an operand may change."""
EVEN = (0.1, 0.9)
"""Share of the sample in which each of these bits is one, at least and at most. Of whole or rounded numbers few are; of
uniform ones the last bit is one in a quarter."""
ZEROS = 0.01
"""Share of the sample that may be zero: many may have a meaning."""
SHIFTS = (0, 1, 2, 4, 8)
"""Elements by which a window may lie off the alignment of its memory, as far as a card has other kernels for it."""
KEPT_BITS = 2
"""The first bits of the fraction are kept, so that the deviation of normal values changes by less than a hundredth."""


def words_of(values: torch.Tensor) -> torch.Tensor:
    """A vector's or matrix' memory as whole numbers of the size of its numbers; a complex one has two each."""
    import torch

    each = values.element_size() // 2 if values.is_complex() else values.element_size()
    return values.view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[each])


class Mask:
    """Mixes windows of a line of values with bits of its own.

    Floating-point numbers of 16 bits and more have the last bits of their fraction changed. Sign and range stay, also
    the range of shares (-1 to 1), and bits are as likely to be one as before. Other values may be whole, equal, zero or
    infinite with a meaning, and have few values at all: of those, each element is one of two that were drawn.
    """

    def __init__(self, line: torch.Tensor, length: int, secret: random.Random) -> None:
        """line: a vector of values. Ones in it are made smaller if the bits would make them greater.

        length: elements of a window of them, at most.
        """
        import torch

        words = words_of(line)
        self.each = words.numel() // line.numel()
        self._tile = min(length, TILE) * self.each
        bits = changing_bits(line)
        self.chooses = not bits
        count = min(length, TILE) + SPAN
        size = count * self.each * words.element_size() if bits else count
        generator = torch.Generator(line.device).manual_seed(secret.getrandbits(62))
        drawn = torch.empty(-(-size // 8), dtype=torch.int64, device=line.device).random_(generator=generator)
        drawn = drawn.view(torch.uint8)[:size]
        if bits:
            self.words = drawn.view(words.dtype).bitwise_and_(bits)
        else:
            chosen = drawn.bitwise_and_(1).repeat_interleave(self.each)
            # On a CPU the call that chooses takes thirty times as long as three that change bits.
            self.words = chosen.to(words.dtype).neg_() if line.is_cpu else chosen.view(torch.bool)
        if not line.is_cpu:
            load_kernels(words.dtype, self.words.dtype, line.device)

    def draw(self, secret: random.Random) -> int:
        """The beginning of a window of the mask, drawn anew; in elements."""
        return secret.randrange(SPAN)

    def mix(self, at: int, one: torch.Tensor, other: Callable[[], torch.Tensor], into: torch.Tensor) -> None:
        """Write the values of `one`, mixed by the window of the mask at that beginning. All are words, in rows.

        other: makes the values that take the place of half of the others, where the mask chooses.
        """
        rest = into.shape[-1] % self._tile
        for part, width in ((slice(into.shape[-1] - rest), self._tile), (slice(into.shape[-1] - rest, None), rest)):
            if width and (written := into[:, part]).numel():
                mask = self.words[at * self.each : at * self.each + width]
                tiles = (-1, width)
                second = other()[:, part].unflatten(1, tiles) if self.chooses else None
                self._mix(mask, one[:, part].unflatten(1, tiles), second, written.unflatten(1, tiles))

    @staticmethod
    def _mix(mask: torch.Tensor, one: torch.Tensor, other: torch.Tensor | None, into: torch.Tensor) -> None:
        import torch

        if other is None:
            torch.bitwise_xor(one, mask, out=into)
        elif mask.dtype is torch.bool:
            torch.where(mask, other, one, out=into)
        else:
            torch.bitwise_xor(one, other, out=into)
            into.bitwise_and_(mask).bitwise_xor_(one)


@functools.cache
def load_kernels(words: torch.dtype, mask: torch.dtype, device: torch.device) -> None:
    """Run each kernel once that a card may need to mix such words.

    A card has some for memory without gaps, one for each alignment. To load one may wait for all streams. Values are
    also dealt while a stream waits for the host, and a window of the mask has any alignment.
    """
    import torch

    length = max(SHIFTS)
    one, into = (torch.zeros(2, 3 * length, dtype=words, device=device) for _ in range(2))
    drawn = torch.zeros(2 * length, dtype=mask, device=device)
    second = one if mask is torch.bool else None
    for rows in (1, 2):
        for shift in SHIFTS:
            parts = [None if each is None else each[:rows, :length] for each in (one, second, into)]
            Mask._mix(drawn[shift : shift + length], *parts)  # type: ignore[arg-type]


def changing_bits(line: torch.Tensor) -> int:
    """The bits of these numbers that may change; 0 if none may. Ones are made smaller: see `Mask`."""
    import torch

    if not (line.is_floating_point() or line.is_complex()) or words_of(line).element_size() < 2:
        return 0
    numbers = torch.view_as_real(line).view(-1) if line.is_complex() else line
    facts = torch.finfo(numbers.dtype)
    bits = int(1 / (facts.eps * 2**KEPT_BITS)) - 1
    sample = words_of(numbers[:: -(-numbers.numel() // SAMPLE)].contiguous()).long()
    ones = torch.stack([sample.bitwise_right_shift(place) & 1 for place in range(bits.bit_length())]).double().mean(-1)
    least, most = numbers.aminmax()
    zeros = (sample == 0).double().mean()
    found = torch.stack([ones.min(), ones.max(), zeros, least.double(), most.double()]).tolist()  # waits once
    if not (EVEN[0] <= found[0] and found[1] <= EVEN[1] and found[2] <= ZEROS):
        return 0
    if not -facts.max / 2 < found[3] <= found[4] < facts.max / 2:  # also if one is no number
        return 0
    if max(-found[3], found[4]) == 1.0:
        numbers.clamp_(facts.eps / 2 - 1.0, 1.0 - facts.eps / 2)
    return bits
