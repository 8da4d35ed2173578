"""Write a record as one JSON document: a list of the cases, without their samples."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

HELP = "a JSON list of the cases, without samples"


def text(cases: Sequence[Mapping[str, Any]], *, title: str) -> str:
    """The document."""
    return json.dumps([without_samples(case) for case in cases], indent=1) + "\n"


def without_samples(case: Mapping[str, Any]) -> dict[str, Any]:
    """A case as JSON values, without the columns of its rounds."""
    return {name: case[name] for name in case if not name.endswith("samples")}
