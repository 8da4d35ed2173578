"""Write a record as CSV, for spreadsheets and data frames: one row a case, times in seconds."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from perfsuite.record.case import Case

HELP = "one row a case, for spreadsheets; times in seconds"
_COLUMNS: tuple[str, ...] = ("test", "family", "name", "aspect", "candidate", "rival", "verdict", "reason", "target")
_COLUMNS += ("speed", "speed_low", "speed_high", "candidate_seconds", "rival_seconds", "candidate_error", "rival_error")
_COLUMNS += ("error_limit", "gpu", "cpu", "driver", "cuda", "torch", "harness", "clock", "cache", "commit", "dirty")
_FORMULA = ("=", "+", "-", "@")


def text(cases: Sequence[Case], *, title: str) -> str:
    """The table, with the problems' parameters in the last columns, as `params.m`."""
    params = list(dict.fromkeys(name for case in cases for name in case.params))
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([*_COLUMNS, *(f"params.{name}" for name in params)])
    for case in cases:
        cells = [*(getattr(case, name) for name in _COLUMNS), *(case.params.get(name) for name in params)]
        writer.writerow([_cell(cell) for cell in cells])
    return file.getvalue()


def _cell(value: Any) -> Any:
    """The value, with an apostrophe before text that a spreadsheet would run as a formula."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
