"""The facts of a card, and the device memory that a block of code uses."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Gpu:
    """Facts of the card in use. Sizes in bytes."""

    name: str
    capability: tuple[int, int]
    memory_bytes: int
    l2_bytes: int
    multiprocessors: int
    device: torch.device
    """The card as torch addresses it."""

    @property
    def copy_bytes_a_second(self) -> float:
        """Measured ceiling of the memory: bytes that a large copy reads and writes. Measured once in a process."""
        from perfsuite.machine.ceilings import copy_bytes_a_second

        return copy_bytes_a_second(self.device.index)

    def product_flops_a_second(self, dtype: str = "float16") -> float:
        """A large product of torch's library, the measured ceiling of a dtype. Measured once in a process for each."""
        from perfsuite.machine.ceilings import product_flops_a_second

        return product_flops_a_second(self.device.index, dtype)


@dataclass
class MemoryUse:
    """Device memory that a block takes from torch's allocator, in bytes; set when the block has ended."""

    peak_bytes: int = 0
    """The peak of allocated bytes, less those allocated before the block."""
    leaked_bytes: int = 0
    """Bytes allocated after the block, less those before it; a result that the test keeps counts."""


def facts_of(index: int) -> Gpu:
    """The facts of torch's device with that index."""
    import torch

    properties = torch.cuda.get_device_properties(index)
    return Gpu(
        name=properties.name,
        capability=(properties.major, properties.minor),
        memory_bytes=properties.total_memory,
        l2_bytes=properties.L2_cache_size,
        multiprocessors=properties.multi_processor_count,
        device=torch.device("cuda", index),
    )


@contextmanager
def measure_memory() -> Iterator[MemoryUse]:
    """Measure what the block allocates on the current device."""
    import torch

    use = MemoryUse()
    gc.collect()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    yield use
    torch.cuda.synchronize()
    use.peak_bytes = torch.cuda.max_memory_allocated() - before
    gc.collect()  # reference cycles are garbage, not leaks
    use.leaked_bytes = torch.cuda.memory_allocated() - before
