"""A profiler to hold in the hand: time, memory and rates of a block of code, and one function against another."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypedDict

import torch


class Metrics(TypedDict):
    """What is known of the blocks of one name; None where it was not asked for, or the block never ended."""

    calls: int
    elapsed_ms: float  # median over the blocks: device time on CUDA, host time on the CPU
    memory_bandwidth_gb: float | None  # GB (1e9 bytes) a second, from the bytes that were given
    achieved_tflops: float | None  # 1e12 operations a second, from the FLOPs that were given
    compute_utilization: float | None  # achieved over the peak that was given: 0 to 1
    peak_memory_bytes: int | None  # most that torch's allocator held over what was there before; CUDA alone


class Comparison(TypedDict):
    """Two functions on the same arguments."""

    custom_ms: float
    reference_ms: float
    speedup: float  # reference over custom: above 1 where custom is faster
    max_abs_error: float | None  # over the results, in float64; None where they are no tensors of one shape


@dataclass
class _Block:
    seconds: float
    bytes: float | None
    flops: float | None
    peak_memory_bytes: int | None


class CUDAProfiler:
    """Times blocks of code on one device; on the CPU it takes the host's clock.

        profiler = CUDAProfiler()
        with profiler.profile("attention", flops=problem.flops, bytes=problem.bytes):
            flash_attention(q, k, v)
        profiler.get_metrics("attention")["elapsed_ms"]

    On CUDA a block is what its current stream does between two events, after all earlier work on the device has ended;
    leaving the block waits for it. What a block launches on other streams counts only as far as its own waits for it.
    A first call also pays for lazy loading: warm up before, or read the median of several blocks. For a verdict, with
    inputs rotated past the caches and an interval, use `perfsuite bench` or a gated test.

    Args:
        device: the device; the current CUDA device where there is one, else the CPU.
        peak_flops_a_second: what compute_utilization is a share of: the card's data sheet, or better the large
            product of its library. Without it there is no compute_utilization.
    """

    def __init__(self, device: torch.device | str | None = None, *, peak_flops_a_second: float | None = None) -> None:
        chosen = "cuda" if torch.cuda.is_available() else "cpu"
        self.device = torch.device(chosen if device is None else device)
        if self.device.type not in ("cuda", "cpu"):
            raise ValueError(f"device is {self.device}; it must be a CUDA device or the CPU")
        if peak_flops_a_second is not None and not peak_flops_a_second > 0:
            raise ValueError(f"peak_flops_a_second is {peak_flops_a_second!r}; it must be more than 0")
        self.peak_flops_a_second = peak_flops_a_second
        self._blocks: dict[str, list[_Block]] = {}

    @contextmanager
    def profile(self, name: str, *, bytes: float | None = None, flops: float | None = None) -> Iterator[None]:
        """Time a block under a name; several blocks of one name are kept together. A block that raises is not kept.

        bytes: that the block must move, for memory_bandwidth_gb. flops: that it does, for achieved_tflops.
        """
        measured = self._on_cuda() if self.device.type == "cuda" else self._on_host()
        with measured as found:
            yield
        seconds, peak = found
        self._blocks.setdefault(name, []).append(_Block(seconds, bytes, flops, peak))

    def get_metrics(self, name: str | None = None) -> Metrics:
        """The metrics of the blocks of a name; of the last name profiled unless one is given. KeyError lists them."""
        if not self._blocks:
            raise KeyError("nothing was profiled yet: use `with profiler.profile(name):` first")
        chosen = next(reversed(self._blocks)) if name is None else name
        if chosen not in self._blocks:
            raise KeyError(f"nothing was profiled as {chosen!r}; there are {', '.join(self._blocks)}")
        blocks = self._blocks[chosen]
        seconds = statistics.median(block.seconds for block in blocks)
        last = blocks[-1]
        rate = last.flops / seconds if last.flops is not None and seconds > 0 else None
        peaks = [block.peak_memory_bytes for block in blocks if block.peak_memory_bytes is not None]
        return Metrics(
            calls=len(blocks),
            elapsed_ms=seconds * 1e3,
            memory_bandwidth_gb=last.bytes / seconds / 1e9 if last.bytes is not None and seconds > 0 else None,
            achieved_tflops=None if rate is None else rate / 1e12,
            compute_utilization=None
            if rate is None or self.peak_flops_a_second is None
            else rate / self.peak_flops_a_second,
            peak_memory_bytes=max(peaks, default=None),
        )

    def compare_with_reference(
        self,
        custom: Callable[..., Any],
        reference: Callable[..., Any],
        *args: Any,
        iterations: int = 20,
        **kwargs: Any,
    ) -> Comparison:
        """Time two functions in turn on the same arguments, after a warm-up of each: medians, and their ratio."""
        if iterations < 1:
            raise ValueError(f"iterations is {iterations}; it must be at least 1")
        results = [side(*args, **kwargs) for side in (custom, reference)]
        taken: tuple[list[float], list[float]] = ([], [])
        for iteration in range(iterations):
            # In turn, and each first every other time: what drifts meets both sides alike.
            order = (0, 1) if iteration % 2 == 0 else (1, 0)
            for side in order:
                measured = self._on_cuda() if self.device.type == "cuda" else self._on_host()
                with measured as found:
                    (custom, reference)[side](*args, **kwargs)
                taken[side].append(found[0])
        ours, theirs = (statistics.median(seconds) for seconds in taken)
        return Comparison(
            custom_ms=ours * 1e3,
            reference_ms=theirs * 1e3,
            speedup=theirs / ours if ours > 0 else float("inf"),
            max_abs_error=_error(*results),
        )

    @contextmanager
    def _on_host(self) -> Iterator[list[Any]]:
        found: list[Any] = []
        started = time.perf_counter()
        yield found
        found += [time.perf_counter() - started, None]

    @contextmanager
    def _on_cuda(self) -> Iterator[list[Any]]:
        found: list[Any] = []
        with torch.cuda.device(self.device):
            before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            # Work that was enqueued before is not the block's.
            torch.cuda.synchronize()
            held = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            before.record()
            yield found
            after.record()
            after.synchronize()
            found += [before.elapsed_time(after) / 1e3, torch.cuda.max_memory_allocated() - held]


def _error(custom: Any, reference: Any) -> float | None:
    """The largest difference between two results; None where they cannot be compared."""
    tensors = isinstance(custom, torch.Tensor) and isinstance(reference, torch.Tensor)
    if not tensors or custom.shape != reference.shape:
        return None
    return float((custom.double() - reference.double()).abs().max()) if custom.numel() else 0.0
