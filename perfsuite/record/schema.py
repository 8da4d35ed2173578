"""What one line of a record holds, and whether a line read from a file is one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perfsuite.case.comparison import Comparison

SCHEMA = 1
"""Raised when a field changes its meaning; readers refuse versions above their own."""

_TEXT, _NUMBER, _WHOLE = (str,), (int, float), (int,)

# Field -> (types, may be null). Every one of them stands in every line.
REQUIRED: dict[str, tuple[tuple[type, ...], bool]] = {
    "schema": (_WHOLE, False),
    "case": (_TEXT, False),
    "family": (_TEXT, False),
    "name": (_TEXT, False),
    "params": ((dict,), False),
    "candidate": (_TEXT, False),
    "rival": (_TEXT, True),
    "speed": (_NUMBER, True),
    "speed_low": (_NUMBER, True),
    "speed_high": (_NUMBER, True),
    "target": (_NUMBER, True),
    "verdict": (_TEXT, False),
    "reason": (_TEXT, False),
    "sentence": (_TEXT, False),
    "candidate_seconds": (_NUMBER, True),
    "rival_seconds": (_NUMBER, True),
    "commit": (_TEXT, True),
    "dirty": ((bool,), True),
    "gpu": (_TEXT, True),
    "torch": (_TEXT, True),
    "cuda": (_TEXT, True),
    "harness": (_TEXT, False),
    "clock": (_TEXT, False),
}
OPTIONAL: dict[str, tuple[type, ...]] = {
    "telemetry": (dict,),
    "samples": (dict,),
    "candidate_error": _NUMBER,
    "rival_error": _NUMBER,
    "error_limit": _NUMBER,
}
"""Fields that a line may lack, and that are read where it has them."""
_OVER_ZERO = ("speed", "speed_low", "speed_high", "target", "candidate_seconds", "rival_seconds")
VERDICTS = ("MET", "MISSED", "WRONG", "UNDECIDED")
_ROUND_COLUMNS = ("candidate_seconds", "rival_seconds", "first", "setup", "sm_clock_hz", "discarded")


class RecordError(Exception):
    """A file is not a record, or not a whole one; the text names the file, the line and what is wrong."""


def case_record(
    comparison: Comparison,
    *,
    test: str | None,
    fingerprint: Mapping[str, Any],
    workers: int = 1,
    aspect: str | None = None,
    measured: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """One line of a record: the comparison, the environment, the test it comes from; plain JSON values only.

    aspect: what is limited, where that is not time ("memory", "launches", ...), and what was measured of it.

    Rounds become columns under `samples` (and `discarded_samples`), which is a third of the size of a list of objects.
    """
    values = comparison.as_dict()
    rounds, discarded = values.pop("rounds"), values.pop("discarded")
    head = {
        "schema": SCHEMA,
        "case": case_name(comparison.candidate, comparison.family, comparison.name, comparison.rival, aspect),
        "test": test,
        "aspect": aspect,
        "measured": measured,
    }
    tail = {"workers": workers, "samples": _columns(rounds), "discarded_samples": _columns(discarded)}
    return plain({**head, **values, **fingerprint, **tail})


def case_name(candidate: str, family: str, name: str, rival: str | None, aspect: str | None = None) -> str:
    """What a record calls a case: what was measured on what, against whom or in what respect; the same in every run."""
    return f"{candidate} {family} {name}" + (f" vs {rival}" if rival else "") + (f": {aspect}" if aspect else "")


def check_case(value: object, where: str) -> dict[str, Any]:
    """`value` if it is a line of a record; RecordError names the field that is not right."""
    if not isinstance(value, dict):
        raise RecordError(f"{where}: a record holds one JSON object a line, this is {type(value).__name__}")
    if missing := [name for name in REQUIRED if name not in value]:
        raise RecordError(f"{where}: not a perfsuite record: it has no {', '.join(missing)}")
    if isinstance(value["schema"], int) and value["schema"] > SCHEMA:
        raise RecordError(f"{where}: schema {value['schema']} is newer than this perfsuite reads ({SCHEMA})")
    for name, (types, nullable) in REQUIRED.items():
        found = value[name]
        if found is None and nullable:
            continue
        if not isinstance(found, types) or (isinstance(found, bool) and bool not in types):
            allowed = " or ".join(kind.__name__ for kind in types) + (" or null" if nullable else "")
            raise RecordError(f"{where}: {name} is {found!r}; it must be {allowed}")
    for name in _OVER_ZERO:
        if value[name] is not None and not 0.0 < value[name] < math.inf:
            raise RecordError(f"{where}: {name} is {value[name]!r}; it must be a number over 0 or null")
    for name, types in OPTIONAL.items():
        found = value.get(name)
        if found is not None and not isinstance(found, types):
            allowed = " or ".join(kind.__name__ for kind in types)
            raise RecordError(f"{where}: {name} is {found!r}; it must be {allowed} or null")
    if value["verdict"] not in VERDICTS:
        raise RecordError(f"{where}: verdict is {value['verdict']!r}; it must be one of {', '.join(VERDICTS)}")
    return value


def plain(value: Any) -> Any:
    """The same as JSON values: tuples as lists, numbers without NaN and infinity (null instead), keys as text."""
    if value is None or isinstance(value, bool | str):
        return str(value) if isinstance(value, str) else value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "item"):  # a numpy or torch scalar
        return plain(value.item())
    return str(value)


def _columns(rounds: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Columns of the rounds; those that hold nothing are left out."""
    columns = {name: [row.get(name) for row in rounds] for name in _ROUND_COLUMNS}
    return {name: column for name, column in columns.items() if any(item is not None for item in column)}
