"""Sets of inputs that are used in turn: enough of them that each has left the cache when its turn comes again."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

from perfsuite.problems.tensors import tensors_in

CACHE_MULTIPLE = 3
MOST_SETS = 1024
"""Most sets of a rotation. Tiny inputs would need tens of thousands of sets, and as many captured launches."""


MOST_PLACES = 1 << 12
"""Addresses of which it is remembered whether they lie in an input."""


def bytes_in(value: Any) -> int:
    """Bytes of the tensors in `value`."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors_in(value))


def sets_needed(bytes_a_set: int, cache_bytes: int) -> int:
    """Sets whose inputs together cover CACHE_MULTIPLE caches; at least 2, at most MOST_SETS.

    One more than the quotient: all other sets lie between two uses of a set.
    """
    if bytes_a_set <= 0:
        return 2
    return min(MOST_SETS, 1 + max(1, math.ceil(CACHE_MULTIPLE * cache_bytes / bytes_a_set)))


def allocations(values: Iterable[Any]) -> Callable[[int], bool]:
    """A function that tells whether an address lies in the memory allocated for tensors of these values."""
    storages = (tensor.untyped_storage() for value in values for tensor in tensors_in(value))
    found = sorted({(one.data_ptr(), size) for one in storages if (size := one.nbytes())})
    firsts, ends = [first for first, _ in found], list(itertools.accumulate((sum(pair) for pair in found), max))

    @lru_cache(maxsize=MOST_PLACES)  # results come at the same addresses again and again
    def taken(place: int) -> bool:
        at = bisect.bisect_right(firsts, place)
        return at > 0 and place < ends[at - 1]

    return taken


def share_memory(one: Any, other: Any) -> bool:
    """True if a tensor in `one` lies in memory that one in `other` reaches.

    By addresses: a captured call's results, and the sets of a rotation, are parts of larger allocations.
    """
    return overlap(reaches(one), reaches(other))


def reaches(value: Any) -> list[tuple[int, int]]:
    """The address of the first element, and the one behind the last, of each tensor in `value` that has elements."""
    return [_reach(tensor) for tensor in tensors_in(value) if tensor.numel()]


def overlap(one: Iterable[tuple[int, int]], other: Sequence[tuple[int, int]]) -> bool:
    """True if a stretch of memory in `one` overlaps one in `other`."""
    return any(first < end and start < last for start, end in one for first, last in other)


def _reach(tensor: Any) -> tuple[int, int]:
    """The address of a tensor's first element, and the one behind its last."""
    first = tensor.data_ptr()
    if tensor.is_contiguous():
        return first, first + tensor.nbytes
    steps = ((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    return first, first + (1 + sum(steps)) * tensor.element_size()
