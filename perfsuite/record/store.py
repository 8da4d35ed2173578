"""Reads and writes records: files of JSON lines, which are whole or refused."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

from perfsuite.record.case import Case
from perfsuite.record.schema import RecordError

OWN_FOLDER = ".perfsuite"
"""The folder below the root for files whose place the user did not choose."""


def read_record(path: Path) -> list[Case]:
    """Every case of a record. Raises RecordError for a file that is missing, empty, cut off or not a record."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RecordError(f"{path}: cannot be read as a record: {error}") from None
    cases = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                value = json.loads(line, parse_int=_whole, parse_float=_finite, parse_constant=_refuse)
                json.dumps(value, ensure_ascii=False).encode()  # half of a surrogate pair cannot be printed
            except (ValueError, RecursionError) as error:
                raise RecordError(f"{path}:{number}: not a line of JSON (cut off or foreign): {error}") from None
            cases.append(Case.of_json(value, f"{path}:{number}"))
    if not cases:
        raise RecordError(f"{path}: holds no case")
    return cases


def write_record(path: Path, cases: Iterable[Case]) -> None:
    """Write a record beside `path` and move it there in one step."""
    with Journal(path) as journal:
        for case in cases:
            journal.add(case)


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
    """The newest record under `.perfsuite/runs/`, or None."""
    runs = sorted((root / OWN_FOLDER / "runs").glob("*.jsonl"), key=lambda path: path.stat().st_mtime)
    return runs[-1] if runs else None


class Journal:
    """Writes each case to disk at once, to `FILE.<process>.partial`; `close` moves that file to its place.

    A run that is killed leaves the partial file with the cases that it has measured.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._target = path.resolve()  # a link stays a link; the file that it names is replaced
        self.partial = self._target.with_name(f"{self._target.name}.{os.getpid()}.partial")
        self.count = 0
        self._descriptor: int | None = None

    def add(self, case: Case) -> None:
        """Write one case. After an OSError the partial file still holds whole lines only."""
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
        """Move the partial file to its place. Without a case an older record stays as it is."""
        if self._descriptor is None:
            return
        os.fsync(self._descriptor)
        os.close(self._descriptor)
        self._descriptor = None
        os.replace(self.partial, self._target)

    def abandon(self) -> Path | None:
        """Stop writing and leave an older record as it is; return the partial file if it holds a case."""
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


def _whole(text: str) -> int:
    return int(text) if len(text) < 20 else _refuse(text)


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _refuse(text)


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{text[:20]} is no JSON number, or too large")
