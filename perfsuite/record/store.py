"""Records in files: JSON lines, read whole or refused, never left half-written."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from perfsuite.record.case import Case
from perfsuite.record.schema import RecordError

OWN_FOLDER = ".perfsuite"
"""The folder below the root where everything is put that the user gave no other place."""


def read_record(path: Path) -> list[Case]:
    """Every case of a record; RecordError where the file is missing, empty, cut off, or something else."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RecordError(f"{path}: cannot be read as a record: {error}") from None
    cases = []
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            try:
                value = json.loads(line, parse_constant=_refuse_constant)
            except (ValueError, RecursionError) as error:
                raise RecordError(f"{path}:{number}: not a line of JSON (cut off or foreign): {error}") from None
            cases.append(Case.of_json(value, f"{path}:{number}"))
    if not cases:
        raise RecordError(f"{path}: holds no case")
    return cases


def write_record(path: Path, cases: Iterable[Case]) -> None:
    """Write a record beside `path` and move it there in one step: a reader finds the old one or the new one, whole."""
    with Journal(path) as journal:
        for case in cases:
            journal.add(case)


def default_path(root: Path) -> Path:
    """A new file under `.perfsuite/runs/`; the folders are made."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    return make_folder(root / OWN_FOLDER / "runs") / f"{stamp}-{os.getpid()}.jsonl"


def make_folder(folder: Path) -> Path:
    """`folder`, there from now on. Where it lies in `.perfsuite/`, git is told not to see that.

    What we write must not make a tree one with uncommitted changes, whose records no history takes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for own in (folder, *folder.parents):
        if own.name == OWN_FOLDER and not (own / ".gitignore").exists():
            (own / ".gitignore").write_text("*\n")
    return folder


def latest_path(root: Path) -> Path | None:
    """The newest record under `.perfsuite/runs/`, or None."""
    runs = sorted((root / OWN_FOLDER / "runs").glob("*.jsonl"), key=lambda path: path.stat().st_mtime)
    return runs[-1] if runs else None


class Journal:
    """Takes cases as they come, each whole on disk at once; `close` puts the record in its place.

    Until then they lie in `FILE.<process>.partial`, which is what a run that is killed leaves: the cases it got to.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._target = path.resolve()  # a link stays one: what it names is replaced
        self.partial = self._target.with_name(f"{self._target.name}.{os.getpid()}.partial")
        self.count = 0
        self._descriptor: int | None = None

    def add(self, case: Case) -> None:
        """Write one case. Raises OSError where the disk does not take it.

        After an OSError whole lines lie in the partial file, and only those.
        """
        line = json.dumps(case.as_json(), allow_nan=False, separators=(",", ":")).encode() + b"\n"
        if self._descriptor is None:
            make_folder(self._target.parent)
            self._descriptor = os.open(self.partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
        whole = os.fstat(self._descriptor).st_size
        try:
            while line:
                line = line[os.write(self._descriptor, line) :]
        except OSError:
            os.ftruncate(self._descriptor, whole)
            raise
        self.count += 1

    def close(self) -> None:
        """Move what was written to its place; without a case nothing is touched, an older record least of all."""
        if self._descriptor is None:
            return
        os.fsync(self._descriptor)
        os.close(self._descriptor)
        self._descriptor = None
        os.replace(self.partial, self._target)

    def abandon(self) -> Path | None:
        """Take no more, and leave an older record where it is; the partial file, where it holds a case."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        if self.count:
            return self.partial
        self.partial.unlink(missing_ok=True)
        return None

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
        elif self._descriptor is not None:
            self.abandon()
            self.partial.unlink(missing_ok=True)


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")
