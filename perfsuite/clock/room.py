"""The memory that a case takes beside what its calls need, planned in one place.

S stands for the bytes of one set of arguments. At most two copies of S exist beyond the sets of the rotation:

| phase | sets | copies |
|---|---|---|
| examination (`oracle/examine.py`) | the inputs of a call | one; then further inputs, in place of the first |
| hard inputs (`oracle/hard.py`) | one | two; float64 in parts of `problems/redraw.py` |
| rounds (`clock/paired.py`) | those of the rotation; one of a large S that does not fit twice | see below |
| judging of timed calls | by reference: the set of the call alone, and no graphs | as in the rounds |

In the rounds `clock/deck.py` holds values to deal: as many as the rotation while both take under 2 GiB each, 256 MiB of
a larger operand, and one copy of large arguments that a call writes. To mix them takes a few hundred KB an operand, and
32 MiB on a card (`clock/windows.py`). `clock/kept.py` copies the inputs of some calls: KEPT_BYTES of them, at least one
call. A larger set (BY_REFERENCE) is not copied but kept as it lies. A fingerprint takes 128 MiB, poison 1 GiB. Results
of half a round take at most a share of what is free (`clock/cuda.py`). A right answer that does not fit beside all this
is computed in blocks (`problems/float64/blocks.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

KEPT_BYTES = 1 << 30
"""Bytes of the kept calls, as far as they are more than two; of a larger set one call is kept."""
MOST_KEPT_CALLS = 20
BY_REFERENCE = 0.05
"""Share of the card's memory above which a set of inputs is not copied. Its call is kept in the last half of a batch,
behind which nothing is dealt until it is judged."""
SETS_SHARE = 0.5
"""Share of the card's memory that the sets of a rotation may take; more than one set of a large S then does not fit."""


@dataclass(frozen=True)
class Room:
    """The copies of the arguments that the rounds of a case make."""

    sets: int
    by_reference: bool
    """True if the call that is judged keeps its own inputs instead of a copy."""
    kept_calls: int
    """Most calls whose inputs and results are copied."""
    note: str | None = None
    """A remark for the record, where there are fewer sets than the rotation asks for."""

    @property
    def sides_share_sets(self) -> bool:
        """True if both samples of half a round read the same, only set."""
        return self.note is not None


def plan(set_bytes: int, wanted: int, card_bytes: int, *, written: bool, lean: bool = False) -> Room:
    """The room for a rotation that asks for `wanted` sets of `set_bytes`, on a card of `card_bytes`.

    written: calls write some of the arguments, so that these do not stay as they were. lean: an attempt with all sets
    ran out of memory.
    """
    kept = kept_calls(set_bytes)
    by_reference = not written and set_bytes > BY_REFERENCE * card_bytes
    # Two sets mean that each is larger than three L2 caches: a single one leaves the cache before it is read again.
    if wanted == 2 and (lean or wanted * set_bytes > SETS_SHARE * card_bytes):
        said = "one set of inputs instead of two, which do not fit; the L2 is emptied between the sides"
        return Room(1, by_reference, kept, said)
    return Room(wanted, by_reference, kept)


def kept_calls(set_bytes: int) -> int:
    """The most calls whose inputs and results are copied."""
    fewest = 2 if set_bytes <= KEPT_BYTES else 1
    return max(fewest, min(MOST_KEPT_CALLS, KEPT_BYTES // max(1, 2 * set_bytes)))
