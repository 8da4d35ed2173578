"""How thread blocks of the Hopper attention kernel share tiles, compiled for the host."""

from __future__ import annotations

import ctypes
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

HOST = Path(__file__).with_name("sm90_even_host.cpp")
SOURCES = HOST.parents[2] / "ext/csrc"
HEADERS = ("sm90_even.cuh", "sm90_instance.h", "sm90_launch.cu", "sm90_launch.h", "sm90_softmax.cuh", "sm90_tiles.cuh")
NO_PLAN = -1


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory, compile_for_host: Callable[..., ctypes.CDLL]) -> ctypes.CDLL:
    build = tmp_path_factory.mktemp("sm90_even") / "csrc"
    for folder in ("attention", "decode", "ptx"):
        (build / "cuda" / folder).mkdir(parents=True)
    shutil.copy(SOURCES / "kernels.h", build)
    for name in ("launch_config.h", "tensor_map.h", "decode/counters.h"):
        shutil.copy(SOURCES / "cuda" / name, build / "cuda" / name)
    for name in (*HEADERS, "launch.h"):
        shutil.copy(SOURCES / "cuda/attention" / name, build / "cuda/attention")
    for name in ("atomic", "ex2", "fence", "mbarrier", "shared_words", "special_registers", "tma"):
        (build / f"cuda/ptx/{name}.cuh").touch()
    return compile_for_host(HOST, build, "-w", f"-I{build}/cuda")


def share(host: ctypes.CDLL, *problem: int) -> int | None:
    """Rows that blocks share, of (multiprocessors, batch, heads, queries, keys, head_dim, seed); None: no plan."""
    shared = ctypes.c_int()
    faults = host.share(*problem, ctypes.byref(shared))
    if faults == NO_PLAN:
        return None
    assert faults == 0, problem
    return shared.value


def test_what_blocks_leave_is_added_up(host: ctypes.CDLL) -> None:
    # 12 tiles of 192 rows and 16 of 128 are left over.
    assert share(host, 132, 2, 8, 8192, 8192, 64, 0) == 12 * 192 + 16 * 128


def test_any_problem(host: ctypes.CDLL) -> None:
    random, shared = Random(0), []
    for seed in range(500):
        lengths = random.choice([384, 500, 1100, 1101, 2000]), random.choice([170, 330, 1001, 2500])
        problem = random.choice([1, 2]), random.choice([7, 12, 20]), *lengths, random.choice([64, 64, 40])
        shared.append(share(host, random.choice([5, 7, 11, 23]), *problem, seed))
    assert sum(bool(rows) for rows in shared) > 20
