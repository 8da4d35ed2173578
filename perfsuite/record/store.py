"""Reads and writes records: files of JSON lines, which are whole or refused."""

from __future__ import annotations

import gc
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from perfsuite.record.case import Case
from perfsuite.record.journal import Journal
from perfsuite.record.quick_cases import quick_reader
from perfsuite.record.run_lines import Begin, End, Ended, read_line
from perfsuite.record.schema import RecordError, fields_of

QuickReader = Callable[[bytes], Case | None]
_UNCLOSED = "its run did not close it: it was killed, or it still runs"
_SAMPLES = b',"samples":{'
_LAST = re.compile(rb'[^{}]*\},"discarded_samples":\{[^{}]*\}\}\s*')


@dataclass(frozen=True)
class RecordedRun:
    """The content of a record."""

    cases: list[Case]
    begin: Begin | None
    """None in a record of an earlier version."""
    end: End | None
    """None if the run did not close the record."""

    @property
    def unfinished(self) -> str | None:
        """A sentence if the record may lack cases, else None."""
        if self.end is None:
            return "its run did not close it, or was of an earlier version" if self.begin is None else _UNCLOSED
        count = f"after {self.end.cases} cases"
        return None if self.end.end is Ended.FINISHED else f"its run was {self.end.end} {count}"


@contextmanager
def uncollected() -> Iterator[None]:
    """Stop the collector of cycles meanwhile: it would look at all cases again and again, and they form none."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def read_run(path: Path, *, samples: bool = True, empty: bool = False) -> RecordedRun:
    """A record with its first and last line. Raises RecordError for a file that is not a record, or not a whole one.

    Without samples it takes a third of the time and of the memory. empty: take an empty part of a suite as well.
    """
    reader = RecordReader(path, empty=empty)
    with uncollected():
        cases = [case for _, _, case in reader.cases(samples=samples)]
    return RecordedRun(cases, reader.begin, reader.end)


def read_record(path: Path) -> list[Case]:
    """Every case of a record. Raises RecordError for a file that is missing, empty, cut off or not a record."""
    return read_run(path).cases


def cases_of(path: Path) -> Iterator[Case]:
    """Every case of a record, one at a time. Raises RecordError at the first line that is wrong."""
    return (case for _, _, case in RecordReader(path).cases(samples=True))


def numbered_cases(path: Path) -> Iterator[tuple[int, int, Case]]:
    """(start, length, case) of each case's line, in bytes, one at a time. Raises RecordError.

    The cases have neither samples nor `line`.
    """
    return RecordReader(path).cases(samples=False, quick=quick_reader())


def case_at(path: Path, start: int, length: int) -> Case:
    """The case of a line, without samples."""
    with path.open("rb") as file:
        file.seek(start)
        return Case.of_json(_value(_without_samples(file.read(length)), str(path)), str(path))


class RecordReader:
    """Reads the lines of a record one after the other, and checks their order and number."""

    def __init__(self, path: Path, *, empty: bool = False) -> None:
        self.path, self._empty = path, empty
        self.begin: Begin | None = None
        self.end: End | None = None

    def cases(self, *, samples: bool, quick: QuickReader | None = None) -> Iterator[tuple[int, int, Case]]:
        """(start, length, case) of each case's line, in bytes. RecordError at the first line that is wrong.

        quick: reads lines without samples first; those that it leaves are read as ever.
        """
        count, name = 0, str(self.path)
        for number, start, line in self._lines():
            where = f"{name}:{number}"
            if self.end is not None:
                raise RecordError(f"{where}: a line after the one that ends the record")
            wanted = line if samples else _without_samples(line)
            if quick is not None and (case := quick(wanted)) is not None:
                count += 1
                yield start, len(line), case
                continue
            value = _value(wanted, where)
            if isinstance(value, dict) and "begin" in value and self.begin is None and not count:
                self.begin = read_line(Begin, value, where)
            elif isinstance(value, dict) and "end" in value and "case" not in value:
                self.end = read_line(End, value, where)
            else:
                count += 1
                yield start, len(line), Case.of_json(value, where)
        part = None if self.end is None else self.end.part
        if not count and not (self._empty and part):
            named = f": it is part {part.number} of {part.count} of a suite, and empty" if part else ""
            raise RecordError(f"{self.path}: holds no case{named}")
        if self.end is not None and self.end.cases != count:
            counted = f"holds {count} cases, and its last line counts {self.end.cases}"
            raise RecordError(f"{self.path}: {counted}: lines are lost")

    def _lines(self) -> Iterator[tuple[int, int, bytes]]:
        """(number, start, line) of each line that is not empty."""
        start = 0
        try:
            with self.path.open("rb") as file:
                for number, line in enumerate(file, start=1):
                    if not line.isspace():
                        yield number, start, line
                    start += len(line)
        except OSError as error:
            raise RecordError(f"{self.path}: cannot be read as a record: {error}") from None


def _without_samples(line: bytes) -> bytes:
    """A case's line without its samples, which perfsuite writes last; other lines as they are."""
    head, found, tail = line.rpartition(_SAMPLES)
    return head + b"}" if found and _LAST.fullmatch(tail) else line


def _value(raw: bytes, where: str) -> Any:
    try:
        line = raw.decode()
        # Surrogates need a careful look. One character is found much faster than two.
        if "\\" not in line or not ("\\ud" in line or "\\uD" in line):
            value = _DECODER.decode(line)
            if not isinstance(value, dict) or value.keys() <= fields_of(Case).keys():
                return value  # the schema looks at each number
        value = json.loads(line, parse_int=_whole, parse_float=_finite, parse_constant=_refuse)
        json.dumps(value, ensure_ascii=False).encode()  # half of a surrogate pair cannot be printed
    except UnicodeDecodeError as error:
        raise RecordError(f"{where}: cannot be read as a record: {error}") from None
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{where}: not a line of JSON (cut off or foreign): {error}") from None
    return value


def write_record(path: Path, cases: Iterable[Case], *, ended: Ended = Ended.FINISHED) -> None:
    """Write a record beside `path` and move it there in one step."""
    journal = Journal(path)
    journal.open()
    try:
        for case in cases:
            journal.add(case)
    except BaseException:
        journal.discard()
        raise
    journal.close(ended)


def _whole(text: str) -> int:
    return int(text) if len(text) < 20 else _refuse(text)


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _refuse(text)


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{text[:20]} is no JSON number, or too large")


_DECODER = json.JSONDecoder(parse_constant=_refuse)
