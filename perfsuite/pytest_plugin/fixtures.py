"""The fixtures: `perf`, and the device that a test runs on.

Every suite that has the plugin loads this module, so each fixture imports what it needs when a test asks for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from perfsuite.pytest_plugin.run import RUN, Run

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    import torch

    from perfsuite.pytest_plugin.facts import Gpu, MemoryUse
    from perfsuite.pytest_plugin.perf import Perf


def _admitted(request: pytest.FixtureRequest) -> Run:
    """The run, if it lets the test use the GPU; else the test is skipped or fails."""
    from perfsuite.pytest_plugin.admit import admit

    admit(request.node)
    return request.config.stash[RUN]


@pytest.fixture
def perf(request: pytest.FixtureRequest) -> Perf:
    """Checks a candidate kernel and times it against its rival: perf(problem, candidate)."""
    from perfsuite.pytest_plugin.admit import admit_to_perf
    from perfsuite.pytest_plugin.measure import Gate
    from perfsuite.pytest_plugin.perf import Perf

    admit_to_perf(request.node)
    return Perf(Gate(request.node))


@pytest.fixture
def gpu(request: pytest.FixtureRequest) -> Gpu:
    """The facts of the device: name, capability, sizes in bytes, and its measured ceilings."""
    from perfsuite.pytest_plugin.facts import facts_of

    _admitted(request)
    return facts_of(0)


@pytest.fixture
def gpus(request: pytest.FixtureRequest) -> tuple[Gpu, ...]:
    """The facts of every device that the run may use; with fewer than two the test is skipped."""
    from perfsuite.pytest_plugin.facts import facts_of

    count = len(_admitted(request).devices.cards)
    if count < 2:
        pytest.skip(f"needs at least two GPUs; this process may use {count}")
    return tuple(facts_of(index) for index in range(count))


@pytest.fixture
def gpu_rng(request: pytest.FixtureRequest) -> torch.Generator:
    """A torch.Generator on the device. Its seed follows from --perf-seed and the test's id alone."""
    import zlib

    run = _admitted(request)
    import torch

    seed = (run.options.seed << 32 | zlib.crc32(request.node.nodeid.encode())) % 2**63
    return torch.Generator(device="cuda").manual_seed(seed)


@pytest.fixture
def gpu_memory(request: pytest.FixtureRequest) -> Callable[[], AbstractContextManager[MemoryUse]]:
    """Measures device memory: `with gpu_memory() as use: ...`, then `use.peak_bytes` and `use.leaked_bytes`."""
    from perfsuite.pytest_plugin.facts import measure_memory

    _admitted(request)
    return measure_memory
