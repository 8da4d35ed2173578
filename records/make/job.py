"""A job makes one record. Its kind says into which commands it is divided, and how their files are joined."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

CPU = "cpu"
"""The folder of records made without a card, for trying commands."""


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A command, which makes a file of a job."""

    name: str
    """Its name in the job; pieces that are begun again in another call have the same or a new one."""
    words: Sequence[str]
    """What follows python. "{seconds}" is the time that the program may use."""
    seconds: float
    """How long it is expected to take."""
    turn: int = 0
    """Pieces of a turn begin when those of all earlier turns have ended."""
    needed: Callable[[], bool] = lambda: True
    """Called before it begins: False if the earlier turns have left nothing to do."""
    times: bool = False
    """True if nothing else may run on its card, apart from pieces of the same job."""
    environment: Mapping[str, str] = field(default_factory=dict)
    codes: frozenset[int] = frozenset({0, 1})
    """Exit codes of the program that did all of its work: 1 if it found something."""
    whole: Callable[[], bool] = lambda: True
    """Called when it has ended by itself: False if the file lacks something."""


@dataclass(frozen=True)
class At:
    """Where a job is done."""

    job: Job
    place: Path
    """The job's folder, which exists."""
    card: str
    """The folder of the card's records, such as h200; CPU if there is none."""
    cards: int

    @property
    def record(self) -> Path:
        """The record before it is known to be whole."""
        return self.place / "record" / Path(self.job.record).name

    def options(self, of_card: Sequence[str] = ()) -> tuple[str, ...]:
        """Words for a card, or those of a try without one."""
        return tuple(self.job.small or ()) if self.card == CPU else tuple(of_card)


class Found(NamedTuple):
    """What a record says."""

    whole: bool
    text: str


class Kind(Protocol):
    """How a job's record is made."""

    @property
    def resumes(self) -> bool:
        """False if a piece that was cut begins from the start, so that cutting it keeps nothing."""

    def pieces(self, at: At, ended: frozenset[str]) -> list[Piece]:
        """What is left to do. ended: names of pieces that are whole."""

    def join(self, at: At) -> Sequence[str] | None:
        """Make the record of the files that there are. The words of a command that does it, or None if it is done."""

    def found(self, at: At) -> Found:
        """Read the record, which exists."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A record and how it is made; see jobs.py."""

    name: str
    record: str
    """File, or folder, below records/CARD/."""
    kind: Kind
    seconds: float
    """Expected on one card."""
    times: bool
    """True if it times, so that it wants a card for itself."""
    cards: int = 1
    """How many cards each of its commands uses."""
    beside: int = 1
    """Pieces of this job that run at once on a card."""
    processors: int = 1
    """Processors that each piece keeps busy."""
    threads: int | None = None
    """OMP_NUM_THREADS; None leaves it as it is."""
    own_folder: bool = False
    """True if each piece has a folder for temporary files, and in it locks of its own."""
    closing: float = 10.0
    """Seconds that a program may take beyond the time it was given."""
    least: float = 25.0
    """A piece that can be cut begins only if so much time is left."""
    needs: Sequence[str] = ()
    """Of needs.py."""
    small: Sequence[str] | None = None
    """Words for a try without a card; None if the job cannot do without one."""
    sections: bool = False
    """True if several jobs share the record, each with objects of it."""
