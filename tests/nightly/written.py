"""The committed results of nightly runs: rows of a table, with the environment in which they came about."""

from __future__ import annotations

import json
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def update(path: Path, rows: list[dict[str, Any]], *, key: str) -> None:
    """Write rows to a file of results; of those already there, rows with another value of `key` stay."""
    there = json.loads(path.read_text())["rows"] if path.exists() else []
    new = {row[key]: row for row in rows}
    merged = [new.pop(row[key], row) for row in there] + list(new.values())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"environment": environment(), "rows": merged}, indent=1, ensure_ascii=False) + "\n")


def join(path: Path, parts: list[Path], *, key: str) -> None:
    """Write the rows of several files of results to one."""
    for part in parts:
        update(path, json.loads(part.read_text())["rows"], key=key)


def environment() -> dict[str, Any]:
    """Where and when the newest rows came about."""
    from perfsuite import __version__

    return {
        "perfsuite": __version__,
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "pytest": version("pytest"),
        "system": f"{platform.system()} {platform.machine()}",
    }
