"""flash_decode against float64: random caches of every layout, lengths that change under a graph, what is refused.

CUDA_LLM_OPS_FUZZ_CALLS=2000 pytest --gpu tests/ops/test_decode.py   # as many random caches on the GPU
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
import decode_cases as cases  # noqa: E402
from hypothesis import HealthCheck, given, settings  # noqa: E402
from torch import Tensor  # noqa: E402

ASKED = os.environ.get("CUDA_LLM_OPS_FUZZ_CALLS")


def test_random_caches(device: str) -> None:
    @settings(
        max_examples=int(ASKED or 150),
        deadline=None,
        database=None,
        derandomize=ASKED is None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(cases.decodes(device))
    def run(case: cases.Decode) -> None:
        cases.assert_right(cuda_llm_ops.flash_decode(**case.arguments), case)

    run()


def call(device: str, dtype: torch.dtype = torch.float16, length: int = 40) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (
        torch.randn(shape, generator=generator).to(device, dtype)
        for shape in ((2, 4, 1, 64), (2, 2, length, 64), (2, 2, length, 64))
    )
    lens = torch.tensor([length, length // 2], dtype=torch.int32, device=device)
    return {"q": q, "k_cache": k, "v_cache": v, "cache_lens": lens}


def case_of(arguments: dict[str, Any]) -> cases.Decode:
    lens = arguments["cache_lens"].tolist()
    keys, values = (
        [arguments[name][b, :, :length] for b, length in enumerate(lens)] for name in ("k_cache", "v_cache")
    )
    return cases.Decode(dict(arguments), keys, values)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_whole_tokens_agree_with_flash_attention(device: str, dtype: torch.dtype) -> None:
    """One query that sees every key is what prefill computes."""
    given = call(device, dtype)
    given["cache_lens"].fill_(40)
    out = cuda_llm_ops.flash_decode(**given)
    expected = cuda_llm_ops.flash_attention(given["q"], given["k_cache"], given["v_cache"])
    torch.testing.assert_close(out, expected, rtol=2e-2 if dtype == torch.bfloat16 else 2e-3, atol=2e-3)


def test_no_key_at_all_gives_zeros(device: str) -> None:
    given = call(device)
    given["cache_lens"].zero_()
    assert not cuda_llm_ops.flash_decode(**given).any()
    given = call(device, length=0)
    assert not cuda_llm_ops.flash_decode(**given).any()


def test_empty_batches_and_queries(device: str) -> None:
    given = call(device)
    assert cuda_llm_ops.flash_decode(**{name: t[:0] for name, t in given.items()}).shape == (0, 4, 1, 64)
    assert cuda_llm_ops.flash_decode(**given | {"q": given["q"][:, :, :0]}).shape == (2, 4, 0, 64)


def test_nan_in_a_visible_key_spoils_its_heads_alone(device: str) -> None:
    given = call(device)
    given["k_cache"][0, 1, 7, 3] = math.nan
    out = cuda_llm_ops.flash_decode(**given)
    assert out[0, 2:].isnan().all()
    assert not out[0, :2].isnan().any()
    assert not out[1].isnan().any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("group", [1, 8, 16])
@pytest.mark.parametrize("step", [-20.0, 0.3, 7.0, 9.0, 60.0])
def test_scores_that_rise(device: str, dtype: torch.dtype, group: int, step: float) -> None:
    """By so many powers of two every 16 keys, differently in each row: what weights are powers of moves along, at once
    or after a while."""
    length, head_dim, generator = 1000, 128, torch.Generator().manual_seed(0)
    q = torch.randn(1, group, 1, head_dim, generator=generator)
    q[..., 0] = torch.linspace(0.2, 1.0, group)[None, :, None]
    k, v = (torch.randn(1, 1, length, head_dim, generator=generator) * spread for spread in (0.5, 1.0))
    k[..., 0] = torch.arange(length) // 16 * step * math.log(2.0) * math.sqrt(head_dim)
    q, k, v = (t.to(dtype) for t in (q, k, v))
    lens = torch.tensor([length], dtype=torch.int32, device=device)
    given = {"q": q.to(device), "k_cache": k.to(device), "v_cache": v.to(device), "cache_lens": lens}
    cases.assert_right(cuda_llm_ops.flash_decode(**given), case_of(given))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("group", [1, 8, 16])
def test_the_rounding_of_a_weight_cancels_where_one_key_has_nearly_all(
    device: str, dtype: torch.dtype, group: int
) -> None:
    """Then the error is that of rounding the output, and no more: what is divided by is the sum of rounded weights."""
    generator = torch.Generator().manual_seed(0)
    heads, length = 32, 400
    scores = torch.full((1, heads, length, 1), -60.0)
    scores[..., ::16, :] = 0.0  # each tile has one, so that a weight's power is that of an earlier tile
    scores[..., 390, :] = 5.0 + 0.5 * torch.rand(heads, 1, generator=generator)
    k = torch.cat([scores, torch.zeros(1, heads, length, 63)], dim=-1).to(device, dtype)
    v = torch.randn(1, heads, length, 64, generator=generator).to(device, dtype)
    q = torch.zeros(1, heads * group, 1, 64, device=device, dtype=dtype)
    q[..., 0] = 1.0
    lens = torch.tensor([length], dtype=torch.int32, device=device)
    out = cuda_llm_ops.flash_decode(q, k, v, lens, scale=1.0)
    weights = torch.softmax(k[..., :1].double(), dim=2)
    exact = (weights * v.double()).sum(2, keepdim=True).repeat_interleave(group, dim=1)
    error = torch.linalg.vector_norm(out.double() - exact)
    assert error < 1.1 * torch.linalg.vector_norm(exact.to(dtype).double() - exact)


def test_the_same_bits_every_time(device: str) -> None:
    given = call(device, length=3000)
    first = cuda_llm_ops.flash_decode(**given)
    for _ in range(20):
        assert torch.equal(cuda_llm_ops.flash_decode(**given), first)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_opcheck(device: str, dtype: torch.dtype) -> None:
    given = call(device, dtype)
    torch.library.opcheck(torch.ops.cuda_llm_ops.flash_decode.default, tuple(given.values()), {})
    pages = given["k_cache"].transpose(1, 2).contiguous()
    table = torch.tensor([[1], [0]], dtype=torch.int32, device=device)
    torch.library.opcheck(
        torch.ops.cuda_llm_ops.flash_decode.default,
        (given["q"], pages, pages, given["cache_lens"], table, 0.5),
        {},
    )


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiles_without_a_graph_break(device: str, dynamic: bool) -> None:
    torch.compiler.reset()
    given = call(device)
    compiled = torch.compile(
        lambda **x: cuda_llm_ops.flash_decode(**x) * 2, fullgraph=True, dynamic=dynamic, backend="aot_eager"
    )
    torch.testing.assert_close(compiled(**given), cuda_llm_ops.flash_decode(**given) * 2)


Change = Callable[[dict[str, Any]], dict[str, Any]]


def put(name: str, change: Callable[[Tensor], Any]) -> Change:
    return lambda given: given | {name: change(given[name])}


def with_table(given: dict[str, Any]) -> dict[str, Any]:
    pages = given["k_cache"].transpose(1, 2).contiguous()
    return given | {
        "k_cache": pages,
        "v_cache": pages,
        "block_table": torch.tensor([[1], [0]], dtype=torch.int32, device=pages.device),
    }


TYPE, VALUE, MISSING = TypeError, ValueError, NotImplementedError
ERRORS: dict[str, tuple[Change, type[Exception], str]] = {
    "rank of q": (put("q", lambda q: q[0]), VALUE, "q has 3 dimensions"),
    "rank of a cache": (put("v_cache", lambda v: v[0]), VALUE, "v_cache has 3 dimensions"),
    "list": (put("q", Tensor.tolist), TYPE, "q is of type list"),
    "no lengths": (put("cache_lens", lambda lens: None), TYPE, "cache_lens is None"),
    "int64 lengths": (put("cache_lens", Tensor.long), TYPE, "cache_lens is int64; it must be int32"),
    "lengths of another batch": (
        put("cache_lens", lambda t: t[:1]),
        VALUE,
        "cache_lens has shape (1,) but q has batch",
    ),
    "2-D lengths": (put("cache_lens", lambda t: t[None]), VALUE, "cache_lens has 2 dimensions"),
    "float64": (put("q", Tensor.double), TYPE, "q is float64"),
    "mixed dtypes": (put("v_cache", Tensor.float), TYPE, "v_cache is float32 but q is float16"),
    "head_dim": (put("k_cache", lambda k: k[..., :8]), VALUE, "k_cache has head_dim 8 but q has 64"),
    "unequal caches": (put("v_cache", lambda v: v[:, :, :8]), VALUE, "v_cache has shape (2, 2, 8, 64)"),
    "batch": (lambda g: g | {n: g[n][:1] for n in ("k_cache", "v_cache")}, VALUE, "k_cache has batch 1 but q has 2"),
    "heads": (put("q", lambda q: q[:, :3]), VALUE, "q has 3 heads and k_cache has 2"),
    "columns apart": (put("k_cache", lambda k: k.mT.contiguous().mT), VALUE, "that of head_dim must be 1"),
    "scale": (lambda g: g | {"scale": -1.0}, VALUE, "scale is -1"),
    "text for a scale": (lambda g: g | {"scale": "1"}, TYPE, "scale is of type str"),
    "grad": (put("q", lambda q: q.requires_grad_()), MISSING, "q requires grad"),
    "int64 table": (lambda g: put("block_table", Tensor.long)(with_table(g)), TYPE, "block_table is int64"),
    "1-D table": (lambda g: put("block_table", lambda t: t[0])(with_table(g)), VALUE, "block_table has 1 dimensions"),
    "table of another batch": (
        lambda g: put("block_table", lambda t: t[:1])(with_table(g)),
        VALUE,
        "block_table has shape (1, 1)",
    ),
    "list for a table": (lambda g: with_table(g) | {"block_table": [[0]]}, TYPE, "block_table is of type list"),
}


@pytest.mark.parametrize("what", ERRORS)
def test_what_is_refused(device: str, what: str) -> None:
    change, error, message = ERRORS[what]
    with pytest.raises(error) as raised:
        cuda_llm_ops.flash_decode(**change(call(device)))
    assert message in str(raised.value)


def test_lengths_and_pages_out_of_range_are_refused_on_the_cpu() -> None:
    given = call("cpu")
    for wrong in (-1, 41):
        given["cache_lens"][1] = wrong
        with pytest.raises(ValueError, match=rf"cache_lens\[1\] is {wrong}; it must be in 0 to 40"):
            cuda_llm_ops.flash_decode(**given)
    given = with_table(call("cpu"))
    for wrong in (-1, 2):
        given["block_table"][0, 0] = wrong
        with pytest.raises(ValueError, match=rf"block_table\[0, 0\] is {wrong}; it must be in 0 to 1"):
            cuda_llm_ops.flash_decode(**given)


@pytest.mark.gpu
def test_lengths_out_of_range_are_taken_as_the_nearest_on_a_gpu() -> None:
    given = call("cuda")
    given["cache_lens"] = torch.tensor([41, -3], dtype=torch.int32, device="cuda")
    out = cuda_llm_ops.flash_decode(**given)
    given["cache_lens"] = torch.tensor([40, 0], dtype=torch.int32, device="cuda")
    cases.assert_right(out, case_of(given))


@pytest.mark.gpu
def test_pages_out_of_range_read_as_zeros_on_a_gpu() -> None:
    """Scores of 0 and values of 0 for those keys, and nothing read."""
    given = with_table(call("cuda"))
    given["block_table"][0, 0] = 2**31 - 1
    given["block_table"][1, 0] = -1
    assert not cuda_llm_ops.flash_decode(**given).any()


@pytest.mark.gpu
@pytest.mark.parametrize("paged", [False, True])
def test_a_captured_graph_follows_the_lengths(paged: bool) -> None:
    """Captured once, replayed while the sequences grow over the whole capacity."""
    given = call("cuda", length=4096)
    plain = case_of(given)
    if paged:
        table, pages = cases.random_tables([4096, 4096], 64, 0, torch.Generator().manual_seed(1))
        for name in ("k_cache", "v_cache"):
            whole = [given[name][b] for b in range(2)]
            given[name] = cases.paged(whole, table, 64, pages, head_first=False)
        given["block_table"] = table.cuda()
    cuda_llm_ops.flash_decode(**given)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = cuda_llm_ops.flash_decode(**given)
    for lengths in ([1, 4096], [4096, 0], [65, 1000], [4096, 4096], [0, 0], [2048, 2049]):
        given["cache_lens"].copy_(torch.tensor(lengths, dtype=torch.int32))
        graph.replay()
        graph.replay()  # twice: what the first leaves behind must be what the second needs
        keys = [plain.arguments["k_cache"][b, :, :n] for b, n in enumerate(lengths)]
        values = [plain.arguments["v_cache"][b, :, :n] for b, n in enumerate(lengths)]
        cases.assert_right(out, cases.Decode(given, keys, values))


@pytest.mark.gpu
@pytest.mark.parametrize("length", [64, 1024, 8192])
def test_a_call_reads_what_the_call_before_it_wrote(length: int) -> None:
    """Kernels may begin before the one in front of them has ended: queries, keys, values and lengths that it, or a
    kernel just before, still writes are read after that."""
    k, v = (torch.randn(1, 4, length, 128, device="cuda").half() for _ in range(2))
    first = torch.randn(1, 16, 1, 128, device="cuda").half()
    lens = torch.tensor([length // 2], dtype=torch.int32, device="cuda")

    def chain(wait: Callable[[], None]) -> list[Tensor]:
        outs, one = [first], torch.ones(1, dtype=torch.int32, device="cuda")
        grown = lens.clone()
        for _ in range(8):
            outs.append(cuda_llm_ops.flash_decode(outs[-1], k, v, grown))
            wait()
            outs.append(cuda_llm_ops.flash_decode(first, outs[-1], outs[-1], one))  # of one key: that key's value
            wait()
            grown.add_(length // 16)
            wait()
        return outs[1:]

    expected = chain(torch.cuda.synchronize)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = chain(lambda: None)
    for _ in range(5):
        graph.replay()
        torch.cuda.synchronize()
        for right, out in zip(expected, found, strict=True):
            assert torch.equal(out, right)
    for before, after in zip(expected[::2], expected[1::2], strict=True):
        assert torch.equal(before, after)


@pytest.mark.gpu
@pytest.mark.parametrize("batch", [2, 40])
@pytest.mark.parametrize(("capacity", "page_size"), [(1024, None), (24576, None), (512, 16), (2048, 64), (16384, 512)])
def test_lengths_and_pages_that_the_call_before_writes(capacity: int, page_size: int | None, batch: int) -> None:
    """A kernel may look at them while the one in front still runs, which here leaves others than it found."""
    generator = torch.Generator("cuda").manual_seed(0)
    draw = {"device": "cuda", "generator": generator}
    pages = 0 if page_size is None else capacity // page_size
    shape = (batch, 1, capacity, 128) if page_size is None else (batch * pages, page_size, 1, 128)
    k, v = (torch.randn(shape, **draw).half() for _ in range(2))
    q = torch.randn(batch, 4, 1, 128, **draw).half()
    # An answer over one key is its value: whole numbers come out of it as they went in.
    key = torch.zeros(batch, 1, 1, 128, dtype=torch.float16, device="cuda")
    one = torch.ones(batch, dtype=torch.int32, device="cuda")
    numbers = torch.zeros(batch, 1, 1, 64, dtype=torch.int32, device="cuda")

    def chain(wait: Callable[[], None]) -> Tensor:
        found = cuda_llm_ops.flash_decode(key, key, numbers.view(torch.float16), one).view(torch.int32)[:, 0, 0]
        wait()
        return cuda_llm_ops.flash_decode(q, k, v, found[:, 0], None if page_size is None else found[:, 1 : 1 + pages])

    chain(torch.cuda.synchronize)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = chain(lambda: None)
    for turn in range(12):
        lengths = torch.randint(0, capacity + 1, (batch,), **draw)
        numbers[:, 0, 0, 0] = {3: 0, 6: capacity}.get(turn, lengths)
        numbers[:, 0, 0, 1 : 1 + pages] = torch.randint(0, max(batch * pages, 1), (batch, pages), **draw)
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(out, chain(torch.cuda.synchronize)), f"turn {turn}"


@pytest.mark.gpu
def test_streams_and_graphs_at_once_do_not_meet() -> None:
    """Calls that split their keys, on several streams and in graphs at the same time: each has an answer of its own."""
    given = [call("cuda", length=8192) for _ in range(4)]
    for i, one in enumerate(given):
        one["q"].mul_(0.5 + i)
    expected = [cuda_llm_ops.flash_decode(**one) for one in given]
    graphs = []
    for one in given[:2]:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            held = cuda_llm_ops.flash_decode(**one)
        graphs.append((graph, held))
    streams = [torch.cuda.Stream() for _ in range(4)]
    torch.cuda.synchronize()
    outs: list[list[Tensor]] = [[] for _ in given]
    for _ in range(50):
        for i, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                if i < 2:
                    graphs[i][0].replay()
                outs[i].append(cuda_llm_ops.flash_decode(**given[i]))
    torch.cuda.synchronize()
    for i, (right, found) in enumerate(zip(expected, outs, strict=True)):
        assert all(torch.equal(right, out) for out in found), f"stream {i}"
    for (_, held), right in zip(graphs, expected, strict=False):
        assert torch.equal(held, right)


@pytest.mark.gpu(min_capability=(9, 0))
def test_small_calls_reach_every_kernel() -> None:
    """Those that compute-sanitizer watches in test_sanitize.py."""
    calls = [(dtype, call) for dtype in (torch.float16, torch.bfloat16) for call in cases.kernels().values()]
    calls.append((torch.float32, {"lengths": [70], "head_dim": 64}))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for dtype, shape in calls:
            given = cases.small(dtype, **shape).arguments
            cuda_llm_ops.flash_decode(**{name: tensor.cuda() for name, tensor in given.items()})
        torch.cuda.synchronize()
    reached = {event.key for event in profile.key_averages() if "_decode" in event.key}
    compiled = [kernel for kernel in cuda_llm_ops.kernel_attributes() if kernel["family"] == "flash_decode"]
    assert len(reached) == len(compiled), reached


@pytest.mark.gpu
def test_caches_beyond_32_bit_offsets() -> None:
    """The last sequence lies 2**32 elements and more behind the first."""
    free, _ = torch.cuda.mem_get_info()
    batch, capacity = 5, 2**21
    if free < 2 * batch * capacity * 8 * 64 * 2 * 1.1:
        pytest.skip(f"needs 22 GB of device memory, {free / 1e9:.0f} are free")
    k = torch.empty(batch, 8, capacity, 64, dtype=torch.float16, device="cuda")
    v = torch.empty_like(k)
    k[-1, :, :500].normal_()
    v[-1, :, :500].normal_()
    q = torch.randn(batch, 8, 1, 64, device="cuda").half()
    lens = torch.zeros(batch, dtype=torch.int32, device="cuda")
    lens[-1] = 500
    given = {"q": q, "k_cache": k, "v_cache": v, "cache_lens": lens}
    cases.assert_right(cuda_llm_ops.flash_decode(**given), case_of(given))


@pytest.mark.gpu
@pytest.mark.parametrize("page_size", [None, 16, 64])
def test_many_gigabytes_of_sequences_of_any_length(page_size: int | None) -> None:
    """Caches above 1 GB, which more thread blocks share than smaller ones: right, and the same bits every time."""
    free, _ = torch.cuda.mem_get_info()
    batch, kv_heads, capacity = 40, 8, 16384
    if free < 4 * batch * kv_heads * capacity * 128 * 1.5:
        pytest.skip(f"needs 4 GB of device memory, {free / 1e9:.0f} are free")
    generator = torch.Generator("cuda").manual_seed(0)
    draw = {"device": "cuda", "generator": generator}
    pages = 0 if page_size is None else capacity // page_size
    shape = (batch, kv_heads, capacity) if page_size is None else (batch * pages, page_size, kv_heads)
    k, v = (torch.randn(*shape, 128, dtype=torch.float16, **draw) for _ in range(2))
    q = torch.randn(batch, 4 * kv_heads, 1, 128, dtype=torch.float16, **draw)
    lens = torch.randint(0, capacity + 1, (batch,), dtype=torch.int32, **draw)
    lens[:3] = torch.tensor([0, capacity, 1])
    table = None
    if page_size is not None:
        table = torch.randperm(batch * pages, **draw).to(torch.int32).view(batch, pages)
    out = cuda_llm_ops.flash_decode(q, k, v, lens, table)
    for b, length in enumerate(lens.tolist()):
        if page_size is None:
            keys, values = (cache[b, :, :length].double() for cache in (k, v))
        else:
            assert table is not None
            keys, values = (cache[table[b].long()].flatten(0, 1)[:length].double().transpose(0, 1) for cache in (k, v))
        scores = q[b].double().view(kv_heads, 4, 128) @ keys.transpose(1, 2) / math.sqrt(128)
        right = (scores.softmax(-1) @ values).view(4 * kv_heads, 1, 128)
        assert (out[b] - right).abs().max() < 2e-3 * max(1.0, right.abs().max().item()), f"sequence {b} of {length}"
    for _ in range(20):
        assert torch.equal(cuda_llm_ops.flash_decode(q, k, v, lens, table), out)
