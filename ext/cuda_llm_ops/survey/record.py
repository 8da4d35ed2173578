"""The record of a survey: lines of JSON, the first of the run and one a case.

A record of a seed is made once. A run that was cut is continued; a record that is whole is refused, so that nobody
tunes kernels to its cases. The first line names the seeds of earlier records that this one replaced.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Line = dict[str, Any]
VERSION = 1
SAME = ("counts", "device", "torch", "cuda", "official", "sources")
"""Fields of the first line in which a run must agree with the record that it continues."""


class RecordError(Exception):
    """A record that cannot be read, continued or made; the text says why."""


class Record:
    """A file of lines."""

    def __init__(self, path: Path, run: Line, lines: list[Line]) -> None:
        self.path, self.run, self.lines = path, run, lines

    @property
    def done(self) -> set[tuple[str, int]]:
        """Kind and number of every case that it has."""
        return {(line["kind"], line["number"]) for line in self.lines}

    @property
    def whole(self) -> bool:
        """True if it has every case of the survey."""
        return len(self.done) >= sum(self.run["counts"].values())

    def add(self, line: Line) -> None:
        """Write one case."""
        self.lines.append(line)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, separators=(",", ":")) + "\n")


def read(path: Path) -> Record:
    """The record of a file; a last line that was cut while it was written is left out.

    Raises:
        RecordError: the file cannot be read, or is no such record.
    """
    try:
        first, *rest = path.read_text(encoding="utf-8").split("\n")
        run = json.loads(first)
        if run["survey"] != VERSION or not isinstance(run["seed"], str):
            raise ValueError(f"survey is {run['survey']!r} and must be {VERSION}")
        lines = [json.loads(line) for line in rest[:-1]]
        for line in lines:
            _ = line["kind"], line["number"]
    except OSError as error:
        raise RecordError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise RecordError(f"{path} is no record of a survey ({type(error).__name__}: {error})") from None
    return Record(path, run, lines)


def begun(path: Path, run: Line) -> Record:
    """The record to which cases are added: a new one, or the one that is there and not whole.

    run: the first line, without `survey` and `earlier`.

    Raises:
        RecordError: the seed has a whole record, or had one earlier, or the run that is there was another.
    """
    earlier: Sequence[str] = ()
    if path.exists():
        there = read(path)
        old, earlier = there.run["seed"], there.run["earlier"]
        if run["seed"] in earlier:
            raise RecordError(f"{path} replaced the record of seed {run['seed']}; {_ONCE}")
        if old == run["seed"]:
            if there.whole:
                raise RecordError(f"{path} has the whole survey of seed {old}; {_ONCE}")
            if others := [name for name in SAME if there.run[name] != run[name]]:
                now = ", ".join(f"{name} is {run[name]!r} and was {there.run[name]!r}" for name in others)
                raise RecordError(
                    f"{path} was begun by another run: {now}; move it away or continue it as it was begun"
                )
            _write(there)
            return there
        earlier = [*earlier, old]
    record = Record(path, {"survey": VERSION, **run, "earlier": list(earlier)}, [])
    path.parent.mkdir(parents=True, exist_ok=True)
    _write(record)
    return record


_ONCE = "a seed is surveyed once, since kernels could be tuned to its cases afterwards"


def _write(record: Record) -> None:
    texts = (json.dumps(line, separators=(",", ":")) + "\n" for line in (record.run, *record.lines))
    record.path.write_text("".join(texts), encoding="utf-8")
