"""Stream-K in the Hopper attention kernel: thread blocks that share tiles, compiled for the host."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from device_sources import copy_without_ptx

HOST = Path(__file__).with_name("sm90_stream_k_host.cpp")
NO_PLAN = -1


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory, compile_for_host: Callable[..., ctypes.CDLL]) -> ctypes.CDLL:
    build = copy_without_ptx(tmp_path_factory.mktemp("sm90_stream_k") / "csrc")
    return compile_for_host(HOST, build, "-w", f"-I{build}/cuda")


def share(host: ctypes.CDLL, *problem: int) -> int | None:
    """Rows that blocks share, of (multiprocessors, batch, heads, queries, keys, head_dim, seed); None: no plan."""
    shared = ctypes.c_int()
    faults = host.share(*problem, ctypes.byref(shared))
    if faults == NO_PLAN:
        return None
    assert faults == 0, problem
    return shared.value


def test_the_parts_of_tiles_are_added_up(host: ctypes.CDLL) -> None:
    # 12 tiles of 192 rows and 16 of 128 are left over.
    assert share(host, 132, 2, 8, 8192, 8192, 64, 0) == 12 * 192 + 16 * 128


def test_any_problem(host: ctypes.CDLL) -> None:
    random, shared = Random(0), []
    for seed in range(500):
        lengths = random.choice([384, 500, 1100, 1101, 2000]), random.choice([170, 330, 1001, 2500])
        problem = random.choice([1, 2]), random.choice([7, 12, 20]), *lengths, random.choice([64, 64, 40])
        shared.append(share(host, random.choice([5, 7, 11, 23]), *problem, seed))
    assert sum(bool(rows) for rows in shared) > 20
