"""Decode with an 8-bit cache: its answer, its costs, its hard inputs, and planted faults, each of which is found."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="problems are drawn with torch")

from perfsuite import Decode  # noqa: E402
from perfsuite.oracle import examine  # noqa: E402
from perfsuite.problems import Inputs  # noqa: E402
from perfsuite.problems.distributions import DISTRIBUTIONS  # noqa: E402
from tests.corpus.planted import DECODE, decode, planted  # noqa: E402

PROBLEMS = [
    # With as many results as the oracle needs to judge by one draw.
    Decode(2, 16, 32, 128, kv_heads=2, cache_dtype="int8", cache_scales="token"),
    Decode(1, 12, 32, 128, kv_heads=2, seq_q=3, scale=0.2, cache_dtype="float8_e4m3fn"),
    Decode(3, 12, 48, 128, kv_heads=2, page_size=16, cache_dtype="float8_e4m3fn", cache_scales="token"),
    Decode(1, 32, 32, 128, kv_heads=2, page_size=16, cache_dtype="int8", cache_scales="cache", dtype="bfloat16"),
    Decode(2, 16, 32, 128, kv_heads=2, page_size=16, cache_dtype="int8", dtype="float32"),
]
problems = pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(5)


def plain(inputs: Inputs, scale: float) -> torch.Tensor:
    """Key by key through the table, in float64: nothing shared with the oracle's way."""
    q, k_cache, v_cache, lens, *rest = inputs.args
    table, scales = (rest[0] if rest else None), inputs.kwargs
    out = torch.zeros(q.shape, dtype=torch.float64)
    batch, heads, seq_q, _ = q.shape
    kv_heads = k_cache.shape[1 if table is None else 2]
    for b in range(batch):
        for h in range(heads):
            kv = h // (heads // kv_heads)

            def of(cache: torch.Tensor, scale: torch.Tensor, j: int, b: int = b, kv: int = kv) -> torch.Tensor:
                size = cache.shape[2 if table is None else 1]
                place = (b, kv, j) if table is None else (int(table[b, j // size]), j % size, kv)
                one = scale if scale.dim() == 0 else scale[kv] if scale.dim() == 1 else scale[place]
                return cache[place].double() * one.double()

            for i in range(seq_q):
                seen = range(int(lens[b]) - (seq_q - 1 - i))
                k, v = (
                    torch.stack([of(cache, scales[name], j) for j in seen])
                    for cache, name in ((k_cache, "k_scale"), (v_cache, "v_scale"))
                )
                weights = torch.softmax(scale * (k @ q[b, h, i].double()), 0)
                out[b, h, i] = weights @ v
    return out


@problems
def test_the_reference_is_the_formula(problem: Decode) -> None:
    inputs = problem.inputs(generator())
    torch.testing.assert_close(problem.answer(inputs), plain(inputs, problem.scaling), rtol=1e-12, atol=1e-12)


@problems
def test_the_libraries_are_right(problem: Decode) -> None:
    """SDPA less exactly than the one that sets the tolerance: it takes values rounded to the queries' dtype."""
    assert examine(problem, problem.rival("dequantised"), generator()).ok
    inputs = problem.inputs(generator())
    found, right = inputs.call(problem.rival("sdpa")).double(), problem.answer(inputs)
    assert (found - right).norm() < 0.01 * right.norm()


@problems
@pytest.mark.parametrize("distribution", [one for one in DISTRIBUTIONS if one != "non-finite"])
def test_hard_inputs_have_a_finite_answer(problem: Decode, distribution: str) -> None:
    assert problem.answer(problem.inputs(generator(), distribution=distribution)).isfinite().all()


def test_hard_caches_have_zeros_saturated_tokens_and_scales_of_many_magnitudes() -> None:
    problem = Decode(2, 4, 512, 32, kv_heads=2, cache_dtype="int8", cache_scales="token")
    inputs = problem.inputs(generator(), distribution="heavy-tails")
    numbers, scales = inputs.args[2].float(), inputs.kwargs["v_scale"]
    assert (scales == 0).any(-1).all()
    assert (numbers.abs() == 127).all(-1).any(-1).all()
    assert scales.max() / scales[scales > 0].min() > 2**8


@problems
def test_what_the_faults_are_planted_in_is_right(problem: Decode) -> None:
    assert examine(problem, lambda *args, **options: decode(problem, args, options), generator()).ok


@pytest.mark.parametrize(
    ("problem", "fault"),
    [
        pytest.param(problem, name, id=f"{name}-{problem.name}")
        for problem in PROBLEMS
        for name, fault in DECODE.items()
        if fault.fits(problem)
    ],
)
def test_planted_faults_are_wrong(problem: Decode, fault: str) -> None:
    assert not examine(problem, planted(problem, fault), generator()).ok


def test_costs_and_name() -> None:
    problem = Decode(2, 8, 1024, 64, kv_heads=2, cache_dtype="int8")
    assert problem.bytes == 2 * (2 * 2 * 1024 * 64 + 2 * 8 * 64 * 2 + 4)
    token = Decode(2, 8, 1024, 64, kv_heads=2, cache_dtype="int8", cache_scales="token")
    assert token.bytes == problem.bytes + 2 * 2 * 2 * 1024 * 4
    assert problem.name == "2x8/2x1024x64 float16 int8 cache, scale a head"
    assert Decode(**token.params) == token  # type: ignore[arg-type]
    assert Decode.parse("2x8x1024x64", ["cache-dtype", "int8", "cache-scales", "token"]).cache_scales == "token"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Decode(1, 8, 64, 64, cache_dtype="int4"), "cache_dtype is 'int4'; it must be one of float8_e4m3fn"),
        (lambda: Decode(1, 8, 64, 64, cache_scales="row"), "cache_scales is 'row'; it must be one of cache, head"),
    ],
)
def test_what_is_refused(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match=message):
        make()
