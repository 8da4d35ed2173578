"""The first and the last line of a record: the run that began, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from perfsuite.record.schema import Count, Misfit, RecordError, plain, read_fields


class Ended(StrEnum):
    """The ways in which a run ends."""

    FINISHED = "finished"
    """Every test that was collected ran."""
    STOPPED = "stopped"
    """The run stopped at a failure, by -x or --maxfail."""
    INTERRUPTED = "interrupted"
    """Ctrl-C, or a plugin, ended the run."""
    CRASHED = "crashed"
    """pytest, or a plugin, failed."""
    JOINED = "joined from parts"
    """`perfsuite partial --join` made the record."""


@dataclass(frozen=True, kw_only=True)
class Begin:
    """The first line of a record. Records of earlier versions have none."""

    schema: int
    begin: str
    """Date and time, UTC."""
    process: Count
    """Process ID of the run."""
    perfsuite: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    """Variables of the environment that can change what is measured or judged, as the run found them at its start."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """The part of a suite that a run with --perf-shard ran, and the facts that `perfsuite merge` compares."""

    number: Count
    """Its number, from 1."""
    count: Count
    """The number of parts."""
    partition: str
    """A hash of all tests and the part of each. Parts with another one do not belong together."""
    tests: Count
    """Tests of the whole suite."""
    divided_by: Count
    """Timed cases of the whole suite, over which the error rate was divided."""
    commit: str | None = None
    dirty: bool | None = None
    harness: str
    gpu: str | None = None
    """The card's model; None for a CPU."""


@dataclass(frozen=True, kw_only=True)
class End:
    """The last line of a record. A record without it was not closed: its run was killed, or left without a word."""

    schema: int
    end: Ended
    cases: Count
    """Cases in the record. If they are fewer, lines are lost."""
    exit: int | None = None
    """The exit code of the run; None if it is unknown."""
    tests: Count | None = None
    """Tests that the run had collected."""
    part: Part | None = None
    """Of a run with --perf-shard: its part of the suite."""
    merged: Mapping[str, Count] = field(default_factory=dict)
    """Of a record that `perfsuite merge` made: card model -> the number of records that it joins."""


def read_line(kind: type[Any], value: Mapping[str, Any], where: str) -> Any:
    """A line as Begin or End. RecordError names `where`, the field, its value and what is allowed."""
    try:
        return kind(**read_fields(kind, value))
    except Misfit as error:
        raise RecordError(f"{where}: {error}") from None


def as_json(line: Begin | End) -> dict[str, Any]:
    """The line as a JSON object, without empty fields."""
    values = {name: vars(value) if isinstance(value, Part) else value for name, value in vars(line).items()}
    return {name: plain(value) for name, value in values.items() if value not in (None, {})}
