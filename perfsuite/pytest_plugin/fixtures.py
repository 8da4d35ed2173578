"""Makes what the fixtures of `perfsuite.plugin` give to a test: `perf`, and the device that it runs on."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import pytest

from perfsuite.pytest_plugin.admit import admit, admit_to_perf
from perfsuite.pytest_plugin.facts import Gpu, MemoryUse, facts_of, measure_memory
from perfsuite.pytest_plugin.measure import Gate
from perfsuite.pytest_plugin.perf import Perf
from perfsuite.pytest_plugin.run import RUN, Run

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    import torch


def _admitted(request: pytest.FixtureRequest) -> Run:
    """The run, if it lets the test use the GPU; else the test is skipped or fails."""
    admit(request.node)
    return request.config.stash[RUN]


def make_perf(request: pytest.FixtureRequest) -> Perf:
    """The fixture `perf`."""
    admit_to_perf(request.node)
    return Perf(Gate(request.node))


def make_gpu(request: pytest.FixtureRequest) -> Gpu:
    """The fixture `gpu`."""
    _admitted(request)
    return facts_of(0)


def make_gpus(request: pytest.FixtureRequest) -> tuple[Gpu, ...]:
    """The fixture `gpus`."""
    count = len(_admitted(request).devices.cards)
    if count < 2:
        pytest.skip(f"needs at least two GPUs; this process may use {count}")
    return tuple(facts_of(index) for index in range(count))


def make_gpu_rng(request: pytest.FixtureRequest) -> torch.Generator:
    """The fixture `gpu_rng`."""
    run = _admitted(request)
    import torch

    seed = (run.options.seed << 32 | zlib.crc32(request.node.nodeid.encode())) % 2**63
    return torch.Generator(device="cuda").manual_seed(seed)


def make_gpu_memory(request: pytest.FixtureRequest) -> Callable[[], AbstractContextManager[MemoryUse]]:
    """The fixture `gpu_memory`."""
    _admitted(request)
    return measure_memory
