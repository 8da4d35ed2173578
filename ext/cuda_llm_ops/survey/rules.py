"""The rules that the cases of a survey are held against, and what a record says of each."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from .draw import LARGE_CACHE, UNIT, Product, case_of
from .record import Line

FARTHEST = 2.0**-6
"""A result is wrong if its difference from the library's has a norm above this part of the library's."""
ROWS = 64
"""Products of at least so many rows are compared between layouts."""


@dataclass(frozen=True)
class Rule:
    """A figure of some cases, and its limit."""

    subject: str
    figure: str
    limit: float
    at_least: bool
    cases: Callable[[Line], bool]
    of: Callable[[Sequence[Line]], float]
    digits: int = 3

    def asked(self) -> str:
        """The limit as text."""
        if self.digits == 0 and self.limit == 0:
            return "none"
        return f"{'at least' if self.at_least else 'at most'} {self.limit:.{self.digits}f}"


@dataclass(frozen=True)
class Finding:
    """What a record says of a rule; `found` is None if it has no such case."""

    rule: Rule
    cases: int
    found: float | None

    @property
    def met(self) -> bool | None:
        """None if the record has no such case."""
        if self.found is None:
            return None
        return self.found >= self.rule.limit if self.rule.at_least else self.found <= self.rule.limit

    def text(self) -> str:
        """The figure as text."""
        return "-" if self.found is None else f"{self.found:.{self.rule.digits}f}"


def percentile(values: Iterable[float], share: float) -> float:
    """The nearest rank: the smallest value that at least this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def findings(lines: Sequence[Line]) -> list[Finding]:
    """What the cases say of every rule. A case that failed counts as one of speed 0."""
    found = []
    for rule in RULES:
        cases = [line for line in lines if rule.cases(line)]
        found.append(Finding(rule, len(cases), rule.of(cases) if cases else None))
    return found


def speed(line: Line) -> float:
    """The library's time over ours, or of a decode the fastest read's."""
    return float(line.get("ratio", 0.0))


def _of_kind(kind: str) -> Callable[[Line], bool]:
    return lambda line: line["kind"] == kind


def _product(line: Line) -> Product | None:
    case = case_of(line) if line["kind"] == "product" else None
    return case if isinstance(case, Product) else None


def _aligned(line: Line) -> bool:
    case = _product(line)
    return case is not None and case.aligned


def _uneven(line: Line) -> bool:
    case = _product(line)
    return case is not None and not case.aligned


def _large_decode(line: Line) -> bool:
    return line["kind"] == "decode" and line.get("bytes", LARGE_CACHE) >= LARGE_CACHE


def _mean(lines: Sequence[Line]) -> float:
    speeds = [speed(line) for line in lines]
    return statistics.geometric_mean(speeds) if min(speeds) > 0 else 0.0


def _fifth(lines: Sequence[Line]) -> float:
    return percentile(map(speed, lines), 0.05)


def _lowest(lines: Sequence[Line]) -> float:
    return min(map(speed, lines))


def _layouts(lines: Sequence[Line]) -> float:
    """The best layout's geometric mean over the worst one's."""
    means = [_mean([line for line in lines if line["layout"] == name]) for name in {line["layout"] for line in lines}]
    return max(means) / min(means) if min(means) > 0 else math.inf


def _behind(lines: Sequence[Line]) -> float:
    """Cases whose whole interval lies under 1; a failed one is behind."""
    return float(sum(line.get("high", 0.0) < 1.0 for line in lines))


def _wrong(lines: Sequence[Line]) -> float:
    return float(sum(not line.get("apart", math.inf) <= FARTHEST for line in lines))


RULES = (
    Rule("products, aligned", "geometric mean of cuBLAS's speed", 1.0, True, _aligned, _mean),
    Rule("products, aligned", "5th percentile", 0.97, True, _aligned, _fifth),
    Rule("products, aligned", "lowest", 0.92, True, _aligned, _lowest),
    Rule(
        f"products, aligned, {ROWS} rows and more",
        "best layout's mean over the worst's",
        1.04,
        False,
        lambda line: _aligned(line) and line["m"] >= ROWS,
        _layouts,
    ),
    Rule("products, unaligned", "5th percentile", 1.0, True, _uneven, _fifth),
    Rule(
        "products with a plan",
        "mean time lost to a wrong plan",
        0.01,
        False,
        lambda line: "regret" in line,
        lambda lines: statistics.fmean(line["regret"] for line in lines),
        4,
    ),
    Rule("attention", "intervals wholly under SDPA's speed", 0.0, False, _of_kind("attention"), _behind, 0),
    Rule(
        f"attention, head_dim no multiple of {UNIT}",
        "longest time, as a part of the next multiple's",
        1.2,
        False,
        lambda line: line["kind"] == "attention" and "of_aligned" in line,
        lambda lines: max(line["of_aligned"] for line in lines),
    ),
    Rule("decode, 256 MB and more", "lowest share of the read ceiling", 0.97, True, _large_decode, _lowest),
    Rule("every case", "results that are not the library's", 0.0, False, lambda line: True, _wrong, 0),
)
