"""The file of measured times: lines of JSON, one a plan of a problem.

A line has every field of the model (see its FIELDS: whole numbers), `microseconds`, the median of a call, and `plan`,
the name of the plan or instance. Other fields are for the reader.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cost_models.errors import UsageError

Rows = npt.NDArray[np.int32]
Seconds = npt.NDArray[np.float64]


def write(path: Path, lines: Iterable[dict[str, Any]]) -> None:
    """Write a file of times."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def read(path: Path, fields: Sequence[str]) -> tuple[Rows, Seconds, list[str]]:
    """The fields of every line, its microseconds, and the name of its plan ("" if the line has none).

    Raises:
        UsageError: a line lacks a field, or has a time that is not positive.
    """
    rows, microseconds, plans = [], [], []
    for number, line in enumerate(_lines(path), start=1):
        try:
            found = json.loads(line)
            rows.append([int(found[field]) for field in fields])
            microseconds.append(float(found["microseconds"]))
            plans.append(str(found.get("plan", "")))
        except (ValueError, TypeError, KeyError) as error:
            kind = f"lacks {error}" if isinstance(error, KeyError) else f"is no line of times ({error})"
            raise UsageError(
                f"{path}, line {number} {kind}; needed are {', '.join([*fields, 'microseconds'])}"
            ) from None
        if not microseconds[-1] > 0:
            raise UsageError(f"{path}, line {number} has microseconds {microseconds[-1]}; they must be above 0")
    if not rows:
        raise UsageError(f"{path} has no times")
    return np.array(rows, dtype=np.int32), np.array(microseconds), plans


def read_survey(
    path: Path, times_of: Callable[[dict[str, Any]], Iterable[tuple[list[int], float, str]]], none: str
) -> tuple[Rows, Seconds, list[str]]:
    """The rows, microseconds and plans of a survey, whose lines are objects of several kinds.

    times_of: what a line gives, of each plan; UsageError if it is no survey's. none: what a file without times lacks.

    Raises:
        UsageError: the file has no times, or a line is no survey's.
    """
    rows, microseconds, plans = [], [], []
    for number, line in enumerate(_lines(path), start=1):
        try:
            found = json.loads(line)
            if not isinstance(found, dict):
                raise UsageError(f"it is {line[:40]}, no object")
            for row, time, plan in times_of(found):
                rows.append(row)
                microseconds.append(time)
                plans.append(plan)
        except (ValueError, UsageError) as error:
            raise UsageError(f"{path}, line {number} is no line of a survey ({error})") from None
    if not rows:
        raise UsageError(f"{path} has {none}")
    return np.array(rows, dtype=np.int32), np.array(microseconds), plans


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
