"""Renders the tables of a judge.json: how fast the judge is, its thousand jobs with faults, seconds of each stage.

    <!-- perfsuite:judge ../records/h200/judge.json table=speeds -->
    <!-- /perfsuite:judge -->

`table` is speeds, jobs or stages; of a scale.json stages, scale (the same jobs on one card and on more) or identical
(identical code gated on several cards at once). Each object of the file is one measurement with its environment. What
was not measured has no row, and a file that is not there has none at all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from perfsuite.record.environment import Environment
from perfsuite.record.schema import Misfit, RecordError, reader_of
from perfsuite.report import figures, markdown

NOTHING = "Not measured yet."
Row = tuple[str, ...]
Part = Mapping[str, Any]

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
_CARDS = {f"cards-{count}": f"{count} card{'s' * (count > 1)}" for count in (1, 2, 4, 8)}
_SCALED = {**_CARDS, "removed": "all, one of them taken away in the middle"}
_STAGED = {"isolated": "cached", "triton": "cold Triton", "cuda": "cold CUDA", **_JOBS, **_SCALED}
_STAGES = ("wait", "parse", "compile", "run", "right", "fast", "whole")


def judge_table(path: Path, filters: Mapping[str, str]) -> str:
    """The table that `table` names, and a line that names the machines. RecordError for other files and filters."""
    tables = {"speeds": _speeds, "jobs": _jobs, "stages": _stages, "scale": _scale, "identical": _identical}
    if set(filters) != {"table"} or filters["table"] not in tables:
        raise RecordError(f"{path}: a block of a judge.json needs table= one of {', '.join(tables)}, and nothing else")
    if not path.exists():
        return NOTHING
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise RecordError(f"{path}: cannot be read as a record of the judge: {error}") from None
    if not isinstance(values, dict) or not all(isinstance(part, dict) for part in values.values()):
        raise RecordError(f"{path}: not a record of the judge: it must be an object of objects")
    used: dict[str, None] = {}
    rows: list[Row] = []
    try:
        for name, row in tables[filters["table"]](values):
            rows.append(row)
            if len(rows) > 2:
                used[_where(path, name, values[name])] = None
    except (KeyError, TypeError, ValueError) as error:
        raise RecordError(f"{path}: a measurement lacks a field, or has a bad one: {error!r}") from None
    if len(rows) == 2:
        return NOTHING
    return f"{markdown.grid(rows)}\n\nMeasured on {'; '.join(used)}."


def _where(path: Path, name: str, part: Part) -> str:
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


def _scale(values: Part) -> Iterator[tuple[str, Row]]:
    """A row for each number of cards."""
    head = ("on", "jobs", "an hour", "share of linear", "host's processors busy", "deaths", "without one right verdict")
    yield "", head
    yield "", ("---", *["---:"] * (len(head) - 1))
    for name, said in _SCALED.items():
        if name in values:
            part = values[name]
            share = part.get("share_of_linear")
            yield (
                name,
                (
                    said,
                    str(part["jobs"]),
                    f"{part['jobs_per_hour']:,.0f}",
                    "-" if share is None else f"{share:.2f}",
                    f"{part['host_busy']:.0%} of {part['host_processors']}",
                    str(part["deaths"]),
                    str(len(part["faults"])),
                ),
            )


def _identical(values: Part) -> Iterator[tuple[str, Row]]:
    """A row for each number of cards that gated at once."""
    yield "", ("cards at once", "gates", "false alarms", "true rate is at most (95 %)", "undecided")
    yield "", ("---:",) * 5
    for count in (1, 2, 4, 8):
        if (name := f"identical-{count}") in values:
            told = values[name]["aa"]
            counts = (told["gates"], told["false_alarms"], f"{told['upper95']:.2%}", told["undecided"])
            yield name, (str(count), *map(str, counts))


def _stages(values: Part) -> Iterator[tuple[str, Row]]:
    """The median and the 95th of 100 of each stage."""
    yield "", ("jobs", *_STAGES)
    yield "", ("---", *["---:"] * len(_STAGES))
    for name, said in _STAGED.items():
        if name in values:
            yield name, (said, *(_spread(values[name]["stages"].get(stage)) for stage in _STAGES))


def _spread(stage: Mapping[str, float] | None) -> str:
    return "-" if stage is None else f"{figures.seconds(stage['median'])}, {figures.seconds(stage['p95'])}"


def _hourly(value: float) -> str:
    return f"{value:,.0f} an hour"
