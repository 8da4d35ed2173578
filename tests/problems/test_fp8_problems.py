"""Fp8Gemm and GroupedGemm: their answers, costs and hard inputs, and planted faults, each of which is found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="problems are drawn with torch")

from perfsuite import Fp8Gemm, GroupedGemm  # noqa: E402
from perfsuite.oracle import examine  # noqa: E402
from perfsuite.problems import Inputs  # noqa: E402
from perfsuite.problems.fp8 import BLOCK, spread, values_of  # noqa: E402
from tests.corpus.planted import FP8, planted  # noqa: E402

PRODUCTS = [
    Fp8Gemm(64, 64, 384),
    Fp8Gemm(8, 528, 256, scales="row", a_dtype="float8_e5m2"),
    Fp8Gemm(40, 136, 272, scales="block"),
    Fp8Gemm(96, 96, 1024, scales="block", out_dtype="float32"),
    Fp8Gemm(64, 64, 1024, scales="row", out_dtype="float16"),
]
GROUPED = [
    GroupedGemm(4, 16, 80, 256),
    GroupedGemm(3, 20, 136, 272, scales="block", masked=True, out_dtype="float16"),
    GroupedGemm(3, 24, 128, 384, scales="tensor"),
]
PROBLEMS: list[Any] = [*PRODUCTS, *GROUPED]
problems = pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Thousands of small products, for which threads would wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(5)


def plain(problem: Any, inputs: Inputs) -> torch.Tensor:
    """Element by element of the scales, in float64: nothing shared with the family's way."""
    a, b, scale_a, scale_b, *groups = inputs.args
    out = torch.zeros((*a.shape[:-1], b.shape[-2]), dtype=torch.float64)

    def one(numbers: torch.Tensor, scale: torch.Tensor, row: int, height: int) -> torch.Tensor:
        wide = numbers[row].double()
        if scale.dim() == 0:
            return wide * scale.double()
        if scale.dim() == 1:
            return wide * scale[row].double()
        return wide * scale[row // height, torch.arange(len(wide)) // 128].double()

    def product(a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor) -> torch.Tensor:
        left = torch.stack([one(a, scale_a, row, 1) for row in range(len(a))])
        return left @ torch.stack([one(b, scale_b, row, 128) for row in range(len(b))]).T

    if not groups:
        return product(a, b, scale_a, scale_b)
    first = 0
    for group, size in enumerate(groups[0].tolist()):
        rows: Any = (group, slice(0, size)) if problem.masked else slice(first, size)
        if len(a[rows]):
            out[rows] = product(a[rows], b[group], scale_a[rows] if scale_a.dim() else scale_a, scale_b[group])
        first = size
    return out


@problems
def test_the_reference_is_the_formula(problem: Any) -> None:
    for distribution in ("normal", "dominant"):
        inputs = problem.inputs(generator(), distribution=distribution)
        torch.testing.assert_close(problem.answer(inputs), plain(problem, inputs), rtol=1e-12, atol=1e-12)
    if problem.row_count:
        rows = torch.tensor([1, 5])
        torch.testing.assert_close(problem.answer(inputs, rows=rows), problem.answer(inputs)[rows])


@problems
def test_the_libraries_are_right(problem: Any) -> None:
    assert examine(problem, problem.rival("promoted"), generator()).ok
    inputs = problem.inputs(generator())
    right = problem.answer(inputs)
    for name in ("bfloat16", "scaled_mm"):
        if name == "scaled_mm" and (problem.scales == "block" or isinstance(problem, GroupedGemm)):
            continue  # torch has these for GPUs
        found = inputs.call(problem.rival(name)).double()
        assert (found - right).norm() < 0.01 * right.norm()


def test_hard_values() -> None:
    problem = Fp8Gemm(300, 200, 1024, scales="block")
    a, _, scale_a, _ = problem.inputs(generator(), distribution="dominant").args
    assert (scale_a == 0).any()
    assert scale_a.max() / scale_a[scale_a > 0].min() > 2**10
    assert (a.float().abs() == 448).all(-1).any()
    inputs = problem.inputs(generator(), distribution="cancellation")
    a, b, scale_a, scale_b = inputs.args
    left, right = values_of(a, scale_a, 1, torch.float64), values_of(b, scale_b, BLOCK, torch.float64)
    assert (left @ right.T).norm() < 0.1 * (left.abs() @ right.abs().T).norm()


def test_hard_groups() -> None:
    """One group with all rows and one with none."""
    sizes = GROUPED[0].inputs(generator(), distribution="dominant").args[4].diff(prepend=torch.zeros(1))
    assert sorted(sizes.tolist()) == [0, 0, 0, 64]
    masked = replace(GROUPED[1], groups=4).inputs(generator(), distribution="dominant").args[4]
    assert sorted(masked.tolist()) == [0, 0, 40, 40]
    ordinary = GROUPED[0].inputs(generator()).args[4]
    assert int(ordinary[-1]) == 64


@pytest.mark.parametrize(
    ("problem", "fault"),
    [
        pytest.param(problem, name, id=f"{name}-{problem.name}")
        for problem in PROBLEMS
        for name, fault in FP8.items()
        if fault.fits(problem) and not name.startswith("sums in few bits")
    ],
)
def test_planted_faults_are_wrong(problem: Any, fault: str) -> None:
    assert not examine(problem, planted(problem, fault), generator(), adversarial=False).ok


def cut_off(values: torch.Tensor, exponent: torch.Tensor | None = None) -> torch.Tensor:
    """Values of 14 bits, of which the first is that of 2 ** exponent, or each value's own."""
    exponent = values.frexp().exponent if exponent is None else exponent
    return torch.ldexp(torch.ldexp(values, 14 - exponent).trunc(), exponent - 14)


def short_sums(problem: Any, promote: int, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """The product as a tensor core forms it: 32 of k at a time, cut off 13 bits below the first of the largest term.

    The sum so far is a term. promote: after so many of k the sum is added to one in float32, and begins anew.
    """
    a, b, scale_a, scale_b = args
    left, right = a.double(), b.double()
    sums = torch.zeros(a.shape[0], b.shape[0])
    for start in range(0, problem.k, promote):
        core = torch.zeros(sums.shape, dtype=torch.float64)
        for at in range(start, min(start + promote, problem.k), 32):
            products = left[:, None, at : at + 32] * right[None, :, at : at + 32]
            terms = torch.cat([core[..., None], products], dim=-1)
            exponent = terms.abs().amax(-1).frexp().exponent
            core = cut_off(cut_off(terms, exponent[..., None]).sum(-1))
        factor = torch.ones(())
        if scale_a.dim() == 2:
            block = start // BLOCK
            factor = scale_a[:, block, None] * scale_b[:, block].repeat_interleave(BLOCK)[: problem.n]
        sums += core.float() * factor
    if scale_a.dim() < 2:
        sums *= spread(scale_a, sums, 1) * scale_b
    return sums.to(options["out_dtype"])


@pytest.mark.parametrize(
    ("problem", "distribution"),
    [
        pytest.param(Fp8Gemm(16, 256, 16384, out_dtype="float32"), "normal", id="float32 of 16384"),
        *(
            pytest.param(Fp8Gemm(64, 64, k, scales=scales, out_dtype=out), "cancellation", id=f"{k}-{scales}-{out}")
            for k, scales, out in ((1024, "tensor", "float32"), (1024, "row", "bfloat16"), (4096, "row", "bfloat16"))
        ),
    ],
)
def test_sums_in_few_bits_are_wrong_where_promotion_is_promised(problem: Fp8Gemm, distribution: str) -> None:
    """Against the error of promoted sums of the same kind, which is what a GPU's yardstick has."""

    def sums(promote: int) -> Callable[..., Any]:
        return lambda *args, **options: short_sums(problem, promote, args, options)

    judged = partial(examine, problem, generator=generator(), rival=sums(BLOCK), distribution=distribution)
    assert judged(candidate=sums(BLOCK), adversarial=False).ok
    found = judged(candidate=sums(problem.k), adversarial=False)
    assert not found.ok, found.sentence


def test_fast_sums_are_held_to_a_product_in_bfloat16() -> None:
    """Never to those of a library that sums fast: what such a one gives may be as wrong as the candidate."""
    problem = Fp8Gemm(64, 64, 1024, fast_sums=True)
    assert problem.yardstick == "bfloat16"
    assert problem.library() is not problem.rival("scaled_mm")
    assert replace(problem, fast_sums=False).yardstick == "promoted"


@pytest.mark.parametrize(
    ("k", "distribution", "wrong"),
    [
        (1024, "normal", None),
        (1024, "constant-rows", 1024),
        (2048, "constant-rows", 2048),
        (1152, "cancellation", 2 * BLOCK),
        (1600, "cancellation", 2 * BLOCK),
        (4224, "cancellation", 2 * BLOCK),
    ],
)
def test_fast_sums_are_promoted_too(k: int, distribution: str, wrong: int | None) -> None:
    """Sums over all of k lose more of equal terms the longer they are.

    Of cancelling inputs, sums over 256 of k lose too much, unless both halves of k are multiples of 256. Sums over 128
    are within the limits everywhere.
    """
    problem = Fp8Gemm(64, 64, k, fast_sums=True)

    def found(promote: int) -> bool:
        def sums(*args: Any, **options: Any) -> torch.Tensor:
            return short_sums(problem, promote, args, options)

        return examine(problem, sums, generator(), distribution=distribution, adversarial=False).ok

    assert found(BLOCK)
    assert wrong is None or not found(wrong)


def test_costs_and_names() -> None:
    problem = Fp8Gemm(256, 512, 1024, scales="block")
    assert problem.flops == 2 * 256 * 512 * 1024
    assert problem.bytes == 768 * 1024 + 256 * 512 * 2 + (256 + 4) * 8 * 4
    assert problem.name == "256x512x1024 float8_e4m3fn->bfloat16 scale a block"
    assert Fp8Gemm(**problem.params) == problem  # type: ignore[arg-type]
    assert Fp8Gemm.parse("256x512x1024", ["scales", "block"]) == problem
    grouped = GroupedGemm(8, 128, 512, 1024, masked=True, fast_sums=True)
    assert grouped.name == "8x128x512x1024 float8_e4m3fn->bfloat16 scale a row masked fast sums"
    assert GroupedGemm(**grouped.params) == grouped  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Fp8Gemm(1, 8, 64, scales="column"), "scales is 'column'; it must be one of tensor, row, block"),
        (lambda: Fp8Gemm(1, 8, 64, a_dtype="float16"), "a_dtype is 'float16'; it must be one of float8_e4m3fn"),
        (lambda: GroupedGemm(1, 8, 64, 0), "k is 0; it must be a whole number"),
    ],
)
def test_what_is_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
