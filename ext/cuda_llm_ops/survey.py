"""`python -m cuda_llm_ops.survey` times products that nobody tuned: how far the GEMM's choice is from cuBLAS and from
its own best plan.

A random sample of the linear layers of well-known models (weights n x k), float16 and bfloat16 in turn, the number of
rows log-uniform. Each is computed by torch.mm, by the plan that `gemm` chooses, and by those that the cost model puts
first; every side in a CUDA graph over rotated inputs, replayed in turn, as in `cuda_llm_ops.tune`.

With `--uneven` the products are such that lines of an operand begin at any element, which TMA cannot describe: heads of
odd vocabularies, layers with a few more elements a line, small products of a long k, in all layouts. They have one
plan; instead of the others the product of the next multiples of 8 is timed.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from . import _C
from .plan_table import Product
from .tune import in_turn, inputs

# n x k: the projections of attention and of the feed-forward part, whole or of an eighth of the model, and the heads.
_SIZES = """
    4096x4096 6144x4096 12288x4096 28672x4096 4096x14336 22016x4096 4096x11008 24576x4096 4096x12288 128256x4096
    32000x4096 11008x4096 14336x4096 5120x5120 15360x5120 7168x5120 27648x5120 34816x5120 13824x5120 5120x13824
    5120x17408 8192x8192 10240x8192 57344x8192 8192x28672 1280x8192 8192x1024 7168x8192 8192x3584 3584x3584
    4608x3584 37888x3584 18944x3584 3584x18944 28672x3584 3584x14336 152064x3584 3072x3072 9216x3072 16384x3072
    3072x8192 32064x3072 6144x2560 2560x4096 19456x2560 9728x2560 2560x9728 151936x2560 1536x1536 2048x1536
    17920x1536 1536x8960 151936x1536 2112x7168 7168x2048 24576x1536 7168x16384 4096x7168 7168x18432 36864x7168
"""
LAYERS = tuple((int(n), int(k)) for n, k in (size.split("x") for size in _SIZES.split()))
# Odd vocabularies, as they are or after tokens were added.
_HEADS = """
    50257x768 50257x1024 50257x1280 50257x1600 51865x1280 51866x768 50295x2560 32001x4096 32003x2048 49953x2048
    151655x896 151655x1536 250681x1024 256001x2304 128257x3072
"""
HEADS = tuple((int(n), int(k)) for n, k in (size.split("x") for size in _HEADS.split()))
MOST_ROWS = 8192
MOST_MULTIPLICATIONS = 1.5e12  # of a product: 5 ms of an H200
ROUNDS = 5
MOST_PRODUCTS = 10_000
ALIGNED = 8  # elements of 16 bytes


@dataclass(frozen=True)
class Timed:
    """Seconds of one product: torch.mm's, the chosen plan's and the quickest plan's."""

    m: int
    n: int
    k: int
    dtype: str
    library: float
    chosen: float
    best: float
    plan: str  # the quickest
    layout: str = "nt"  # n or t for a (t: stored k x m) and b (t: stored n x k)
    aligned: float | None = None  # gemm's seconds for the product of the next multiples of 8

    @property
    def speed(self) -> float:
        """Of the chosen plan; 1 is torch.mm's."""
        return self.library / self.chosen


def sample(count: int, seed: int) -> list[tuple[int, int, int]]:
    """Products m, n, k, no two the same."""
    generator = random.Random(seed)
    found: dict[tuple[int, int, int], None] = {}
    while len(found) < count:
        n, k = generator.choice(LAYERS)
        m = max(1, round(math.exp(generator.uniform(0, math.log(MOST_ROWS)))))
        if m * n * k <= MOST_MULTIPLICATIONS:
            found[m, n, k] = None
    return list(found)


def uneven_sample(count: int, seed: int) -> list[Product]:
    """Products of which at least one operand has lines that do not begin at multiples of 16 bytes, no two the same."""
    generator = random.Random(seed)

    def log_uniform(low: int, high: int) -> int:
        return round(math.exp(generator.uniform(math.log(low), math.log(high))))

    found: dict[Product, None] = {}
    while len(found) < count:
        kind = generator.choice(("head", "layer", "layer", "small"))
        if kind == "small":
            m, n, k = log_uniform(8, 600), log_uniform(8, 600), log_uniform(700, 16_000)
        else:
            n, k = generator.choice(HEADS if kind == "head" else LAYERS)
            m = log_uniform(1, MOST_ROWS)
        if kind == "layer":
            n += generator.choice((0, -1, 1, 1, 2, 3, 5))
            k += generator.choice((0, -1, 1, 1, 2, 3, 5))
        drawn = Product(m, n, k, a_mn_major=generator.random() < 0.2, b_mn_major=generator.random() < 0.5)
        lengths = m if drawn.a_mn_major and m > 1 else k, n if drawn.b_mn_major else k
        if m * n * k <= MOST_MULTIPLICATIONS / 4 and any(length % ALIGNED for length in lengths):
            found[drawn] = None
    return list(found)


def layout(of: Product) -> str:
    """As in `Timed`."""
    return ("t" if of.a_mn_major else "n") + ("n" if of.b_mn_major else "t")


def timed_uneven(of: Product, dtype: torch.dtype) -> Timed:
    """The times of a product without plans, and of the aligned one."""
    library, chosen = in_turn(inputs(of, dtype), [""], ROUNDS)
    m, n, k = (-(-length // ALIGNED) * ALIGNED for length in (of.m, of.n, of.k))
    m = m if of.a_mn_major else of.m  # the rows of another a may be as many as they are
    (_, aligned) = in_turn(inputs(replace(of, m=m, n=n, k=k), dtype), [""], ROUNDS)
    return Timed(of.m, of.n, of.k, str(dtype), library, chosen, chosen, "", layout(of), aligned)


def timed(m: int, n: int, k: int, dtype: torch.dtype, plans: int) -> Timed:
    """One product's times, `plans` of its plans besides the one chosen."""
    sets = inputs(Product(m, n, k, a_mn_major=False, b_mn_major=False), dtype)
    names = ["", *_C.gemm_plans(m, n, k, False, False, str(dtype).removeprefix("torch."))[:plans]]
    library, *medians = in_turn(sets, names, ROUNDS)
    best = min(range(len(medians)), key=medians.__getitem__)
    return Timed(m, n, k, str(dtype), library, medians[0], medians[best], names[best])


def summary(all_timed: Sequence[Timed]) -> str:
    """What the distribution of speeds is, as lines of text."""
    speeds = sorted(one.speed for one in all_timed)
    behind = [one.chosen / one.best for one in all_timed if one.aligned is None]  # else no other plan was timed
    tenth = speeds[len(speeds) // 10]
    lines = [
        f"{len(speeds)} products: geometric mean {statistics.geometric_mean(speeds):.3f} of torch.mm's speed, "
        f"a tenth below {tenth:.3f}"
        + (f"; {statistics.geometric_mean(behind) - 1:.1%} behind the best plan" if behind else "")
    ]
    for low, high in ((1, 16), (17, 64), (65, 128), (129, 384), (385, 1024), (1025, MOST_ROWS)):
        of_rows = [one.speed for one in all_timed if low <= one.m <= high]
        if of_rows:
            mean = statistics.geometric_mean(of_rows)
            lines.append(f"{low} to {high} rows: {mean:.3f}, lowest {min(of_rows):.3f}, {len(of_rows)} products")
    shares = sorted(one.aligned / one.chosen for one in all_timed if one.aligned is not None)
    if shares:
        for name in sorted({one.layout for one in all_timed}):
            of_layout = [one.speed for one in all_timed if one.layout == name]
            mean = statistics.geometric_mean(of_layout)
            lines.append(f"layout {name}: {mean:.3f}, lowest {min(of_layout):.3f}, {len(of_layout)} products")
        lines.append(
            f"of the aligned product's speed: geometric mean {statistics.geometric_mean(shares):.3f}, a tenth below "
            f"{shares[len(shares) // 10]:.3f}, lowest {shares[0]:.3f}"
        )
    lines.append("lowest five:")
    for one in sorted(all_timed, key=lambda one: one.speed)[:5]:
        other = (
            f"{one.best * 1e6:.1f} by {one.plan or 'the same'}"
            if one.aligned is None
            else f"{one.aligned * 1e6:.1f} aligned"
        )
        lines.append(f"{one.m} x {one.n} x {one.k}: {one.speed:.3f}, {one.chosen * 1e6:.1f} us; {other}")
    return "\n".join(lines)


def survey(products: Iterable[tuple[int, int, int] | Product], plans: int, seconds: float) -> Iterator[Timed]:
    """The times of each product in turn, of as many as the seconds allow, the first in any case."""
    end = time.monotonic() + seconds
    for index, product in enumerate(products):
        if index and time.monotonic() > end:
            return
        dtype = (torch.float16, torch.bfloat16)[index % 2]
        yield timed_uneven(product, dtype) if isinstance(product, Product) else timed(*product, dtype, plans)
        torch.cuda.empty_cache()


def count(text: str) -> int:
    """A whole number from 1 to 10,000.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    if not (text.isdecimal() and 1 <= int(text) <= MOST_PRODUCTS):
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number from 1 to {MOST_PRODUCTS}")
    return int(text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m cuda_llm_ops.survey", description=__doc__)
    parser.add_argument("--products", type=count, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--uneven", action="store_true", help="products whose lines begin at any element")
    parser.add_argument("--plans", type=count, default=12, help="of each aligned product besides the chosen one")
    parser.add_argument("--seconds", type=float, default=math.inf, help="after which no further product begins")
    parser.add_argument("--output", type=Path, help="a file for one line of JSON a product")
    given = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        parser.error("the survey times kernels on a GPU; there is none")
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    found = []
    with given.output.open("w") if given.output else nullcontext() as lines:
        products = (uneven_sample if given.uneven else sample)(given.products, given.seed)
        for one in survey(products, given.plans, given.seconds):
            found.append(one)
            if lines:
                lines.write(json.dumps(asdict(one)) + "\n")
                lines.flush()
            print(f"{len(found)} of {given.products}: {one.m} x {one.n} x {one.k}: {one.speed:.3f}", file=sys.stderr)
    print(summary(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
