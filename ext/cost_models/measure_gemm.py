"""Measures plans of the Hopper GEMM on the card at hand, for the fit of their cost model.

Products are drawn at random: rows log-uniform, weights of many sizes, all layouts, lines that begin within 128 bytes
too. Of each the plans that the model puts first are timed, and as many drawn at random, since the model must know slow
plans as well as quick ones. Each plan runs in a CUDA graph over rotated operands; the graphs are replayed in turn
(cuda_llm_ops.tune).
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator
from typing import Any

from cost_models.errors import UsageError
from cost_models.gemm import FIELDS

PLANS = 12  # of a product, by the model; and as many at random
ROUNDS = 5
MOST_ROWS = 8192
MOST_MULTIPLICATIONS = 5e11  # of a product: under 2 ms


def draw(generator: random.Random) -> tuple[int, int, int, bool, bool]:
    """m, n, k, and whether a is stored k x m and b k x n."""
    while True:
        m = max(1, round(math.exp(generator.uniform(0, math.log(MOST_ROWS)))))
        n = 64 * generator.randint(2, 450) if generator.random() < 0.7 else 8 * generator.randint(16, 3600)
        k = 64 * generator.randint(2, 300) if generator.random() < 0.7 else 8 * generator.randint(20, 2000)
        linear = generator.random() < 0.6  # the layout of linear layers
        a_mn_major, b_mn_major = (False, False) if linear else (generator.random() < 0.5, generator.random() < 0.5)
        if a_mn_major:
            m = -(-m // 8) * 8
        if m * n * k <= MOST_MULTIPLICATIONS:
            return m, n, k, a_mn_major, b_mn_major


def measure(seconds: float, seed: int = 0) -> Iterator[dict[str, Any]]:
    """Lines of times.py, until the seconds are over.

    Raises:
        UsageError: there is no card of compute capability 9.0, or no build with CUDA.
    """
    try:
        import torch
        from cuda_llm_ops import _C, tune
        from cuda_llm_ops.plan_table import Product
    except ImportError as error:
        raise UsageError(f"the extension cannot be imported ({error}); without a card, pass --times FILE") from None
    if not torch.cuda.is_available() or torch.cuda.get_device_capability() != tune.CAPABILITY:
        raise UsageError("there is no GPU of compute capability 9.0 to measure on; pass --times FILE")

    generator, end = random.Random(seed), time.monotonic() + seconds
    while time.monotonic() < end:
        m, n, k, a_mn_major, b_mn_major = draw(generator)
        facts = _C.gemm_plan_facts(m, n, k, a_mn_major, b_mn_major, "float16")
        chosen = facts[:PLANS] + generator.sample(facts[PLANS:], min(PLANS, len(facts[PLANS:])))
        operands = tune.inputs(Product(m, n, k, a_mn_major, b_mn_major))
        _, *medians = tune.in_turn(operands, [fact["plan"] for fact in chosen], ROUNDS)
        for fact, median in zip(chosen, medians, strict=True):
            line = {"m": m, "n": n, "k": k, "batch": 1, "out_float": 0, **fact, "microseconds": median * 1e6}
            yield {"plan": fact["plan"], **{field: int(line[field]) for field in FIELDS}, "microseconds": median * 1e6}
        torch.cuda.empty_cache()
