"""Searches the first bad commit when some commits cannot be judged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

Judge = Callable[[str], bool | None]


@dataclass(frozen=True)
class Found:
    """The commits that may be the first bad one. The last is bad; those before it could not be judged."""

    suspects: tuple[str, ...]
    judged: int


def search(commits: Sequence[str], is_good: Judge) -> Found:
    """Halve `commits`, oldest first: the commit before them is good, and the last of them is bad.

    If `is_good` returns None, its neighbours are tried, nearest to the middle first.
    """
    low, high, judged = -1, len(commits) - 1, 0
    unknown: set[int] = set()
    while True:
        middle = (low + high) // 2
        open_ones = [index for index in range(low + 1, high) if index not in unknown]
        if not open_ones:
            return Found(tuple(commits[low + 1 : high + 1]), judged)
        chosen = min(open_ones, key=lambda index: abs(index - middle))
        good = is_good(commits[chosen])
        judged += 1
        if good is None:
            unknown.add(chosen)
        elif good:
            low = chosen
        else:
            high = chosen
