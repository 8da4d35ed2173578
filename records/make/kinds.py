"""The kinds of jobs: one command, fixed parts, tests of pytest, calibrations, the survey, objects of one record."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from . import findings, outcomes
from .job import At, Found, Piece

STARTS = 15.0
"""Seconds until a command that imports torch begins its work."""
PYTEST = frozenset({0, 1, 5, 20, 21})
"""Exit codes of a run of tests that ended by itself: 5 and 21 if all tests had been run before."""
FINISHED = frozenset({0})


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _uncut(file: Path) -> bool:
    return file.exists() and not findings.cut(_json(file))


def _has(file: Path, names: Sequence[str]) -> bool:
    return not findings.lacking(file, names)


@dataclass(frozen=True, kw_only=True)
class Once:
    """One command. `{record}` is the file that it writes. Cut, it begins from the start, or it continues that file."""

    words: Sequence[str]
    read: Callable[[Path], Found]
    of_card: Sequence[str] = ()
    resumes: bool = False

    def pieces(self, at: At, ended: frozenset[str]) -> list[Piece]:
        if "whole" in ended:
            return []
        words = [one.replace("{record}", str(at.record)) for one in (*self.words, *at.options(self.of_card))]
        return [
            Piece(name="whole", words=words, seconds=at.job.seconds, times=at.job.times, whole=partial(self._whole, at))
        ]

    def _whole(self, at: At) -> bool:
        return at.record.exists() and self.read(at.record).whole

    def join(self, at: At) -> None:
        """Nothing is to be joined."""

    def found(self, at: At) -> Found:
        return self.read(at.record)


@dataclass(frozen=True, kw_only=True)
class Parts:
    """A program with --part I N, --seconds, --out and --join. A part that was cut begins from the start."""

    words: Sequence[str]
    count: int
    read: Callable[[Path], Found]
    of_card: Sequence[str] = ("--device", "cuda")
    resumes: bool = True

    def pieces(self, at: At, ended: frozenset[str]) -> list[Piece]:
        left = [number for number in range(self.count) if f"part-{number}" not in ended]
        return [self._piece(at, number) for number in left]

    def _piece(self, at: At, number: int) -> Piece:
        file = at.place / f"part-{number}.json"
        words = [*self.words, *at.options(self.of_card), "--part", str(number), str(self.count)]
        words += ["--seconds", "{seconds}", "--out", str(file)]
        seconds = STARTS + at.job.seconds * at.job.beside / self.count
        return Piece(
            name=f"part-{number}", words=words, seconds=seconds, times=at.job.times, whole=partial(_uncut, file)
        )

    def join(self, at: At) -> list[str] | None:
        files = sorted(map(str, at.place.glob("part-*.json")))
        if not files:
            return None
        return [*self.words, *at.options(self.of_card), "--seconds", "0", "--join", *files, "--out", str(at.record)]

    def found(self, at: At) -> Found:
        return self.read(at.record)


@dataclass(frozen=True, kw_only=True)
class Gates:
    """Tests of pytest that are recorded. A call runs those that have not ended; their records are joined."""

    tests: Sequence[str]
    options: Sequence[str] = ()
    lanes: int = 1
    """At most so many runs share the tests, one on each card."""
    of_card: Sequence[str] = ("--gpu",)
    resumes: bool = True

    def pieces(self, at: At, ended: frozenset[str]) -> list[Piece]:
        every, known = outcomes.read(at.place)
        if every and not set(every) - known.keys():
            return []
        begun, lanes = _next(at.place), min(self.lanes, at.cards)
        left = 1.0 - len(known) / len(every) if every else 1.0
        found = []
        for lane in range(lanes):
            name = f"run-{begun + lane}"
            words = [*pytest_words(self.tests, self.options, at.options(self.of_card))]
            words.append(f"--perf-record={at.place / name}.jsonl")
            environment = {outcomes.FOLDER: str(at.place), outcomes.PART: name, outcomes.SHARE: f"{lane}/{lanes}"}
            seconds = STARTS + left * at.job.seconds / lanes
            whole = partial(all_ended, at.place, f"{lane}/{lanes}")
            found.append(
                Piece(
                    name=name, words=words, seconds=seconds, times=True, environment=environment, codes=PYTEST,
                    whole=whole,
                )
            )  # fmt: skip
        return found

    def join(self, at: At) -> list[str] | None:
        parts = [one for one in sorted(at.place.glob("run-*.jsonl")) if b'"case":' in one.read_bytes()]
        at.record.unlink(missing_ok=True)
        if len(parts) == 1 and not parts[0].name.endswith(".partial.jsonl"):
            shutil.copyfile(parts[0], at.record)
            return None
        return ["-m", "perfsuite", "partial", "--join", str(at.record), *map(str, parts)] if parts else None

    def found(self, at: At) -> Found:
        every, known = outcomes.read(at.place)
        return findings.gates(at.record, every, known)


def _always() -> bool:
    return True


def _failed_or_left(place: Path) -> bool:
    every, known = outcomes.read(place)
    return not all_ended(place, "0/1") or any(known[one] == "failed" for one in every)


def _next(place: Path) -> int:
    """The number of the next run: one that no file of an earlier run has."""
    numbers = [int(found[1]) for one in place.iterdir() if (found := re.match(r"run-(\d+)\.", one.name))]
    return max(numbers, default=-1) + 1


def all_ended(place: Path, share: str) -> bool:
    """True if every test of a share has ended."""
    every, known = outcomes.read(place)
    return bool(every) and not outcomes.chosen(every, known, share)


def pytest_words(tests: Sequence[str], options: Sequence[str], of_card: Sequence[str]) -> list[str]:
    """A run of these tests whose outcomes are written."""
    fixed = ["-m", "pytest", "-q", "-rfE", "--tb=line", "-p", "no:cacheprovider", "-p", "records.make.outcomes"]
    return [*fixed, *of_card, *options, *tests]


@dataclass(frozen=True, kw_only=True)
class Exploits:
    """Attacks and their twins, which are timed. What fails is tried once more when all runs have ended."""

    tests: Sequence[str]
    lanes: int
    """At most so many runs share the tests, one on each card: the times of runs on one card are not their own."""
    of_card: Sequence[str] = ("--gpu", "-m", "gpu")
    environment: Mapping[str, str] = field(default_factory=dict)
    resumes: bool = True

    def pieces(self, at: At, ended: frozenset[str]) -> list[Piece]:
        every, known = outcomes.read(at.place)
        left = set(every) - known.keys()
        if every and (not _failed_or_left(at.place) or (not left and "alone" in ended)):
            return []
        begun = _next(at.place)
        share = len(left) / len(every) if every else 1.0
        found, lanes = [], min(self.lanes, at.cards)
        for lane in range(lanes if left or not every else 0):
            seconds = STARTS + share * at.job.seconds / lanes
            found.append(self._piece(at, f"run-{begun + lane}", f"{lane}/{lanes}", seconds))
        return [*found, self._piece(at, "alone", "0/1", STARTS + 0.1 * at.job.seconds, alone=True)]

    def _piece(self, at: At, name: str, share: str, seconds: float, *, alone: bool = False) -> Piece:
        environment = {outcomes.FOLDER: str(at.place), outcomes.PART: name, outcomes.SHARE: share, **self.environment}
        environment |= {"PERFSUITE_EXPLOITS": str(at.record)} | ({outcomes.AGAIN: "1"} if alone else {})
        words = pytest_words(self.tests, (), at.options(self.of_card))
        return Piece(
            name=name, words=words, seconds=seconds, turn=int(alone), times=True, environment=environment, codes=PYTEST,
            needed=partial(_failed_or_left, at.place) if alone else _always, whole=partial(all_ended, at.place, share),
        )  # fmt: skip

    def join(self, at: At) -> None:
        """All runs add to one file."""

    def found(self, at: At) -> Found:
        every, known = outcomes.read(at.place)
        return findings.exploits(at.record, every, known)


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """`perfsuite calibrate` in parts, each of which measures what the earlier ones lack."""

    words: Sequence[str]
    resumes: bool = True

    def pieces(self, at: At, ended: frozenset[str]) -> list[Piece]:
        if at.record.exists() and _json(at.record)["complete"]:
            return []
        before, begun = self._parts(at), len(list(at.place.glob("part-*.jsonl")))
        words = ["-m", "perfsuite", "calibrate", *self.words, *at.options(), "--seconds", "{seconds}"]
        words += ["--part", str(at.place / f"part-{begun}.jsonl")]
        words += ["--after", *map(str, before)] if before else []
        have = _json(at.record) if at.record.exists() else {}
        share = 1.0 - findings.gates_of(have) / max(1, sum(self._asked()))
        seconds = STARTS + max(0.05, share) * at.job.seconds
        # Its file is a part whatever it lacks; only the joined record says whether that is all.
        return [Piece(name=f"part-{begun}", words=words, seconds=seconds, times=True)]

    def _asked(self) -> list[int]:
        numbers = dict(zip(self.words, self.words[1:], strict=False))
        return [int(numbers.get(option, 0)) for option in ("--aa", "--planted", "--sharp")]

    def _parts(self, at: At) -> list[Path]:
        return [one for one in sorted(at.place.glob("part-*.jsonl")) if b'"kind": "gate"' in one.read_bytes()]

    def join(self, at: At) -> list[str] | None:
        parts = self._parts(at)
        words = ["-m", "perfsuite", "calibrate", "--output", str(at.record), "--join"]
        return [*words, *map(str, parts)] if parts else None

    def found(self, at: At) -> Found:
        return findings.calibration(at.record)


@dataclass(frozen=True, kw_only=True)
class Survey:
    """The official survey in two parts, which continue where they were cut."""

    parts: int = 2
    resumes: bool = True

    def _words(self, at: At) -> list[str]:
        cards = at.place / "cards"
        cards.mkdir(exist_ok=True)
        if not (own := cards / at.card).is_symlink():  # it writes into the folder of a card
            own.symlink_to(Path("..", at.record.parent.name))
        return ["-m", "cuda_llm_ops.survey", "--official", "--records", str(cards)]

    def pieces(self, at: At, ended: frozenset[str]) -> list[Piece]:
        found = []
        for number in range(1, self.parts + 1):
            if (name := f"part-{number}") not in ended:
                words = [*self._words(at), "--part", f"{number}/{self.parts}", "--seconds", "{seconds}"]
                seconds = STARTS + at.job.seconds / self.parts
                found.append(Piece(name=name, words=words, seconds=seconds, times=True, codes=FINISHED))
        return found

    def join(self, at: At) -> list[str] | None:
        at.record.unlink(missing_ok=True)
        return [*self._words(at), "--join"] if any(at.record.parent.glob("survey.*-of-*.jsonl")) else None

    def found(self, at: At) -> Found:
        return findings.survey(at.record)


@dataclass(frozen=True, kw_only=True)
class Sections:
    """Commands that each write objects of one record."""

    commands: Mapping[str, tuple[float, Sequence[str]]]
    """Names of the objects, with commas between -> (expected seconds, words that follow python)."""
    resumes: bool = False

    def pieces(self, at: At, ended: frozenset[str]) -> list[Piece]:
        found = []
        for names, (seconds, words) in self.commands.items():
            if names not in ended:
                file = at.place / f"{names}.json"
                whole = partial(_has, file, names.split(","))
                line = [*words, "--output", str(file), *at.options()]
                found.append(Piece(name=names, words=line, seconds=seconds, times=True, whole=whole))
        return found

    def join(self, at: At) -> None:
        """Write the objects of all commands as one record."""
        every: dict[str, Any] = {}
        for names in self.commands:
            if (file := at.place / f"{names}.json").exists():
                every |= _json(file)
        if every:
            at.record.write_text(json.dumps(every, indent=1) + "\n", encoding="utf-8")

    def found(self, at: At) -> Found:
        names = [name for joined in self.commands for name in joined.split(",")]
        return findings.sections(at.record, names)


@dataclass(frozen=True, kw_only=True)
class Outputs:
    """A folder with one file for each command whose output it keeps."""

    names: Sequence[str]
    words: Sequence[str]
    resumes: bool = True

    def pieces(self, at: At, ended: frozenset[str]) -> list[Piece]:
        left = [name for name in self.names if name not in ended]
        return [
            Piece(
                name=name, words=[*self.words, str(at.record), name], seconds=at.job.seconds / len(self.names),
                times=True, codes=FINISHED, whole=(at.record / f"{name}.txt").exists,
            )
            for name in left
        ]  # fmt: skip

    def join(self, at: At) -> None:
        """Each command has written its own file."""

    def found(self, at: At) -> Found:
        there = [name for name in self.names if (at.record / f"{name}.txt").exists()]
        return Found(len(there) == len(self.names), f"{len(there)} of {len(self.names)} outputs")
