"""A right answer, and what is known of it: its precision, and where its integers stem from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Pointer:
    """The values that indices were chosen by. An index to an equal value is as right as another."""

    source: torch.Tensor
    """In float64."""
    axis: int | None
    """The axis that the indices count along; None for all elements, in order."""
    slack: float
    """Largest difference between these values and those that the function saw: it may take either for larger."""
    distinct: bool
    """True if no index may come twice, as in a sort."""


@dataclass(frozen=True)
class Mark:
    """The origin of a result of integers or truth values."""

    rounded: bool = False
    """True if they follow from rounded numbers, as in a quantiser or a threshold."""
    pointer: Pointer | None = None


@dataclass(frozen=True)
class Answer:
    """A right answer, and how far it can be trusted."""

    values: Any
    """The results in float64: a tensor or a nest of tensors. Integers and truth values have their own dtypes."""
    gaps: tuple[str, ...] = ()
    """The parts that have no float64 form and ran in their own dtypes: operators, code outside of torch."""
    random: bool = False
    """True if random numbers were drawn."""
    marks: tuple[Mark, ...] = ()
    """One for each tensor of `values`; empty where nothing is known."""
