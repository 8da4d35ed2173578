"""Renders cases as one HTML page that needs no other file: tables, charts, telemetry and environment."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from perfsuite.record.case import Case
from perfsuite.report import charts, figures, markdown
from perfsuite.report.charts import Mark, Row, Series
from perfsuite.report.page_template import TEMPLATE

VERDICT_COLOURS = {"MET": "#009e73", "MISSED": "#d55e00", "WRONG": "#8c0000", "UNDECIDED": "#e69f00"}
ENVIRONMENT = (
    *("gpu", "capability", "driver", "cuda", "torch", "cublas", "cudnn", "cpu", "python", "commit", "dirty"),
    *("harness", "perfsuite", "power_limit_watts", "sm_clock_max_hz", "memory_clock_max_hz"),
)
MOST_SERIES = 8


@dataclass(frozen=True)
class Section:
    """A part of the page: pictures, and a table if it has rows."""

    title: str
    anchor: str
    note: str = ""
    pictures: tuple[str, ...] = ()
    head: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    numbers: tuple[int, ...] = ()
    """Columns that are aligned to the right."""

    def kind(self, column: int, cell: str) -> str:
        """The style of a cell."""
        if cell in VERDICT_COLOURS:
            return cell
        if column in self.numbers:
            return "number"
        return "sentence" if self.head[column] == "sentence" else "case" if column == 0 else ""


def page(cases: Sequence[Case], *, title: str, roofline: str | None = None) -> str:
    """The page's HTML. roofline: an SVG picture of the cases under their ceilings."""
    import jinja2

    found = [_verdicts(cases), _ratios(cases), _lengths(cases), _memory(cases), _accuracy(cases), _telemetry(cases)]
    if roofline:
        found.insert(2, Section("Roofline", "roofline", "Filled: candidates; rings: rivals.", (roofline,)))
    found.append(_environment(cases))
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, undefined=jinja2.StrictUndefined)
    return environment.from_string(TEMPLATE).render(
        title=title,
        counts=figures.counts(cases),
        environment=markdown.environment(cases[0]).replace("`", ""),
        sections=[section for section in found if section.pictures or section.rows],
    )


def _verdicts(cases: Sequence[Case]) -> Section:
    rows = tuple(
        (*figures.cells(case), *figures.seconds_cells(case), case.verdict, case.reason, case.sentence)
        for case in figures.worst_first(cases)
    )
    head = ("case", "rival", "speed", "interval", "target", "candidate", "rival's", "verdict", "reason", "sentence")
    return Section("Verdicts", "verdicts", "Worst first.", head=head, rows=rows, numbers=(2, 3, 4, 5, 6))


def _ratios(cases: Sequence[Case]) -> Section:
    lines = tuple(
        Row(
            figures.pair(case),
            (Mark(case.speed, VERDICT_COLOURS[case.verdict], case.sentence, case.speed_low, case.speed_high),),
            case.target,
        )
        for case in figures.worst_first(cases)
        if case.speed
    )
    note = "Rival's time over the candidate's, with its interval; the black tick is the target. Right of 1: faster."
    picture = (charts.rows(lines, axis="speed, as a multiple of the rival's"),) if lines else ()
    return Section("Speed", "speed", note, picture)


def _lengths(cases: Sequence[Case]) -> Section:
    points = []
    for case in cases:
        points += _point(case, figures.candidate(case), False, case.candidate_seconds)
        points += _point(case, case.rival, True, case.rival_seconds)
    return Section("Latency by length", "length", "Dashed: rivals.", _drawn(points, "time of a call", figures.seconds))


def _memory(cases: Sequence[Case]) -> Section:
    points = []
    for case in cases:
        measured, own = case.measured or {}, figures.candidate(case)
        points += _point(case, own, False, measured.get("peak_bytes"))
        points += _point(case, own, False, measured.get("peak_bytes_doubled"), longer=2)
        points += _point(case, case.rival, True, measured.get("rival_peak_bytes"))
    note = "Output and scratch of a call at their peak, by torch's allocator. Dashed: rivals."
    return Section("Memory by length", "memory", note, _drawn(points, "bytes of a call", _bytes))


class _Point(NamedTuple):
    """A value of one side on an attention problem."""

    heads: str
    batch: int
    length: int
    name: str
    dashed: bool
    value: float


def _point(case: Case, name: str | None, dashed: bool, value: float | None, *, longer: int = 1) -> list[_Point]:
    """The point of a value; no point without a value or a side, or without attention's parameters."""
    params = case.params
    try:
        batch, heads, groups, length = (int(params[field]) for field in ("batch", "heads", "kv_heads", "seq_kv"))
        head_dim, dtype, causal = params["head_dim"], str(params["dtype"]), params["causal"]
    except (KeyError, TypeError, ValueError):
        return []
    if not name or not value or min(value, batch, length) <= 0:
        return []
    counts = f"{heads}x{head_dim}" if heads == groups else f"{heads}/{groups}x{head_dim}"
    shape = f"{counts} {figures.short_types(dtype)}{' causal' if causal else ''}"
    return [_Point(shape, batch, length * longer, name, dashed, value)]


def _series(points: Sequence[_Point]) -> list[Series]:
    """Points of one kernel and shape, joined if batch times length is equal, or else if the batch is."""
    by_tokens, by_batch = defaultdict(list), defaultdict(list)
    for point in points:
        by_tokens[point.heads, point.name, point.dashed, point.batch * point.length].append(point)
    joined = {}
    for key, group in by_tokens.items():
        if len({point.length for point in group}) > 1:
            joined[(*key[:3], f"{key[3]} tokens")] = group
        else:
            for point in group:
                by_batch[(*key[:3], f"batch {point.batch}")].append(point)
    joined |= {key: group for key, group in by_batch.items() if len({point.length for point in group}) > 1}
    found = []
    for (shape, name, dashed, kept), group in sorted(joined.items()):
        values = sorted({float(point.length): point.value for point in group}.items())
        found.append(Series(f"{name} {shape}, {kept}", tuple(values), dashed))
    return found


def _drawn(points: Sequence[_Point], axis: str, text: Callable[[float], str]) -> tuple[str, ...]:
    """Pictures of the series with at least two lengths, at most MOST_SERIES of them in one."""
    shown = _series(points)
    return tuple(
        charts.lines(shown[first : first + MOST_SERIES], x_axis="length of the keys", y_axis=axis, text=text)
        for first in range(0, len(shown), MOST_SERIES)
    )


def _accuracy(cases: Sequence[Case]) -> Section:
    lines = []
    for case in cases:
        limit, own, theirs = case.error_limit, case.candidate_error, case.rival_error
        if not limit or not own:
            continue
        marks = [Mark(own / limit, VERDICT_COLOURS[case.verdict], f"candidate: {own:.3g}, at most {limit:.3g}")]
        if theirs:
            marks.append(Mark(theirs / limit, "#555", f"rival: {theirs:.3g}", ring=True))
        lines.append(Row(figures.label(case), tuple(marks)))
    note = "Error against the float64 reference as a share of the tolerance. Filled: candidates; rings: rivals."
    unique = list({line.label: line for line in lines}.values())
    picture = (charts.rows(unique, axis="error, as a share of the tolerance"),) if unique else ()
    return Section("Accuracy", "accuracy", note, picture)


def _telemetry(cases: Sequence[Case]) -> Section:
    rows = []
    for case in cases:
        read = case.telemetry
        if read is None or not read.sm_clock_hz:
            continue
        clocks = (read.sm_clock_low_hz, read.sm_clock_hz, read.sm_clock_high_hz)
        spread = "-".join(dict.fromkeys(f"{clock / 1e9:.2f}" for clock in clocks if clock))
        power, heat = (
            "-" if value is None else f"{value:.0f}" for value in (read.power_watts, read.temperature_celsius)
        )
        reasons, warnings = ", ".join(read.reasons) or "none", "; ".join(case.warnings) or "-"
        rounds = str(len(case.samples.candidate_seconds))
        rows.append((figures.pair(case), spread, power, heat, reasons, rounds, warnings))
    head = ("case", "SM clock, GHz", "power, W", "temperature, C", "throttled", "rounds", "warnings")
    return Section("Telemetry", "telemetry", head=head, rows=tuple(rows), numbers=(1, 2, 3, 5))


def _environment(cases: Sequence[Case]) -> Section:
    rows = []
    for name in ENVIRONMENT:
        values = dict.fromkeys(str(value) for case in cases if (value := getattr(case, name)) is not None)
        if values:
            rows.append((name, ", ".join(values)))
    return Section("Environment", "environment", head=("what", "value"), rows=tuple(rows))


def _bytes(value: float) -> str:
    size, unit = next((step for step in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")) if value >= step[0]), (1, "B"))
    return f"{value / size:.3g} {unit}"
