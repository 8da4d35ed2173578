"""The number of processes of a judge that share a card."""

from __future__ import annotations

BESIDE = "PERFSUITE_PROCESSES_ON_CARD"
"""The variable that tells a process how many use its card in turns, itself among them."""
MOST_BESIDE, CORES_EACH = 8, 2
"""A job needs a processor for itself and one for its candidate. More than MOST_BESIDE wait for the card."""


def beside_on_a_card(cores: int) -> int:
    """Processes for a card whose processes have so many processors."""
    return max(1, min(MOST_BESIDE, cores // CORES_EACH))
