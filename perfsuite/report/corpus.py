"""Renders the table of a corpus.json: verdicts on honest kernels by kind, and every one that is not MET."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from perfsuite.report import markdown
from perfsuite.report.figures import seconds
from perfsuite.report.listed import Line, read_listed

FIELDS = {"case": str, "kind": str, "what": str, "verdict": str, "reason": str, "sentence": str, "wall": float}
"""Fields that each line must have, with their types."""
VERDICTS = ("MET", "MISSED", "UNDECIDED", "WRONG", "ERROR")
MOST_CHARACTERS = 160
"""Characters of a sentence in the table."""


def corpus_table(path: Path, filters: Mapping[str, str]) -> str:
    """A row for each kind, then the cases that are not MET with their sentences."""
    lines, where = read_listed(path, "corpus", FIELDS, filters)
    rows = [("judged", "kind", "cases", *VERDICTS, "median seconds"), ("---", "---", *["---:"] * 7)]
    for what in dict.fromkeys(line["what"] for line in lines):
        ours = [line for line in lines if line["what"] == what]
        for kind in dict.fromkeys(line["kind"] for line in ours):
            rows.append((what, kind, *_counts(line for line in ours if line["kind"] == kind)))
        rows.append((what, "all", *_counts(ours)))
    parts = [markdown.grid(rows), f"Measured on one {where}.{_checks(lines)}"]
    others = [line for line in lines if line["verdict"] != "MET"]
    if others:
        shown = [("judged", "case", "verdict", "sentence", "plain torch"), ("---",) * 5]
        shown += [(one["what"], one["case"], one["verdict"], _short(one["sentence"]), _plain(one)) for one in others]
        parts.append(markdown.grid(shown))
    return "\n\n".join(parts)


def _checks(lines: Iterable[Line]) -> str:
    """ " Checks took 27% of the 40 s.": the share of wall time that checks took; "" if the lines do not have it."""
    known = [line for line in lines if isinstance(line.get("checks"), float) and line["wall"] > 0.0]
    if not known:
        return ""
    wall, checks = sum(line["wall"] for line in known), sum(line["checks"] for line in known)
    return f" Checks took {checks / wall:.0%} of {seconds(wall)}, first examinations included."


def _counts(lines: Iterable[Line]) -> tuple[str, ...]:
    lines = list(lines)
    counts = Counter(line["verdict"] for line in lines)
    middle = statistics.median(line["wall"] for line in lines)
    return (str(len(lines)), *(str(counts[name]) for name in VERDICTS), f"{middle:.2f}")


def _short(sentence: str) -> str:
    text = " ".join(sentence.split()).replace("|", "\\|")
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 3]}..."


def _plain(line: Line) -> str:
    found = line.get("plain")
    if not isinstance(found, Mapping):
        return "-"
    confirmed = found.get("confirmed")
    words = "cannot tell" if confirmed is None else "confirmed" if confirmed else "not confirmed"
    return f"{words}: {_short(str(found.get('said')))}"
