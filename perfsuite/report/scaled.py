"""Renders the tables and the picture of a scale.json: one card of a machine against several of them.

    <!-- perfsuite:scale ../records/h200/scale.json table=judge -->
    <!-- /perfsuite:scale -->

`table` is judge (verdicts an hour), host (its processors), stages, same (gates of identical code), suite (a test suite)
or places (what each card did during it). `picture=FILE.svg` draws the file, beside the document, and shows it. What was
not measured has no row, and a file that is not there has no table and no picture.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from perfsuite.record.schema import RecordError
from perfsuite.report import figures, judged, svg
from perfsuite.report.judged import NOTHING, Part, Row

_RUNS = {"suite-auto": "-n auto", "suite-turns": "-n, two workers a card", "suite-ray": "--perf-ray"}
_DID = {
    "start": "start",
    "timed": "timed rounds",
    "checks": "checks",
    "other": "rest of tests",
    "between": "between tests",
    "end": "no test left",
}
"""Part of a process's seconds, as the record names it -> as a reader does."""


def scale_block(path: Path, filters: Mapping[str, str]) -> str:
    """The table that `table` names, or the link to a picture. RecordError for other files and filters."""
    if set(filters) == {"picture"}:
        return f"![{LABEL}]({filters['picture']})" if picture(path) else NOTHING
    return judged.table_of_parts(path, filters, _TABLES)


def _cards(values: Part, kind: str = "cards") -> Iterator[tuple[int, str]]:
    """(number of cards, name) of each part of a kind, in order."""
    found = (re.fullmatch(rf"{kind}-(\d+)", name) for name in values)
    return iter(sorted((int(one[1]), one[0]) for one in found if one))


def share(values: Part, count: int) -> float | None:
    """Verdicts an hour on so many cards over those of as many single cards; None without one card's."""
    one = values.get("cards-1", {}).get("jobs_per_hour")
    return float(values[f"cards-{count}"]["jobs_per_hour"]) / count / one if one else None


def _judged(values: Part) -> Iterator[tuple[str, str]]:
    """(name, what it is) of each part of the judge."""
    for count, name in _cards(values):
        yield name, f"{count} card{'s' * (count > 1)}"
    if "removed" in values:
        yield "removed", "all, one taken away in the middle"


def _judge(values: Part) -> Iterator[tuple[str, Row]]:
    yield "", ("on", "processes", "jobs", "an hour", "share of linear", "deaths", "without one right verdict")
    yield "", ("---", *["---:"] * 6)
    for name, said in _judged(values):
        part = values[name]
        of_linear = None if name == "removed" else share(values, part["cards"])
        yield (
            name,
            (
                said,
                str(part["processes"]),
                str(part["jobs"]),
                f"{part['jobs_per_hour']:,.0f}",
                "-" if of_linear is None else f"{of_linear:.2f}",
                str(part["deaths"]),
                str(len(part["faults"])),
            ),
        )


def _host(values: Part) -> Iterator[tuple[str, Row]]:
    """A row for each part: the host's processors, and the verdicts for which they would be enough."""
    yield (
        "",
        (
            "on",
            "processors",
            "busy",
            "processor seconds a verdict",
            "they would feed, an hour",
            "cards busy",
            "the parent would feed, an hour",
        ),
    )
    yield "", ("---", *["---:"] * 6)
    for name, said in _judged(values):
        part = values[name]
        spent, own = part["processor_seconds_a_job"], part.get("parent_seconds_a_job")
        busy = part.get("card_busy") or []
        yield (
            name,
            (
                said,
                str(part["host_processors"]),
                "-" if part["host_busy"] is None else f"{part['host_busy']:.0%}",
                figures.seconds(spent) if spent else "-",
                f"{3600.0 * part['host_processors'] / spent:,.0f}" if spent else "-",
                f"{sum(busy) / len(busy):.0%}" if busy else "-",
                f"{3600.0 / own:,.0f}" if own else "-",
            ),
        )


def _stages(values: Part) -> Iterator[tuple[str, Row]]:
    return judged.stages_of(values, dict(_judged(values)), ("asked", *judged.STAGES[1:]))


def _same(values: Part) -> Iterator[tuple[str, Row]]:
    """A row for each number of cards that gated at once."""
    yield "", ("cards at once", "gates", "false alarms", "true rate is at most (95 %)", "undecided", "a gate takes")
    yield "", ("---:",) * 6
    for count, name in _cards(values, "identical"):
        told, wall = values[name]["aa"], values[name].get("wall_seconds_per_gate_median")
        counts = (told["gates"], told["false_alarms"], f"{told['upper95']:.2%}", told["undecided"])
        yield name, (str(count), *map(str, counts), figures.seconds(wall) if wall else "-")


def _suite(values: Part) -> Iterator[tuple[str, Row]]:
    """A row for each way in which the tests came to the cards."""
    heads = ("cases", "verdicts as on one card", "target within the interval", "others", "seconds", "on one card")
    yield "", ("by", "cards", *heads, "share of linear")
    yield "", ("---", *["---:"] * 8)
    for name, said in _RUNS.items():
        if name in values:
            part = values[name]
            one, other = (part[which]["seconds"] for which in ("plain", name.removeprefix("suite-")))
            linear = one / other / part["cards"] if one and other else None
            yield (
                name,
                (
                    said,
                    str(part["cards"]),
                    str(part["cases"]),
                    str(part["equal_verdicts"]),
                    str(part["interval_holds_target"]),
                    str(len(part["different"]) + part["in_one_run_only"]),
                    "-" if other is None else f"{other:.1f}",
                    "-" if one is None else f"{one:.1f}",
                    "-" if linear is None else f"{linear:.2f}",
                ),
            )


def _places(values: Part) -> Iterator[tuple[str, Row]]:
    """A row for each process of a suite: what it did of the run's seconds."""
    yield "", ("by", "card", "tests", "seconds", *_DID.values(), "with a kernel")
    yield "", ("---", *["---:"] * (4 + len(_DID)))
    for name, said in _RUNS.items():
        for number, place in enumerate(values.get(name, {}).get("places", [])):
            whole, kernel = place["whole"], place["kernel_share"]
            parts = (f"{place[key] / whole:.0%}" if whole else "-" for key in _DID)
            yield (
                name,
                (
                    said,
                    place["card"] or f"process {number}",
                    str(place["tests"]),
                    f"{whole:.1f}",
                    *parts,
                    "-" if kernel is None else f"{kernel:.0%}",
                ),
            )


_TABLES = {
    "judge": _judge,
    "host": _host,
    "stages": _stages,
    "same": _same,
    "suite": _suite,
    "places": _places,
}

LABEL = "Verdicts an hour of the judge on one card and on more, against a straight line through one card's"
HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 360.0, 96.0, 700.0, 34.0, 310.0


def picture(path: Path) -> str | None:
    """The SVG of a record: verdicts an hour over cards. None if the judge was not measured on one card and on more."""
    values = judged.read_parts(path) or {}
    counts = list(_cards(values))
    try:
        rates = {count: float(values[name]["jobs_per_hour"]) for count, name in counts}
        removed = values.get("removed", {}).get("jobs_per_hour")
        where = judged.environment_of(path, counts[0][1], values[counts[0][1]]) if counts else ""
    except (KeyError, TypeError, ValueError) as error:
        raise RecordError(f"{path}: a measurement lacks a field, or has a bad one: {error!r}") from None
    if len(rates) < 2 or not all(rate > 0.0 for rate in rates.values()) or 1 not in rates:
        return None
    most = max(rates)
    high = 1.05 * max(most * rates[1], *rates.values())

    def at(count: float, rate: float) -> tuple[float, float]:
        return LEFT + (RIGHT - LEFT) * count / most, BOTTOM - (BOTTOM - TOP) * rate / high

    parts = [f'<rect width="{svg.WIDTH}" height="{HEIGHT:g}" fill="#fff"/>']
    parts += [svg.text(LEFT, 20, "verdicts an hour"), svg.text(RIGHT + 12, BOTTOM + 17, "cards")]
    step = _step(high)
    for number in range(int(high / step) + 1):
        (x, y), (end, _) = at(0, number * step), at(most, 0)
        parts.append(svg.line((x, y), (end, y), 'stroke="#ddd"'))
        parts.append(svg.text(x - 8, y + 4, f"{number * step:,.0f}", 'text-anchor="end"'))
    for count in rates:
        x, y = at(count, 0)
        parts.append(svg.text(x, y + 17, str(count), 'text-anchor="middle"'))
    grey, blue, red = svg.COLOURS[6], svg.COLOURS[0], svg.COLOURS[1]
    parts.append(svg.line(at(0, 0), at(most, most * rates[1]), f'stroke="{grey}" stroke-dasharray="5 4"'))
    parts.append(svg.polyline((at(*one) for one in rates.items()), f'stroke="{blue}" stroke-width="2"'))
    for count, rate in rates.items():
        of_linear = rate / count / rates[1]
        parts.append(svg.mark(*at(count, rate), blue, note=f"{count}: {rate:,.0f} an hour, {of_linear:.2f} of linear"))
        x, y = at(count, rate)
        parts.append(svg.text(x + 8, y + 16, f"{rate:,.0f} ({of_linear:.2f})"))
    keys = [(grey, "linear, through one card"), (blue, "measured (share of linear)")]
    if removed:
        parts.append(svg.mark(*at(most, float(removed)), red, shape="diamond", note=f"{removed:,.0f} an hour"))
        keys.append((red, "one card taken away"))
    for number, (colour, said) in enumerate(keys):
        parts.append(svg.mark(RIGHT + 90, TOP + 20 * number, colour))
        parts.append(svg.text(RIGHT + 102, TOP + 4 + 20 * number, said))
    parts.append(svg.text(LEFT, HEIGHT - 10, where, 'fill="#666" font-size="10"'))
    return svg.document(HEIGHT, parts, label=LABEL, size=13) + "\n"


def _step(high: float) -> float:
    """A round distance of four to nine lines below `high`."""
    size = 10.0 ** (len(str(int(high))) - 1)
    return next(size * part for part in (0.1, 0.2, 0.5, 1.0, 2.0) if high / (size * part) < 9)
