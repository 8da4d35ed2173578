"""Every tile of the FP8 kernels for Hopper is computed once, by its own group, whatever the sizes of the groups are."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from device_sources import SOURCES

HOST = Path(__file__).with_name("fp8_tiles_host.cpp")


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory, compile_for_host: Callable[..., ctypes.CDLL]) -> ctypes.CDLL:
    build = tmp_path_factory.mktemp("fp8_tiles")
    return compile_for_host(HOST, build, "-w", f"-I{SOURCES}/cuda", f"-I{SOURCES}")


def test_tiles(host: ctypes.CDLL) -> None:
    random = Random(0)
    for number in range(300):
        tiles_n, raster, blocks = random.randint(1, 9), random.randint(1, 12), random.choice([1, 7, 66, 132])
        groups = random.randint(1, 9)
        if number % 3 == 0:  # one product
            sizes, groups, capacity, rows = None, 1, 0, random.randint(1, 2000)
        elif number % 3 == 1:  # masked, sizes out of range too
            capacity = random.randint(1, 400)
            sizes, rows = [random.randint(-3, capacity + 5) for _ in range(groups)], groups * capacity
        else:
            capacity, rows = 0, random.randint(1, 900)
            sizes = sorted(random.randint(0, rows + 9) for _ in range(groups))
        given = None if sizes is None else (ctypes.c_int32 * groups)(*sizes)
        assert host.faults(given, groups, capacity, rows, tiles_n, raster, blocks) == 0, (sizes, capacity, rows)


def test_rows_of_no_group_are_cleared_and_no_others(host: ctypes.CDLL) -> None:
    random = Random(1)
    for number in range(300):
        groups, wide = random.randint(1, 6), random.randint(0, 1)
        capacity = random.choice([0, random.randint(1, 30)])
        rows = groups * capacity if capacity else random.randint(1, 60)
        drawn = [random.choice([0, capacity or rows, random.randint(0, capacity or rows)]) for _ in range(groups)]
        sizes = (ctypes.c_int32 * groups)(*(drawn if capacity else sorted(drawn)))
        n, threads = random.randint(1, 33), random.choice([64, 128, 8448])
        offset = 2 * (1 + wide) * random.randint(0, 3)
        wrong = host.clearing_faults(sizes, groups, capacity, rows, n, wide, offset, threads)
        assert wrong == 0, (number, list(sizes), capacity, rows, n, wide, offset, threads)


def test_stages_of_a_split(host: ctypes.CDLL) -> None:
    assert all(host.stage_faults(count, split) == 0 for count in range(1, 70) for split in (1, 2, 4, 8))
