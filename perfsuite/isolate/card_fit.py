"""Which isolated cases are timed by events on the card."""

from __future__ import annotations

from perfsuite.clock.base import Sides
from perfsuite.isolate.remote import Remote
from perfsuite.problems.differentiated import needs_preparing
from perfsuite.settings import Settings


def why_not(sides: Sides, settings: Settings, remote: Remote, rival: Remote | None) -> str | None:
    """The reason that a case is not timed by events on the card; None if it may be."""
    if settings.clock not in (None, "graph", "auto"):
        return f"the {settings.clock} clock is asked for"
    if sides.written is not None:
        return "its calls write arguments"
    if sides.reset is not None:
        return "reset= prepares state in Python"
    if rival is None:
        return "the rival cannot be sent to a process of its own"
    if needs_preparing(sides.rival):
        return "backward alone is timed"
    if not (remote.opens_card_memory and rival.opens_card_memory):
        return "processes do not open the card's memory by its descriptor"
    return None
