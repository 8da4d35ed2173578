"""What the operators must give, in float64, with a bound on the error that a float32 accumulation may make."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

ATTENTION = ("naive_attention", "tiled_attention", "flash_attention")
GEMM = ("gemm", "tensor_core_gemm")
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
UNIT = 2.0**-24  # half a unit in the last place of float32 at 1


def rounding(dtype: torch.dtype) -> float:
    """Half a unit in the last place at 1."""
    return torch.finfo(dtype).eps / 2


class Expected(NamedTuple):
    """What is right, elementwise, in float64."""

    value: Tensor
    tolerance: Tensor
    may_be_nan: Tensor  # NaN is right as well


Window = tuple[int, int]


def visible_keys(
    seq_q: int,
    seq_kv: int,
    is_causal: bool,
    bottom_right: bool = False,
    window: Window | None = None,
    device: torch.device | str = "cpu",
) -> Tensor:
    """Which keys a query sees, (seq_q, seq_kv)."""
    left, right = window or (-1, -1)
    diagonal = seq_kv - seq_q if bottom_right else 0
    behind = torch.arange(seq_kv, device=device) - torch.arange(seq_q, device=device)[:, None] - diagonal
    visible = torch.ones(seq_q, seq_kv, dtype=torch.bool, device=device)
    if is_causal:
        visible &= behind <= 0
    if left >= 0:
        visible &= behind >= -min(left, seq_q + seq_kv)
    if right >= 0:
        visible &= behind <= min(right, seq_q + seq_kv)
    return visible


def attention(
    name: str,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    is_causal: bool,
    scale: float | None,
    *,
    bottom_right: bool = False,
    window: Window | None = None,
) -> Expected:
    """What the operator `name` must give, (batch, heads, seq_q, head_dim).

    A masked key has no part in the sum, whatever its value; only the naive operator, which adds the mask to the scores
    as the math backend of scaled_dot_product_attention does, may let a hidden NaN or infinity through. A row of scores
    that are all minus infinity gives zeros, as there. Probabilities may be rounded to the inputs' dtype before the
    second product.
    """
    dtype, seq_kv = q.dtype, k.shape[2]
    visible = visible_keys(q.shape[2], seq_kv, is_causal, bottom_right, window)
    scores, score_error = _scores(q, k, scale, visible)
    v = v.detach().to("cpu", torch.float64)
    v = v.repeat_interleave(q.shape[1] // v.shape[1] if v.shape[1] else 1, dim=1)
    spoiling = scores.isnan() | (scores == math.inf)  # either plus minus infinity is NaN
    hidden_nan = (spoiling & ~visible).any(-1, keepdim=True) & (name == "naive_attention")
    scores = scores.masked_fill(~visible, -math.inf)
    empty = (scores == -math.inf).all(-1, keepdim=True)
    weights = torch.softmax(scores, -1).masked_fill(empty, 0.0).masked_fill(~visible, 0.0)
    out, magnitude = _weighted(weights, v, visible), _weighted(weights.nan_to_num(), v.abs(), visible)

    weight_error = 2 * rounding(dtype) + 8 * UNIT * math.sqrt(max(seq_kv, 1))
    tolerance = (score_error + weight_error) * magnitude + 2 * rounding(dtype) * out.abs() + tiny(dtype)
    if dtype == torch.float16:  # weights far below the row's largest are subnormal: half a unit there
        tolerance += 2.0**-25 * (visible.to(torch.float64) @ v.abs().nan_to_num(0.0, 0.0, 0.0))
    return Expected(out, tolerance, hidden_nan.expand(out.shape))


def log_sum_exp(
    q: Tensor,
    k: Tensor,
    is_causal: bool,
    scale: float | None,
    *,
    bottom_right: bool = False,
    window: Window | None = None,
) -> Expected:
    """What flash_attention must give for the logarithms of the rows' sums, (batch, heads, seq_q).

    Where a score is plus infinity the logarithm is, or NaN, as the row's output is.
    """
    visible = visible_keys(q.shape[2], k.shape[2], is_causal, bottom_right, window)
    scores, score_error = _scores(q, k, scale, visible)
    scores = scores.masked_fill(~visible, -math.inf)
    value = torch.logsumexp(scores, -1) if k.shape[2] else scores.new_full(scores.shape[:-1], -math.inf)
    tolerance = score_error.squeeze(-1) + 16 * UNIT * (math.sqrt(max(k.shape[2], 1)) + value.abs().nan_to_num())
    return Expected(value, tolerance, (scores == math.inf).any(-1))


def _scores(q: Tensor, k: Tensor, scale: float | None, visible: Tensor) -> tuple[Tensor, Tensor]:
    """Scores in float64, masked ones as well, and a bound on the error of a row's visible ones in float32."""
    head_dim = q.shape[3]
    factor = 1.0 / math.sqrt(head_dim) if scale is None and head_dim else 1.0 if scale is None else float(scale)
    q, k = (tensor.detach().to("cpu", torch.float64) for tensor in (q, k))
    k = k.repeat_interleave(q.shape[1] // k.shape[1] if k.shape[1] else 1, dim=1)
    spread = (factor * (q.abs() @ k.abs().transpose(-1, -2))).masked_fill(~visible, 0.0).nan_to_num(0.0, 0.0, 0.0)
    largest = spread.amax(-1, keepdim=True) if k.shape[2] else spread.new_zeros((*spread.shape[:-1], 1))
    return factor * (q @ k.transpose(-1, -2)), 16 * UNIT * (1.0 + math.sqrt(head_dim)) * (1.0 + largest)


def _weighted(weights: Tensor, v: Tensor, visible: Tensor) -> Tensor:
    if not v.isnan().any():
        return weights @ v
    terms = (weights.unsqueeze(-1) * v.unsqueeze(-3)).masked_fill(~visible.unsqueeze(-1), 0.0)  # 0 * NaN, unseen
    return terms.sum(-2)


def gemm(
    a: Tensor,
    b: Tensor,
    out_dtype: torch.dtype,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    c: Tensor | None = None,
    trans_a: bool = False,
    trans_b: bool = False,
) -> Expected:
    """What is right, (m, n) or (batch, m, n); BLAS's convention where alpha or beta is 0."""
    a, b = (tensor.detach().to("cpu", torch.float64) for tensor in (a, b))
    a = a.transpose(-1, -2) if trans_a else a
    b = b.transpose(-1, -2) if trans_b else b
    product, magnitude = torch.matmul(a, b), torch.matmul(a.abs(), b.abs())
    out = alpha * product if alpha != 0 else torch.zeros_like(product)
    magnitude = abs(alpha) * magnitude if alpha != 0 else torch.zeros_like(product)
    if beta != 0:
        assert c is not None
        addend = beta * c.detach().to("cpu", torch.float64)
        out, magnitude = out + addend, magnitude + addend.abs()
    steps = 8.0 + 4.0 * math.sqrt(a.shape[-1])
    tolerance = 2 * UNIT * steps * magnitude + 2 * rounding(out_dtype) * out.abs() + tiny(out_dtype)
    return Expected(out, tolerance, torch.zeros_like(out, dtype=torch.bool))


def tiny(dtype: torch.dtype) -> float:
    """Twice the smallest subnormal, or twice the smallest normal where a kernel may flush subnormals (bfloat16)."""
    info = torch.finfo(dtype)
    return 2 * (info.tiny if dtype != torch.float16 else info.smallest_normal * info.eps)


def assert_right(out: Tensor, expected: Expected) -> None:
    """Fail unless `out` is within the tolerance of what is expected, with NaN and infinities in the same places."""
    value, tolerance, may_be_nan = expected
    assert out.shape == value.shape
    got = out.detach().to("cpu", torch.float64)
    rounded = value.to(out.dtype).to(torch.float64)  # what overflows the output's dtype is infinite there
    nan = got.isnan() & (rounded.isnan() | may_be_nan)
    wrong = ~(nan | (got == rounded) | ((got - value).abs() <= tolerance))
    if wrong.any():
        at = tuple(wrong.nonzero()[0].tolist())
        raise AssertionError(
            f"{int(wrong.sum())} of {wrong.numel()} elements are wrong, first {list(at)}: {got[at].item():.9g}, "
            f"must be {value[at].item():.9g} within {tolerance[at].item():.3g}"
        )
