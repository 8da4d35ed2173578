"""The file of measured times: lines of JSON, one a plan of a problem.

A line has every field of the model (see its FIELDS: whole numbers), `microseconds`, the median of a call, and `plan`,
the name of the plan or instance. Other fields are for the reader.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
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
    try:
        text = path.read_text()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    rows, microseconds, plans = [], [], []
    for number, line in enumerate(text.splitlines(), start=1):
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
