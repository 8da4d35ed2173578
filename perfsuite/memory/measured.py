"""Compares predictions with torch's allocator: the peak of a call, and the error of the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from perfsuite.memory.model import attention_problem_bytes
from perfsuite.problems import Attention

WITHIN = 0.05
"""Largest error of a prediction, as a share of the measured peak."""
Peak = Callable[[Attention, Callable[..., Any]], float]
"""Problem and candidate -> bytes of output and scratch at the peak; `analyze.resources.peak_bytes` on a GPU."""


@dataclass(frozen=True)
class Prediction:
    """A predicted and a measured peak, in bytes."""

    predicted: float
    measured: float

    @property
    def off(self) -> float:
        """(measured - predicted) / measured."""
        return (self.measured - self.predicted) / self.measured

    @property
    def holds(self) -> bool:
        """True if the prediction is off by no more than WITHIN."""
        return abs(self.off) <= WITHIN


def hold_against(
    problem: Attention, candidate: Callable[..., Any], peak: Peak, *, algorithm: str, scores_dtype: str | None = None
) -> Prediction:
    """Run `candidate` and compare. The inputs were allocated before, so their bytes are added to those of `peak`.

    algorithm: "standard" or "flash", the model that is to fit the candidate.
    """
    memory = attention_problem_bytes(problem.params, scores_dtype)
    return Prediction(memory.peak(algorithm), memory.inputs + peak(problem, candidate))
