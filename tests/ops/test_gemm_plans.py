"""Matrix products on the GPU by every plan and of random shapes, layouts, types and scalars, against float64 there.

    pytest --gpu tests/ops/test_gemm_plans.py -k random                                       # 2,000 products, seed 0
    CUDA_LLM_OPS_GEMM_PRODUCTS=10000 CUDA_LLM_OPS_GEMM_SEED=7 pytest --gpu tests/ops/test_gemm_plans.py -k random

    plans="tests/ops/test_gemm_plans.py -k every_plan"
    PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --tool memcheck --error-exitcode 1 \\
        python -m pytest --gpu -q $plans
    compute-sanitizer --tool racecheck --error-exitcode 1 python -m pytest --gpu -q $plans
    compute-sanitizer --tool synccheck --error-exitcode 1 python -m pytest --gpu -q $plans

Under compute-sanitizer gemm_plans.cu, beside this file, is the quicker way: it runs every plan without torch.

A random product is right when every element is within the bound that float32 accumulation allows, and, where it has
enough elements for that to mean something, when its error as a whole, ||out - exact||, is at most 1.2 times that of
torch.matmul on the same operands, or what tensor cores cost where the library does without them: they cut a sum off
towards zero after every 16 terms, half a unit in the last place of the partial sum on average.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

torch = pytest.importorskip("torch", reason="the operators need torch")

import cuda_llm_ops  # noqa: E402
import ops_reference as reference  # noqa: E402
from torch import Tensor  # noqa: E402

PRODUCTS = int(os.environ.get("CUDA_LLM_OPS_GEMM_PRODUCTS", "2000"))
SEED = int(os.environ.get("CUDA_LLM_OPS_GEMM_SEED", "0"))
CHUNK = 100  # products of a test; their verdicts come back from the device together
WORSE_THAN_LIBRARY = 1.2
MANY = 4096  # elements: the error of fewer is as much luck as precision
MOST_MULTIPLICATIONS = 1 << 30

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def precise_library() -> Iterator[None]:
    """torch.matmul adds the parts of a product in float32, as the kernels do; no plan stays forced."""
    flags = torch.backends.cuda.matmul
    before = flags.allow_fp16_reduced_precision_reduction, flags.allow_bf16_reduced_precision_reduction
    flags.allow_fp16_reduced_precision_reduction = flags.allow_bf16_reduced_precision_reduction = False
    yield
    flags.allow_fp16_reduced_precision_reduction, flags.allow_bf16_reduced_precision_reduction = before
    if hasattr(cuda_llm_ops, "_C"):
        cuda_llm_ops._C.force_gemm_plan("")


def stored(value: Tensor, layout: str) -> Tensor:
    """The same matrices, in memory as `layout` says: rows or columns, and how their lines begin."""
    order, gap = layout.split()
    lines = value if order == "rows" else value.mT
    extra, offset = {"dense": (0, 0), "padded": (8, 8), "odd": (1, 1)}[gap]
    *outer, count, length = lines.shape
    pitch = length + extra
    memory = value.new_full((offset + math.prod(outer) * count * pitch,), math.nan)  # in the gaps: nobody may read them
    strides = [pitch, 1] if not outer else [count * pitch, pitch, 1]
    placed = memory.as_strided(lines.shape, strides, offset)
    placed.copy_(lines)
    return placed if order == "rows" else placed.mT


def plans(a: Tensor, b: Tensor) -> list[str]:
    """The Hopper path's plans for a product of matrices in memory as these are."""
    (m, k), n = a.shape[-2:], b.shape[-1]
    name = str(a.dtype).removeprefix("torch.")
    return cuda_llm_ops._C.gemm_plans(m, n, k, a.stride(-1) != 1, b.stride(-1) == 1, name)


LAYOUTS = ["rows dense", "columns dense"]


@pytest.mark.parametrize("dtype", reference.DTYPES[1:], ids=lambda dtype: str(dtype).removeprefix("torch."))
@pytest.mark.parametrize("of_b", LAYOUTS, ids=["b rows", "b columns"])
@pytest.mark.parametrize("of_a", LAYOUTS, ids=["a rows", "a columns"])
@pytest.mark.parametrize(("m", "n", "k"), [(200, 328, 392), (8, 264, 1032), (56, 200, 1096)])
def test_every_plan(m: int, n: int, k: int, of_a: str, of_b: str, dtype: torch.dtype) -> None:
    """Ragged at every edge, with c and without; twice in a row, so that a grid begins while one like it ends."""
    generator = torch.Generator().manual_seed(m)
    a = stored(torch.randn(m, k, generator=generator).to("cuda", dtype), of_a)
    b = stored(torch.randn(k, n, generator=generator).to("cuda", dtype), of_b)
    c = torch.randn(m, n, generator=generator).to("cuda", dtype)
    plain, added = reference.gemm(a, b, dtype), reference.gemm(a, b, dtype, alpha=0.5, beta=2.0, c=c)
    for name in plans(a, b) or [""]:
        cuda_llm_ops._C.force_gemm_plan(name)
        try:
            outs = [cuda_llm_ops.gemm(a, b) for _ in range(2)]
            reference.assert_right(outs[0], plain)
            assert torch.equal(outs[0], outs[1]), "the same product twice differs"
            reference.assert_right(cuda_llm_ops.gemm(a, b, alpha=0.5, beta=2.0, c=c), added)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from None


@pytest.mark.parametrize("dtype", reference.DTYPES[1:], ids=lambda dtype: str(dtype).removeprefix("torch."))
@pytest.mark.parametrize("of_b", LAYOUTS, ids=["b rows", "b columns"])
@pytest.mark.parametrize("of_a", ["columns dense", "columns padded"], ids=["dense", "padded"])
@pytest.mark.parametrize(
    ("m", "n", "k"), [(8, 264, 1032), (8, 4608, 1160), (24, 4544, 4539), (72, 6400, 1601), (120, 3072, 2047)]
)
def test_few_rows_of_a_that_is_stored_in_columns(
    m: int, n: int, k: int, of_a: str, of_b: str, dtype: torch.dtype
) -> None:
    """The rows are copied where that takes less time; twice in a row, so that a copy begins while one is read."""
    generator = torch.Generator().manual_seed(m)
    if of_b == "columns dense":
        k = k // 8 * 8  # else lines of b begin anywhere, which is for other copies
    a = stored(torch.randn(m, k, generator=generator).to("cuda", dtype), of_a)
    b = stored(torch.randn(k, n, generator=generator).to("cuda", dtype), of_b)
    c = torch.randn(m, n, generator=generator).to("cuda", dtype)
    others = [stored(torch.randn(m, k, generator=generator).to("cuda", dtype), of_a) for _ in range(2)]
    outs = [cuda_llm_ops.gemm(each, b) for each in (a, *others, a)]
    reference.assert_right(outs[0], reference.gemm(a, b, dtype))
    assert torch.equal(outs[0], outs[-1]), "the same product twice differs"
    reference.assert_right(outs[1], reference.gemm(others[0], b, dtype))
    added = cuda_llm_ops.gemm(a, b, alpha=0.5, beta=2.0, c=c)
    reference.assert_right(added, reference.gemm(a, b, dtype, alpha=0.5, beta=2.0, c=c))
    precise = cuda_llm_ops.tensor_core_gemm(a, b)
    assert (precise.double() - a.double() @ b.double()).norm() < 1e-5 * precise.double().norm()


@pytest.mark.parametrize("of_b", LAYOUTS, ids=["b rows", "b columns"])
@pytest.mark.parametrize("m", [8, 40, 72, 136])
def test_every_plan_that_fetches_ahead(m: int, of_b: str) -> None:
    """Weights of 32 MiB and more, ragged: a grid fetches what it reads first into L2 while the one before it ends."""
    products = [random_product(seed, m, 4104, 4136, "rows dense", of_b) for seed in range(2)]
    check_in_turn(products, plans(*products[0][:2]))


@pytest.mark.parametrize("of_b", LAYOUTS, ids=["b rows", "b columns"])
@pytest.mark.parametrize("of_a", LAYOUTS, ids=["a rows", "a columns"])
def test_every_plan_with_many_tiles_of_few_k_blocks(of_a: str, of_b: str) -> None:
    """A block has hardly begun to store a tile when the next is done."""
    products = [random_product(seed, 4104, 4112, 72, of_a, of_b) for seed in range(2)]
    check_in_turn(products, plans(*products[0][:2]))


@pytest.mark.parametrize("of_b", LAYOUTS, ids=["b rows", "b columns"])
@pytest.mark.parametrize(("m", "n", "k"), [(144, 5128, 3080), (333, 2568, 1544)])
def test_every_plan_with_parts_of_k(m: int, n: int, k: int, of_b: str) -> None:
    """A product's parts are added in a workspace's place that the next product's parts may take."""
    products = [random_product(seed, m, n, k, "rows dense", of_b) for seed in range(2)]
    names = [name for name in plans(*products[0][:2]) if " parts " in name]
    assert names or not plans(*products[0][:2])
    check_in_turn(products, names)


def random_product(seed: int, m: int, n: int, k: int, of_a: str, of_b: str) -> tuple[Tensor, Tensor, Tensor]:
    """Two float16 operands, and their product in float64."""
    generator = torch.Generator(device="cuda").manual_seed(seed)
    a = stored(torch.randn(m, k, generator=generator, device="cuda").half(), of_a)
    b = stored(torch.randn(k, n, generator=generator, device="cuda").half(), of_b)
    return a, b, a.double() @ b.double()


def check_in_turn(products: list[tuple[Tensor, Tensor, Tensor]], names: list[str]) -> None:
    """Each product three times, by each plan, one after the other. A few wrong elements are more than rounding."""
    for name in names or [""]:
        cuda_llm_ops._C.force_gemm_plan(name)
        for out, exact in [(cuda_llm_ops.gemm(a, b), exact) for a, b, exact in products * 3]:
            error = torch.linalg.vector_norm(out.double() - exact) / torch.linalg.vector_norm(exact)
            assert error < 2 * reference.rounding(out.dtype), f"{name}: {error:.3g}"


@dataclass(frozen=True)
class Random:
    """A product, drawn."""

    m: int
    n: int
    k: int
    batch: int
    of_a: str
    of_b: str
    dtype: torch.dtype
    operator: str
    alpha: float
    beta: float
    cancelling: bool
    plan: str  # "": as the operator chooses

    @property
    def out_dtype(self) -> torch.dtype:
        return self.dtype if self.operator == "gemm" else torch.float32

    @classmethod
    def drawn(cls, draw: random.Random) -> Random:
        def size(most: int) -> int:
            length = int(2 ** draw.uniform(0, math.log2(most)))
            unit = draw.choice((1, 1, 8, 8, 8, 64))
            return max(1, min(most, length // unit * unit or unit))

        m, n = size(4096), size(4096)
        k = size(max(1, min(16384, MOST_MULTIPLICATIONS // (m * n))))
        batch = draw.choice((0, 0, 0, 0, 0, 0, 1, 3)) if m * n * k < MOST_MULTIPLICATIONS // 4 else 0
        layouts = [
            f"{order} {gap}" for order in ("rows", "columns") for gap in ("dense", "dense", "padded", "padded", "odd")
        ]
        operator = draw.choice(("gemm", "gemm", "tensor_core_gemm"))
        plain = operator != "gemm" or draw.random() < 0.7
        return cls(
            m, n, k, batch, draw.choice(layouts), draw.choice(layouts),
            dtype=draw.choice(reference.DTYPES[1:]),
            operator=operator,
            alpha=1.0 if plain else draw.choice((0.5, -2.0)),
            beta=0.0 if plain else draw.choice((0.0, 1.0, -0.5)),
            cancelling=draw.random() < 0.4,
            plan="any" if draw.random() < 0.6 else "",
        )  # fmt: skip


def operands(product: Random) -> tuple[Tensor, Tensor]:
    """Normal; or in pairs along k whose products all but cancel."""
    outer = [product.batch] if product.batch else []
    a = torch.randn(*outer, product.m, product.k, device="cuda").to(product.dtype)
    b = torch.randn(*outer, product.k, product.n, device="cuda").to(product.dtype)
    if product.cancelling and product.k > 1:
        half = product.k // 2
        a[..., half : 2 * half] = a[..., :half]
        b[..., half : 2 * half, :] = -b[..., :half, :]
        b[..., half : 2 * half, :] += 2**-6 * torch.randn_like(b[..., :half, :])
    return stored(a, product.of_a), stored(b, product.of_b)


@pytest.mark.parametrize("chunk", range(-(-PRODUCTS // CHUNK)))
def test_random_products(chunk: int) -> None:
    draw = random.Random(f"{SEED} {chunk}")
    torch.manual_seed(SEED * 100_003 + chunk)
    drawn, verdicts = [], []
    for _ in range(min(CHUNK, PRODUCTS - chunk * CHUNK)):
        product = Random.drawn(draw)
        a, b = operands(product)
        names = plans(a, b) if product.plan else []
        plan = draw.choice(names) if names else ""
        cuda_llm_ops._C.force_gemm_plan(plan)
        c = None
        if product.beta:
            c = torch.randn(*a.shape[:-1], product.n, device="cuda").to(product.out_dtype)
        if product.operator == "gemm":
            out = cuda_llm_ops.gemm(a, b, alpha=product.alpha, beta=product.beta, c=c)
        else:
            out = cuda_llm_ops.tensor_core_gemm(a, b)
        drawn.append((product, plan))
        verdicts.append(verdict(out, a, b, c, product))
    wrong, error, rival, cut = torch.stack(verdicts).T.tolist()
    failures = [
        f"{product} {plan}: {int(wrong[i])} elements wrong, error {error[i]:.3g}, "
        f"torch.matmul's {rival[i]:.3g}, tensor cores' {cut[i]:.3g}"
        for i, (product, plan) in enumerate(drawn)
        if not (wrong[i] == 0 and error[i] <= max(WORSE_THAN_LIBRARY * rival[i], cut[i]))
    ]
    assert not failures, f"seed {SEED}, {len(failures)} of {len(drawn)}:\n" + "\n".join(failures)


def verdict(out: Tensor, a: Tensor, b: Tensor, c: Tensor | None, product: Random) -> Tensor:
    """How many elements are beyond the bound; the errors as a whole: of out, of the library, of tensor cores' sums."""
    exact = product.alpha * (a.double() @ b.double())
    magnitude = abs(product.alpha) * (a.double().abs() @ b.double().abs())
    if c is not None:
        exact += product.beta * c.double()
        magnitude += abs(product.beta) * c.double().abs()
    steps = 8.0 + 4.0 * math.sqrt(product.k)
    bound = 2 * reference.UNIT * steps * magnitude + 2 * reference.rounding(out.dtype) * exact.abs()
    wrong = ~((out.double() - exact).abs() <= bound + reference.tiny(out.dtype)) & (exact.to(out.dtype) != out)
    result = [wrong.sum().double()]
    if c is not None or product.m * product.n < MANY:
        return torch.stack([*result, exact.new_zeros(()), exact.new_full((), math.inf), exact.new_zeros(())])
    if product.batch:
        out, a, b, exact = out[0], a[0], b[0], exact[0]
    library = torch.mm(a, b) if out.dtype == a.dtype else torch.mm(a, b, out_dtype=out.dtype)
    size = torch.linalg.vector_norm(exact).clamp_min(1e-300)
    for one in (out, product.alpha * library):
        distance = torch.linalg.vector_norm(one.double() - exact) / size
        result.append(distance.clamp_min(reference.rounding(out.dtype) / 16))
    half = (product.k + 1) // 2  # the middle of the sum, which is not small where its end is
    partial = product.alpha * (a[:, :half].double() @ b[:half].double())
    result.append(math.ceil(product.k / 16) * reference.UNIT * torch.linalg.vector_norm(partial) / size)
    return torch.stack(result)
