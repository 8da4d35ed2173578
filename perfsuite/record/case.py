"""One case of a record: a typed view of one JSON line, which it keeps unchanged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from typing import TYPE_CHECKING, Any

from perfsuite.clock.rounds import Round, Side
from perfsuite.device.telemetry import Telemetry
from perfsuite.outcome import Verdict
from perfsuite.record.environment import Environment
from perfsuite.record.schema import (
    Count,
    Misfit,
    NonNegative,
    Positive,
    RecordError,
    Scalar,
    lacking,
    plain,
    read_fields,
)

if TYPE_CHECKING:
    from perfsuite.case.comparison import Comparison

SCHEMA = 1
"""Increased when a field changes its meaning; readers refuse versions above their own."""


@dataclass(frozen=True)
class Samples:
    """Rounds as columns, which take a third of the space of a list of objects; `clock.rounds.Round` describes them.

    The record omits a column without any value.
    """

    candidate_seconds: tuple[Positive, ...] = ()
    rival_seconds: tuple[Positive, ...] = ()
    first: tuple[Side, ...] = ()
    setup: tuple[int, ...] = ()
    sm_clock_hz: tuple[float | None, ...] = ()
    discarded: tuple[str | None, ...] = ()

    def __post_init__(self) -> None:
        lengths = {name: len(column) for name, column in vars(self).items()}
        always = {len(column) for column in (self.candidate_seconds, self.rival_seconds, self.first)}
        if len(always | set(lengths.values()) - {0}) > 1:
            raise Misfit(lengths, "columns of one length")

    def rounds(self) -> list[Round]:
        """The rounds, in the order in which they ran."""
        columns = {name: column for name, column in vars(self).items() if column}
        return [Round(**dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True)]

    @staticmethod
    def columns_of(rounds: list[dict[str, Any]]) -> dict[str, list[Any]]:
        """The columns of rounds, as JSON."""
        columns = {field.name: [row.get(field.name) for row in rounds] for field in fields(Samples)}
        return {name: column for name, column in columns.items() if any(item is not None for item in column)}


@dataclass(frozen=True, kw_only=True)
class Case(Environment):
    """The fields of a line that perfsuite reads, under their names in JSON. Seconds are seconds a call.

    `case.comparison.Comparison` describes the fields that both have. Fields without a default stand in every line.
    """

    schema: int
    case: str
    """The candidate, the problem, and the rival or the aspect; the same in every run."""
    test: str | None = None
    """The test's node ID."""
    label: str | None = None
    """The label that the test gave to the call of `perf`."""
    call: Count | None = None
    """Number of the call of `perf` in its test, from 1. All rivals and limits of one call share it; older lines lack
    it."""
    alike: Count | None = None
    """Place of the call among those of its test that have the same case and label, from 1."""
    order: Count | None = None
    """Place of the call among those of its test that have the same label, from 1; part of a series' key."""
    aspect: str | None = None
    """The limited quantity, other than time: "memory", "launches", ..."""
    measured: Mapping[str, float] | None = None
    """Measurements besides time: "peak_bytes", "launches", ..."""
    family: str
    name: str
    params: Mapping[str, Scalar]
    candidate: str
    rival: str | None
    verdict: Verdict
    reason: str
    """A value of `outcome.Reason`, or one that another version of perfsuite knows."""
    sentence: str
    target: Positive | None
    speed: Positive | None
    speed_low: Positive | None
    speed_high: Positive | None
    confidence: float | None = None
    candidate_seconds: Positive | None
    rival_seconds: Positive | None
    candidate_host_seconds: NonNegative | None = None
    rival_host_seconds: NonNegative | None = None
    candidate_first_seconds: NonNegative | None = None
    candidate_waited_seconds: NonNegative | None = None
    rival_waited_seconds: NonNegative | None = None
    timer_seconds: NonNegative | None = None
    bound: str | None = None
    cycles_speed: float | None = None
    candidate_error: NonNegative | None = None
    rival_error: NonNegative | None = None
    error_limit: NonNegative | None = None
    clock: str
    clock_note: str | None = None
    cache: str | None = None
    distribution: str | None = None
    seed: int | None = None
    rotation: int | None = None
    launches: int | None = None
    telemetry: Telemetry | None = None
    looks: int | None = None
    setups: int | None = None
    retries: int | None = None
    gpu_seconds: NonNegative | None = None
    wall_seconds: NonNegative | None = None
    check_seconds: NonNegative | None = None
    warnings: tuple[str, ...] = ()
    rival_differs: tuple[str, ...] = ()
    frames: tuple[str, ...] = ()

    workers: int = 1
    """pytest-xdist's workers that ran beside each other."""
    samples: Samples = field(default_factory=Samples)
    """Rounds that count."""
    discarded_samples: Samples = field(default_factory=Samples)
    """Rounds that do not count."""
    line: Mapping[str, Any] = field(default_factory=dict, init=False, repr=False)
    """The JSON object, with the fields that this version does not know."""

    @classmethod
    def of_json(cls, value: object, where: str) -> Case:
        """The case of a JSON object. RecordError names `where`, the field, its value and what is allowed."""
        if not isinstance(value, dict):
            raise RecordError(f"{where}: a record holds one JSON object a line, this is {type(value).__name__}")
        if missing := lacking(cls, value):
            raise RecordError(f"{where}: not a perfsuite record: it has no {', '.join(missing)}")
        if isinstance(value["schema"], int) and value["schema"] > SCHEMA:
            raise RecordError(f"{where}: schema {value['schema']} is newer than this perfsuite reads ({SCHEMA})")
        try:
            found = read_fields(cls, value)
        except Misfit as error:
            raise RecordError(f"{where}: {error}") from None
        made = object.__new__(cls)  # a frozen dataclass sets each of its 70 fields by a call
        own = made.__dict__
        own.update(_defaults())
        own.update(found)
        own["line"] = value
        return made

    def as_json(self, *, samples: bool = True) -> dict[str, Any]:
        """The JSON line; without the rounds if not `samples`."""
        return {name: value for name, value in self.line.items() if samples or not name.endswith("samples")}

    def changed(self, **fields: Any) -> Case:
        """The same case with other values in some fields, by their names in JSON."""
        return Case.of_json({**self.line, **plain(fields)}, self.case)


@cache
def _defaults() -> dict[str, Any]:
    """Field -> its value in a line that lacks it; these values cannot change."""
    found: dict[str, Any] = {}
    for one in fields(Case):
        if one.default is not MISSING:
            found[one.name] = one.default
        elif one.default_factory is not MISSING:
            found[one.name] = one.default_factory()
    return found


def case_name(comparison: Comparison, aspect: str | None = None) -> str:
    """The name of the case of a comparison."""
    name = f"{comparison.candidate} {comparison.family} {comparison.name}"
    return name + (f" vs {comparison.rival}" if comparison.rival else "") + (f": {aspect}" if aspect else "")


def case_record(
    comparison: Comparison,
    *,
    test: str | None,
    fingerprint: Mapping[str, Any],
    workers: int = 1,
    aspect: str | None = None,
    measured: Mapping[str, float] | None = None,
    label: str | None = None,
    call: int | None = None,
    alike: int | None = None,
    order: int | None = None,
) -> Case:
    """The case of a comparison. aspect: the limited quantity other than time, of which `measured` has the values.

    label, call: the label of the call of `perf`, and its number in the test, from 1. alike: its place among those of
    the same case and label. order: its place among those of the same label.
    """
    values, name = comparison.as_dict(), case_name(comparison, aspect)
    samples, discarded = (Samples.columns_of(values.pop(rounds)) for rounds in ("rounds", "discarded"))
    head = {"schema": SCHEMA, "case": name, "test": test, "label": label, "call": call}
    head |= {"alike": alike, "order": order, "aspect": aspect, "measured": measured}
    tail = {"workers": workers, "samples": samples, "discarded_samples": discarded}
    return Case.of_json(plain({**head, **values, **fingerprint, **tail}), name)
