"""`python -m cuda_llm_ops.survey_fp8` checks and times every plan of the FP8 products on the Hopper card at hand.

First every plan of every kind computes small products, whose errors are held against float64. Then products of known
sizes are timed with each plan, beside torch._scaled_mm: each in a CUDA graph over rotated inputs, replayed in turn, as
in `cuda_llm_ops.tune`. A line of JSON for each, the most wanted sizes first, until the seconds are spent.
`cuda_llm_ops.levers` times a whole layer.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from . import _C
from .fp8 import fp8_gemm, quantize_fp8
from .tune import CACHE_BYTES, CAPABILITY, FEW_ROWS, captured, times

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
KINDS = {"tensor": ("tensor", "tensor"), "row": ("row", "row"), "block": ("1x128", "128x128")}
BLOCK = 128
PLANS = 12  # of a product, by the model
ROUNDS = 7
LARGE = ((8192, 8192, 8192), (4096, 4096, 4096), (2048, 2048, 2048), (1024, 1024, 1024))
LAYERS = ((4096, 7168, 2048), (4096, 7168, 16384), (2048, 28672, 4096), (128, 7168, 2048), (512, 4096, 4096))
FEW = tuple(
    (m, n, k) for n, k in ((28672, 4096), (8192, 8192), (4096, 14336), (4096, 4096), (8192, 28672)) for m in (1, 16, 64)
)
SMALL = ((1, 64, 128), (64, 256, 1024), (130, 392, 1040), (300, 200, 4096), (17, 1000, 528), (256, 512, 2048))
FARTHEST = 2.0**-11
"""Error of a promoted sum over the sum of magnitudes; a wrong tile is much farther off."""


@dataclass(frozen=True)
class Call:
    """Operands of one call."""

    a: Tensor
    b: Tensor
    scale_a: Tensor
    scale_b: Tensor

    def run(self, out_dtype: torch.dtype = torch.bfloat16) -> Tensor:
        return fp8_gemm(self.a, self.b, self.scale_a, self.scale_b, out_dtype=out_dtype)

    def rival(self, kind: str) -> Tensor:
        scales = (self.scale_a[:, None], self.scale_b[None]) if kind == "row" else (self.scale_a, self.scale_b)
        return torch._scaled_mm(self.a, self.b.T, *scales, out_dtype=torch.bfloat16, use_fast_accum=False)

    def exact(self) -> tuple[Tensor, Tensor]:
        """The product in float64, and that of magnitudes."""

        def values(numbers: Tensor, scale: Tensor, height: int) -> Tensor:
            if scale.dim() == 2:
                scale = scale.repeat_interleave(BLOCK, 1)[:, : numbers.shape[1]]
                scale = scale.repeat_interleave(height, 0)[: numbers.shape[0]]
            return numbers.double() * (scale[:, None] if scale.dim() == 1 else scale).double()

        left, right = values(self.a, self.scale_a, 1), values(self.b, self.scale_b, BLOCK)
        return left @ right.T, left.abs() @ right.abs().T


def drawn(m: int, n: int, k: int, kind: str, dtype: torch.dtype = E4M3) -> Call:
    of_a, of_b = KINDS[kind]
    a, scale_a = quantize_fp8(torch.randn(m, k, device="cuda"), of_a, dtype=dtype)  # type: ignore[arg-type]
    b, scale_b = quantize_fp8(torch.randn(n, k, device="cuda"), of_b)  # type: ignore[arg-type]
    if kind == "block":
        scale_a = scale_a.T.contiguous().T
    return Call(a, b, scale_a, scale_b)


@contextmanager
def forced(plan: str) -> Iterator[None]:
    _C.force_fp8_gemm_plan(plan)
    try:
        yield
    finally:
        _C.force_fp8_gemm_plan("")


def checked() -> Iterator[dict[str, Any]]:
    """The worst error of every plan on small products: over the sum of magnitudes, besides the result's rounding."""
    for kind in KINDS:
        for m, n, k in SMALL:
            for dtype in (E4M3, E5M2):
                call = drawn(m, n, k, kind, dtype)
                exact, size = call.exact()
                for plan in _C.fp8_gemm_plans(m, n, k, kind == "block"):
                    with forced(plan):
                        found = {out: call.run(out) for out in (torch.float32, torch.bfloat16)}
                    error = float(((found[torch.float32] - exact).abs() / size).max())
                    rounded = bool((found[torch.bfloat16] == found[torch.float32].bfloat16()).all())
                    yield {
                        "check": f"{m}x{n}x{k} {kind} {str(dtype)[6:]}",
                        "plan": plan,
                        "error": error,
                        "right": rounded and error < FARTHEST,
                    }


def timed(m: int, n: int, k: int, kind: str) -> dict[str, Any]:
    """Microseconds of a product by torch, by the plan that is chosen and by those that the model puts first."""
    once = (m + n) * k + 2 * m * n
    sets = [drawn(m, n, k, kind) for _ in range(max(2, -(-(10 if m <= FEW_ROWS else 3) * CACHE_BYTES // once)))]
    names, graphs = [], []
    if kind != "block":
        names.append("torch")
        graphs.append(captured(lambda index: sets[index].rival(kind), len(sets)))
    for plan in ["", *_C.fp8_gemm_plans(m, n, k, kind == "block")[:PLANS]]:
        with forced(plan):
            names.append(plan or "chosen")
            graphs.append(captured(lambda index: sets[index].run(), len(sets)))
    found = dict(zip(names, (1e6 * one / len(sets) for one in times(graphs, ROUNDS)), strict=True))
    best = min((name for name in found if name not in ("torch", "chosen")), key=found.__getitem__)
    return {
        "time": f"{m}x{n}x{k} {kind}",
        "best": best,
        "teraflops": 2e-6 * m * n * k / found[best],
        "terabytes_a_second": 1e-6 * once / found[best],
        "speed": found["torch"] / found[best] if "torch" in found else None,
        "microseconds": found,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m cuda_llm_ops.survey_fp8", description=__doc__)
    parser.add_argument("--seconds", type=float, default=400.0, help="begin no further measurement after these")
    parser.add_argument("--output", type=Path, help="also write the lines to this file")
    parser.add_argument("--no-checks", action="store_true", help="time at once")
    given = parser.parse_args(arguments)
    if not torch.cuda.is_available() or torch.cuda.get_device_capability() != CAPABILITY:
        parser.error("the Hopper kernels are surveyed on a GPU of compute capability 9.0; there is none")
    start, wrong, lines = time.monotonic(), 0, []

    def say(line: dict[str, Any]) -> None:
        lines.append(json.dumps(line))
        print(lines[-1], flush=True)

    for line in () if given.no_checks else checked():
        if not line["right"]:
            wrong += 1
            say(line)
        if time.monotonic() - start > given.seconds:
            break
    if not given.no_checks:
        say({"wrong": wrong, "check_seconds": time.monotonic() - start})
    for (m, n, k), kind in product((*LARGE, *FEW[:6], *LAYERS, *FEW[6:]), KINDS):
        if time.monotonic() - start > given.seconds:
            break
        say(timed(m, n, k, kind))
        torch.cuda.empty_cache()
    if given.output is not None:
        given.output.write_text("".join(line + "\n" for line in lines))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
