"""gemm and tensor_core_gemm against float64: shapes, dtypes, transpositions, layouts, alpha and beta, empty tensors."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch", reason="the operators need torch")

import cuda_llm_ops  # noqa: E402
import ops_reference as reference  # noqa: E402
from torch import Tensor  # noqa: E402

DTYPES = [("gemm", dtype) for dtype in reference.DTYPES] + [
    ("tensor_core_gemm", dtype) for dtype in reference.DTYPES[1:]
]
kernels = pytest.mark.parametrize(("name", "dtype"), DTYPES, ids=lambda value: str(value).removeprefix("torch."))


def normal(device: str, dtype: torch.dtype, *shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(hash(shape) & 0xFFFF)
    return torch.randn(shape, generator=generator).to(device, dtype)


def check(name: str, a: Tensor, b: Tensor, **options: object) -> Tensor:
    out = getattr(cuda_llm_ops, name)(a, b, **options)
    assert out.dtype == (a.dtype if name == "gemm" else torch.float32)
    assert out.device == a.device
    assert out.is_contiguous()
    reference.assert_right(out, reference.gemm(a, b, out.dtype, **options))  # type: ignore[arg-type]
    return out


SIZES = [
    (1, 1, 1), (1, 1, 100), (1, 100, 1), (100, 1, 1), (1, 64, 64), (64, 1, 64), (64, 64, 1), (2, 3, 4), (7, 13, 17),
    (16, 16, 16), (31, 33, 29), (64, 64, 64), (65, 63, 66), (128, 128, 32), (129, 130, 131), (200, 8, 300),
    (8, 200, 72), (256, 128, 64),
]  # fmt: skip


@kernels
@pytest.mark.parametrize(("m", "n", "k"), SIZES)
def test_sizes(name: str, device: str, dtype: torch.dtype, m: int, n: int, k: int) -> None:
    check(name, normal(device, dtype, m, k), normal(device, dtype, k, n))


@pytest.mark.parametrize("dtype", reference.DTYPES, ids=str)
@pytest.mark.parametrize("trans_a", [False, True])
@pytest.mark.parametrize("trans_b", [False, True])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 5, 3), (37, 41, 43), (128, 136, 72)])
def test_transposed_by_flag(
    device: str, dtype: torch.dtype, trans_a: bool, trans_b: bool, m: int, n: int, k: int
) -> None:
    a = normal(device, dtype, *((k, m) if trans_a else (m, k)))
    b = normal(device, dtype, *((n, k) if trans_b else (k, n)))
    check("gemm", a, b, trans_a=trans_a, trans_b=trans_b)


LAYOUTS = {
    "transposed": lambda x: x.mT.contiguous().mT,
    "padded rows": lambda x: torch.nn.functional.pad(x, (0, 3))[..., : x.shape[-1]],
    "padded columns": lambda x: torch.nn.functional.pad(x.mT, (0, 5))[..., : x.shape[-2]].mT,
    "odd offset": lambda x: torch.cat([x.new_zeros(1), x.flatten()])[1:].view(x.shape),
    "every second column": lambda x: x.repeat_interleave(2, dim=-1)[..., ::2],
    "every second row": lambda x: x.repeat_interleave(2, dim=-2)[..., ::2, :],
    "every second of both": lambda x: x.repeat_interleave(2, dim=-1).repeat_interleave(2, dim=-2)[..., ::2, ::2],
    "one row expanded": lambda x: x[..., :1, :].expand(x.shape),
    "one column expanded": lambda x: x[..., :1].expand(x.shape),
    "one element expanded": lambda x: x[..., :1, :1].expand(x.shape),
    "negated view": torch._neg_view,
}


@kernels
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("m", "n", "k"), [(1, 9, 40), (9, 1, 40), (40, 72, 1), (64, 48, 72), (33, 35, 37)])
def test_layouts(name: str, device: str, dtype: torch.dtype, layout: str, m: int, n: int, k: int) -> None:
    a, b = normal(device, dtype, m, k), normal(device, dtype, k, n)
    view = LAYOUTS[layout]
    check(name, view(a), view(b))
    check(name, view(a), b)
    check(name, a, view(b))


@kernels
@pytest.mark.parametrize("batch", [1, 3])
def test_batches(name: str, device: str, dtype: torch.dtype, batch: int) -> None:
    a, b = normal(device, dtype, batch, 33, 40), normal(device, dtype, batch, 40, 72)
    check(name, a, b)
    check(name, a, b[0])
    check(name, a[0], b)
    check(name, a.expand(batch, 33, 40), b.mT.contiguous().mT)
    check(name, a.transpose(0, 1).contiguous().transpose(0, 1), b)  # the batch is not the slowest dimension


def test_many_batches(device: str) -> None:
    """More batches than the third dimension of a CUDA grid may have."""
    check("gemm", normal(device, torch.float16, 70_000, 2, 3), normal(device, torch.float16, 70_000, 3, 2))


@pytest.mark.parametrize("m_n", [(70_000 * 16, 2), (2, 70_000 * 16)])
def test_long_and_thin(device: str, m_n: tuple[int, int]) -> None:
    """More tiles along one side than the second dimension of a CUDA grid may have."""
    m, n = m_n
    check("gemm", normal(device, torch.float16, m, 3), normal(device, torch.float16, 3, n))


@pytest.mark.parametrize("dtype", reference.DTYPES, ids=str)
@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 1.0), (-0.5, 0.25), (0.0, 2.0), (2.0, 0.0), (0.0, 0.0)])
@pytest.mark.parametrize("k", [1, 40])
def test_alpha_and_beta(device: str, dtype: torch.dtype, alpha: float, beta: float, k: int) -> None:
    a, b, c = normal(device, dtype, 33, k), normal(device, dtype, k, 72), normal(device, dtype, 33, 72)
    check("gemm", a, b, alpha=alpha, beta=beta, c=c)
    check("gemm", a, b, alpha=alpha, beta=beta, c=c[:1].expand(33, 72))
    check("gemm", a, b, alpha=alpha, beta=beta, c=c.mT.contiguous().mT)
    check("gemm", a.expand(2, 33, k), b, alpha=alpha, beta=beta, c=c.expand(2, 33, 72))


def test_what_is_multiplied_by_zero_is_not_read(device: str) -> None:
    a, b, nan = torch.ones(4, 5), torch.ones(5, 6), torch.full((5, 6), math.nan)
    a, b, nan = a.to(device), b.to(device), nan.to(device)
    c = torch.ones(4, 6, device=device)
    assert torch.equal(cuda_llm_ops.gemm(a, b, beta=0.0, c=torch.full_like(c, math.nan)), a @ b)
    assert torch.equal(cuda_llm_ops.gemm(a, nan, alpha=0.0, beta=2.0, c=c), 2 * c)
    assert torch.equal(cuda_llm_ops.gemm(a, nan, alpha=0.0), torch.zeros_like(c))


@pytest.mark.parametrize("dtype", reference.DTYPES, ids=str)
@pytest.mark.parametrize(("m", "n", "k"), [(0, 5, 3), (4, 0, 3), (4, 5, 0), (0, 0, 0)])
def test_empty(device: str, dtype: torch.dtype, m: int, n: int, k: int) -> None:
    a, b, c = normal(device, dtype, m, k), normal(device, dtype, k, n), normal(device, dtype, m, n)
    torch.testing.assert_close(cuda_llm_ops.gemm(a, b), torch.mm(a, b))
    torch.testing.assert_close(cuda_llm_ops.gemm(a, b, beta=0.5, c=c), torch.addmm(c, a, b, beta=0.5))
    check("gemm", a.expand(0, m, k), b)
    if dtype != torch.float32:
        torch.testing.assert_close(cuda_llm_ops.tensor_core_gemm(a, b), torch.mm(a.float(), b.float()))


@kernels
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("k", [40, 64, 129])
def test_special_values_spoil_their_row_and_column_alone(
    name: str, device: str, dtype: torch.dtype, value: float, k: int
) -> None:
    a, b = normal(device, dtype, 33, k), normal(device, dtype, k, 72)
    a[5, k - 1] = value
    b[0, 7] = value
    out = check(name, a, b)
    spoiled = ~out.isfinite()
    assert spoiled[5].all()
    assert spoiled[:, 7].all()
    assert int(spoiled.sum()) == 33 + 72 - 1


def test_float16_overflows_to_infinity(device: str) -> None:
    a = torch.full((16, 64), 200.0, dtype=torch.float16, device=device)
    assert cuda_llm_ops.gemm(a, a.mT).isinf().all()
    assert (cuda_llm_ops.tensor_core_gemm(a, a.mT) == 64 * 200.0 * 200.0).all()


def test_float32_is_not_computed_in_less(device: str) -> None:
    """A value that TF32 or float16 cannot hold must come through."""
    a = torch.full((32, 32), 1.0 + 2.0**-20, device=device)
    assert torch.equal(cuda_llm_ops.gemm(a, torch.eye(32, device=device)), a)


@pytest.mark.parametrize("dtype", reference.DTYPES[1:], ids=str)
@pytest.mark.parametrize("trans_a", [False, True])
@pytest.mark.parametrize("trans_b", [False, True])
@pytest.mark.parametrize("aligned", ["neither", "a", "b"])
def test_odd_lines_of_a_large_product(
    device: str, dtype: torch.dtype, trans_a: bool, trans_b: bool, aligned: str
) -> None:
    """Large enough for a GPU to copy the operands whose lines do not begin at multiples of 16 bytes; one batch of NaN
    behind each view shows what is read beside it."""
    m, n, k = 603, 609, 617

    def view(rows: int, columns: int, even: bool) -> Tensor:
        pitch = columns + (-columns % 8 if even else 2)
        base = torch.full((rows * pitch + 9,), math.nan, device=device, dtype=dtype)
        made = base[0 if even else 3 :].as_strided((rows, columns), (pitch, 1))
        return made.copy_(normal(device, dtype, rows, columns))

    a = view(*((k, m) if trans_a else (m, k)), even=aligned == "a")
    b = view(*((n, k) if trans_b else (k, n)), even=aligned == "b")
    check("gemm", a, b, trans_a=trans_a, trans_b=trans_b)


@pytest.mark.parametrize("name", ["gemm", "tensor_core_gemm"])
def test_odd_lines_of_a_large_batch(name: str, device: str) -> None:
    a, b = normal(device, torch.float16, 3, 411, 403), normal(device, torch.float16, 3, 403, 409)
    check(name, a, b)
    check(name, a, b[1])
    check(name, a.mT.contiguous().mT, b.flip(0))
