"""Attention with a v that has fewer columns than q and k: results, gradients, and what torch is told of them."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the operators need torch")

import backward_cases as cases  # noqa: E402
import cuda_llm_ops  # noqa: E402
import ops_reference as reference  # noqa: E402
from torch import Tensor  # noqa: E402

operators = pytest.mark.parametrize("name", reference.ATTENTION)
dtypes = pytest.mark.parametrize("dtype", reference.DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))
DIMS = ((192, 128), (192, 64), (256, 192), (128, 64), (64, 1), (129, 128), (96, 33), (8, 7))
dims = pytest.mark.parametrize("dims", DIMS, ids=lambda dims: "of".join(map(str, dims)))


def made(device: str, dtype: torch.dtype, dims: tuple[int, int], seq_q: int = 70, seq_kv: int = 150) -> list[Tensor]:
    """q, k and v; batch 2, four query heads on two key heads."""
    generator = torch.Generator().manual_seed(0)
    shapes = (4, seq_q, dims[0]), (2, seq_kv, dims[0]), (2, seq_kv, dims[1])
    return [torch.randn(2, *shape, generator=generator).to(device, dtype) for shape in shapes]


def check(name: str, q: Tensor, k: Tensor, v: Tensor, is_causal: bool) -> None:
    out = getattr(cuda_llm_ops, name)(q, k, v, is_causal)
    assert (out.dtype, out.device, out.shape) == (q.dtype, q.device, (*q.shape[:3], v.shape[3]))
    assert out.is_contiguous()
    reference.assert_right(out, reference.attention(name, q, k, v, is_causal, None))


@operators
@dtypes
@dims
@pytest.mark.parametrize("is_causal", [False, True], ids=["full", "causal"])
def test_fewer_columns(name: str, device: str, dtype: torch.dtype, dims: tuple[int, int], is_causal: bool) -> None:
    check(name, *made(device, dtype, dims), is_causal)


LAYOUTS = {
    "transposed": lambda v: v.transpose(1, 2).contiguous().transpose(1, 2),
    "part of wider rows": lambda v: torch.cat([v, v.new_full(v.shape, torch.nan)], -1)[..., : v.shape[-1]],
    "columns apart": lambda v: v.mT.contiguous().mT,
    "from an odd address": lambda v: torch.cat([v.flatten()[:1], v.flatten()])[1:].view(v.shape),
    "one row for all": lambda v: v[:, :, :1].expand(v.shape),
}


@operators
@dtypes
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_of_v(name: str, device: str, dtype: torch.dtype, layout: str) -> None:
    q, k, v = made(device, dtype, (192, 128))
    check(name, q, k, LAYOUTS[layout](v), True)


@operators
def test_an_infinite_value_stays_in_its_column(name: str, device: str) -> None:
    q, k, v = made(device, torch.float16, (64, 40))
    v[:, :, 3, 5] = torch.inf
    out = getattr(cuda_llm_ops, name)(q, k, v)
    assert (out[..., 5] == torch.inf).all()
    assert out[..., :5].isfinite().all()
    assert out[..., 6:].isfinite().all()


@operators
@pytest.mark.parametrize(("seq_q", "seq_kv", "value_dim"), [(0, 7, 8), (5, 0, 8), (5, 7, 0), (1, 1, 1)])
def test_sizes_of_zero_and_one(name: str, device: str, seq_q: int, seq_kv: int, value_dim: int) -> None:
    q, k, v = made(device, torch.float16, (16, value_dim), seq_q, seq_kv)
    out = getattr(cuda_llm_ops, name)(q, k, v)
    assert out.shape == (2, 4, seq_q, value_dim)
    assert seq_kv or not out.any()


@dtypes
@pytest.mark.parametrize("dims", [(192, 128), (64, 33)], ids=str)
@pytest.mark.parametrize(
    "mask", [{}, {"window": (40, 9)}, {"is_causal": True, "bottom_right": True}, {"window": (5, -1)}], ids=str
)
def test_options(device: str, dtype: torch.dtype, dims: tuple[int, int], mask: dict[str, Any]) -> None:
    q, k, v = made(device, dtype, dims)
    causal, band = mask.get("is_causal", False), {key: mask[key] for key in mask if key != "is_causal"}
    out, lse = cuda_llm_ops.flash_attention(q, k, v, return_lse=True, **mask)
    assert out.shape == (*q.shape[:3], dims[1])
    reference.assert_right(out, reference.attention("flash_attention", q, k, v, causal, None, **band))
    reference.assert_right(lse, reference.log_sum_exp(q, k, causal, None, **band))


@dtypes
def test_packed_sequences(device: str, dtype: torch.dtype) -> None:
    q, k, v = (tensor[0].transpose(0, 1) for tensor in made(device, dtype, (96, 64)))
    ends = [torch.tensor(of, dtype=torch.int32, device=device) for of in ([0, 30, 30, 70], [0, 20, 90, 150])]
    out, lse = cuda_llm_ops.flash_attention_varlen(q, k, v, *ends, 40, 70, is_causal=True, return_lse=True)
    assert out.shape == (70, 4, 64)
    for (begin, end), (first, last) in (((0, 30), (0, 20)), ((30, 70), (90, 150))):
        alone = (q[begin:end], k[first:last], v[first:last])
        right = reference.attention("flash_attention", *(t.transpose(0, 1)[None] for t in alone), True, None)
        reference.assert_right(out[begin:end].transpose(0, 1)[None], right)
    assert lse.isfinite().all()


@pytest.mark.parametrize("dtype", reference.DTYPES, ids=str)
@pytest.mark.parametrize("packed", [False, True], ids=["one", "packed"])
@pytest.mark.parametrize("dims", [(192, 128), (40, 24)], ids=str)
def test_gradients(device: str, dtype: torch.dtype, packed: bool, dims: tuple[int, int]) -> None:
    lengths = ([60, 33], [80, 41]) if packed else ([60], [80])
    case = cases.Case(dtype, 1 if packed else 2, 4, 2, *lengths, *dims, right=0, with_lse=True, packed=packed)
    exact = cases.make(case, device)
    found = cases.gradients(case, exact, device)
    assert [one.shape for one in found] == [one.shape for one in (exact.q, exact.k, exact.v)]
    exact.check(case, found)


@operators
def test_gradients_of_all_operators(name: str, device: str) -> None:
    leaves = [tensor.requires_grad_() for tensor in made(device, torch.float32, (48, 20))]
    out = getattr(cuda_llm_ops, name)(*leaves, True)
    d_out = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(device)
    wide = [leaf.detach().double().requires_grad_() for leaf in leaves]
    right = torch.nn.functional.scaled_dot_product_attention(*wide, is_causal=True, enable_gqa=True)
    expected = torch.autograd.grad(right, wide, d_out.double())
    for found, exact in zip(torch.autograd.grad(out, leaves, d_out), expected, strict=True):
        torch.testing.assert_close(found.double(), exact, rtol=1e-3, atol=1e-4)


@operators
def test_what_torch_is_told(name: str, device: str) -> None:
    """Fake kernels have the shape of the result; compiled code, autocast and meta tensors rest on them."""
    q, k, v = made(device, torch.float16, (32, 24))
    torch.library.opcheck(getattr(torch.ops.cuda_llm_ops, name).default, (q, k, v, True))
    operator = getattr(cuda_llm_ops, name)
    leaves = tuple(tensor.requires_grad_() for tensor in (q, k, v))
    training = getattr(torch.ops.cuda_llm_ops, f"{name}_training").default
    checks = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
    torch.library.opcheck(training, (*leaves, True), test_utils=checks)
    torch.compiler.reset()
    compiled = torch.compile(operator, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(*leaves), operator(*leaves))
    with torch.autocast(device, torch.bfloat16):
        assert operator(q.float(), k.float(), v.float()).dtype == torch.bfloat16


def test_a_wider_v_is_refused_by_fake_kernels_too() -> None:
    q, v = torch.zeros(1, 1, 4, 8, device="meta"), torch.zeros(1, 1, 4, 9, device="meta")
    with pytest.raises(NotImplementedError, match="v has head_dim 9 and q has 8; that of v must not be larger"):
        torch.ops.cuda_llm_ops.flash_attention(q, q, v)
