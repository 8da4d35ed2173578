"""The request for one case: the candidate, the problem, the rival, and the terms of the judgement."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

from perfsuite.clock.rounds import Round
from perfsuite.problems.base import Problem
from perfsuite.settings import Settings

Remeasure = Callable[[], Sequence[Round]]


@dataclass(frozen=True)
class Ask:
    """One case to check and, if a rival or a target is given, to time. ValueError for a bad `at_least`."""

    problem: Problem
    candidate: Callable[..., Any]
    _: KW_ONLY
    settings: Settings
    against: str | Callable[..., Any] | None = None
    """The rival: a name that the problem knows ("cublas"), or a function. None means the problem's default rival."""
    correctness: bool | str = True
    """A name: that library's error sets the tolerance. True: the rival's error sets it. False: no check."""
    at_least: float | None = None
    """The lowest speed that meets the target, as a fraction of the rival's speed. None: no target."""
    remeasure: Remeasure | None = None
    """Measures the same case in a fresh process and returns its rounds; called at most once, before a MISSED."""

    def __post_init__(self) -> None:
        if self.at_least is not None and not 0.0 < self.at_least < math.inf:
            raise ValueError(
                f"at_least is {self.at_least!r}; it must be a positive number, the least share of the rival's speed"
            )

    @property
    def timed(self) -> bool:
        """True if the case is timed as well as checked."""
        return self.against is not None or self.at_least is not None

    @property
    def rival(self) -> str | Callable[..., Any] | None:
        """The rival as it was named, or the problem's default rival."""
        return self.against if self.against is not None else self.problem.default_rival

    @property
    def rival_name(self) -> str | None:
        """The rival's name in records; None without a rival."""
        return None if self.rival is None else name_of(self.rival)


def name_of(side: str | Callable[..., Any]) -> str:
    """A rival's name as it was given, or a callable's: "module.function"."""
    if isinstance(side, str):
        return side
    name = getattr(side, "__qualname__", None) or getattr(side, "__name__", None)
    if name is None:
        return type(side).__qualname__
    module = getattr(side, "__module__", None)
    return f"{module}.{name}" if module else str(name)
