"""The summary of a run for CI's own page: what needs attention, worst first, then all cases, folded.

A step summary and a comment have the same tables. Here every case that is not met also has its sentence.
"""

from __future__ import annotations

from collections.abc import Sequence

from perfsuite.record.case import Case
from perfsuite.report import figures, markdown
from perfsuite.report.comment import GLYPHS, named, tables, text
from perfsuite.report.page.attention import Standing, by_urgency, target_text, value_text
from perfsuite.report.page.cards import sentence
from perfsuite.report.page.data import Report, report_of
from perfsuite.report.page.timeline import Version
from perfsuite.report.values import gated

MOST_LISTED = 300
"""Rows of the table of all cases: GitHub takes a summary of at most one mebibyte."""
MOST_SENTENCES = 60
MOST_SENTENCE = 400
_HEAD = ("case", "value", "interval", "target", "time", "rival's time", "verdict")
_RULE = ("---", *["---:"] * 5, "---")


def of_cases(cases: Sequence[Case], *, title: str, notes: Sequence[str] = ()) -> str:
    """The summary of one run without a base; of a run that measured nothing, its notes."""
    if not cases:
        return "\n\n".join([f"## {text(title)}", "nothing was measured", *map(_note, notes)]) + "\n"
    return summary(report_of([Version(cases)], title=title), notes=notes)


def summary(report: Report, *, notes: Sequence[str] = ()) -> str:
    """The summary in GitHub's markdown."""
    ordered = by_urgency(report.standings)
    parts = [f"## {text(report.title)}", f"**{text(sentence(report))}**", *map(_note, notes), *tables(report)]
    bad = [one for one in ordered if one.state != "met"]
    if bad:
        told = [_told(one) for one in bad[:MOST_SENTENCES]]
        parts.append("\n".join(told) + _more(len(bad) - MOST_SENTENCES, "\n- "))
    rows = [_row(one, report) for one in ordered[:MOST_LISTED]]
    listed = markdown.grid([_HEAD, _RULE, *rows]) + _more(len(ordered) - MOST_LISTED, "\n\n")
    parts.append(f"<details><summary>All cases: {len(ordered)}</summary>\n\n{listed}\n\n</details>")
    return "\n\n".join(parts) + "\n"


def _note(note: str) -> str:
    return text(note, MOST_SENTENCE)


def _told(one: Standing) -> str:
    case = one.line.last
    why = f" ({text(one.why, MOST_SENTENCE)})" if one.why else ""
    said = f"{markdown.code(case.case)}: {text(case.sentence, MOST_SENTENCE)}"
    return f"- **{case.verdict}**{', slower' if one.state == 'regressed' else ''} {said}{why}"


def _row(one: Standing, report: Report) -> tuple[str, ...]:
    case, value = one.line.last, gated(one.line.last)
    return (
        named(one, report),
        value_text(value),
        figures.interval(case),
        target_text(value),
        figures.seconds(value.seconds),
        figures.seconds(case.rival_seconds),
        f"{GLYPHS[case.verdict]} {case.verdict}",
    )


def _more(left_out: int, before: str) -> str:
    return f"{before}and {left_out} more, which the record holds" if left_out > 0 else ""
