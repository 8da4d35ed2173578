"""Renders the table of a faults.json: planted faults by kind, and the reasons for which they were wrong."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perfsuite.record.environment import Environment
from perfsuite.record.schema import Misfit, RecordError, reader_of
from perfsuite.report import markdown

FIELDS = {"module": str, "kind": str, "fault": str, "counts": bool, "caught": bool, "reason": str}
"""Fields that each line must have, with their types."""


def read_faults(path: Path) -> dict[str, Any]:
    """The content of a faults.json: "environment" and the lines "faults". Raises RecordError for other files."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise RecordError(f"{path}: cannot be read as a record of faults: {error}") from None
    if not isinstance(values, dict) or not isinstance(values.get("environment"), dict):
        raise RecordError(f"{path}: not a record of faults: it has no environment")
    try:
        reader_of(Environment)(values["environment"])
    except Misfit as error:
        raise RecordError(f"{path}: {error.within('environment')}") from None
    lines = values.get("faults")
    if not isinstance(lines, list) or not lines:
        raise RecordError(f"{path}: faults must be a list of at least one line")
    for line in lines:
        if not isinstance(line, dict) or any(not isinstance(line.get(name), kind) for name, kind in FIELDS.items()):
            raise RecordError(f"{path}: a line of faults must hold {', '.join(FIELDS)}; there is {line!r}")
    return values


def faults_table(path: Path, filters: Mapping[str, str]) -> str:
    """A row for each kind of fault: the modules in which it counts, those in which it was caught, and the reasons."""
    if filters:
        raise RecordError(f"{path}: the table of faults takes no {', '.join(filters)}=")
    values = read_faults(path)
    lines = values["faults"]
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
    where = markdown.environment(reader_of(Environment)(values["environment"]))
    sentence = (
        f"{caught} of {sum(counts.values())} planted faults that count are WRONG, in {len(modules)} modules; at least "
        f"{least} count in each. Measured on one {where}."
    )
    return f"{markdown.grid(rows)}\n\n{sentence}"
