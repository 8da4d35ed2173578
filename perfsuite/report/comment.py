"""The comment on a pull request: one sentence, then what got slower and what is missed, the rest folded.

All text of a record is escaped: a comment must not carry markup, mentions or links of a stranger's record.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from typing import Any

from perfsuite.report import figures
from perfsuite.report.page.attention import ORDER, Standing, by_urgency, percent, target_text, value_text
from perfsuite.report.page.cards import sentence
from perfsuite.report.page.data import Report
from perfsuite.report.values import gated

MARKER = "<!-- perfsuite -->"
"""The first line of the comment, by which it is found again."""
MOST_ROWS = 20
MOST_CHARACTERS = 65_000
"""GitHub takes a comment of at most 65,536 characters."""
MOST_NAME = 160
BLOCKS = "▁▂▃▄▅▆▇█"
GLYPHS = {"MET": "✓", "MISSED": "▼", "WRONG": "✗", "UNDECIDED": "?"}
SLOWER = "▲"


def comment(report: Report, *, page: str | None = None, ab: Sequence[Mapping[str, Any]] = ()) -> str:
    """The comment in GitHub's and GitLab's markdown.

    page: the address of the whole page. ab: the cases of `perfsuite ab --json`, head against base.
    """
    parts = [MARKER, f"**{text(sentence(report))}**" + (f" [The whole report]({page})." if page else "")]
    parts += [*_ab(ab), *tables(report), f"<sub>{text(_where(report))}</sub>"]
    kept, size = [], 0
    for part in parts:
        size += len(part) + 2
        if size > MOST_CHARACTERS:
            kept.append("The rest is too long for a comment; the record has it.")
            break
        kept.append(part)
    return "\n\n".join(kept) + "\n"


def tables(report: Report) -> list[str]:
    """Tables of the cases that got slower or are newly missed, the rest folded; without a base, of all misses."""
    ordered = by_urgency(report.standings)
    states = {state: [one for one in ordered if one.state == state] for state in ORDER}
    slower = [*states["wrong"], *states["regressed"]]
    missed, before = states["newly missed"], states["long missed"]
    if report.base is None:
        return [
            *_table("Wrong", slower, report),
            *_table("Missed", [*missed, *before], report),
            *_folded("Undecided", states["undecided"], report),
        ]
    return [
        *_table("Wrong, or slower than the base", slower, report),
        *_table("Newly missed", missed, report),
        *_folded("Already missed before this change", before, report),
        *_folded("Undecided", states["undecided"], report),
    ]


def text(value: str, most: int = MOST_NAME) -> str:
    """Text that markdown shows as it is: no markup, no mention, no link, one line, at most so many characters."""
    plain = " ".join("".join(letter if letter.isprintable() else " " for letter in value).split())
    plain = plain if len(plain) <= most else f"{plain[: most - 3]}..."
    escaped = html.escape(plain.encode("utf-8", "replace").decode(), quote=False)
    escaped = re.sub(r"([\\`*_{}\[\]()#+!|~$])", r"\\\1", escaped)
    # A mention, and an address that becomes a link by itself, need their sign unbroken.
    return escaped.replace("@", "&#64;").replace("://", "&#58;//").replace("www.", "www&#46;")


def spark(values: Sequence[float | None]) -> str:
    """The values as blocks of eight heights, oldest first; empty for fewer than two."""
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return ""
    low, high = min(known), max(known)
    step = (high - low) / (len(BLOCKS) - 1) or 1.0
    return "".join(BLOCKS[round((value - low) / step)] for value in known[-12:])


def _table(title: str, standings: Sequence[Standing], report: Report) -> list[str]:
    if not standings:
        return []
    head = "| case | value | target | since the base | history |\n|---|---:|---:|---:|---|"
    rows = "\n".join(_row(one, report) for one in standings[:MOST_ROWS])
    more = f"\n\nand {len(standings) - MOST_ROWS} more" if len(standings) > MOST_ROWS else ""
    return [f"### {title} ({len(standings)})", f"{head}\n{rows}{more}"]


def _folded(title: str, standings: Sequence[Standing], report: Report) -> list[str]:
    if not standings:
        return []
    inner = "\n\n".join(_table(title, standings, report)[1:])
    return [f"<details><summary>{title}: {len(standings)}</summary>\n\n{inner}\n\n</details>"]


def _row(one: Standing, report: Report) -> str:
    case, value = one.line.last, gated(one.line.last)
    glyph = SLOWER if one.state == "regressed" else GLYPHS[case.verdict]
    growth = "-" if one.growth is None else f"{percent(one.growth)} time"
    shown = spark([gated(past).value for past in one.line.cases])
    return f"| {glyph} {named(one, report)} | {value_text(value)} | {target_text(value)} | {growth} | {shown} |"


def named(one: Standing, report: Report) -> str:
    """The case's name, with a link to the line of its test if that is known."""
    case = one.line.last
    link = report.links.test(case.test, case.commit)
    name = text(figures.pair(case) + report.now.card_in_words(case))
    return f"[{name}]({link.replace(' ', '%20').replace(')', '%29')})" if link else name


def _ab(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """The cases that `ab` found slower or wrong, as a table; a sentence if there are none."""
    if not found:
        return []
    bad = [one for one in found if one.get("verdict") in ("WRONG", "MISSED")]
    counts = ", ".join(
        f"{count} {word}"
        for verdict, word in (
            ("WRONG", "wrong"),
            ("MISSED", "slower"),
            ("UNDECIDED", "undecided"),
            ("MET", "no slower"),
        )
        if (count := sum(one.get("verdict") == verdict for one in found))
    )
    said = f"Head against base, measured in turn on one machine: {counts}."
    if not bad:
        return [said]
    rows = [
        f"| {GLYPHS[str(one['verdict'])]} {text(str(one.get('name', '')))} | {text(str(one.get('sentence', '')))} |"
        for one in bad[:MOST_ROWS]
    ]
    more = f"\n\nand {len(bad) - MOST_ROWS} more" if len(bad) > MOST_ROWS else ""
    return [said, "| case | head against base |\n|---|---|\n" + "\n".join(rows) + more]


def _where(report: Report) -> str:
    base = report.versions[report.base].commit if report.base is not None else None
    against = f" against {base[:9]}" if base else ""
    return f"{report.now.setting[0] or 'CPU, portable kernels'}, commit {(report.now.commit or 'unknown')[:9]}{against}"
