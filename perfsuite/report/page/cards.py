"""The first screen's words: one sentence, a few figures, and a card for each case that needs attention."""

from __future__ import annotations

import math
import shlex
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from perfsuite.record.case import Case
from perfsuite.report import figures
from perfsuite.report.page.attention import Standing, by_urgency, percent, target_text, value_text
from perfsuite.report.page.data import Report
from perfsuite.report.page.spark import spark
from perfsuite.report.values import Gated, gated

STYLES = {"wrong": "bad", "regressed": "bad", "newly missed": "bad", "long missed": "warn", "undecided": "warn"}
VALUE_NAMES = {"speed": "speed", "share": "share", "limit": "value"}
LEAST_GROUP = 5
"""Cases of one rival that make a geometric mean worth a tile."""


class Fact(NamedTuple):
    """A row of a card: a quantity at the base, now, and its change."""

    name: str
    then: str
    now: str
    change: str = ""


@dataclass(frozen=True)
class Card:
    """One case that needs attention."""

    id: int
    name: str
    style: str
    badge: str
    gap: str
    gap_text: str
    then: str
    """The commit of the base, or of the last run that has the case; empty if none has it."""
    then_link: str | None
    now: str
    now_link: str | None
    facts: Sequence[Fact]
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
    numbers = {id(one): index for index, one in enumerate(report.standings)}
    return [_card(one, numbers[id(one)], report) for one in by_urgency(report.standings) if one.state != "met"]


def _card(one: Standing, number: int, report: Report) -> Card:
    from markupsafe import Markup

    case, value = one.line.last, gated(one.line.last)
    then = _then(one, report)
    gap, text = _gap(one, value, then)
    values = [gated(case).value for case in one.line.cases]
    label = f"{len(values)} runs, from {value_text(gated(one.line.cases[0]))} to {value_text(value)}"
    commit = then.commit if then else None
    return Card(
        id=number,
        name=figures.pair(case),
        style=STYLES[one.state],
        badge=_badge(one, report),
        gap=gap,
        gap_text=text,
        then=brief(commit) if then else "",
        then_link=report.links.commit(commit),
        now=brief(case.commit),
        now_link=report.links.commit(case.commit),
        facts=_facts(case, then),
        why=one.why,
        test=(case.test or case.case).rpartition("/")[2],
        link=report.links.test(case.test, case.commit),
        command=f"pytest --gpu {shlex.quote(case.test)}" if case.test else "",
        spark=Markup(spark(values, value.target, label)),
    )


def _then(one: Standing, report: Report) -> Case | None:
    """The case at the base; without one there, in the last run that has it."""
    at_base = one.change.before if one.change else None
    return at_base or one.line.before(one.line.versions[-1])


def _gap(one: Standing, value: Gated, then: Case | None) -> tuple[str, str]:
    """The most important figure of a case, and the words after it."""
    case = one.line.last
    against = {"speed": f"of {figures.rival(case)}'s speed", "share": "of the attainable", "limit": ""}[value.kind]
    if one.state == "regressed" and one.growth is not None:
        measure = f"time beside {figures.rival(case)}'s" if value.kind == "speed" else "time"
        return percent(one.growth), f"{measure} since {brief(then.commit if then else None)}"
    if value.to_target is not None:
        words = f"{value_text(value)} of {target_text(value)} {against}".rstrip()
        return percent(value.to_target), f"to the target: {words}"
    return value_text(value) if value.value is not None else case.verdict, case.sentence


def _badge(one: Standing, report: Report) -> str:
    commit = brief(report.versions[one.since].commit)
    if one.verdict_is_new and one.change and one.change.before:
        base = report.versions[report.base].commit if report.base is not None else None
        return f"{one.state}, was {one.change.before.verdict} at {brief(base)}"
    return f"{one.state} since {commit}" if len(one.line.versions) > 1 else one.state


def _facts(case: Case, before: Case | None) -> list[Fact]:
    """Times, value, target, ceiling and clocks, each at the base and now."""
    value, then = gated(case), gated(before) if before else None
    past = then or Gated(value.kind, None)
    rival = f"{figures.rival(case)}'s time"
    found = [
        _fact("time", past.seconds, value.seconds, figures.seconds),
        _fact(rival, before.rival_seconds if before else None, case.rival_seconds, figures.seconds),
        Fact(VALUE_NAMES[value.kind], value_text(past), value_text(value), _grown(past.value, value.value)),
    ]
    if value.to_target is not None:
        distance = "-" if past.to_target is None else percent(past.to_target)
        found.append(Fact("to target", distance, percent(value.to_target), f"of\u00a0{target_text(value)}"))
    found.append(_fact("ceiling, TFLOPS", past.ceiling, value.ceiling, _tera))
    found.append(Fact("clock, GHz", _clock(before) if before else "-", *_clock_and_reasons(case)))
    return [fact for fact in found if fact.now != "-"]


def _fact(name: str, then: float | None, now: float | None, text: Callable[[float | None], str]) -> Fact:
    return Fact(name, text(then), text(now), _grown(then, now))


def _grown(then: float | None, now: float | None) -> str:
    return percent(now / then - 1.0) if then and now else ""


def _clock_and_reasons(case: Case) -> tuple[str, str]:
    return _clock(case), ", ".join(case.telemetry.reasons) if case.telemetry else ""


def _clock(case: Case) -> str:
    """ "1.90-1.98": the lowest and the highest clock in GHz."""
    read = case.telemetry
    if read is None or not read.sm_clock_hz:
        return "-"
    low, high = ((clock or read.sm_clock_hz) / 1e9 for clock in (read.sm_clock_low_hz, read.sm_clock_high_hz))
    return f"{low:.2f}" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f}-{high:.2f}"


def _tera(value: float | None) -> str:
    return "-" if value is None else f"{value / 1e12:.4g}"


def brief(commit: str | None) -> str:
    """The first nine digits of a commit."""
    return commit[:9] if commit else "an unknown commit"
