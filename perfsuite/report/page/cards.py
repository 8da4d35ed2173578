"""The first screen's words: one sentence, a few figures, and a card for each case that needs attention."""

from __future__ import annotations

import math
import shlex
from collections import Counter, defaultdict
from dataclasses import dataclass

from perfsuite.record.case import Case
from perfsuite.report import figures
from perfsuite.report.page.attention import Standing, by_urgency, percent, target_text, value_text
from perfsuite.report.page.data import Report
from perfsuite.report.page.spark import spark
from perfsuite.report.page.values import Gated, gated

STYLES = {"wrong": "bad", "regressed": "bad", "newly missed": "bad", "long missed": "warn", "undecided": "warn"}
LEAST_GROUP = 5
"""Cases of one rival that make a geometric mean worth a tile."""


@dataclass(frozen=True)
class Card:
    """One case that needs attention."""

    id: int
    name: str
    style: str
    badge: str
    gap: str
    gap_text: str
    facts: str
    why: str
    test: str
    link: str | None
    command: str
    spark: object
    """Markup of a picture; it holds nothing that a record names."""


@dataclass(frozen=True)
class Tile:
    """A figure with its meaning."""

    figure: str
    text: str


def sentence(report: Report) -> str:
    """ "403 of 408 gates met; 5 missed, 2 of them new; 1 case got slower"."""
    count: Counter[str] = Counter(one.line.last.verdict for one in report.standings)
    total = len(report.standings)
    parts = [f"{count['MET']} of {total} gates met" if total > 1 else f"{count['MET']} of 1 gate met"]
    for verdict in ("WRONG", "MISSED", "UNDECIDED"):
        if count[verdict]:
            new = sum(one.line.last.verdict == verdict and one.verdict_is_new for one in report.standings)
            told = f", {'all' if new == count[verdict] else new} of them new" if new else ""
            parts.append(f"{count[verdict]} {verdict.lower()}{told}")
    if slower := sum(one.state == "regressed" for one in report.standings):
        parts.append(f"{slower} {'case' if slower == 1 else 'cases'} got slower")
    return "; ".join(parts)


def tiles(report: Report) -> list[Tile]:
    """The largest slow-down and gain since the base, the mean speed against each rival, and doubtful ceilings."""
    found = []
    changes = [one.growth for one in report.standings if one.growth is not None]
    if changes:
        worst, best = max(changes), min(changes)
        found += [Tile(percent(worst), "largest growth of a time")] if worst > 0 else []
        found += [Tile(percent(best), "largest drop of a time")] if best < 0 else []
    groups: dict[tuple[str, str], list[float]] = defaultdict(list)
    for one in report.standings:
        case, value = one.line.last, gated(one.line.last)
        if value.kind == "speed" and value.value:
            groups[case.family, figures.rival(case)].append(value.value)
    for (family, rival), speeds in groups.items():
        if len(speeds) >= LEAST_GROUP:
            mean = math.exp(sum(map(math.log, speeds)) / len(speeds))
            found.append(Tile(f"{mean:.2f} x", f"{rival}, {family}: geometric mean of {len(speeds)}"))
    shares = [
        value.value for one in report.standings if (value := gated(one.line.last)).kind == "share" and value.value
    ]
    if above := sum(share > 1 for share in shares):
        found.append(Tile(f"{above} of {len(shares)}", "shares of the roofline above 100 %: check the ceiling"))
    return found


def cards(report: Report) -> list[Card]:
    """A card for each case that needs attention, most urgent first."""
    return [_card(one, report) for one in by_urgency(report.standings) if one.state != "met"]


def _card(one: Standing, report: Report) -> Card:
    from markupsafe import Markup

    case, value = one.line.last, gated(one.line.last)
    gap, text = _gap(one, value)
    values = [gated(case).value for case in one.line.cases]
    label = f"{len(values)} runs, from {value_text(gated(one.line.cases[0]))} to {value_text(value)}"
    return Card(
        id=report.standings.index(one),
        name=figures.pair(case),
        style=STYLES[one.state],
        badge=_badge(one, report),
        gap=gap,
        gap_text=text,
        facts=" · ".join(_facts(one, value)),
        why=one.why,
        test=(case.test or case.case).rpartition("/")[2],
        link=report.links.test(case.test, case.commit),
        command=f"pytest --gpu {shlex.quote(case.test)}" if case.test else "",
        spark=Markup(spark(values, value.target, label)),
    )


def _gap(one: Standing, value: Gated) -> tuple[str, str]:
    """The most important figure of a case, and the words after it."""
    case = one.line.last
    against = {"speed": f"of {figures.rival(case)}", "share": "of the attainable", "limit": ""}[value.kind]
    if one.state == "regressed" and one.growth is not None:
        return percent(one.growth), f"of its time since the base: {value_text(value)} {against}".rstrip()
    if value.to_target is not None:
        return percent(
            value.to_target
        ), f"of the target: {value_text(value)} of {target_text(value)} {against}".rstrip()
    return value_text(value) if value.value is not None else case.verdict, case.sentence


def _badge(one: Standing, report: Report) -> str:
    run = report.versions[one.since]
    commit = (run.commit or "an unknown commit")[:9]
    if one.verdict_is_new and one.change and one.change.before:
        base = report.versions[report.base].commit if report.base is not None else None
        return f"{one.state}, was {one.change.before.verdict} at {(base or 'the base')[:9]}"
    return f"{one.state} since {commit}" if len(one.line.versions) > 1 else one.state


def _facts(one: Standing, value: Gated) -> list[str]:
    """Times, last values, ceilings and clocks, each with the one before it."""
    case, before = one.line.last, one.line.before(one.line.versions[-1])
    then = gated(before) if before else None
    found = []
    if value.seconds:
        own = figures.seconds(value.seconds)
        found.append(f"{own} against {figures.seconds(case.rival_seconds)}" if case.rival_seconds else own)
    if then is not None:
        last = value_text(then) + (f" in {figures.seconds(then.seconds)}" if then.seconds else "")
        found.append(f"last run {last}")
    if value.ceiling:
        last = f" (last run {rate(then.ceiling)})" if then and then.ceiling else ""
        found.append(f"ceiling {rate(value.ceiling)}{last}")
    found += [clock] if (clock := _clock(case)) else []
    return found


def _clock(case: Case) -> str:
    read = case.telemetry
    if read is None or not read.sm_clock_hz:
        return ""
    low, high = ((clock or read.sm_clock_hz) / 1e9 for clock in (read.sm_clock_low_hz, read.sm_clock_high_hz))
    said = f"{low:.2f} GHz" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f} to {high:.2f} GHz"
    return f"{said}, {', '.join(read.reasons)}" if read.reasons else said


def rate(flops: float) -> str:
    """ "35.49 TFLOPS"."""
    return f"{flops / 1e12:.4g} TFLOPS"
