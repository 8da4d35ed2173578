"""Finds and makes the files of records: the folder `.perfsuite/`, new records, the latest one, partial ones."""

from __future__ import annotations

import os
import re
import time
from datetime import UTC, datetime
from pathlib import Path

OWN_FOLDER = ".perfsuite"
"""The folder below the root for files whose place the user did not choose."""
PARTIAL = ".partial.jsonl"
"""The end of a partial file's name: gates.partial.jsonl belongs to gates.jsonl."""
KEPT_DAYS = 30
"""Older partial files in `.perfsuite/runs/` are removed when a new run begins there."""


def default_path(root: Path) -> Path:
    """A new file under `.perfsuite/runs/`; the folders are made."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    return make_folder(root / OWN_FOLDER / "runs") / f"{stamp}-{os.getpid()}.jsonl"


def make_folder(folder: Path) -> Path:
    """Make `folder` and return it. A `.gitignore` hides `.perfsuite/` from git.

    Otherwise these files would count as uncommitted changes, and histories refuse records of a changed tree.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for own in (folder, *folder.parents):
        if own.name == OWN_FOLDER and not (own / ".gitignore").exists():
            (own / ".gitignore").write_text("*\n")
    return folder


def latest_path(root: Path) -> Path | None:
    """The newest record under `.perfsuite/runs/`, or None. Partial files are no records."""
    found = (root / OWN_FOLDER / "runs").glob("*.jsonl")
    runs = sorted((path for path in found if not path.name.endswith(PARTIAL)), key=lambda path: path.stat().st_mtime)
    return runs[-1] if runs else None


def partial_of(record: Path) -> Path:
    """The partial file of a record, while a run writes it and after a run that did not finish."""
    return record.with_name(f"{record.name.removesuffix('.jsonl')}{PARTIAL}")


def partials_of(record: Path) -> list[Path]:
    """The partial files of a record that exist, the oldest first; older ones have a number in their name."""
    base = re.escape(record.name.removesuffix(".jsonl"))
    name = re.compile(rf"{base}(\.\d+)?{re.escape(PARTIAL)}")
    folder = record.parent
    found = [folder / one for one in os.listdir(folder) if name.fullmatch(one)] if folder.is_dir() else []
    return sorted(found, key=lambda path: path.stat().st_mtime)


def partials_below(folder: Path) -> list[Path]:
    """All partial files in a folder and those below it, the oldest first."""
    found = []
    for place, _, names in os.walk(folder):
        found += [Path(place) / name for name in names if name.endswith(PARTIAL)]
    return sorted(found, key=lambda path: path.stat().st_mtime)


def remove_old_partials(folder: Path, *, days: float = KEPT_DAYS) -> list[Path]:
    """Remove the partial files of a folder that nobody has written to for so many days; return their paths."""
    before = time.time() - days * 86400.0
    old = [path for path in partials_below(folder) if path.stat().st_mtime < before]
    for path in old:
        path.unlink(missing_ok=True)
    return old
