"""Intervals of what ran on a device: unions, what is exposed, and occupation a call."""

from __future__ import annotations

import pytest

from perfsuite.analyze.timeline import Event, exposed, length, occupation, union


def test_overlapping_spans_count_once() -> None:
    assert union([(3.0, 4.0), (0.0, 1.0), (0.5, 2.0), (2.0, 2.5)]) == [(0.0, 2.5), (3.0, 4.0)]
    assert length([(0.0, 1.0), (0.5, 2.0), (5.0, 6.0)]) == pytest.approx(3.0)
    assert length([]) == 0.0


def test_only_what_nothing_else_covers_is_exposed() -> None:
    assert exposed([(0.0, 4.0)], [(1.0, 2.0), (3.5, 6.0)]) == pytest.approx(2.5)
    assert exposed([(0.0, 1.0)], []) == pytest.approx(1.0)
    assert exposed([], [(0.0, 1.0)]) == 0.0


def test_occupation_tells_collectives_from_kernels_and_copies() -> None:
    events = [
        Event("ampere_fp16_s16816gemm", 0.0, 2.0),
        Event("ncclDevKernel_AllReduce_Sum_f16_RING_LL(...)", 1.0, 5.0),
        Event("Memcpy DtoH (Device -> Pinned)", 6.0, 7.0),
        Event("Memset (Device)", 7.0, 7.5),
    ]
    assert [event.kind for event in events] == ["kernel", "communication", "copy", "fill"]
    found = occupation(events, calls=2)
    assert found.busy == pytest.approx(6.5 / 2)
    assert found.communication == pytest.approx(3.0 / 2)
    assert found.kernels == 1.0
