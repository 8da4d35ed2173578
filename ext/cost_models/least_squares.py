"""Least squares for positive constants: Levenberg-Marquardt on their logarithms.

The residual of a measurement is log(model / measured), so that a percent counts the same for a short and a long time.
Measurements far off count less (Huber): a few disturbed times do not decide.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]
Model = Callable[[Vector], Vector]

_STEP = 1e-5  # of a logarithm, for the derivatives
_WEAK = 1e-4  # a constant that moves no time by this, when it moves by itself, is not in the data


@dataclass(frozen=True)
class Fit:
    """The constants found, and how well they explain the times."""

    constants: Vector
    error: float  # root of the mean squared residual: 0.05 is 5 %
    within: float  # share of the times that the model hits within 10 %
    seen: npt.NDArray[np.bool_]  # the constants that some time depends on; the others keep their start


def fit(
    model: Model,
    start: Vector,
    measured: Vector,
    most: Vector,
    *,
    far: float = 0.1,
    near: float = 0.0,
    steps: int = 60,
) -> Fit:
    """Constants, at most `most`, that make `model` agree with `measured`. Residuals beyond `far` count less.

    near: a constant that moves from its start by a percent costs as much as so many times that are missed by a percent.
    Few times then move little of what many others have found.
    """
    target = np.log(measured)

    def residuals(logs: Vector) -> Vector:
        return np.log(model(np.exp(logs))) - target

    highest = np.log(most)
    logs = begin = np.minimum(np.log(start), highest)

    def loss(rest: Vector, logs: Vector) -> float:
        return _loss(rest, far) + 0.5 * near * float(np.sum((logs - begin) ** 2))

    rest = residuals(logs)
    damping = 1e-3
    seen = np.zeros(len(start), dtype=bool)
    for _ in range(steps):
        weights = np.minimum(1.0, far / np.maximum(np.abs(rest), 1e-12))
        slopes = _slopes(residuals, logs, rest, highest)
        seen |= np.abs(slopes).max(axis=0) > _WEAK
        normal = slopes.T @ (weights[:, None] * slopes) + near * np.eye(len(start))
        gradient = slopes.T @ (weights * rest) + near * (logs - begin)
        scale = np.maximum(np.diag(normal), 1e-12)
        better = False
        while damping < 1e10:
            move = np.linalg.solve(normal + damping * np.diag(scale), -gradient)
            move = np.where(seen, np.clip(move, -1.0, 1.0), 0.0)
            moved = np.minimum(logs + move, highest)
            trial = residuals(moved)
            if loss(trial, moved) < loss(rest, logs):
                gain = 1.0 - loss(trial, moved) / loss(rest, logs)
                logs, rest, damping, better = moved, trial, max(damping / 5, 1e-12), True
                break
            damping *= 4
        if not better or gain < 1e-9:
            break
    return Fit(
        constants=np.exp(logs),
        error=float(np.sqrt(np.mean(rest**2))),
        within=float(np.mean(np.abs(rest) < np.log(1.1))),
        seen=seen,
    )


def _slopes(
    residuals: Callable[[Vector], Vector], logs: Vector, rest: Vector, highest: Vector
) -> npt.NDArray[np.float64]:
    columns = []
    for index in range(len(logs)):
        step = -_STEP if logs[index] + _STEP > highest[index] else _STEP  # stays within the bounds
        moved = logs.copy()
        moved[index] += step
        columns.append((residuals(moved) - rest) / step)
    return np.stack(columns, axis=1)


def _loss(rest: Vector, far: float) -> float:
    size = np.abs(rest)
    return float(np.sum(np.where(size <= far, 0.5 * size**2, far * (size - 0.5 * far))))
