"""What a fit gives for one struct of constants."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fitted:
    """A struct's constants before and after a fit."""

    struct: str
    before: dict[str, float]
    after: dict[str, float]
    unseen: tuple[str, ...]  # no measured time depends on them
    times: int
    error: float
    within: float
