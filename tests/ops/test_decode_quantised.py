"""flash_decode on 8-bit caches against float64 on the dequantised ones: random caches and scales, what is refused.

CUDA_LLM_OPS_FUZZ_CALLS=2000 pytest --gpu tests/ops/test_decode_quantised.py   # as many random caches on the GPU
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the operators need torch")
hypothesis = pytest.importorskip("hypothesis", reason="the random caches need hypothesis")

import cuda_llm_ops  # noqa: E402
import decode_quantised_cases as cases  # noqa: E402
from hypothesis import HealthCheck, given, settings  # noqa: E402
from torch import Tensor  # noqa: E402

ASKED = os.environ.get("CUDA_LLM_OPS_FUZZ_CALLS")
CHECKS = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
both_caches = pytest.mark.parametrize("cache", cases.CACHES, ids=["e4m3", "int8"])


def test_random_caches(device: str) -> None:
    @settings(
        max_examples=int(ASKED or 50),
        deadline=None,
        database=None,
        derandomize=ASKED is None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(cases.decodes(device))
    def run(case: cases.Quantised) -> None:
        cases.assert_right(cuda_llm_ops.flash_decode(**case.arguments), case)

    run()


def test_every_number_of_a_cache(device: str) -> None:
    """One key of weight 1: the output is its value, all 256 numbers of a type; NaN of e4m3 as NaN."""
    for cache in cases.CACHES:
        value = torch.arange(256, dtype=torch.uint8).view(1, 2, 1, 128).view(cache).to(device)
        key = torch.zeros(1, 2, 1, 128, device=device).to(cache)
        q = torch.ones(1, 2, 1, 128, device=device, dtype=torch.float16)
        lens = torch.ones(1, dtype=torch.int32, device=device)
        out = cuda_llm_ops.flash_decode(q, key, value, lens)
        assert torch.equal(out.nan_to_num(1000.0), value.to(torch.float16).nan_to_num(1000.0))


def on(device: str, case: cases.Quantised) -> dict[str, Any]:
    return {name: value.to(device) if isinstance(value, Tensor) else value for name, value in case.arguments.items()}


@both_caches
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", cases.kernels())
def test_small_calls(device: str, name: str, dtype: torch.dtype, cache: torch.dtype) -> None:
    """Those of test_sanitize.py, which reach every kernel."""
    if device == "cpu" and (dtype == torch.bfloat16 or "even" in name):
        pytest.skip("the CPU has one kernel")
    case = cases.small(dtype, cache, **cases.kernels()[name])
    cases.assert_right(cuda_llm_ops.flash_decode(**on(device, case)).cpu(), case)


@both_caches
@pytest.mark.parametrize("kind", ["head", "token"])
@pytest.mark.parametrize(("dtype", "heads"), [(torch.bfloat16, 16), (torch.float32, 4)], ids=["bfloat16", "float32"])
def test_errors_are_those_of_float32(
    device: str, dtype: torch.dtype, heads: int, kind: str, cache: torch.dtype
) -> None:
    """At most 1.2 of those of plain attention in float32, where many keys share the weight.

    In float16 they are 1.41 of those: there a weight's rounding is as large as a result's.
    """
    generator, lengths = torch.Generator().manual_seed(3), (9000 if device == "cuda" else 2500, 40)
    top = 127.0 if cache == torch.int8 else 448.0
    numbers: list[list[Tensor]] = [[], []]
    for side in numbers:
        for length in lengths:
            wide = (torch.randn(2, length, 128, generator=generator) * top / 4).clamp(-top, top)
            side.append((wide.round() if cache == torch.int8 else wide).to(cache))
    of = [0.01 + 0.01 * torch.rand(2, length, generator=generator) for length in lengths]
    scales = [one if kind == "token" else one[:, :1].expand(one.shape).contiguous() for one in of]
    scales = [scales[0], scales[0][:, : lengths[1]]] if kind == "head" else scales
    q = torch.randn(2, 2 * heads, 1, 128, generator=generator).to(dtype).to(device)
    case = cases.make(q, (numbers[0], numbers[1]), (scales, scales), kind)
    out = cuda_llm_ops.flash_decode(**case.arguments).double().cpu()
    errors = [0.0, 0.0]
    for b, (keys, values) in enumerate(zip(case.keys, case.values, strict=True)):
        found = []
        for wide in (torch.float64, torch.float32):
            k, v = (one.cpu().to(wide).repeat_interleave(heads, 0) for one in (keys, values))
            scores = (q[b].cpu().to(wide) * 128**-0.5) @ k.mT
            found.append(scores.softmax(-1) @ v)
        for place, one in enumerate((out[b], found[1].to(dtype).double())):
            errors[place] += float((one - found[0]).square().sum())
    assert errors[0] <= 1.2**2 * errors[1], math.sqrt(errors[0] / errors[1])


@both_caches
def test_scales_of_values_over_many_magnitudes(device: str, cache: torch.dtype) -> None:
    """A small weight with a large scale is as much as a large weight with a small one: neither may be lost."""
    length, generator = 200, torch.Generator().manual_seed(0)
    q = torch.zeros(1, 8, 1, 128, dtype=torch.float16, device=device)
    q[..., 0] = 1.0
    numbers = [[torch.ones(1, length, 128).to(cache)], [torch.randint(1, 9, (1, length, 128), generator=generator)]]
    numbers[1] = [one.to(cache) for one in numbers[1]]
    numbers[0][0].view(torch.uint8)[..., 1:] = 0
    k_scale = torch.linspace(0.0, 30.0, length)[None]  # scores, since scale is 1
    v_scale = 0.01 * torch.exp(30.0 - k_scale)
    case = cases.make(q, (numbers[0], numbers[1]), ([k_scale], [v_scale]), "token", scale=1.0)
    out = cuda_llm_ops.flash_decode(**case.arguments)
    right = (torch.softmax(k_scale.double(), 1)[..., None] * case.values[0]).sum(1)
    assert (out[0, :, 0].double().cpu() / right - 1.0).abs().max() < 2e-3


@both_caches
@pytest.mark.parametrize("kind", ["cache", "token"])
@pytest.mark.parametrize("group", [1, 8, 16])
def test_the_rounding_of_a_weight_cancels_where_one_key_has_nearly_all(
    device: str, group: int, kind: str, cache: torch.dtype
) -> None:
    """Then the error is that of rounding the output, and no more: what is divided by is the sum of rounded weights."""
    generator = torch.Generator().manual_seed(0)
    heads, length = 32, 400
    scores = torch.full((heads, length), -60.0)
    scores[:, ::16] = 0.0  # each tile has one, so that a weight's power is that of an earlier tile
    scores[:, 390] = 5.0
    numbers_k = torch.zeros(heads, length, 128)
    numbers_k[..., 0] = scores
    numbers_v = torch.randint(-100, 100, (heads, length, 128), generator=generator).float()
    v_scale = torch.full((heads, length), 0.01)
    if kind == "token":
        v_scale *= 0.5 + torch.rand(heads, length, generator=generator)
    q = torch.zeros(1, heads * group, 1, 128, device=device, dtype=torch.float16)
    q[..., 0] = 1.0
    numbers = [numbers_k.to(cache)], [numbers_v.to(cache)]
    case = cases.make(q, numbers, ([torch.ones(heads, length)], [v_scale]), kind, scale=1.0)
    out = cuda_llm_ops.flash_decode(**case.arguments).cpu()
    weights = torch.softmax(case.keys[0][..., :1], dim=1)
    exact = (weights * case.values[0]).sum(1).repeat_interleave(group, dim=0)[None, :, None]
    error = torch.linalg.vector_norm(out.double() - exact)
    assert error < 1.1 * torch.linalg.vector_norm(exact.to(torch.float16).double() - exact)


@pytest.mark.parametrize("power", [-120, -30, 0, 30, 100])
def test_bfloat16_queries_of_any_size(device: str, power: int) -> None:
    """Beyond what float16 holds, each row by itself; the scale brings the scores back."""
    case = cases.small(torch.bfloat16, torch.int8, [300])
    q = case.arguments["q"]
    rows = 2.0 ** torch.arange(q.shape[1])[None, :, None, None]
    plain = cuda_llm_ops.flash_decode(**on(device, case) | {"q": (q * rows).to(device), "scale": 1e-3})
    many = cuda_llm_ops.flash_decode(
        **on(device, case) | {"q": (q * rows * 2.0**power).to(device), "scale": 1e-3 * 2.0**-power}
    )
    torch.testing.assert_close(many, plain, rtol=2**-7, atol=1e-3)


def test_nan_in_a_scale_that_is_seen_spoils_its_heads_alone(device: str) -> None:
    for name in ("k_scale", "v_scale"):
        case = cases.small(torch.float16, torch.int8, [100, 40])
        case.arguments[name][0, 1, 7] = math.nan
        out = cuda_llm_ops.flash_decode(**on(device, case))
        assert out[0, 3:].isnan().all(), name
        assert not out[0, :3].isnan().any(), name
        assert not out[1].isnan().any(), name


def test_the_newest_query_alone_sees_the_newest_scale(device: str) -> None:
    case = cases.small(torch.float16, torch.float8_e4m3fn, [70], seq_q=3)
    case.arguments["v_scale"][0, :, 69] = math.nan
    case.arguments["k_scale"][0, :, 69] = math.nan
    out = cuda_llm_ops.flash_decode(**on(device, case))
    assert not out[:, :, :2].isnan().any()
    assert out[:, :, 2].isnan().all()


@both_caches
def test_opcheck(device: str, cache: torch.dtype) -> None:
    operator = torch.ops.cuda_llm_ops.flash_decode_quantised.default
    for kind, page_size in (("none", None), ("head", 16), ("token", None)):
        given = on(device, cases.small(torch.float16, cache, [40, 20], head_dim=64, page_size=page_size, kind=kind))
        names = ("q", "k_cache", "v_cache", "cache_lens", "block_table", "k_scale", "v_scale")
        # torch's check of the schema multiplies floating-point inputs, which it cannot in e4m3.
        checks = [check for check in CHECKS if cache == torch.int8 or check != "test_schema"]
        torch.library.opcheck(operator, tuple(given.get(name) for name in names), {}, test_utils=checks)


def test_compiles_without_a_graph_break(device: str) -> None:
    torch.compiler.reset()
    given = on(device, cases.small(torch.float16, torch.int8, [40, 20]))
    compiled = torch.compile(
        lambda **x: cuda_llm_ops.flash_decode(**x) * 2, fullgraph=True, dynamic=True, backend="aot_eager"
    )
    torch.testing.assert_close(compiled(**given), cuda_llm_ops.flash_decode(**given) * 2)


def test_autocast_casts_the_queries_alone(device: str) -> None:
    given = on(device, cases.small(torch.float32, torch.float8_e4m3fn, [40, 20]))
    with torch.autocast(device, torch.bfloat16):
        out = cuda_llm_ops.flash_decode(**given)
    expected = cuda_llm_ops.flash_decode(**given | {"q": given["q"].to(torch.bfloat16)})
    assert out.dtype == torch.bfloat16
    assert torch.equal(out, expected)


Change = Callable[[dict[str, Any]], dict[str, Any]]


def put(name: str, change: Callable[[Tensor], Any]) -> Change:
    return lambda given: given | {name: change(given[name])}


TYPE, VALUE = TypeError, ValueError
ERRORS: dict[str, tuple[Change, type[Exception], str]] = {
    "one scale": (put("v_scale", lambda t: None), VALUE, "v_scale is None; give both scales or neither"),
    "float16 scale": (put("k_scale", Tensor.half), TYPE, "k_scale is float16; it must be float32"),
    "number for a scale": (put("k_scale", lambda t: 0.5), TYPE, "k_scale is of type float"),
    "scales of other heads": (put("k_scale", lambda t: t[0, :1, 0]), VALUE, "k_scale has shape (1,) but k_cache has"),
    "scales of other tokens": (
        put("v_scale", lambda t: t[:, :, :9]),
        VALUE,
        "v_scale has shape (2, 2, 9) but v_cache has (2, 2, 40, 64); it must have no dimension (one scale), "
        "(kv_heads,), or the shape of v_cache without head_dim",
    ),
    "2-D scales": (put("k_scale", lambda t: t[0]), VALUE, "k_scale has shape (2, 40)"),
    "16-bit cache": (put("k_cache", Tensor.half), TYPE, "k_cache is float16; a cache with scales must be"),
    "e5m2": (
        lambda g: g | {n: g[n].to(torch.float8_e5m2) for n in ("k_cache", "v_cache")},
        TYPE,
        "k_cache is float8_e5m2; a cache with scales must be float8_e4m3fn or int8",
    ),
    "mixed caches": (put("v_cache", lambda t: t.to(torch.int8)), TYPE, "v_cache is int8 but k_cache is float8_e4m3fn"),
    "head_dim": (put("k_cache", lambda t: t[..., :8]), VALUE, "k_cache has head_dim 8 but q has 64"),
}


@pytest.mark.parametrize("what", ERRORS)
def test_what_is_refused(device: str, what: str) -> None:
    change, error, message = ERRORS[what]
    given = on(device, cases.small(torch.float16, torch.float8_e4m3fn, [40, 20], head_dim=64))
    with pytest.raises(error) as raised:
        cuda_llm_ops.flash_decode(**change(given))
    assert message in str(raised.value)


@pytest.mark.gpu
@both_caches
@pytest.mark.parametrize("kind", ["head", "token"])
@pytest.mark.parametrize("page_size", [None, 64])
def test_a_captured_graph_follows_the_lengths(page_size: int | None, kind: str, cache: torch.dtype) -> None:
    """Captured once, replayed while the sequences grow over the whole capacity."""
    case = cases.small(torch.float16, cache, [4096, 4096], page_size=page_size, kind=kind, seq_q=1)
    given = on("cuda", case)
    cuda_llm_ops.flash_decode(**given)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = cuda_llm_ops.flash_decode(**given)
    whole = case.keys, case.values, case.numbers, case.v_scales
    for lengths in ([1, 4096], [4096, 0], [65, 1000], [4096, 4096], [0, 0], [2048, 2049]):
        given["cache_lens"].copy_(torch.tensor(lengths, dtype=torch.int32))
        graph.replay()
        graph.replay()  # twice: what the first leaves behind must be what the second needs
        case.keys, case.values, case.numbers, case.v_scales = (
            [one[:, :n] for one, n in zip(side, lengths, strict=True)] for side in whole
        )
        cases.assert_right(out.cpu(), case)


@pytest.mark.gpu
@both_caches
@pytest.mark.parametrize("page_size", [None, 16])
def test_the_same_bits_every_time(page_size: int | None, cache: torch.dtype) -> None:
    given = on("cuda", cases.small(torch.float16, cache, [30000, 5, 777], page_size=page_size))
    first = cuda_llm_ops.flash_decode(**given)
    for _ in range(20):
        assert torch.equal(cuda_llm_ops.flash_decode(**given), first)


@pytest.mark.gpu
def test_pages_out_of_range_read_as_zeros_on_a_gpu() -> None:
    given = on("cuda", cases.small(torch.float16, torch.int8, [32, 20], page_size=32))
    given["block_table"][:] = torch.tensor([[2**31 - 1], [-1]], dtype=torch.int32)
    assert not cuda_llm_ops.flash_decode(**given).any()


@pytest.mark.gpu(min_capability=(9, 0))
def test_small_calls_reach_every_kernel() -> None:
    """Those that compute-sanitizer watches in test_sanitize.py."""
    calls = [
        cases.small(dtype, cache, **call)
        for dtype in (torch.float16, torch.bfloat16)
        for cache in cases.CACHES
        for call in cases.kernels().values()
    ]
    calls.append(cases.small(torch.float32, torch.int8, [70], head_dim=64))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for case in calls:
            cuda_llm_ops.flash_decode(**on("cuda", case))
        torch.cuda.synchronize()
    reached = {event.key for event in profile.key_averages() if "quantised_" in event.key}
    compiled = [
        kernel for kernel in cuda_llm_ops.kernel_attributes() if kernel["family"] == "flash_decode 8-bit caches"
    ]
    assert len(reached) == len(compiled), reached
