"""The marker `gpu`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from perfsuite.pytest_plugin.marker import Marker, MarkerError, is_positive

if TYPE_CHECKING:
    from perfsuite.device.cards import Device


@dataclass(frozen=True, kw_only=True)
class Gpu(Marker):
    """The test needs a GPU, of at least that compute capability and with at least that many bytes of memory."""

    gates = False
    min_capability: tuple[int, int] | None = None
    min_memory: float | None = None

    def __post_init__(self) -> None:
        if self.min_capability is not None and not _is_capability(self.min_capability):
            raise MarkerError(f"min_capability is {self.min_capability!r}; it must be a pair such as (8, 0)")
        if self.min_memory is not None and not is_positive(self.min_memory):
            raise MarkerError(f"min_memory is {self.min_memory!r}; it must be a number of bytes over 0")

    def lack(self, card: Device) -> str | None:
        """A sentence why the card is too old or too small, or None."""
        if self.min_capability is not None and card.capability < tuple(self.min_capability):
            asked, has = (".".join(map(str, pair)) for pair in (self.min_capability, card.capability))
            return f"needs compute capability {asked}; {card.name} has {has}"
        if self.min_memory is not None and card.memory_bytes < self.min_memory:
            asked, has = (f"{count / 2**30:.3g}" for count in (self.min_memory, card.memory_bytes))
            return f"needs {asked} GiB of memory; {card.name} has {has}"
        return None


def _is_capability(value: object) -> bool:
    return (
        isinstance(value, (tuple, list))
        and len(value) == 2
        and all(isinstance(part, int) and not isinstance(part, bool) and part >= 0 for part in value)
    )
