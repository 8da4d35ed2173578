"""Decides which command begins on which card.

Commands begin in the order of their jobs. One that times has its card for itself; others may share a card, as long as
its share of the processors lasts. If a command must wait, it reserves the cards that will be free first. One behind it
may begin there only if it is expected to end before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from .job import Job, Piece


@dataclass(eq=False)
class Running:
    """A command on its cards."""

    job: Job
    piece: Piece
    cards: Sequence[Card]
    begun: float
    until: float
    """When it is expected to end."""


@dataclass(eq=False)
class Card:
    """A card, and what runs there."""

    selector: str | None
    """Of CUDA_VISIBLE_DEVICES; None if there is no card."""
    running: list[Running] = field(default_factory=list)

    def free_at(self, now: float) -> float:
        """When all that runs here is expected to have ended."""
        return max([now, *(one.until for one in self.running)])


class Chosen(NamedTuple):
    """A command that may begin."""

    job: Job
    piece: Piece
    cards: Sequence[Card]


def fits(card: Card, job: Job, piece: Piece, processors: int) -> bool:
    """True if the command may run beside what runs on the card. processors: the card's share."""
    own = [one for one in card.running if one.job.name == job.name]
    if len(own) >= job.beside:
        return False
    others = len(own) < len(card.running)
    if others and (piece.times or any(one.piece.times for one in card.running)):
        return False
    busy = sum(one.job.processors for one in card.running)
    return not card.running or busy + job.processors <= processors


def too_late(job: Job, piece: Piece, seconds: float) -> bool:
    """True if so few seconds would give nothing that a later call can use."""
    return seconds < min(job.least, piece.seconds) if job.kind.resumes else seconds < piece.seconds


def choose(
    waiting: Iterable[tuple[Job, Piece]], cards: Sequence[Card], now: float, end: float, processors: int
) -> Chosen | None:
    """The first command that may begin now; None if all have to wait. end: when commands are cut."""
    reserved: dict[Card, float] = {}
    for job, piece in waiting:
        if too_late(job, piece, end - now) or job.cards > len(cards):
            continue
        free = [card for card in cards if fits(card, job, piece, processors)]
        free = [card for card in free if now + piece.seconds <= reserved.get(card, now + piece.seconds)]
        if len(free) >= job.cards:
            # What may share a card leaves the others to what may not.
            free.sort(key=lambda card: -len(card.running))
            return Chosen(job, piece, free[: job.cards])
        first = sorted(cards, key=lambda card: card.free_at(now))[: job.cards]
        begins = max(card.free_at(now) for card in first)
        for card in first:
            reserved.setdefault(card, begins)
    return None
