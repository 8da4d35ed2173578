"""CUDAProfiler: times, rates, comparisons; on a CUDA device that is made up, the order of events."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import torch


class HostTime:
    """Stands for the module `time`: it passes when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def host_time(ops: ModuleType, monkeypatch: pytest.MonkeyPatch) -> HostTime:
    """The profiler's own clock. On a busy machine any block may take tens of milliseconds longer."""
    monkeypatch.setattr(f"{ops.__name__}.profiler.time", made := HostTime())
    return made


def test_a_block_is_timed_and_its_rates_follow(ops: ModuleType, host_time: HostTime) -> None:
    profiler = ops.CUDAProfiler("cpu", peak_flops_a_second=1e9)
    with profiler.profile("sleep", bytes=5e6, flops=1e7):
        host_time.now += 0.02
    metrics = profiler.get_metrics("sleep")
    assert metrics["elapsed_ms"] == pytest.approx(20.0)
    assert metrics["memory_bandwidth_gb"] == pytest.approx(5e6 / 0.02 / 1e9)
    assert metrics["achieved_tflops"] == pytest.approx(1e7 / 0.02 / 1e12)
    assert metrics["compute_utilization"] == pytest.approx(1e7 / 0.02 / 1e9)
    assert metrics["calls"] == 1


def test_what_was_not_given_is_not_made_up(ops: ModuleType, device: str) -> None:
    profiler = ops.CUDAProfiler(device)
    with profiler.profile("product"):
        torch.ones(64, 64, device=device) @ torch.ones(64, 64, device=device)
    metrics = profiler.get_metrics()
    assert metrics["elapsed_ms"] > 0
    assert metrics["memory_bandwidth_gb"] is metrics["compute_utilization"] is metrics["achieved_tflops"] is None
    assert (metrics["peak_memory_bytes"] is None) == (device == "cpu")


def test_blocks_of_a_name_are_kept_together_and_a_failed_one_is_not(ops: ModuleType, host_time: HostTime) -> None:
    profiler = ops.CUDAProfiler("cpu")
    for seconds in (0.002, 0.03, 0.001):
        with profiler.profile("step"):
            host_time.now += seconds
    with pytest.raises(ZeroDivisionError), profiler.profile("step"):
        raise ZeroDivisionError
    assert profiler.get_metrics("step")["calls"] == 3
    assert profiler.get_metrics("step")["elapsed_ms"] == pytest.approx(2.0), "the median, not the mean"


def test_unknown_names_are_told_with_the_known_ones(ops: ModuleType) -> None:
    profiler = ops.CUDAProfiler("cpu")
    with pytest.raises(KeyError, match="nothing was profiled yet"):
        profiler.get_metrics()
    with profiler.profile("one"):
        pass
    with pytest.raises(KeyError, match=r"as 'two'; there are one"):
        profiler.get_metrics("two")


def test_two_functions_are_compared(ops: ModuleType, host_time: HostTime) -> None:
    def slow(x: torch.Tensor) -> torch.Tensor:
        host_time.now += 0.004
        return x + 1

    def fast(x: torch.Tensor) -> torch.Tensor:
        host_time.now += 0.001
        return x + 1.5

    compared = ops.CUDAProfiler("cpu").compare_with_reference(slow, fast, torch.zeros(3), iterations=5)
    assert (compared["custom_ms"], compared["reference_ms"]) == (pytest.approx(4.0), pytest.approx(1.0))
    assert compared["speedup"] == pytest.approx(0.25)
    assert compared["max_abs_error"] == 0.5


def test_kernels_are_compared_with_the_library(ops: ModuleType, device: str) -> None:
    q, k, v = (torch.randn(1, 2, 64, 32, device=device) for _ in range(3))
    sdpa = torch.nn.functional.scaled_dot_product_attention
    compared = ops.CUDAProfiler(device).compare_with_reference(ops.flash_attention, sdpa, q, k, v, iterations=3)
    assert compared["custom_ms"] > 0
    assert compared["max_abs_error"] < 1e-3


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda ops: ops.CUDAProfiler("meta"), "device is meta"),
        (lambda ops: ops.CUDAProfiler("cpu", peak_flops_a_second=0), "peak_flops_a_second is 0"),
        (lambda ops: ops.CUDAProfiler("cpu").compare_with_reference(abs, abs, 1, iterations=0), "iterations is 0"),
    ],
)
def test_bad_arguments_are_named(make: Any, words: str, ops: ModuleType) -> None:
    with pytest.raises(ValueError, match=words):
        make(ops)


def test_results_that_are_no_tensors_of_one_shape_have_no_error(ops: ModuleType) -> None:
    profiler = ops.CUDAProfiler("cpu")
    for other in (3, torch.zeros(2)):
        compared = profiler.compare_with_reference(lambda: torch.zeros(3), lambda given=other: given, iterations=1)
        assert compared["max_abs_error"] is None


def test_on_cuda_events_bracket_the_block_between_waits(ops: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    did: list[str] = []

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            did.append("record")

        def synchronize(self) -> None:
            did.append("wait for the end")

        def elapsed_time(self, end: Event) -> float:
            assert end is not self
            return 2.5

    @contextlib.contextmanager
    def on(device: torch.device) -> Iterator[None]:
        did.append(f"on {device}")
        yield

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "device", on)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: did.append("wait for earlier work"))
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 100)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: None)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 164)
    profiler = ops.CUDAProfiler("cuda:1")
    with profiler.profile("block", bytes=5e6):
        did.append("block")
    metrics = profiler.get_metrics("block")
    assert did == ["on cuda:1", "wait for earlier work", "record", "block", "record", "wait for the end"]
    assert metrics["elapsed_ms"] == pytest.approx(2.5)
    assert metrics["memory_bandwidth_gb"] == pytest.approx(2.0)
    assert metrics["peak_memory_bytes"] == 64
