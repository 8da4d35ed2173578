"""The request for one case: the candidate, the problem, the rival, and the terms of the judgement."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

from perfsuite.clock.rounds import Round
from perfsuite.problems.base import Problem
from perfsuite.problems.naming import NAMELESS_RIVAL, name_of_callable
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
    deterministic: bool = True
    """False: equal inputs may give other bits, as with atomic additions. They may also where the rival's results do."""
    other_sizes: bool = False
    """True: the answer must be right at slightly other sizes too, which are drawn in secret."""
    at_least: float | None = None
    """The lowest speed that meets the target, as a fraction of the rival's speed. None: no target."""
    label: str | None = None
    """The label that the test gave to this call."""
    test: str | None = None
    """The test's name, for a candidate without a name."""
    examined: bool = False
    """True: another process of this run has found the candidate right, and is about to fail it. The timed calls are
    judged all the same, unless they miss the target here too."""
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
    def library(self) -> str | None:
        """The library whose error sets the tolerance, if one is named."""
        return self.correctness if isinstance(self.correctness, str) else None

    @property
    def terms(self) -> tuple[object, ...]:
        """All that the examination of a candidate on a problem depends on."""
        return self.settings.distribution, self.correctness, self.deterministic, self.other_sizes

    @property
    def candidate_name(self) -> str:
        """The candidate's name in records: "module.function"; for a lambda the label, else the test's name."""
        return name_of_callable(self.candidate) or self.label or self.test or "candidate"

    @property
    def rival_name(self) -> str | None:
        """The rival's name in records, as it was given or "module.function"; None without a rival."""
        if self.rival is None or isinstance(self.rival, str):
            return self.rival
        return name_of_callable(self.rival) or NAMELESS_RIVAL
