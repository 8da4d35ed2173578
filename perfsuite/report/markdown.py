"""Renders cases as markdown, for a CI step summary and for documents."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from perfsuite.record.case import Case
from perfsuite.record.environment import Environment
from perfsuite.report import figures

MOST_ROWS = 300
MOST_SENTENCES = 60
_HEAD = ("case", "rival", "speed", "interval", "target", "candidate", "rival time", "verdict")
_VERSIONS = ("driver", "CUDA", "torch", "cuBLAS", "cuDNN", "flash-attn", "harness")


def table(cases: Sequence[Case], *, worst_first: bool = True) -> str:
    """One row a case; speed is the rival's time over the candidate's."""
    rows = [
        [escaped(cell) for cell in (*figures.cells(case), *figures.seconds_cells(case), case.verdict)]
        for case in (figures.worst_first(cases) if worst_first else cases)
    ]
    return grid([_HEAD, ("---", "---", *["---:"] * 5, "---"), *rows])


def grid(rows: Iterable[Sequence[str]]) -> str:
    """A markdown table; the second row is the rule below the head."""
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def summary(cases: Sequence[Case], *, title: str, notes: Sequence[str] = ()) -> str:
    """A page: the count of verdicts, the table, and a sentence for each case that is not met.

    Its size is bounded: GitHub takes a step summary of at most one mebibyte.
    """
    ordered = figures.worst_first(cases)
    parts = [f"## {escaped(title)}", figures.counts(cases) or "nothing was measured", *map(escaped, notes)]
    if cases:
        parts.append(table(ordered[:MOST_ROWS], worst_first=False) + _more(len(ordered) - MOST_ROWS, "\n\n"))
    bad = [case for case in ordered if case.verdict != "MET"]
    if bad:
        told = [f"- **{case.verdict}** {code(case.case)}: {escaped(case.sentence)}" for case in bad[:MOST_SENTENCES]]
        parts.append("\n".join(told) + _more(len(bad) - MOST_SENTENCES, "\n- "))
    return "\n\n".join(parts) + "\n"


def _more(left_out: int, before: str) -> str:
    return f"{before}and {left_out} more, which the record holds" if left_out > 0 else ""


def environment(where: Environment) -> str:
    """One line with the machine, the versions and the commit of the figures."""
    versions = {name: getattr(where, name.lower().replace("-", "_")) for name in _VERSIONS}
    known = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    commit = (where.commit or "unknown")[:12] + (" with changes" if where.dirty else "")
    machine = where.gpu or f"CPU ({where.cpu or 'unknown'}), portable backend, not a GPU"
    return one_line(f"{machine}; {known}; commit {commit}")


def escaped(text: str) -> str:
    """Text in markdown that makes no markup, mention or link, on one line.

    Underscores and stars stay: emphasis does no harm, and names are full of them.
    """
    plain = re.sub(r"([\\`|])", r"\\\1", one_line(text)).replace("<", "&lt;")
    plain = plain.replace("](", "]&#40;").replace("@", "&#64;")
    return plain.replace("://", "&#58;//").replace("www.", "www&#46;")


def one_line(text: str) -> str:
    """The text without control characters and line breaks."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split(" "))


def code(text: str) -> str:
    """Text as code on one line; nothing in it can end the code."""
    return f"`{one_line(text).replace('`', chr(39))}`"
