"""The Hopper attention kernel's realignment of rows that begin anywhere, compiled for the host."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from device_sources import copy_without_ptx

HOST = Path(__file__).with_name("sm90_realigned_host.cpp")


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory, compile_for_host: Callable[..., ctypes.CDLL]) -> ctypes.CDLL:
    build = copy_without_ptx(tmp_path_factory.mktemp("sm90_realigned") / "csrc")
    return compile_for_host(HOST, build, "-w", f"-I{build}/cuda")


@pytest.mark.parametrize("head_dim", [1, 2, 7, 33, 64, 65, 95, 98, 100, 112, 113, 127, 128, *range(129, 137), 159, 191])
def test_every_element_gets_to_its_place(host: ctypes.CDLL, head_dim: int) -> None:
    for offset, pad, run in itertools.product(range(8), [0, 1, 4], [False, True]):
        assert host.realign(1, 2, 200, head_dim, offset, pad, 2, run) == 0, (offset, pad, run)


@pytest.mark.parametrize("section", [1, 2, 3, 5, 6])
@pytest.mark.parametrize("seq", [1, 70, 385])
def test_every_tile_is_realigned_once(host: ctypes.CDLL, seq: int, section: int) -> None:
    assert host.realign(2, 3, seq, 129, 1, 0, section, False) == 0


@pytest.mark.parametrize(
    "divisor", [1, 2, 3, 5, 7, 8, 12, 97, 1000, 4095, 4096, 4097, 65537, 10**6 + 3, 2**30, 2**31 - 1]
)
def test_division(host: ctypes.CDLL, divisor: int) -> None:
    assert host.divide(ctypes.c_uint(divisor)) == 0


def test_the_counters_looked_at_are_those_of_the_tile(host: ctypes.CDLL) -> None:
    random = Random(1)
    for _ in range(200):
        count = random.randint(1, 12)
        heads = [random.randint(0, 1) for _ in range(count)]
        lasts = [random.randint(0, random.choice([3, 17, 60])) for _ in range(count)]
        assert host.look(count, (ctypes.c_int * count)(*heads), (ctypes.c_int * count)(*lasts)) == 0, (heads, lasts)
