"""The roofline model: a kernel's highest possible rate, from its FLOPs, its bytes and the card's two ceilings.

Williams, Waterman and Patterson (2009), "Roofline: An Insightful Visual Performance Model for Multicore Architectures":
attainable FLOPs a second = min(peak FLOPs a second, intensity · peak bytes a second), intensity = FLOPs / bytes.
The bytes are those that must cross device memory: each input read once, each output written once, plus any that an
algorithm writes between its kernels. A multiply-add is two FLOPs.
"""

from __future__ import annotations

from dataclasses import dataclass

from perfsuite.report.units import whole

SOFTMAX_FLOPS = 5.0
"""FLOPs an element: compare, subtract, exponentiate, add, divide."""
LAYER_NORM_FLOPS = 8.0
"""FLOPs an element: sum; subtract, square, sum; subtract, times 1 / deviation; times weight, add bias."""


@dataclass(frozen=True)
class Cost:
    """FLOPs and bytes of one call."""

    flops: float
    bytes: float

    @property
    def intensity(self) -> float:
        """FLOPs a byte."""
        return self.flops / self.bytes


@dataclass(frozen=True)
class Ceiling:
    """The highest rates of a card for one dtype."""

    flops_a_second: float
    bytes_a_second: float

    def __post_init__(self) -> None:
        for what in ("flops_a_second", "bytes_a_second"):
            value = getattr(self, what)
            if not 0 < value < float("inf"):
                raise ValueError(f"{what} is {value!r}; it must be a positive number")

    @property
    def ridge(self) -> float:
        """The intensity at which both ceilings meet. Memory bounds below it, arithmetic above it."""
        return self.flops_a_second / self.bytes_a_second

    def attainable(self, intensity: float) -> float:
        """The most FLOPs a second at an intensity."""
        return min(self.flops_a_second, intensity * self.bytes_a_second)

    def bound(self, intensity: float) -> str:
        """ "memory" or "compute"."""
        return "memory" if intensity < self.ridge else "compute"

    def seconds(self, cost: Cost) -> float:
        """The least time of a call."""
        return max(cost.flops / self.flops_a_second, cost.bytes / self.bytes_a_second)


def gemm(m: int, n: int, k: int, *, item: float = 2.0, out_item: float | None = None) -> Cost:
    """2 m n k FLOPs; (m k + k n) · item + m n · out_item bytes."""
    m, n, k = whole("m", m), whole("n", n), whole("k", k)
    written = m * n * (item if out_item is None else out_item)
    return Cost(2.0 * m * n * k, (m * k + k * n) * item + written)


def softmax(rows: int, columns: int, *, item: float = 2.0) -> Cost:
    """SOFTMAX_FLOPS an element; read once and written once."""
    elements = whole("rows", rows) * whole("columns", columns)
    return Cost(SOFTMAX_FLOPS * elements, 2.0 * elements * item)


def layer_norm(rows: int, columns: int, *, item: float = 2.0) -> Cost:
    """LAYER_NORM_FLOPS an element; read once, written once, and weight and bias of a row's length."""
    elements = whole("rows", rows) * whole("columns", columns)
    return Cost(LAYER_NORM_FLOPS * elements, (2.0 * elements + 2.0 * columns) * item)


def elementwise(elements: int, *, operands: int = 2, flops: float = 1.0, item: float = 2.0) -> Cost:
    """`flops` an element; `operands` tensors read and one written."""
    count = whole("elements", elements)
    return Cost(flops * count, (whole("operands", operands) + 1.0) * count * item)


def attention(
    batch: int, heads: int, seq: int, head_dim: int, *, flash: bool, seq_kv: int | None = None, item: float = 2.0
) -> Cost:
    """4 b h s t d FLOPs of the two products and SOFTMAX_FLOPS an element of the scores, for s queries and t keys.

    With flash: q, k, v and the output. Without: four passes over the b h s t scores as well (written by the first
    product, read and written by the softmax, read by the second product; Dao et al. 2022, algorithm 0).
    """
    pairs = whole("batch", batch) * whole("heads", heads) * whole("seq", seq)
    keys = whole("seq_kv", seq if seq_kv is None else seq_kv)
    scores = float(pairs * keys)
    outside = (2.0 * pairs + 2.0 * batch * heads * keys) * whole("head_dim", head_dim) * item
    return Cost((4.0 * head_dim + SOFTMAX_FLOPS) * scores, outside + (0.0 if flash else 4.0 * scores * item))


def batch_walk(n: int, k: int, ceiling: Ceiling, *, item: float = 2.0) -> list[tuple[int, Cost]]:
    """(batch, cost) of a linear layer of n x k weights at batches of 1, 2, 4, ... until one past the ridge.

    At batch 1 each weight is read for one multiply-add: about 1 FLOP a byte in FP16. Intensity grows with the batch.
    """
    walk = []
    for power in range(21):
        walk.append((2**power, gemm(2**power, n, k, item=item)))
        if walk[-1][1].intensity >= ceiling.ridge:
            break
    return walk
