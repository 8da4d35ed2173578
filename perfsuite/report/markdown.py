"""Renders cases as markdown, for documents."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from perfsuite.record.case import Case
from perfsuite.record.environment import Environment
from perfsuite.report import figures

_HEAD = ("case", "rival", "speed", "interval", "target", "candidate", "rival time", "verdict")
_VERSIONS = ("driver", "CUDA", "torch", "cuBLAS", "cuDNN", "flash-attn", "harness")


def table(cases: Sequence[Case]) -> str:
    """One row a case; speed is the rival's time over the candidate's."""
    rows = [
        [escaped(cell) for cell in (*figures.cells(case), *figures.seconds_cells(case), case.verdict)] for case in cases
    ]
    return grid([_HEAD, ("---", "---", *["---:"] * 5, "---"), *rows])


def grid(rows: Iterable[Sequence[str]]) -> str:
    """A markdown table; the second row is the rule below the head."""
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


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
