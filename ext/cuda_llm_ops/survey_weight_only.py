"""`python -m cuda_llm_ops.survey_weight_only` checks and times products with 4- and 8-bit weights on the Hopper card.

First small products of every kind are held against float64. Then the sizes of the goals are timed, each in a CUDA graph
over rotated inputs, replayed in turn with our 16-bit product of the same size. A row of a table for each, until the
seconds are spent; the bandwidth is that of a read of 4 GB in the same run.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

import torch
from torch import Tensor

from .ops import gemm
from .tune import CACHE_BYTES, CAPABILITY, captured, times
from .weight_only import weight_only_gemm

ROUNDS = 7
WEIGHTS = ((8192, 8192), (28672, 4096), (28672, 8192), (36864, 12288), (4096, 4096), (4096, 14336))
ROWS = (1, 16, 64, 8, 32, 256, 512)
READ_BYTES = 4 << 30
SMALL = tuple((m, n, k) for m in (1, 9, 30, 64, 130) for n, k in ((40, 128), (272, 8192), (1000, 640)))
FARTHEST = 2.0**-20
"""Error of a sum in float32 over the sum of magnitudes."""

Weights = tuple[Tensor, Tensor, Tensor | None]


def drawn(n: int, k: int, bits: int, group: int, zeros: bool, dtype: torch.dtype) -> Weights:
    """Random bytes are packed weights of either kind."""
    tiles = torch.randint(0, 256, (-(-n // 16), k // 64, 128 * bits), dtype=torch.uint8, device="cuda")
    shape = (k // group, n) if bits == 4 else (n,)
    scales = (torch.rand(shape, device="cuda") / 64).to(dtype)
    return tiles, scales, torch.randint(0, 16, shape, dtype=torch.uint8, device="cuda") if zeros else None


def wrong() -> int:
    """Small products of every kind that differ from the portable form's by more than float32 sums do."""
    found = 0
    for bits, group, zeros in ((4, 64, True), (4, 128, False), (8, 64, False)):
        for dtype in (torch.float16, torch.bfloat16):
            for m, n, k in SMALL:
                weights = drawn(n, k, bits, group, zeros, dtype)
                x = torch.randn(m, k, device="cuda", dtype=dtype)
                out = weight_only_gemm(x, *weights).cpu().double()
                tiles, scales, points = weights
                on_host = None if points is None else points.cpu()
                right = weight_only_gemm(x.cpu(), tiles.cpu(), scales.cpu(), on_host).double()
                size = k * (16 if bits == 4 else 128) / 64
                error = (out - right).abs() - 2 * torch.finfo(dtype).eps * right.abs()
                if not float(error.max()) <= FARTHEST * size:
                    found += 1
                    print(f"WRONG {m}x{n}x{k} int{bits} group {group} zeros {zeros} {dtype}: {float(error.max()):.3g}")
    return found


def read_bandwidth() -> float:
    """Bytes a second of a sum over 4 GB."""
    one = torch.ones(READ_BYTES // 4, device="cuda")
    return READ_BYTES / times([captured(lambda _: one.sum(), 1)], ROUNDS)[0]


def row(m: int, n: int, k: int, bits: int, group: int, zeros: bool, bandwidth: float) -> str:
    dtype = torch.bfloat16
    once = n * k * bits // 8
    sets = [drawn(n, k, bits, group, zeros, dtype) for _ in range(max(2, -(-4 * CACHE_BYTES // once)))]
    x = torch.randn(m, k, device="cuda", dtype=dtype)
    wide = [torch.randn(n, k, device="cuda", dtype=dtype) for _ in range(max(2, -(-4 * CACHE_BYTES // (2 * n * k))))]
    graphs = [
        captured(lambda index: weight_only_gemm(x, *sets[index]), len(sets)),
        captured(lambda index: gemm(x, wide[index].T), len(wide)),
    ]
    ours, theirs = times(graphs, ROUNDS)
    ours, theirs = ours / len(sets), theirs / len(wide)
    # As WeightOnlyGemm counts: numbers, scales and zero points, rows and results.
    bytes_ = once + sum(one.numel() * one.element_size() for one in sets[0][1:] if one is not None) + 2 * m * (n + k)
    kind = f"int{bits}" + (f" g{group}{' zeros' if zeros else ''}" if bits == 4 else "")
    return (
        f"{f'{m}x{n}x{k}':>18} {kind:<16} {1e6 * ours:8.2f} us {bytes_ / ours / bandwidth:6.3f} of read "
        f"{2e-12 * m * n * k / ours:7.1f} TFLOPS {theirs / ours:6.2f} times 16 bits"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m cuda_llm_ops.survey_weight_only", description=__doc__)
    parser.add_argument("--seconds", type=float, default=110.0, help="begin no further measurement after these")
    parser.add_argument("--no-checks", action="store_true", help="time at once")
    given = parser.parse_args(arguments)
    if not torch.cuda.is_available() or torch.cuda.get_device_capability() != CAPABILITY:
        parser.error("the Hopper kernels are surveyed on a GPU of compute capability 9.0; there is none")
    start = time.monotonic()
    mistakes = 0 if given.no_checks else wrong()
    bandwidth = read_bandwidth()
    print(f"wrong: {mistakes}; read bandwidth {bandwidth / 1e12:.3f} TB/s", flush=True)
    kinds = ((4, 128, False), (8, 64, False), (4, 64, True))
    for m in ROWS:
        for n, k in WEIGHTS:
            for bits, group, zeros in kinds:
                if time.monotonic() - start > given.seconds:
                    return 1 if mistakes else 0
                print(row(m, n, k, bits, group, zeros, bandwidth), flush=True)
                torch.cuda.empty_cache()
    return 1 if mistakes else 0


if __name__ == "__main__":
    sys.exit(main())
