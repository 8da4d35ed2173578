"""The base class of the markers, with the subject that a marker judges and its findings."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from perfsuite.outcome import Reason, one_line

if TYPE_CHECKING:
    from perfsuite.case.comparison import Comparison
    from perfsuite.problems.base import Problem
    from perfsuite.record.case import Case
    from perfsuite.settings import Settings


class MarkerError(Exception):
    """A marker has an unknown argument or a bad value; the text lists the allowed ones."""

    def __init__(self, sentence: str) -> None:
        super().__init__(one_line(sentence))


@dataclass(frozen=True)
class Finding:
    """The result of one limit. It becomes a separate case in the record."""

    aspect: str
    """Its name in the record: "memory", "growth", "launches", "roofline", ..."""
    broken: Reason | None
    """The reason of the MISSED verdict; None if the limit holds."""
    sentence: str
    measured: dict[str, float]
    unsure: Reason | None = None
    """The reason of the UNDECIDED verdict, if it cannot be told whether the limit holds."""
    warning: str | None = None
    """A warning for the end of the run, if the limit was not looked at."""


@dataclass(frozen=True)
class Subject:
    """A checked candidate, and the means to measure more of it."""

    problem: Problem
    comparison: Comparison
    case: Case
    """The comparison as its record holds it."""
    settings: Settings
    root: Path
    """pytest's root directory."""
    measure: Callable[[str, Problem], float]
    """Measures a resource of a call ("peak_bytes", "launches", ...) on a problem."""
    side_by_side: Callable[[Problem, Problem], tuple[float, float]]
    """Times a call on two problems in turn; returns the device seconds of each."""

    @property
    def seconds(self) -> float | None:
        """Device time of a call on cold inputs, if the test has timed it against a rival."""
        cold = self.comparison.clock == "graph" and self.comparison.cache == "cold"
        return self.comparison.candidate_seconds if cold else None


class Marker:
    """One marker: each file of `markers` holds one subclass, a frozen dataclass with keyword-only fields.

    The file's name is the marker's name, the fields are its arguments, the class docstring is its help. `__post_init__`
    raises MarkerError for a bad value.
    """

    gates: ClassVar[bool] = True
    """True if a test with this marker must call `perf`."""
    each_rival: ClassVar[bool] = False
    """True if `judge` runs for the comparison with each rival; False: once for each call of `perf`."""
    needs_gpu: ClassVar[bool] = True
    """True if `judge` needs a GPU. On the portable backend the record then carries a warning instead."""
    overridable: ClassVar[tuple[str, ...]] = ()
    """Numbers that perf_targets.toml may override."""
    example: ClassVar[Mapping[str, Any]] = {}
    """Values for the required arguments; the check of perf_targets.toml's numbers needs them."""
    positional: ClassVar[tuple[str, ...]] = ()
    """The arguments that may be given without their names, in this order."""
    selector: ClassVar[str | None] = None
    """The argument in which several such markers on one test differ; perf_targets.toml may name its value."""

    def judge(self, subject: Subject) -> Iterable[Finding]:
        """Check the marker's limits (default: no limit); ValueError if they do not apply to the problem."""
        return ()

    def selected(self) -> str | None:
        """The selector's value as perf_targets.toml writes it: a name, also for a function."""
        value = None if self.selector is None else getattr(self, self.selector)
        return getattr(value, "__name__", None) if callable(value) else value


def is_positive(value: object) -> bool:
    """True for a number over 0 that a float can hold."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= sys.float_info.max


def is_zero(value: object) -> bool:
    """True for the number 0."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == 0


def is_one_of(value: object, words: Collection[str]) -> bool:
    """True for one of these words. Users also pass lists, which no table can look up."""
    return isinstance(value, str) and value in words


def is_count(value: object) -> bool:
    """True for a whole number of at least 1."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
