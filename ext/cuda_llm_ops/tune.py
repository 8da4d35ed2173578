"""`python -m cuda_llm_ops.tune` measures the Hopper GEMM's plans on the card at hand and rewrites their table.

Every product of the table, and every one that `--add` names, is computed by the plans that the cost model puts first
and by the one that the table holds: each in a CUDA graph over inputs that are rotated past three times the L2 cache,
ten times for few rows; the graphs are replayed in turn, so that clock and temperature are those of all. The quickest
median is written; among plans within 0.4 % of it, the one with the smallest cluster. Then build again.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import torch

from . import _C, gemm
from .plan_table import TABLE, Plan, Product, parse, rewritten

CAPABILITY = (9, 0)
CACHE_BYTES = 60 << 20  # of L2
FEW_ROWS = 128  # up to which memory decides, so that what L2 kept of the last turn would count
PLANS = 24  # of a product, by the model
MODEL_TRUST = 0.004  # medians closer than this are equal
ROUNDS = 7


def product(text: str) -> Product:
    """The product that an argument like `512,4096,14336` (b stored n x k) or `512,512,512,nn` names.

    Raises:
        argparse.ArgumentTypeError: it names none.
    """
    sizes, layout = text.split(",")[:3], (text.split(",")[3:] or ["nt"])[0]
    if len(sizes) != 3 or not all(size.isdigit() and int(size) > 0 for size in sizes):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no product; it must be M,N,K or M,N,K,LAYOUT with positive sizes"
        )
    if layout not in ("nn", "nt", "tn", "tt"):
        raise argparse.ArgumentTypeError(f"the layout of {text!r} is {layout}; it must be nn, nt, tn or tt")
    m, n, k = map(int, sizes)
    return Product(m, n, k, a_mn_major=layout[0] == "t", b_mn_major=layout[1] == "n")


def inputs(of: Product, dtype: torch.dtype = torch.float16) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Operands to rotate through, more than three L2 caches of them, ten for few rows: normal, of a 2-byte type."""

    def random(rows: int, columns: int) -> torch.Tensor:
        return torch.randn(rows, columns, device="cuda", dtype=dtype)

    bytes_a_call = 2 * (of.m * of.k + of.n * of.k + of.m * of.n)
    return [
        (
            random(of.k, of.m).T if of.a_mn_major else random(of.m, of.k),
            random(of.k, of.n) if of.b_mn_major else random(of.n, of.k).T,
        )
        for _ in range(max(2, -(-(10 if of.m <= FEW_ROWS else 3) * CACHE_BYTES // bytes_a_call)))
    ]


def captured(call: Callable[[int], object], calls: int) -> torch.cuda.CUDAGraph:
    """A graph of call(0), call(1), ..."""
    call(0)
    torch.cuda.synchronize()
    graph, stream = torch.cuda.CUDAGraph(), _capture_stream()
    # Not `with torch.cuda.graph`: it gives all cached memory back before each capture, and there are many.
    with torch.cuda.stream(stream):
        graph.capture_begin()
        try:
            for index in range(calls):
                call(index)
        finally:
            graph.capture_end()
    return graph


@cache
def _capture_stream() -> torch.cuda.Stream:
    return torch.cuda.Stream()


def replays(graphs: Sequence[torch.cuda.CUDAGraph], rounds: int) -> list[list[float]]:
    """Seconds of each replay of each graph, replayed in turn; the first turn is not counted."""
    marks = []
    for _ in range(rounds + 1):
        turn = []
        for graph in graphs:
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            graph.replay()
            end.record()
            turn.append((begin, end))
        marks.append(turn)
    torch.cuda.synchronize()
    return [[turn[index][0].elapsed_time(turn[index][1]) / 1e3 for turn in marks[1:]] for index in range(len(graphs))]


def times(graphs: Sequence[torch.cuda.CUDAGraph], rounds: int) -> list[float]:
    """The median of the replays of each."""
    return [statistics.median(seconds) for seconds in replays(graphs, rounds)]


def in_turn(sets: Sequence[tuple[torch.Tensor, torch.Tensor]], plans: Sequence[str], rounds: int) -> list[float]:
    """Seconds of a product by torch.mm, then by `gemm` with each of the plans; "" is the plan that it chooses."""
    graphs = [captured(lambda index: torch.mm(*sets[index]), len(sets))]
    try:
        for plan in plans:
            _C.force_gemm_plan(plan)
            graphs.append(captured(lambda index: gemm(*sets[index]), len(sets)))
    finally:
        _C.force_gemm_plan("")
    return [seconds / len(sets) for seconds in times(graphs, rounds)]


def candidates(of: Product, present: Plan | None) -> list[str]:
    """The names of the plans to measure: those that a row of the table can hold."""
    every = _C.gemm_plans(of.m, of.n, of.k, of.a_mn_major, of.b_mn_major, "float16")
    names = [name for name in every if " parts " not in name]
    return names[:PLANS] + [name for name in names[PLANS:] if Plan.named(name) == present]


def fastest(of: Product, present: Plan | None) -> tuple[Plan, float, float]:
    """The quickest plan, its seconds, and those of torch.mm.

    Raises:
        ValueError: the Hopper path does not take the product.
    """
    names = candidates(of, present)
    if not names:
        raise ValueError(f"{of} has no plan: its lines must begin at multiples of 16 bytes")
    rival, *medians = in_turn(inputs(of), names, ROUNDS)
    limit = min(medians) * (1 + MODEL_TRUST)
    equal = [(Plan.named(name), seconds) for name, seconds in zip(names, medians, strict=True) if seconds <= limit]
    plan, seconds = min(equal, key=lambda pair: (pair[0].blocks, pair[1]))
    return plan, seconds, rival


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m cuda_llm_ops.tune", description=__doc__)
    parser.add_argument("--table", type=Path, default=TABLE, help="the header to rewrite")
    parser.add_argument("--add", type=product, action="append", default=[], metavar="M,N,K[,LAYOUT]")
    parser.add_argument("--only-added", action="store_true", help="leave the rows of the table as they are")
    given = parser.parse_args(arguments)
    if not given.table.is_file():
        parser.error(f"{given.table} does not exist; --table must name the plan_table.h of a checkout")
    if not torch.cuda.is_available() or torch.cuda.get_device_capability() != CAPABILITY:
        parser.error("the Hopper kernels are tuned on a GPU of compute capability 9.0; there is none")
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False

    text = given.table.read_text()
    rows = parse(text)
    for of in dict.fromkeys([*([] if given.only_added else rows), *given.add]):
        plan, seconds, rival = fastest(of, rows.get(of))
        rows[of] = plan
        layout = ("t" if of.a_mn_major else "n") + ("n" if of.b_mn_major else "t")
        print(
            f"{of.m}x{of.n}x{of.k} {layout}: {seconds * 1e6:.2f} us, {rival / seconds:.3f} of torch.mm's speed, {plan}"
        )
        torch.cuda.empty_cache()
    multiprocessors = torch.cuda.get_device_properties(0).multi_processor_count
    given.table.write_text(rewritten(text, rows, multiprocessors))
    return 0


if __name__ == "__main__":
    sys.exit(main())
