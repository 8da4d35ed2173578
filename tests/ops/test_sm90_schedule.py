"""Every 64 queries of every head are computed once, whatever order the Hopper attention kernel's tiles are taken in."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from device_sources import SOURCES

HOST = Path(__file__).with_name("sm90_schedule_host.cpp")
SCHEDULES = ("linear", "slices", "snake", "pairs", "stream_k")  # sm90/instance.h's Schedule
HEAD_DIM, COUNTER_BYTES = 64, 4096 * 4
SHAPES = {
    "two in turn": (1, 2, 1, 128),
    "three in turn": (1, 3, 1, 80),
    "stream-K": (1, 3, 1, 80),
    "plain": (0, 2, 1, 128),
    "multicast": (0, 2, 2, 128),
}


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory, compile_for_host: Callable[..., ctypes.CDLL]) -> ctypes.CDLL:
    build = tmp_path_factory.mktemp("sm90_schedule")
    return compile_for_host(HOST, build, "-w", f"-I{SOURCES}/cuda", f"-I{SOURCES}")


def schedule(host: ctypes.CDLL, way: str, multiprocessors: int, *problem: int) -> tuple[str, int]:
    """The order and the thread blocks for (batch, heads, kv heads, queries, keys, causal), when all tiles were met.

    What tiles are shared in is held to the size of the output, and one of a call's sets of counters. Each thread block
    that shares a tile is told who else does.
    """
    order, blocks, workspace = ctypes.c_int(-1), ctypes.c_int(), ctypes.c_int64()
    answers = (ctypes.byref(one) for one in (order, blocks, workspace))
    faults = host.tiles(*SHAPES[way], multiprocessors, *problem, way == "stream-K", *answers)
    assert faults == 0, (way, multiprocessors, problem, order.value)
    batch, heads, _, queries, *_ = problem
    assert workspace.value <= batch * heads * queries * HEAD_DIM * 2 + COUNTER_BYTES
    return SCHEDULES[order.value] if order.value >= 0 else "none", blocks.value


@pytest.mark.parametrize("way", SHAPES)
def test_every_query_is_computed_once(host: ctypes.CDLL, way: str) -> None:
    random, seen = Random(way), set()
    for _ in range(400):
        group = random.choice([1, 1, 2, 4])
        kv_heads, batch = random.choice([1, 2, 3, 8, 16, 33]), random.choice([1, 2, 5, 16])
        lengths = [random.choice([1, 64, 100, 129, 320, 512, 1000, 1024, 2048, 4000, 4096]) for _ in range(2)]
        problem = (batch, kv_heads * group, kv_heads, *lengths, random.randint(0, 1))
        seen.add(schedule(host, way, random.choice([132, 132, 114, 78, 7, 2]), *problem)[0])
    if way == "stream-K":
        assert seen == {"stream_k", "none"}
        return
    assert seen >= {"linear", "snake", "pairs"} - ({"linear"} if way == "three in turn" else set())
    assert ("slices" in seen) == (way == "three in turn")


def test_the_last_round_of_pairs_is_dealt_tile_by_tile(host: ctypes.CDLL) -> None:
    # 2048 pairs of 132 blocks: the sixteenth round would have pairs for half of them.
    assert schedule(host, "two in turn", 132, 16, 32, 32, 1024, 1024, 1) == ("pairs", 132)


def test_a_block_takes_as_many_rows_as_its_neighbours(host: ctypes.CDLL) -> None:
    # 64s of queries: 16 heads of 64, 8 for each of 128 blocks. Whole tiles of 192 rows would keep 88 blocks for longer.
    assert schedule(host, "three in turn", 132, 2, 8, 8, 4096, 4096, 0) == ("slices", 128)


def test_what_is_left_over_is_shared_by_all_blocks(host: ctypes.CDLL) -> None:
    # 16 heads of 42 tiles of 192 rows and one of 128: five tiles for each of 132 blocks, and a range of 28 more.
    assert schedule(host, "stream-K", 132, 2, 8, 8, 8192, 8192, 0) == ("stream_k", 132)


def test_tiles_are_not_shared_where_that_takes_more_than_the_output(host: ctypes.CDLL) -> None:
    # 8 MiB of output: the 14 MB that 132 blocks would leave their parts in make memory grow faster than the sequence.
    assert schedule(host, "stream-K", 132, 2, 8, 8, 4096, 4096, 0)[0] == "none"
