"""What random_errors.py draws calls with, and what it finds."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

FEWEST_RESULTS = 1024


@dataclass(frozen=True)
class Found:
    """One call."""

    kind: str
    what: str
    right: bool
    sentence: str
    ratio: float | None
    """The largest of those of `errors`; None where there are too few results, or the plain kernel is exact."""
    errors: tuple[tuple[float, float], ...] = ()
    """Of each result with enough numbers: the norm of its error, and of the plain kernel's."""
    draws: int = 1
    """Of the configuration, of which `ratio` and `errors` are."""


@dataclass(frozen=True)
class Drawer:
    """Draws calls of a family; `most` bounds their sizes."""

    device: str
    most: int
    choice: random.Random
    generator: torch.Generator

    def size(self, least: int = 1, most: int | None = None) -> int:
        """Of all magnitudes; one in two is a multiple of 16."""
        found = math.exp(self.choice.uniform(math.log(least), math.log(most or self.most)))
        return max(least, round(found / 16) * 16 if found > 16 and self.choice.random() < 0.5 else round(found))

    def strided(self, tensor: Tensor) -> Tensor:
        """One in three has rows that begin anywhere."""
        if self.choice.random() < 0.67:
            return tensor
        *lead, columns = tensor.shape
        padding = self.choice.choice((1, 3, 8, 16))
        wide = torch.zeros((*lead, columns + padding), dtype=torch.uint8, device=self.device)
        if tensor.element_size() > 1:
            wide = wide.to(tensor.dtype)
            wide[..., :columns] = tensor
            return wide[..., :columns]
        wide[..., :columns] = tensor.view(torch.uint8)
        return wide.view(tensor.dtype)[..., :columns]


def pairs_of(candidate: float | None, plain: float | None, results: int) -> tuple[tuple[float, float], ...]:
    """The errors of one result of so many numbers, for `Found.errors`."""
    return ((candidate or 0.0, plain or 0.0),) if results >= FEWEST_RESULTS else ()


def ratio_of(errors: Sequence[tuple[float, float]]) -> float | None:
    return max((candidate / plain for candidate, plain in errors if candidate and plain), default=None)
