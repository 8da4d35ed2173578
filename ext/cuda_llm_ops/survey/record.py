"""The record of a survey: lines of JSON, the first of the run and one a case.

A record of a seed is made once. A run that was cut is continued; a record that is whole is refused, so that nobody
tunes kernels to its cases. The first line names the seeds of earlier records that this one replaced.

Several cards of one model measure parts of a survey, each into a record of its own (`part`: which of how many).
`joined` puts their cases into the record of the survey.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Line = dict[str, Any]
Part = tuple[int, int]
"""Which part, from 1, of how many."""
VERSION = 1
SAME = ("counts", "device", "torch", "cuda", "official", "sources")
"""Fields of the first line in which a run must agree with the record that it continues."""


class RecordError(Exception):
    """A record that cannot be read, continued or made; the text says why."""


def card_folder(device: str) -> str:
    """The folder of records of a card, such as h200."""
    return device.removeprefix("NVIDIA ").replace(" ", "-").lower()


class Record:
    """A file of lines."""

    def __init__(self, path: Path, run: Line, lines: list[Line]) -> None:
        self.path, self.run, self.lines = path, run, lines

    @property
    def done(self) -> set[tuple[str, int]]:
        """Kind and number of every case that it has."""
        return {(line["kind"], line["number"]) for line in self.lines}

    @property
    def part(self) -> Part:
        """The part of the survey that it is a record of."""
        number, of = self.run.get("part", (1, 1))
        return number, of

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


def place_of(path: Path, part: Part) -> Path:
    """The file of a part of the record `path`: that record itself, if it is the only part."""
    number, of = part
    return path if of == 1 else path.with_name(f"{path.stem}.{number}-of-{of}{path.suffix}")


def joined(path: Path, parts: Sequence[Path]) -> Record:
    """The record `path` with the cases of the records of parts, written; a new one, or the one that is there.

    Raises:
        RecordError: there are no parts, two are of different runs or differ in a case, or as in `begun`.
    """
    if not parts:
        raise RecordError(f"{path} has no parts beside it")
    records = [read(part) for part in parts]
    first = records[0].run
    for part, one in zip(parts, records, strict=True):
        if others := [name for name in ("seed", *SAME) if one.run[name] != first[name]]:
            differs = ", ".join(f"{name} is {one.run[name]!r} and was {first[name]!r}" for name in others)
            raise RecordError(f"{part} is of another run than {parts[0]}: {differs}")
    whole = begun(path, {name: value for name, value in first.items() if name not in ("survey", "earlier", "part")})
    there = {(line["kind"], line["number"]): line for line in whole.lines}
    for part, one in zip(parts, records, strict=True):
        for line in one.lines:
            kind, number = line["kind"], line["number"]
            if there.setdefault((kind, number), line) != line:  # a part that was joined before has the same lines
                raise RecordError(f"{part} has {kind} {number} with other times than another part or {path}")
    whole.lines = list(there.values())
    _write(whole)
    return whole


def measured(path: Path, seed: str) -> set[tuple[str, int]]:
    """Kind and number of every case of the seed that the record `path` has. RecordError if it has, or had, them all."""
    if not path.exists():
        return set()
    there = read(path)
    if seed in there.run["earlier"]:
        raise RecordError(f"{path} replaced the record of seed {seed}; {_ONCE}")
    if there.run["seed"] != seed:
        return set()
    if there.whole:
        raise RecordError(f"{path} has the whole survey of seed {seed}; {_ONCE}")
    return there.done


def begun(path: Path, run: Line) -> Record:
    """The record to which cases are added: a new one, or the one that is there and not whole.

    run: the first line, without `survey` and `earlier`.

    Raises:
        RecordError: the seed has a whole record, or had one earlier, or the run that is there was another.
    """
    measured(path, run["seed"])
    earlier: Sequence[str] = ()
    if path.exists():
        there = read(path)
        old, earlier = there.run["seed"], there.run["earlier"]
        if old == run["seed"]:
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
