"""A record as one HTML page that needs nothing but itself: verdicts, ratios, lengths, memory, accuracy, telemetry."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perfsuite.report import charts, figures, markdown
from perfsuite.report.charts import Mark, Row, Series
from perfsuite.report.page_template import TEMPLATE

Case = Mapping[str, Any]
VERDICT_COLOURS = {"MET": "#009e73", "MISSED": "#d55e00", "WRONG": "#8c0000", "UNDECIDED": "#e69f00"}
ENVIRONMENT = (
    *("gpu", "capability", "driver", "cuda", "torch", "cublas", "cudnn", "cpu", "python", "commit", "dirty"),
    *("harness", "perfsuite", "power_limit_watts", "sm_clock_max_hz", "memory_clock_max_hz"),
)
MOST_SERIES = 8


@dataclass(frozen=True)
class Section:
    """A part of the page: pictures, and a table where it has rows."""

    title: str
    anchor: str
    note: str = ""
    pictures: tuple[str, ...] = ()
    head: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    numbers: tuple[int, ...] = ()
    """Columns that are set to the right."""

    def kind(self, column: int, cell: str) -> str:
        """The style of a cell."""
        if cell in VERDICT_COLOURS:
            return cell
        if column in self.numbers:
            return "number"
        return "sentence" if self.head[column] == "sentence" else "case" if column == 0 else ""


def page(cases: Sequence[Case], *, title: str, roofline: str | None = None) -> str:
    """The page's HTML. `roofline`: a picture of the cases under their ceilings, as SVG."""
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
        (
            figures.label(case),
            figures.rival(case),
            figures.ratio(figures.speed(case)),
            figures.interval(case),
            figures.target(case),
            figures.seconds(case["candidate_seconds"]),
            figures.seconds(case["rival_seconds"]),
            case["verdict"],
            case["reason"],
            case["sentence"],
        )
        for case in figures.worst_first(cases)
    )
    head = ("case", "rival", "speed", "interval", "target", "candidate", "rival's", "verdict", "reason", "sentence")
    return Section("Verdicts", "verdicts", "Worst first.", head=head, rows=rows, numbers=(2, 3, 4, 5, 6))


def _ratios(cases: Sequence[Case]) -> Section:
    lines = tuple(
        Row(
            f"{figures.label(case)} / {figures.rival(case)}",
            (
                Mark(
                    case["speed"],
                    VERDICT_COLOURS[case["verdict"]],
                    case["sentence"],
                    case.get("speed_low"),
                    case.get("speed_high"),
                ),
            ),
            case.get("target"),
        )
        for case in figures.worst_first(cases)
        if case["speed"]
    )
    note = "Rival's time over the candidate's, with its interval; the black tick is the target. Right of 1: faster."
    picture = (charts.rows(lines, axis="speed, as a multiple of the rival's"),) if lines else ()
    return Section("Speed", "speed", note, picture)


def _lengths(cases: Sequence[Case]) -> Section:
    points = []
    for case in cases:
        if case["family"] == "attention" and case["candidate_seconds"]:
            points.append(_Point(case, figures.candidate(case), False, case["candidate_seconds"]))
            if case["rival"] and case["rival_seconds"]:
                points.append(_Point(case, case["rival"], True, case["rival_seconds"]))
    return Section("Latency by length", "length", "Dashed: rivals.", _drawn(points, "time of a call", figures.seconds))


def _memory(cases: Sequence[Case]) -> Section:
    points = []
    for case in cases:
        measured = case.get("measured") or {}
        if case["family"] != "attention" or not measured.get("peak_bytes"):
            continue
        own = figures.candidate(case)
        points.append(_Point(case, own, False, measured["peak_bytes"]))
        if measured.get("peak_bytes_doubled"):
            longer = {**case["params"], "seq_kv": 2 * case["params"]["seq_kv"]}
            points.append(_Point({**case, "params": longer}, own, False, measured["peak_bytes_doubled"]))
        if case["rival"] and measured.get("rival_peak_bytes"):
            points.append(_Point(case, case["rival"], True, measured["rival_peak_bytes"]))
    note = "Output and scratch of a call at their peak, by torch's allocator. Dashed: rivals."
    return Section("Memory by length", "memory", note, _drawn(points, "bytes of a call", _bytes))


class _Point:
    """A side's value on an attention case."""

    def __init__(self, case: Case, name: str, dashed: bool, value: float) -> None:
        params = case["params"]
        self.batch, self.length, self.value, self.dashed = params["batch"], params["seq_kv"], value, dashed
        self.shape, self.name = _shape(params), name


def _series(points: Sequence[_Point]) -> list[Series]:
    """Points of one kernel and shape, joined where the batch is one, or where batch times length is."""
    by_tokens, by_batch = defaultdict(list), defaultdict(list)
    for point in points:
        by_tokens[point.shape, point.name, point.dashed, point.batch * point.length].append(point)
    joined = {}
    for key, group in by_tokens.items():
        if len({point.length for point in group}) > 1:
            joined[(*key[:3], f"{key[3]} tokens")] = group
        else:
            for point in group:
                by_batch[(*key[:3], f"batch {point.batch}")].append(point)
    joined |= {key: group for key, group in by_batch.items() if len({point.length for point in group}) > 1}
    return [
        Series(
            f"{name} {shape}, {kept}",
            tuple(sorted({float(point.length): point.value for point in group}.items())),
            dashed,
        )
        for (shape, name, dashed, kept), group in sorted(joined.items())
    ]


def _drawn(points: Sequence[_Point], axis: str, text: Callable[[float], str]) -> tuple[str, ...]:
    """Pictures of the series with at least two lengths, so many in one that they can be told apart."""
    shown = _series(points)
    return tuple(
        charts.lines(shown[first : first + MOST_SERIES], x_axis="length of the keys", y_axis=axis, text=text)
        for first in range(0, len(shown), MOST_SERIES)
    )


def _accuracy(cases: Sequence[Case]) -> Section:
    lines = []
    for case in cases:
        limit, own, theirs = (case.get(name) for name in ("error_limit", "candidate_error", "rival_error"))
        if not limit or not own:
            continue
        marks = [Mark(own / limit, VERDICT_COLOURS[case["verdict"]], f"candidate: {own:.3g}, at most {limit:.3g}")]
        if theirs:
            marks.append(Mark(theirs / limit, "#555", f"rival: {theirs:.3g}", ring=True))
        lines.append(Row(figures.label(case), tuple(marks)))
    note = "Error against the float64 reference as a share of what is allowed: candidate filled, rival's own a ring."
    unique = list({line.label: line for line in lines}.values())
    picture = (charts.rows(unique, axis="error, as a share of the tolerance"),) if unique else ()
    return Section("Accuracy", "accuracy", note, picture)


def _telemetry(cases: Sequence[Case]) -> Section:
    rows = []
    for case in cases:
        told = case.get("telemetry") or {}
        if not told.get("sm_clock_hz"):
            continue
        clocks = [told.get(name) for name in ("sm_clock_low_hz", "sm_clock_hz", "sm_clock_high_hz")]
        rows.append(
            (
                f"{figures.label(case)} / {figures.rival(case)}",
                "-".join(dict.fromkeys(f"{clock / 1e9:.2f}" for clock in clocks if clock)),
                _plain(told.get("power_watts")),
                _plain(told.get("temperature_celsius")),
                ", ".join(told.get("reasons") or ()) or "none",
                str(len((case.get("samples") or {}).get("candidate_seconds") or ())),
                "; ".join(case.get("warnings") or ()) or "-",
            )
        )
    head = ("case", "SM clock, GHz", "power, W", "temperature, C", "throttled", "rounds", "warnings")
    return Section("Telemetry", "telemetry", head=head, rows=tuple(rows), numbers=(1, 2, 3, 5))


def _environment(cases: Sequence[Case]) -> Section:
    rows = []
    for name in ENVIRONMENT:
        values = dict.fromkeys(str(case[name]) for case in cases if case.get(name) is not None)
        if values:
            rows.append((name, ", ".join(values)))
    return Section("Environment", "environment", head=("what", "value"), rows=tuple(rows))


def _shape(params: Mapping[str, Any]) -> str:
    heads = params["heads"] if params["heads"] == params["kv_heads"] else f"{params['heads']}/{params['kv_heads']}"
    short = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32"}.get(params["dtype"], params["dtype"])
    return f"{heads}x{params['head_dim']} {short}{' causal' if params['causal'] else ''}"


def _bytes(value: float) -> str:
    for size, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g} B"


def _plain(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"
