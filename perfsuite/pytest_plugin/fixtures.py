"""The fixtures: `perf`, and the device that a test runs on.

Every suite that has the plugin loads this module, so each fixture imports what it needs when a test asks for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    import torch

    from perfsuite.pytest_plugin.facts import Gpu, MemoryUse
    from perfsuite.pytest_plugin.perf import Perf


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
    from perfsuite.pytest_plugin.admit import admit
    from perfsuite.pytest_plugin.facts import facts_of

    admit(request.node)
    return facts_of(0)


@pytest.fixture
def gpus(request: pytest.FixtureRequest) -> tuple[Gpu, ...]:
    """Every device of this host that the run may use; the test is skipped if there are fewer than two."""
    from perfsuite.pytest_plugin.admit import admit
    from perfsuite.pytest_plugin.facts import facts_of
    from perfsuite.pytest_plugin.run import RUN

    admit(request.node)
    count = len(request.config.stash[RUN].devices.cards)
    if count < 2:
        pytest.skip(f"needs at least two GPUs; this process may use {count}")
    return tuple(facts_of(index) for index in range(count))


@pytest.fixture
def gpu_rng(request: pytest.FixtureRequest) -> torch.Generator:
    """A torch.Generator on the device, seeded from --perf-seed and the test's id: the same whatever ran before."""
    import zlib

    from perfsuite.pytest_plugin.admit import admit
    from perfsuite.pytest_plugin.run import RUN

    admit(request.node)
    import torch

    seed = (request.config.stash[RUN].options.seed << 32 | zlib.crc32(request.node.nodeid.encode())) % 2**63
    return torch.Generator(device="cuda").manual_seed(seed)


@pytest.fixture
def gpu_memory(request: pytest.FixtureRequest) -> Callable[[], AbstractContextManager[MemoryUse]]:
    """Measures device memory: `with gpu_memory() as use: ...`, then `use.peak_bytes` and `use.leaked_bytes`."""
    from perfsuite.pytest_plugin.admit import admit
    from perfsuite.pytest_plugin.facts import measure_memory

    admit(request.node)
    return measure_memory
