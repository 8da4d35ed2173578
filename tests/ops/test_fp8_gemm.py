"""fp8_gemm and fp8_grouped_gemm against float64: random products, layouts, groups, and what is refused.

CUDA_LLM_OPS_FUZZ_CALLS=2000 pytest --gpu tests/ops/test_fp8_gemm.py   # as many random products on the GPU
"""

from __future__ import annotations

import os
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the operators need torch")
hypothesis = pytest.importorskip("hypothesis", reason="the random products need hypothesis")

import cuda_llm_ops  # noqa: E402
import fp8_cases as cases  # noqa: E402
from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch import Tensor  # noqa: E402

ASKED = os.environ.get("CUDA_LLM_OPS_FUZZ_CALLS")
CHECKS = ("test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)
fuzz = settings(
    max_examples=int(ASKED or 40),
    deadline=None,
    database=None,
    derandomize=ASKED is None,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)
SIZES = st.one_of(st.integers(1, 20), st.sampled_from([64, 100, 127, 128, 129, 200, 256, 300]))
INNER = st.one_of(st.integers(1, 40), st.sampled_from([127, 128, 129, 256, 400, 512, 1000, 1024]))


def run(device: str, case: cases.Case) -> None:
    operator = cuda_llm_ops.fp8_grouped_gemm if "groups" in case.arguments else cuda_llm_ops.fp8_gemm
    cases.assert_right(operator(**cases.on(device, case)), case)


def test_random_products(device: str) -> None:
    @fuzz
    @given(
        SIZES,
        SIZES,
        INNER,
        st.sampled_from(cases.SCALES),
        st.integers(0, 1000),
        st.sampled_from(FP8),
        st.sampled_from(cases.OUT),
        st.booleans(),
        st.sampled_from([0, 0, 16, 3]),
    )
    def check(
        m: int, n: int, k: int, kind: str, seed: int, dtype: torch.dtype, out: torch.dtype, bias: bool, padding: int
    ) -> None:
        case = cases.gemm(
            m, n, k, kind, seed, dtype=dtype, out_dtype=out, padding=padding, **{"bias": True} if bias else {}
        )
        run(device, case)

    check()


def test_random_groups(device: str) -> None:
    @fuzz
    @given(
        st.lists(st.one_of(st.just(0), SIZES), min_size=1, max_size=5),
        SIZES,
        INNER,
        st.sampled_from(cases.SCALES),
        st.integers(0, 1000),
        st.booleans(),
    )
    def check(sizes: list[int], n: int, k: int, kind: str, seed: int, masked: bool) -> None:
        case = cases.grouped(sizes, n, k, kind, seed, capacity=max(sizes) + 3 if masked else None, spare=seed % 3)
        run(device, case)

    check()


@pytest.mark.parametrize("fast", [False, True])
def test_sums_keep_what_cancels(device: str, fast: bool) -> None:
    """Large terms that cancel, and a small one between them that remains; k is long enough for many promotions."""
    k = 2048
    a, b = torch.ones(64, k), torch.ones(64, k)
    a[:, 0::2], a[:, 1::2] = 16.0, -16.0
    a[:, 700] += 2.0
    one = torch.ones((), device=device)
    a8, b8 = (x.to(FP8[0]).to(device) for x in (a, b))
    out = cuda_llm_ops.fp8_gemm(a8, b8, one, one, out_dtype=torch.float32, fast_sums=fast)
    assert (out == 2.0).all()


@pytest.mark.parametrize("fast", [False, True])
def test_equal_terms_are_not_lost(device: str, fast: bool) -> None:
    """A tensor core cuts off small terms beside a large sum: over all of 8192 they would be 7 to 20 % too small."""
    k = 8192
    row = (1.0 + torch.arange(8) / 8)[:, None].expand(8, k).to(FP8[0]).to(device)
    one = torch.ones((), device=device)
    for m in (8, 136):
        a = row.repeat(m // 8, 1)
        out = cuda_llm_ops.fp8_gemm(a, row, one, one, out_dtype=torch.float32, fast_sums=fast).double()
        right = a.double() @ row.double().T
        assert ((out - right).abs() / right).max() < 0.002


def test_every_number(device: str) -> None:
    """A product with one is the number itself; NaN and infinities stay what they are."""
    for dtype in FP8:
        a = torch.arange(256, dtype=torch.uint8, device=device).view(dtype)[:, None]
        b = torch.ones(1, 1, device=device).to(FP8[0])
        one = torch.ones((), device=device)
        out = cuda_llm_ops.fp8_gemm(a, b, one, one, out_dtype=torch.float32)
        assert torch.equal(out.nan_to_num(1e6), a.float().nan_to_num(1e6))


def test_edges(device: str) -> None:
    """No rows, no columns, nothing to sum; zeros where no group has a row."""
    for m, n, k in ((0, 4, 8), (4, 0, 8), (4, 3, 0)):
        a, b = (torch.zeros(rows, k, device=device).to(FP8[0]) for rows in (m, n))
        one, bias = torch.ones((), device=device), torch.arange(n, device=device).bfloat16()
        out = cuda_llm_ops.fp8_gemm(a, b, one, one, bias=bias)
        assert torch.equal(out, bias.expand(m, n))
    for capacity in (None, 6):
        run(device, cases.grouped([0, 5, 0], 33, 70, "row", capacity=capacity, spare=4))
    run(device, cases.grouped([], 33, 70, "row", spare=4))


def test_scales_of_any_strides(device: str) -> None:
    """torch keeps scales of 1 x 128 column-major; expanded ones share memory."""
    case = cases.gemm(70, 130, 300, "block")
    arguments = cases.on(device, case)
    arguments["scale_a"] = arguments["scale_a"].T.contiguous().T
    cases.assert_right(cuda_llm_ops.fp8_gemm(**arguments), case)
    one = torch.full((), 0.5, device=device)
    shared = cuda_llm_ops.fp8_gemm(**arguments | {"scale_a": one.expand(70, 3), "scale_b": one.expand(2, 3)})
    plain = cuda_llm_ops.fp8_gemm(**arguments | {"scale_a": one, "scale_b": one})
    torch.testing.assert_close(shared, plain, rtol=2**-7, atol=1e-3)


def test_opcheck_and_compile(device: str) -> None:
    case = cases.on(device, cases.gemm(5, 7, 130, "block", bias=True, out_dtype=torch.bfloat16))
    tensors = [case.pop(name) for name in ("a", "b", "scale_a", "scale_b")]
    torch.library.opcheck(torch.ops.cuda_llm_ops.fp8_gemm.default, tensors, case, test_utils=CHECKS)
    groups = cases.on(device, cases.grouped([3, 4], 7, 130, "row"))
    torch.library.opcheck(
        torch.ops.cuda_llm_ops.fp8_grouped_gemm.default,
        tuple(groups.values()),
        {"out_dtype": torch.float16},
        test_utils=CHECKS,
    )
    compiled = torch.compile(lambda *x: cuda_llm_ops.fp8_gemm(*x) * 2, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(*tensors), cuda_llm_ops.fp8_gemm(*tensors) * 2)


def test_autocast_casts_nothing(device: str) -> None:
    case = cases.on(device, cases.gemm(5, 7, 130, "row", bias=True, out_dtype=torch.float32))
    plain = cuda_llm_ops.fp8_gemm(**case)
    with torch.autocast(device, dtype=torch.bfloat16):
        assert torch.equal(cuda_llm_ops.fp8_gemm(**case), plain)


A, B = torch.zeros(4, 256).to(FP8[0]), torch.zeros(6, 256).to(FP8[0])
ONE = torch.ones(())


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"b": B.T}, ValueError, r"b has shape \(256, 6\) and strides \(1, 256\); it must be K-major"),
        ({"a": A.T.contiguous().T}, ValueError, r"a has .* \(it is MN-major, a transposed view"),
        ({"b": B[:, :128]}, ValueError, r"inner size 256 but b \(6, 128\) has 128"),
        ({"a": A.half()}, TypeError, "a is float16; it must be float8_e4m3fn or float8_e5m2"),
        ({"b": B.to(FP8[1])}, TypeError, "b is float8_e5m2; it must be float8_e4m3fn"),
        ({"scale_a": ONE.half()}, TypeError, "scale_a is float16; it must be float32"),
        ({"scale_a": torch.ones(6)}, ValueError, r"scale_a has shape \(6,\).* allowed are \(\) or \(4,\)"),
        ({"scale_a": torch.ones(4, 2)}, ValueError, r"or \(4, 2\) with \(1, 2\)"),
        ({"bias": torch.ones(6)}, TypeError, "bias is float32; it must be bfloat16, which is out_dtype"),
        ({"bias": torch.ones(4)}, ValueError, r"bias has shape \(4,\); it must have \(6,\)"),
        ({"out_dtype": torch.int8}, TypeError, "out_dtype is int8; it must be bfloat16, float16 or float32"),
        ({"out_dtype": "half"}, TypeError, "out_dtype is of type str; it must be a torch.dtype"),
        ({"fast_sums": "no"}, TypeError, "fast_sums is of type str; it must be a bool"),
        ({"scale_b": 1.0}, TypeError, "scale_b is of type float; it must be a torch.Tensor"),
        ({"scale_b": torch.ones((), requires_grad=True)}, NotImplementedError, "scale_b requires grad"),
    ],
)
def test_what_is_refused(change: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match="fp8_gemm: .*" + message):
        cuda_llm_ops.fp8_gemm(**{"a": A, "b": B, "scale_a": ONE, "scale_b": ONE} | change)


@pytest.mark.parametrize(
    ("sizes", "error", "message"),
    [
        ([3, 2], ValueError, r"groups\[1\] is 2; it must be between 3 and 4"),
        ([3, 5], ValueError, r"groups\[1\] is 5; it must be between 3 and 4"),
        ([3], ValueError, r"groups has shape \(1,\); it must have \(2,\)"),
        ([3.0, 4.0], TypeError, "groups is float32; it must be int32"),
    ],
)
def test_groups_that_are_refused(sizes: list[float], error: type[Exception], message: str) -> None:
    groups: Tensor = torch.tensor(sizes)
    groups = groups if groups.is_floating_point() else groups.int()
    with pytest.raises(error, match="fp8_grouped_gemm: " + message):
        cuda_llm_ops.fp8_grouped_gemm(A, torch.stack([B, B]), ONE, ONE, groups)
