"""Write a record as one JSON document: a list of the cases, without their samples."""

from __future__ import annotations

import json
from collections.abc import Sequence

from perfsuite.record.case import Case

HELP = "a JSON list of the cases, without samples"


def text(cases: Sequence[Case], *, title: str) -> str:
    return json.dumps([case.as_json(samples=False) for case in cases], indent=1) + "\n"
