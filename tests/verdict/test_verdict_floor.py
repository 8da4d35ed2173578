"""No measurement may be faster than the card."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from perfsuite.verdict.floor import Ceilings, ceilings_of, floor_of

CARD = Ceilings("card", {"float16": 1e15, "float32": 5e14}, 4e12)


def test_the_longer_of_arithmetic_and_memory_sets_the_floor() -> None:
    arithmetic = floor_of(CARD, flops=2e12, bytes_moved=1e6, dtype="float16", cold=True)
    memory = floor_of(CARD, flops=1e6, bytes_moved=4e9, dtype="float16", cold=True)
    assert arithmetic is not None
    assert memory is not None
    assert arithmetic.seconds == pytest.approx(2e-3)
    assert "FLOPs" in arithmetic.why
    assert memory.seconds == pytest.approx(1e-3)
    assert "bytes" in memory.why


def test_bytes_count_only_where_they_come_from_memory() -> None:
    hot = floor_of(CARD, flops=1e9, bytes_moved=4e9, dtype="float32", cold=False)
    assert hot is not None
    assert hot.seconds == pytest.approx(2e-6)


def test_an_unknown_dtype_gets_the_fastest_path() -> None:
    floor = floor_of(CARD, flops=1e12, bytes_moved=None, dtype="float8_e4m3fn", cold=True)
    assert floor is not None
    assert floor.seconds == pytest.approx(1e-3)


def test_nothing_known_gives_no_floor() -> None:
    assert floor_of(CARD, flops=None, bytes_moved=None, dtype=None, cold=True) is None
    assert floor_of(Ceilings("new card", {}, None), flops=1e12, bytes_moved=1e9, dtype="float16", cold=True) is None


def test_ceilings_follow_from_the_card_s_own_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    # An H200: 132 SMs at 1.98 GHz; 6016 bits at 3.201 GHz.
    h200 = SimpleNamespace(
        name="NVIDIA H200",
        major=9,
        minor=0,
        multi_processor_count=132,
        clock_rate=1_980_000,
        memory_clock_rate=3_201_000,
        memory_bus_width=6016,
    )
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: h200)
    found = ceilings_of(0)
    assert found.bytes_a_second == pytest.approx(4.814e12, rel=1e-3)
    assert found.flops_a_second["float16"] == pytest.approx(1070.5e12, rel=1e-3)
