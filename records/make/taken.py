"""Copies whole records of a run into records/CARD/."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from perfsuite.record.atomic_write import write_whole

from .findings import commits
from .job import Job
from .kept import WHOLE, Kept


def take(kept: Kept, jobs: Sequence[Job], records: Path, root: Path) -> list[tuple[str, str]]:
    """(name, "taken", or the reason why not) of each job that has begun. root: the checkout that gets the records."""
    refused = _of_all(kept, root)
    found = []
    for job in jobs:
        state = kept.jobs.get(job.name)
        if state is None or state.state == "not begun" or state.state.startswith("lacks "):
            continue
        reason = refused or _of_one(kept, job)
        if reason is None:
            _copy(kept.folder / state.record, job, records)
        found.append((job.name, f"refused: {reason}" if reason else "taken"))
    return found


def _of_all(kept: Kept, root: Path) -> str | None:
    """The reason why no record of this run may be taken."""
    if kept.dirty:
        return f"the tree differed from commit {kept.commit[:10]}"
    line = ["git", "-C", str(root), "merge-base", "--is-ancestor", kept.commit, "HEAD"]
    if subprocess.run(line, capture_output=True, check=False).returncode:
        return f"commit {kept.commit[:10]} is not in the history of this checkout"
    return None


def _of_one(kept: Kept, job: Job) -> str | None:
    state = kept.jobs[job.name]
    if state.state != WHOLE:
        return f"it is {state.state}"
    if others := sorted({one for one in _named(kept.folder / state.record) if not _same(one, kept.commit)}):
        return f"its commit is {', '.join(others)}, that of the run is {kept.commit[:10]}"
    return None


def _same(named: str, commit: str) -> bool:
    return len(named) >= 7 and commit.startswith(named)


def _named(record: Path) -> Iterator[str]:
    """The commits that a record names."""
    if record.is_dir():
        return
    text = record.read_text(encoding="utf-8")
    for one in text.splitlines() if record.suffix == ".jsonl" else [text]:
        yield from commits(json.loads(one))


def _copy(source: Path, job: Job, records: Path) -> None:
    target = records / job.record
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
    elif job.sections:
        # Each object is a measurement of its own, and says of which commit; the tables do too.
        there: dict[str, Any] = json.loads(target.read_text(encoding="utf-8")) if target.exists() else {}
        write_whole(target, json.dumps(there | json.loads(source.read_text(encoding="utf-8")), indent=1) + "\n")
    else:
        write_whole(target, source.read_text(encoding="utf-8"))
