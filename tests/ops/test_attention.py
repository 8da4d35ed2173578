"""The three attention operators against float64: shapes, dtypes, layouts, masks, special values, empty tensors."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch", reason="the operators need torch")

import cuda_llm_ops  # noqa: E402
import ops_reference as reference  # noqa: E402
from torch import Tensor  # noqa: E402

pytestmark = pytest.mark.parametrize("name", reference.ATTENTION)
dtypes = pytest.mark.parametrize("dtype", reference.DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))


def inputs(device: str, dtype: torch.dtype, q: tuple[int, ...], k: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(hash((q, k)) & 0xFFFF)
    return tuple(torch.randn(shape, generator=generator).to(device, dtype) for shape in (q, k, k))  # type: ignore[return-value]


def check(name: str, q: Tensor, k: Tensor, v: Tensor, *, is_causal: bool = False, scale: float | None = None) -> Tensor:
    out = getattr(cuda_llm_ops, name)(q, k, v, is_causal, scale=scale)
    assert out.dtype == q.dtype
    assert out.device == q.device
    assert out.is_contiguous()
    reference.assert_right(out, reference.attention(name, q, k, v, is_causal, scale))
    return out


@dtypes
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("head_dim", [1, 2, 7, 8, 16, 33, 40, 64, 80, 96, 127, 128, 129, 160, 192, 255, 256])
def test_head_dims(name: str, device: str, dtype: torch.dtype, head_dim: int, is_causal: bool) -> None:
    q, k, v = inputs(device, dtype, (1, 2, 67, head_dim), (1, 2, 67, head_dim))
    check(name, q, k, v, is_causal=is_causal)


@dtypes
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(
    ("seq_q", "seq_kv"), [(1, 1), (1, 300), (300, 1), (2, 3), (63, 65), (128, 64), (64, 129), (257, 191)]
)
def test_lengths(name: str, device: str, dtype: torch.dtype, seq_q: int, seq_kv: int, is_causal: bool) -> None:
    q, k, v = inputs(device, dtype, (2, 2, seq_q, 64), (2, 2, seq_kv, 64))
    check(name, q, k, v, is_causal=is_causal)


@dtypes
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 1), (4, 2), (6, 3), (5, 5)])
def test_grouped_query_heads(name: str, device: str, dtype: torch.dtype, heads: int, kv_heads: int) -> None:
    q, k, v = inputs(device, dtype, (2, heads, 33, 64), (2, kv_heads, 70, 64))
    check(name, q, k, v)
    check(name, q, k, v, is_causal=True)


@dtypes
@pytest.mark.parametrize("scale", [0.0, 1e-3, 0.125, 1.0, 4.0])
def test_scale(name: str, device: str, dtype: torch.dtype, scale: float) -> None:
    q, k, v = inputs(device, dtype, (1, 2, 50, 40), (1, 2, 50, 40))
    check(name, q, k, v, scale=scale)


def test_positional_causal_and_mask_alignment(name: str, device: str) -> None:
    """The first query sees the first key alone, also where there are more keys than queries."""
    q, k, v = inputs(device, torch.float32, (1, 1, 3, 8), (1, 1, 9, 8))
    out = check(name, q, k, v, is_causal=True)
    torch.testing.assert_close(out[:, :, 0], v[:, :, 0])


LAYOUTS = {
    "batch, seq, heads, dim": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
    "last dimension strided": lambda x: x.transpose(2, 3).contiguous().transpose(2, 3),
    "every second row": lambda x: x.repeat_interleave(2, dim=2)[:, :, ::2],
    "every second column": lambda x: x.repeat_interleave(2, dim=3)[..., ::2],
    "odd offset": lambda x: torch.cat([x.new_zeros(1), x.flatten()])[1:].view(x.shape),
    "padded rows": lambda x: torch.nn.functional.pad(x, (0, 3))[..., : x.shape[3]],
    "one head expanded": lambda x: x[:, :1].expand(x.shape),
    "one key expanded": lambda x: x[:, :, :1].expand(x.shape),
    "one column expanded": lambda x: x[..., :1].expand(x.shape),
    "negated view": torch._neg_view,
}


@dtypes
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("head_dim", [1, 64, 129])
def test_layouts(name: str, device: str, dtype: torch.dtype, head_dim: int, layout: str) -> None:
    q, k, v = inputs(device, dtype, (2, 2, 37, head_dim), (2, 2, 41, head_dim))
    view = LAYOUTS[layout]
    check(name, view(q), view(k), view(v), is_causal=True)
    check(name, q, view(k), v)


def test_dimensions_of_size_one_have_arbitrary_strides(name: str, device: str) -> None:
    q = torch.randn(64, device=device).as_strided((1, 1, 1, 64), (3, 5, 7, 1))
    k = torch.randn(4096, device=device).as_strided((1, 1, 64, 64), (1, 1, 64, 1))
    check(name, q, k, k)


@dtypes
def test_nan_in_a_query_spoils_its_row_alone(name: str, device: str, dtype: torch.dtype) -> None:
    q, k, v = inputs(device, dtype, (1, 2, 70, 64), (1, 2, 70, 64))
    q[0, 1, 5, 3] = math.nan
    out = check(name, q, k, v)
    assert int(out.isnan().sum()) == 64


@dtypes
def test_nan_in_a_key_spoils_the_rows_that_see_it(name: str, device: str, dtype: torch.dtype) -> None:
    q, k, v = inputs(device, dtype, (1, 1, 70, 64), (1, 1, 70, 64))
    k[0, 0, 40, 0] = math.nan
    out = check(name, q, k, v, is_causal=True)
    assert name == "naive_attention" or not out[0, 0, :40].isnan().any()
    assert out[0, 0, 40:].isnan().all()


@dtypes
def test_nan_in_a_value_spoils_its_column(name: str, device: str, dtype: torch.dtype) -> None:
    q, k, v = inputs(device, dtype, (1, 1, 70, 64), (1, 1, 70, 64))
    v[0, 0, 40, 7] = math.nan
    out = check(name, q, k, v)
    assert out[..., 7].isnan().all()
    assert not out[..., :7].isnan().any()


@dtypes
def test_infinite_scores(name: str, device: str, dtype: torch.dtype) -> None:
    """Scores of plus infinity give NaN; a row that is minus infinity throughout gives zeros, as SDPA does."""
    q, k, v = inputs(device, dtype, (1, 1, 70, 64), (1, 1, 70, 64))
    k[..., 0] = k[..., 0].abs() + 1
    q[0, 0, 3, 0], q[0, 0, 5, 0] = math.inf, -math.inf
    out = check(name, q, k, v)
    assert out[0, 0, 3].isnan().all()
    assert (out[0, 0, 5] == 0).all()
    sdpa = torch.nn.functional.scaled_dot_product_attention(*(t.cpu().float() for t in (q, k, v)))
    assert (sdpa[0, 0, 5] == 0).all()
    assert sdpa[0, 0, 3].isnan().all()


@dtypes
@pytest.mark.parametrize("head_dim", [64, 129])
def test_zero_times_an_infinite_score(name: str, device: str, dtype: torch.dtype, head_dim: int) -> None:
    """A scale of 0 makes NaN of either infinity, and equal weights of all finite scores."""
    q, k, v = inputs(device, dtype, (1, 2, 70, head_dim), (1, 1, 90, head_dim))
    q[0, 0, 3, 0], q[0, 0, 5, 0] = math.inf, -math.inf
    k[..., 0] = k[..., 0].abs() + 1
    out = check(name, q, k, v, scale=0.0)
    assert out[0, 0, [3, 5]].isnan().all()
    assert not out[0, 1].isnan().any()


@dtypes
def test_some_keys_at_minus_infinity(name: str, device: str, dtype: torch.dtype) -> None:
    """As an additive mask would make them: those keys have weight 0, even a whole block of them at the start."""
    q, k, v = inputs(device, dtype, (1, 1, 200, 64), (1, 1, 200, 64))
    q[..., 0] = 1.0
    k[..., :140, 0] = -math.inf
    check(name, q, k, v)


@dtypes
def test_large_scores_do_not_overflow(name: str, device: str, dtype: torch.dtype) -> None:
    q, k, v = inputs(device, dtype, (1, 2, 40, 64), (1, 2, 40, 64))
    check(name, q * 30, k * 30, v)


@dtypes
@pytest.mark.parametrize(
    ("q", "k"),
    [
        ((0, 2, 5, 8), (0, 2, 7, 8)),
        ((2, 0, 5, 8), (2, 0, 7, 8)),
        ((2, 0, 5, 8), (2, 3, 7, 8)),
        ((2, 2, 0, 8), (2, 2, 7, 8)),
        ((2, 2, 5, 8), (2, 2, 0, 8)),
        ((2, 2, 5, 0), (2, 2, 7, 0)),
        ((2, 2, 0, 8), (2, 2, 0, 8)),
    ],
)
def test_empty(name: str, device: str, dtype: torch.dtype, q: tuple[int, ...], k: tuple[int, ...]) -> None:
    tensors = inputs(device, dtype, q, k)
    for is_causal in (False, True):
        out = check(name, *tensors, is_causal=is_causal)
        if q[1] == k[1]:
            # By the plain formula: torch 2.11's fused kernel for the CPU divides by the number of heads, here 0.
            with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
                sdpa = torch.nn.functional.scaled_dot_product_attention(
                    *(t.cpu().float() for t in tensors), is_causal=is_causal
                )
            torch.testing.assert_close(out.cpu().float(), sdpa)


def test_many_heads(name: str, device: str) -> None:
    """More (batch, head) pairs than the second dimension of a CUDA grid may have."""
    q, k, v = inputs(device, torch.float16, (70_000, 1, 1, 4), (70_000, 1, 2, 4))
    check(name, q, k, v)
