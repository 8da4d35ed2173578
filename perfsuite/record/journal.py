"""Writes a record while a run measures: each case at once, to a partial file that becomes the record at the end."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from perfsuite import __version__
from perfsuite.outcome import UserError
from perfsuite.record.case import SCHEMA, Case
from perfsuite.record.places import PARTIAL, make_folder, partial_of
from perfsuite.record.run_lines import Begin, End, Ended, Part, as_json


class RecordBusy(UserError):
    """Another run writes this record; the sentence names its process."""


class Journal:
    """Writes each case to disk at once, to NAME.partial.jsonl; `close` moves that file to NAME.jsonl.

    A run that does not finish leaves the partial file, with the cases that it has measured, and an older record stays
    as it is. The partial file is locked, so that a second run on the same record is refused.
    """

    def __init__(self, path: Path, *, variables: Mapping[str, str] | None = None) -> None:
        self.path = path
        self.variables = dict(variables or {})
        self._target = path.resolve()  # a link stays a link; the file that it names is replaced
        self.partial = partial_of(self._target)
        self._count = 0
        self._descriptor: int | None = None
        self._process = os.getpid()

    def open(self) -> None:
        """Make and lock the partial file. RecordBusy if another run has locked it, OSError if it cannot be made.

        A partial file that a killed run left gets a number in its name.
        """
        make_folder(self._target.parent)
        while self._descriptor is None:
            descriptor = os.open(self.partial, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            try:
                self._take(descriptor)
            finally:
                if self._descriptor is None:
                    os.close(descriptor)
        begin = Begin(
            schema=SCHEMA,
            begin=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            process=self._process,
            perfsuite=__version__,
            variables=self.variables,
        )
        self._write(as_json(begin))

    def _take(self, descriptor: int) -> None:
        """Keep this descriptor if its file is ours now. The file may have been moved before it was locked."""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = _process_in(self.partial)
            raise RecordBusy(f"{self.path} is being written by {owner}; wait for it, or name another record") from None
        except OSError:
            pass  # the file system has no locks; a second run is not noticed there
        try:
            here, there = os.fstat(descriptor), os.stat(self.partial)
        except FileNotFoundError:
            return
        if here.st_ino != there.st_ino:
            return
        if here.st_size:
            if _holds_a_case(self.partial):
                os.rename(self.partial, _free_name(self.partial))
                return
            os.ftruncate(descriptor, 0)
        self._descriptor = descriptor

    def add(self, case: Case) -> None:
        """Write one case. After an OSError the partial file still holds whole lines only."""
        if os.getpid() != self._process:
            return  # a test forked, and its child goes on with the session; the record is its parent's
        if self._descriptor is None:
            self.open()
        self._write(case.as_json())

    def _write(self, value: Mapping[str, Any]) -> None:
        assert self._descriptor is not None
        line = json.dumps(value, allow_nan=False, separators=(",", ":")).encode() + b"\n"
        whole, size = os.fstat(self._descriptor).st_size, len(line)
        try:
            while line:
                line = line[os.write(self._descriptor, line) :]
        except BaseException:
            if os.fstat(self._descriptor).st_size != whole + size:  # Ctrl-C may come behind the last byte
                os.ftruncate(self._descriptor, whole)
            raise

    def close(
        self,
        ended: Ended = Ended.FINISHED,
        *,
        exit: int | None = None,
        tests: int | None = None,
        part: Part | None = None,
        merged: Mapping[str, int] | None = None,
    ) -> None:
        """Write the last line; move the file to its place if the run finished, else leave it beside the record.

        Without a case nothing is left, and an older record stays as it is; but a finished part of a suite may be empty.
        part, merged: see `End`.
        """
        if self._descriptor is None or os.getpid() != self._process:
            return
        if not self.count and (part is None or ended is not Ended.FINISHED):
            self.abandon()
            return
        end = End(schema=SCHEMA, end=ended, cases=self.count, exit=exit, tests=tests, part=part, merged=merged or {})
        self._write(as_json(end))
        os.fsync(self._descriptor)
        if ended in (Ended.FINISHED, Ended.JOINED):
            os.replace(self.partial, self._target)
        self._free()

    def abandon(self) -> Path | None:
        """Stop writing and leave an older record as it is; return the partial file if it holds a case."""
        if os.getpid() != self._process:
            return None
        if not self.count and self._descriptor is not None:
            self.partial.unlink(missing_ok=True)
        self._free()
        return self.partial if self.count else None

    def discard(self) -> None:
        """Stop writing, and remove the partial file."""
        if os.getpid() == self._process and self._descriptor is not None:
            self.partial.unlink(missing_ok=True)
            self._free()
        self._count = 0

    @property
    def count(self) -> int:
        """Cases in the file. The file itself tells, since Ctrl-C may come right behind the writing of a case."""
        if self._descriptor is not None:
            lines = place = 0
            while block := os.pread(self._descriptor, 1 << 20, place):
                lines, place = lines + block.count(b"\n"), place + len(block)
            self._count = max(0, lines - 1)
        return self._count

    def _free(self) -> None:
        if self._descriptor is not None:
            self._count = self.count
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Journal:
        self.open()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.close(Ended.INTERRUPTED if kind is KeyboardInterrupt else Ended.CRASHED)


def _process_in(partial: Path) -> str:
    """ "process 4711", from the first line of a partial file."""
    with suppress(OSError, ValueError, KeyError, TypeError), partial.open("rb") as file:
        return f"process {int(json.loads(file.readline(10_000))['process'])}"
    return "another process"


def _holds_a_case(partial: Path) -> bool:
    with partial.open("rb") as file:
        return any(b'"case":' in file.readline(1_000_000) for _ in range(2))


def _free_name(partial: Path) -> Path:
    """gates.2.partial.jsonl, or the next number that is free."""
    base, number = partial.name.removesuffix(PARTIAL), 2
    while (found := partial.with_name(f"{base}.{number}{PARTIAL}")).exists():
        number += 1
    return found
