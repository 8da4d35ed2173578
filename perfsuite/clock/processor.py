"""The processor of the portable backend: the threads of both sides, and the programs that keep it busy."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

THREADS_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""If the user sets one of them, both sides have that number of threads."""
BUSY_LOAD = 1.25
"""Programs a core, ours among them, from which a machine counts as busy."""


@contextmanager
def pinned_threads(device: str) -> Iterator[None]:
    """Give both sides one thread on a CPU, unless the user has set the number.

    Threads that wait for each other multiply the noise of a busy machine: the slowest of them counts.
    """
    if device != "cpu" or any(name in os.environ for name in THREADS_VARIABLES):
        yield
        return
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def load() -> tuple[float, int]:
    """Programs that wanted to run during the last minute, and the cores that they may use."""
    return os.getloadavg()[0], len(os.sched_getaffinity(0))


def busy() -> str | None:
    """A sentence if other programs keep the processor busy, with the remedy."""
    programs, cores = load()
    if programs <= BUSY_LOAD * cores:
        return None
    return f"the machine is busy (load {programs:.1f} on {cores} cores): quieten it, or raise --perf-seconds"
