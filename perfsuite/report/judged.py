"""Renders the tables of a judge.json: how fast the judge is, its thousand jobs with faults, seconds of each stage.

    <!-- perfsuite:judge ../records/h200/judge.json table=speeds -->
    <!-- /perfsuite:judge -->

`table` is speeds, jobs or stages. Each object of the file is one measurement with its environment. What was not
measured has no row, and a file that is not there has none at all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from perfsuite.record.environment import Environment
from perfsuite.record.schema import Misfit, RecordError, reader_of
from perfsuite.report import figures, markdown

NOTHING = "Not measured yet."
Row = tuple[str, ...]
Part = Mapping[str, Any]
Rows = Callable[[Part], Iterator[tuple[str, Row]]]

_SPEEDS: dict[str, tuple[str, Callable[[Part], str], Callable[[Part], str]]] = {
    "in-process": (
        "checked and timed in one process, calls under 100 us",
        lambda part: _hourly(part["per_hour"]),
        lambda part: f"{_hourly(part['goal'])} or more",
    ),
    "isolated": (
        "source text, isolated, compiling cached, one process",
        lambda part: _hourly(part["per_hour"]),
        lambda part: f"{_hourly(part['goal'])} or more",
    ),
    "cards": (
        "the same on several processes at once, against one",
        lambda part: f"{part['ratio']:.2f} times with {part['processes']}" if "ratio" in part else "-",
        lambda part: f"{part['goal']:g} times or more with 2",
    ),
    "triton": (
        "95 of 100 Triton texts that no cache knows, each within",
        lambda part: figures.seconds(part["stages"]["asked"]["p95"]),
        lambda part: f"{figures.seconds(part['goal'])} or less",
    ),
    "cuda": (
        "95 of 100 CUDA texts that no cache knows, each within",
        lambda part: figures.seconds(part["stages"]["asked"]["p95"]),
        lambda part: f"{figures.seconds(part['goal'])} or less",
    ),
    "perf-ray": (
        "a test suite over Ray, first case to last, against one process",
        lambda part: (
            "-" if part["share"] is None else f"{part['share']:.2f} of the time with {part['workers']} workers"
        ),
        lambda part: f"under {part['goal']:g} of the time with 2",
    ),
}
"""Measurement -> (what it is, the figure, the goal)."""
_JOBS = {"http": "HTTP", "ray": "Ray"}
_STAGED = {"isolated": "cached", "triton": "cold Triton", "cuda": "cold CUDA", **_JOBS}
STAGES = ("wait", "parse", "compile", "run", "right", "fast", "whole")


def judge_table(path: Path, filters: Mapping[str, str]) -> str:
    """The table that `table` names, and a line that names the machines. RecordError for other files and filters."""
    return table_of_parts(path, filters, {"speeds": _speeds, "jobs": _jobs, "stages": _stages})


def table_of_parts(path: Path, filters: Mapping[str, str], tables: Mapping[str, Rows]) -> str:
    """The table that `table` names of a record whose objects are measurements, and a line that names the machines.

    tables: the functions that give (measurement, its row) after the head and the rule below it.
    """
    if set(filters) != {"table"} or filters["table"] not in tables:
        raise RecordError(f"{path}: a block of a {path.name} needs table= one of {', '.join(tables)}, and nothing else")
    values = read_parts(path)
    if values is None:
        return NOTHING
    used: dict[str, None] = {}
    rows: list[Row] = []
    try:
        for name, row in tables[filters["table"]](values):
            rows.append(row)
            if len(rows) > 2:
                used[environment_of(path, name, values[name])] = None
    except (KeyError, TypeError, ValueError) as error:
        raise RecordError(f"{path}: a measurement lacks a field, or has a bad one: {error!r}") from None
    if len(rows) == 2:
        return NOTHING
    return f"{markdown.grid(rows)}\n\nMeasured on {'; '.join(used)}."


def read_parts(path: Path) -> dict[str, dict[str, Any]] | None:
    """The measurements of a record; None if there is no such file. RecordError for another file."""
    if not path.exists():
        return None
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise RecordError(f"{path}: cannot be read as a record of the judge: {error}") from None
    if not isinstance(values, dict) or not all(isinstance(part, dict) for part in values.values()):
        raise RecordError(f"{path}: not a record of the judge: it must be an object of objects")
    return values


def environment_of(path: Path, name: str, part: Part) -> str:
    """The machine of one measurement, in one line. RecordError if it names none."""
    try:
        return markdown.environment(reader_of(Environment)(part["environment"]))
    except KeyError:
        raise RecordError(f"{path}: {name} has no environment") from None
    except Misfit as error:
        raise RecordError(f"{path}: {error.within(name)}") from None


def _speeds(values: Part) -> Iterator[tuple[str, Row]]:
    yield "", ("what", "measured", "goal", "cases")
    yield "", ("---", "---:", "---:", "---:")
    for name, (said, figure, goal) in _SPEEDS.items():
        if name in values:
            part = values[name]
            yield name, (said, figure(part), goal(part), str(part.get("cases", part.get("jobs"))))


def _jobs(values: Part) -> Iterator[tuple[str, Row]]:
    """A row for each service."""
    head = (
        "over",
        "jobs",
        "processes",
        "an hour",
        "killed",
        "restarts",
        "machines removed",
        "without one right verdict",
    )
    yield "", head
    yield "", ("---", *["---:"] * (len(head) - 1))
    for name, said in _JOBS.items():
        if name in values:
            part = values[name]
            counts = (part["workers_killed"], part["service_restarts"], part.get("nodes_removed", 0))
            pace = f"{part['jobs_per_hour']:,.0f}"
            faults = len(part["faults"])
            yield name, (said, str(part["jobs"]), str(part["workers"]), pace, *map(str, counts), str(faults))


def _stages(values: Part) -> Iterator[tuple[str, Row]]:
    return stages_of(values, _STAGED)


def stages_of(
    values: Part, measurements: Mapping[str, str], stages: Sequence[str] = STAGES
) -> Iterator[tuple[str, Row]]:
    """The median and the 95th of 100 of each stage. measurements: name -> what it is."""
    yield "", ("jobs", *stages)
    yield "", ("---", *["---:"] * len(stages))
    for name, said in measurements.items():
        if name in values:
            yield name, (said, *(_spread(values[name]["stages"].get(stage)) for stage in stages))


def _spread(stage: Mapping[str, float] | None) -> str:
    return "-" if stage is None else f"{figures.seconds(stage['median'])}, {figures.seconds(stage['p95'])}"


def _hourly(value: float) -> str:
    return f"{value:,.0f} an hour"
