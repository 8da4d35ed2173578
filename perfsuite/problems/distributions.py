"""The distributions of inputs: ordinary values, and values on which careless kernels fail.

A tensor is drawn for a role, because several distributions concern the sum that the kernel forms, not one tensor: the
axis that is summed over, and the operand that carries the sign.

roles: "a" and "b" (GEMM), "q", "k" and "v" (attention), "x" (any other tensor).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

Shape = tuple[int, ...]

_WIDE_LOW, _WIDE_HIGH = -8.0, 4.0
"""Log2 of the magnitudes of "cancellation". A float16 result of K = 16384 stays finite."""
_DOMINANT_LOGIT, _DOMINANT_FACTOR = 100.0, 32.0
"""The dominant term, as a logit and as a factor on one operand of a GEMM. The logit's exponential overflows float32
unless the row's maximum is subtracted."""


def draw(
    distribution: str,
    shape: Shape,
    dtype: torch.dtype,
    generator: torch.Generator,
    *,
    role: str = "x",
    axis: int = -1,
) -> torch.Tensor:
    """A dense tensor on the generator's device; ValueError for an unknown distribution.

    axis: the axis that the kernel sums over.
    """
    if distribution not in _DRAWS:
        raise ValueError(f"distribution is {distribution!r}; it must be one of {', '.join(DISTRIBUTIONS)}")
    if 0 in shape:
        import torch

        return torch.empty(shape, dtype=dtype, device=generator.device)
    return _DRAWS[distribution](shape, dtype, generator, role, axis)


def dominate(
    q: torch.Tensor,
    k: torch.Tensor,
    *,
    scale: float,
    generator: torch.Generator,
    spans: list[tuple[int, int]] | None = None,
    tied: bool = False,
) -> torch.Tensor:
    """Queries that each point at one key they see, so that one logit a row is far above the rest.

    q: (batch, heads, seq_q, head_dim); k: (batch, kv_heads, seq_kv, head_dim).
    spans: (first, end) of the keys that each query sees; None if every query sees every key.
    tied: two logits a row are equally far above the rest, where a query sees two keys. With one, the weights are 0 and
        1, and the gradients by queries and keys vanish: what a kernel returns for them is rounding and nothing else.
    """
    import torch

    heads, head_dim = q.shape[1], q.shape[3]
    kv_heads, seq_kv = k.shape[1], k.shape[2]
    share = torch.rand(q.shape[:3], generator=generator, device=q.device)
    first, end = torch.tensor(spans or [(0, seq_kv)], device=q.device).unbind(-1)
    seen = (end - first).clamp(min=0)
    target = (first + share * seen).long().clamp(min=0, max=seq_kv - 1)
    keys = k.repeat_interleave(heads // kv_heads, dim=1) if heads != kv_heads else k

    def aimed_at(target: torch.Tensor) -> torch.Tensor:
        return torch.gather(keys, 2, target.unsqueeze(-1).expand(-1, -1, -1, head_dim)).float()

    one = aimed_at(target)
    size = one.square().sum(-1, keepdim=True)
    if tied:
        step = 1 + (torch.rand(q.shape[:3], generator=generator, device=q.device) * (seen - 1)).long()
        other = aimed_at((first + (target - first + step) % seen.clamp(min=1)).clamp(max=seq_kv - 1))
        # The combination of both keys whose products with them are equal; that of a key with itself is the key.
        shared = (one * other).sum(-1, keepdim=True)
        others = other.square().sum(-1, keepdim=True)
        alone = (seen < 2).unsqueeze(-1)
        aim = torch.where(alone, one, (others - shared) * one + (size - shared) * other)
        size = torch.where(alone, size, size * others - shared.square())
    else:
        aim = one
    # A zero scale makes every logit zero whatever the query is.
    strength = _DOMINANT_LOGIT / (scale * size.clamp(min=1e-3)) if scale > 0 else 1.0
    return (aim * strength).to(q.dtype)


def _normal(shape: Shape, dtype: torch.dtype, generator: torch.Generator, role: str, axis: int) -> torch.Tensor:
    import torch

    if dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.complex64, torch.complex128):
        return torch.randn(shape, dtype=dtype, device=generator.device, generator=generator)
    return _randn(shape, generator).to(dtype)


def _uniform(shape: Shape, dtype: torch.dtype, generator: torch.Generator, role: str, axis: int) -> torch.Tensor:
    return _between(shape, generator, -1.0, 1.0).to(dtype)


def _cancellation(shape: Shape, dtype: torch.dtype, generator: torch.Generator, role: str, axis: int) -> torch.Tensor:
    wide = _between(shape, generator, _WIDE_LOW, _WIDE_HIGH).exp2() * _signs(shape, generator)
    even, odd = _pairs(wide, axis)
    if role in ("a", "q"):
        odd.copy_(-even)
    elif role in ("b", "k", "v"):
        odd.copy_(even * _between(tuple(even.shape), generator, 0.9, 1.1))
    return wide.to(dtype)


def _heavy_tails(shape: Shape, dtype: torch.dtype, generator: torch.Generator, role: str, axis: int) -> torch.Tensor:
    return _randn(shape, generator).pow_(3).to(dtype)


def _dominant(shape: Shape, dtype: torch.dtype, generator: torch.Generator, role: str, axis: int) -> torch.Tensor:
    import torch

    values = _randn(shape, generator)
    if role in ("a", "x"):
        place = list(shape)
        place[axis] = 1
        index = torch.randint(shape[axis], place, generator=generator, device=generator.device)
        values.scatter_(axis, index, values.gather(axis, index) * _DOMINANT_FACTOR)
    return values.to(dtype)


def _constant_rows(shape: Shape, dtype: torch.dtype, generator: torch.Generator, role: str, axis: int) -> torch.Tensor:
    if role == "v":  # equal values would make any set of weights right
        return _normal(shape, dtype, generator, role, axis)
    row = list(shape)
    row[axis] = 1
    values = _between(tuple(row), generator, 0.25, 1.0) * _signs(tuple(row), generator)
    return values.to(dtype).expand(shape).contiguous()


def _alternating(shape: Shape, dtype: torch.dtype, generator: torch.Generator, role: str, axis: int) -> torch.Tensor:
    values = _randn(shape, generator).abs_()
    if role not in ("b", "k"):
        _pairs(values, axis)[1].neg_()
    return values.to(dtype)


def _tiny(shape: Shape, dtype: torch.dtype, generator: torch.Generator, role: str, axis: int) -> torch.Tensor:
    import torch

    if role not in ("a", "v", "x"):  # tiny times tiny would round to zero and test nothing
        return _normal(shape, dtype, generator, role, axis)
    # The product is made in float64: in the dtype itself it would be flushed, or lose its bits.
    values = torch.randn(shape, device=generator.device, generator=generator, dtype=torch.float64)
    return (values * (torch.finfo(dtype).tiny / 4)).to(dtype)


def _non_finite(shape: Shape, dtype: torch.dtype, generator: torch.Generator, role: str, axis: int) -> torch.Tensor:
    """NaN in one row of `a` or `q`, infinities in two more of `a`: IEEE arithmetic defines what the row becomes.

    k and v hold no such values, because libraries differ in whether they multiply them by a weight of zero.
    """
    import torch

    values = _normal(shape, dtype, generator, role, axis)
    if role not in ("a", "q") or len(shape) < 2:
        return values
    planted = [float("nan"), float("inf"), float("-inf")] if role == "a" else [float("nan")]
    if not (moved := values.movedim(axis, -1)).is_contiguous():
        return values
    rows = moved.flatten(0, -2)
    if rows.shape[0] <= len(planted):
        return values
    where = torch.randperm(rows.shape[0], generator=generator, device=generator.device)[: len(planted)]
    column = torch.randint(rows.shape[1], (len(planted),), generator=generator, device=generator.device)
    rows[where, column] = torch.tensor(planted, dtype=dtype, device=generator.device)
    return values


def _randn(shape: Shape, generator: torch.Generator) -> torch.Tensor:
    import torch

    return torch.randn(shape, device=generator.device, generator=generator)


def _between(shape: Shape, generator: torch.Generator, low: float, high: float) -> torch.Tensor:
    import torch

    return torch.rand(shape, device=generator.device, generator=generator).mul_(high - low).add_(low)


def _signs(shape: Shape, generator: torch.Generator) -> torch.Tensor:
    import torch

    return torch.randint(2, shape, device=generator.device, generator=generator).mul_(2).sub_(1)


def _pairs(values: torch.Tensor, axis: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Views of the even and the odd places along `axis`, equally long."""
    count = values.shape[axis] // 2
    moved = values.movedim(axis, 0)
    return moved[0 : 2 * count : 2], moved[1 : 2 * count : 2]


_DRAWS: dict[str, Callable[[Shape, torch.dtype, torch.Generator, str, int], torch.Tensor]] = {
    "normal": _normal,
    "uniform": _uniform,
    "cancellation": _cancellation,
    "heavy-tails": _heavy_tails,
    "dominant": _dominant,
    "constant-rows": _constant_rows,
    "alternating": _alternating,
    "tiny": _tiny,
    "non-finite": _non_finite,
}
DISTRIBUTIONS: tuple[str, ...] = tuple(_DRAWS)
