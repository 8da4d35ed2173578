"""Renders the table of a faults.json: planted faults by kind, and the reasons for which they were wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from perfsuite.report import markdown
from perfsuite.report.listed import read_listed

FIELDS = {"module": str, "kind": str, "fault": str, "counts": bool, "caught": bool, "reason": str}
"""Fields that each line must have, with their types."""


def faults_table(path: Path, filters: Mapping[str, str]) -> str:
    """A row for each kind of fault: the modules in which it counts, those in which it was caught, and the reasons."""
    lines, where = read_listed(path, "faults", FIELDS, filters)
    rows = [("fault", "counts in", "caught", "reasons"), ("---", "---:", "---:", "---")]
    for fault in dict.fromkeys(line["fault"] for line in lines):
        counted = [line for line in lines if line["fault"] == fault and line["counts"]]
        caught = [line for line in counted if line["caught"]]
        reasons = ", ".join(name for name, _ in Counter(line["reason"] for line in caught).most_common())
        rows.append((fault, str(len(counted)), str(len(caught)), reasons or "-"))
    counts = Counter(line["module"] for line in lines if line["counts"])
    modules = dict.fromkeys(line["module"] for line in lines)
    least = min(counts[name] for name in modules)
    caught = sum(line["caught"] for line in lines if line["counts"])
    sentence = (
        f"{caught} of {sum(counts.values())} planted faults that count are WRONG, in {len(modules)} modules; at least "
        f"{least} count in each. Measured on one {where}."
    )
    return f"{markdown.grid(rows)}\n\n{sentence}"
