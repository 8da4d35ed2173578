"""Bounds the share of false verdicts in a stream of candidates whose number nobody knows beforehand."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

METHOD = (
    "LORD-CI of A. Weinstein and A. Ramdas, Online control of the false coverage rate and false sign rate, ICML 2020; "
    "jobs that overlap count as undecided until they end (Zrnic, Ramdas and Jordan, JMLR 22, 2021)"
)
MOST_STARTS = 10_000
"""Decisions that still give allowance to later candidates; to forget older ones spends less, never more."""
METHOD_OF_ONE = "one case: its interval holds with probability 1 - 1/N (LORD-CI with a single selection)"


def part(number: int) -> float:
    """The share of one decision's allowance that the case `number` (from 1) after it gets. All shares add up to 1."""
    return 1.0 / (number * (number + 1))


@dataclass
class Stream:
    """Hands out the error that each candidate may spend. `one_in`: N, of at most one false verdict in N.

    The sum of all that was handed out is at most max(1, decided) / N at any time. This is the condition under which
    LORD-CI bounds the expected share of false verdicts among the decided ones. A verdict is decided if it is MET or
    MISSED by speed.
    """

    one_in: float = 20.0
    _starts: list[int] = field(default_factory=lambda: [0])
    _count: int = 0
    _decided: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        if not 2.0 < self.one_in < 1e9:
            raise ValueError(f"one_in is {self.one_in!r}; it must be a number over 2 and below 1e9")

    @classmethod
    def resumed(cls, one_in: float, count: int, decided: int, starts: Sequence[int]) -> Stream:
        """A stream that goes on after `count` candidates, `decided` of them; starts: what `decided` returned so far."""
        made = cls(one_in)
        made._starts, made._count, made._decided = [0, *starts][-MOST_STARTS:], count, decided
        return made

    def next_alpha(self) -> float:
        """The error that the next candidate may spend."""
        with self._lock:
            self._count += 1
            return sum(part(self._count - start) for start in self._starts) / self.one_in

    def decided(self) -> int | None:
        """Note that a candidate got a verdict of speed. Return the count from which it gives allowance, if it does.

        The first one gives none: the stream began with its share.
        """
        with self._lock:
            self._decided += 1
            if self._decided == 1:
                return None
            self._starts.append(self._count)
            del self._starts[:-MOST_STARTS]
            return self._count
