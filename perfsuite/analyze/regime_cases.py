"""Six workloads of known regime, on which `perfsuite regime --self-test` checks itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perfsuite.analyze.regime import Regime

LARGE = 2**28
"""Bytes of a tensor: several times the L2 of any card."""


def product(arithmetic: float = 1.0, bytes: float = 1.0) -> Callable[[], Any]:
    """A large product on tensor cores. More arithmetic repeats it; more bytes are a fill beside it."""
    import torch

    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.float16) for _ in range(2))
    beside = torch.empty(3 * a.nbytes, device="cuda", dtype=torch.uint8)
    result = torch.empty_like(a)

    def call() -> None:
        for _ in range(round(arithmetic)):
            torch.mm(a, b, out=result)
        if bytes > 1:  # a fill of as many bytes as the product moves
            beside.fill_(1)

    return call


def prefill(arithmetic: float = 1.0, bytes: float = 1.0) -> Callable[[], Any]:
    """Attention over a long sequence. Half the batch at twice the length doubles the arithmetic on the same bytes."""
    import torch

    length = round(4096 * arithmetic / bytes)
    batch = round(8 * bytes * bytes / arithmetic)
    q, k, v = (torch.randn(batch, 16, length, 64, device="cuda", dtype=torch.float16) for _ in range(3))
    return lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v)


def addition(arithmetic: float = 1.0, bytes: float = 1.0) -> Callable[[], Any]:
    """A sum of two large tensors. Twice the FLOPs on the same bytes is addcmul of a tensor and itself."""
    import torch

    x, y = (torch.ones(round(bytes * LARGE) // 4, device="cuda") for _ in range(2))
    result = torch.empty_like(x)
    if arithmetic > 1:
        return lambda: torch.addcmul(x, y, y, out=result)
    return lambda: torch.add(x, y, out=result)


def decode(arithmetic: float = 1.0, bytes: float = 1.0) -> Callable[[], Any]:
    """A few tokens through a large layer, which reads each weight for a few multiply-adds."""
    import torch

    weights = torch.randn(round(16384 * bytes), 8192, device="cuda", dtype=torch.float16)
    tokens = torch.randn(8192, round(8 * arithmetic / bytes), device="cuda", dtype=torch.float16)
    return lambda: torch.mm(weights, tokens)


def small_calls(arithmetic: float = 1.0, bytes: float = 1.0) -> Callable[[], Any]:
    """A chain of operators on a few values. The host launches more slowly than the device works."""
    import torch

    x = torch.ones(round(4096 * arithmetic * bytes), device="cuda")

    def call() -> None:
        y = x
        for _ in range(20):
            y = y * 1.0001

    return call


def all_reduce() -> Callable[[], Any]:
    """A small product, then a large all-reduce. It needs several ranks."""
    import torch

    x = torch.randn(1024, 1024, device="cuda", dtype=torch.float16)
    gradients = torch.ones(LARGE // 2, device="cuda", dtype=torch.float16)

    def call() -> None:
        torch.mm(x, x)
        torch.distributed.all_reduce(gradients)

    return call


MADE: dict[str, Regime] = {
    "product": "compute",
    "prefill": "compute",
    "addition": "memory",
    "decode": "memory",
    "small_calls": "overhead",
    "all_reduce": "communication",
}
"""Function of this module -> its regime."""
NEEDS_SEVERAL_GPUS = ("all_reduce",)
