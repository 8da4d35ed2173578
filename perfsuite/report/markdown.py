"""A record as markdown: for a CI step summary, and for the tables in README and docs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perfsuite.report import figures

MOST_ROWS = 300
MOST_SENTENCES = 60
_HEAD = ("case", "rival", "speed", "interval", "target", "candidate", "rival time", "verdict")


def table(cases: Sequence[Mapping[str, Any]], *, worst_first: bool = True) -> str:
    """One row a case; speed is the rival's time over the candidate's."""
    rows = [_row(case) for case in (figures.worst_first(cases) if worst_first else cases)]
    rule = ["---", "---", *["---:"] * 5, "---"]
    return "\n".join("| " + " | ".join(_escaped(cell) for cell in row) + " |" for row in [_HEAD, rule, *rows])


def summary(cases: Sequence[Mapping[str, Any]], *, title: str, notes: Sequence[str] = ()) -> str:
    """A whole page: what came of the run, the table, and a sentence for each case that is not met.

    Bounded, worst first, since CI takes a summary of one mebibyte at most.
    """
    ordered = figures.worst_first(cases)
    parts = [f"## {title}", figures.counts(cases) or "nothing was measured", *notes]
    if cases:
        parts.append(table(ordered[:MOST_ROWS], worst_first=False) + _more(len(ordered) - MOST_ROWS, "\n\n"))
    bad = [case for case in ordered if case["verdict"] != "MET"]
    if bad:
        told = [
            f"- **{case['verdict']}** `{case['case']}`: {_escaped(case['sentence'])}" for case in bad[:MOST_SENTENCES]
        ]
        parts.append("\n".join(told) + _more(len(bad) - MOST_SENTENCES, "\n- "))
    return "\n\n".join(parts) + "\n"


def _more(left_out: int, before: str) -> str:
    return f"{before}and {left_out} more, which the record holds" if left_out > 0 else ""


def environment(case: Mapping[str, Any]) -> str:
    """One line on where the figures come from."""
    where = case.get("gpu") or f"CPU ({case.get('cpu') or 'unknown'}), portable backend, not a GPU"
    known = [
        f"{name} {case[key]}"
        for name, key in (
            ("driver", "driver"),
            ("CUDA", "cuda"),
            ("torch", "torch"),
            ("cuBLAS", "cublas"),
            ("cuDNN", "cudnn"),
            ("flash-attn", "flash_attn"),
        )
        if case.get(key)
    ]
    commit = str(case.get("commit") or "unknown")[:12] + (" with changes" if case.get("dirty") else "")
    known.append(f"harness {case['harness']}")
    return f"{where}; {', '.join(known)}; commit {commit}"


def _row(case: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        figures.label(case),
        figures.rival(case),
        figures.ratio(figures.speed(case)),
        figures.interval(case),
        figures.target(case),
        figures.seconds(case["candidate_seconds"]),
        figures.seconds(case["rival_seconds"]),
        case["verdict"],
    )


def _escaped(cell: str) -> str:
    # A browser shows nothing of a tag that it does not know, such as <lambda>.
    return cell.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
