"""What flash_attention can be asked for beyond a causal mask, against float64: diagonal, window, sums, packs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the operators need torch")

import cuda_llm_ops  # noqa: E402
import ops_reference as reference  # noqa: E402
from torch import Tensor  # noqa: E402

dtypes = pytest.mark.parametrize("dtype", reference.DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))
flash, varlen = cuda_llm_ops.flash_attention, cuda_llm_ops.flash_attention_varlen

MASKS: dict[str, dict[str, Any]] = {
    "full": {},
    "causal": {"is_causal": True},
    "bottom right": {"is_causal": True, "bottom_right": True},
    "bottom right, no mask": {"bottom_right": True},
    "window": {"window": (40, 25)},
    "window to the left": {"window": (33, -1)},
    "window to the right": {"window": (-1, 7)},
    "window, causal": {"is_causal": True, "window": (70, 3)},
    "window, bottom right": {"bottom_right": True, "window": (20, 90)},
    "the diagonal alone": {"bottom_right": True, "window": (0, 0)},
    "window without limits": {"window": (-1, -1)},
    "window past everything": {"window": (2**40, 10**30)},
}
masks = pytest.mark.parametrize("mask", MASKS)


def values(device: str, dtype: torch.dtype, *shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(hash(shape) & 0xFFFF)
    return torch.randn(shape, generator=generator).to(device, dtype)


def check(q: Tensor, k: Tensor, v: Tensor, *, is_causal: bool = False, scale: float | None = None, **mask: Any) -> None:
    out, lse = flash(q, k, v, is_causal, scale=scale, return_lse=True, **mask)
    assert (out.dtype, out.device, out.shape) == (q.dtype, q.device, q.shape)
    assert (lse.dtype, lse.device, lse.shape) == (torch.float32, q.device, q.shape[:3])
    assert out.is_contiguous()
    assert lse.is_contiguous()
    reference.assert_right(out, reference.attention("flash_attention", q, k, v, is_causal, scale, **mask))
    reference.assert_right(lse, reference.log_sum_exp(q, k, is_causal, scale, **mask))
    alone = flash(q, k, v, is_causal, scale=scale, **mask)
    reference.assert_right(alone, reference.attention("flash_attention", q, k, v, is_causal, scale, **mask))


@dtypes
@masks
@pytest.mark.parametrize(("seq_q", "seq_kv"), [(1, 1), (1, 150), (150, 1), (100, 263), (263, 100), (400, 400)])
def test_masks_and_lengths(device: str, dtype: torch.dtype, mask: str, seq_q: int, seq_kv: int) -> None:
    q, k = values(device, dtype, 2, 4, seq_q, 64), values(device, dtype, 2, 2, seq_kv, 64)
    check(q, k, values(device, dtype, 2, 2, seq_kv, 64), **MASKS[mask])


@dtypes
@pytest.mark.parametrize("head_dim", [1, 8, 33, 64, 96, 128, 129, 136, 160, 192, 255, 256])
@pytest.mark.parametrize("mask", ["full", "bottom right", "window, bottom right"])
def test_head_dims(device: str, dtype: torch.dtype, head_dim: int, mask: str) -> None:
    q, k = values(device, dtype, 1, 2, 77, head_dim), values(device, dtype, 1, 1, 201, head_dim)
    check(q, k, values(device, dtype, 1, 1, 201, head_dim), **MASKS[mask])


@dtypes
@pytest.mark.parametrize("scale", [0.0, 1e-3, 3.0])
def test_scale(device: str, dtype: torch.dtype, scale: float) -> None:
    q, k = values(device, dtype, 1, 2, 90, 64), values(device, dtype, 1, 2, 140, 64)
    check(q, k, k, scale=scale, window=(30, 9), bottom_right=True)


def test_the_diagonal_ends_in_the_bottom_right_corner(device: str) -> None:
    """By hand: of nine keys and three queries, the first query sees seven."""
    q, k = torch.zeros(1, 1, 3, 8, device=device), torch.zeros(1, 1, 9, 8, device=device)
    v = torch.arange(9.0, device=device)[:, None].expand(1, 1, 9, 8)
    out, lse = flash(q, k, v, True, bottom_right=True, return_lse=True)
    torch.testing.assert_close(out[0, 0, :, 0].cpu(), torch.tensor([3.0, 3.5, 4.0]))
    torch.testing.assert_close(lse[0, 0].cpu(), torch.tensor([7.0, 8.0, 9.0]).log())
    out = flash(q, k, v, window=(1, 2))
    torch.testing.assert_close(out[0, 0, :, 0].cpu(), torch.tensor([1.0, 1.5, 2.5]))


@dtypes
def test_rows_that_see_no_key_are_zeros_and_minus_infinity(device: str, dtype: torch.dtype) -> None:
    q, k = values(device, dtype, 1, 2, 300, 64), values(device, dtype, 1, 2, 100, 64)
    out, lse = flash(q, k, k, True, bottom_right=True, return_lse=True)
    assert (out[:, :, :200] == 0).all()
    assert (lse[:, :, :200] == -math.inf).all()
    assert lse[:, :, 200:].isfinite().all()
    out, lse = flash(q, k[:, :, :0], k[:, :, :0], return_lse=True)
    assert (out == 0).all()
    assert (lse == -math.inf).all()


@dtypes
def test_hidden_keys_do_not_matter_whatever_they_hold(device: str, dtype: torch.dtype) -> None:
    q, k, v = (values(device, dtype, 1, 1, 300, 64) for _ in range(3))
    k = k.clone()
    k[:, :, 150] = math.nan
    out, lse = flash(q, k, v, window=(10, 5), return_lse=True)
    spoiled = torch.arange(300)[(torch.arange(300) >= 145) & (torch.arange(300) <= 160)]
    expected = torch.zeros(300, dtype=torch.bool)
    expected[spoiled] = True
    assert (lse[0, 0].isnan().cpu() == expected).all()
    assert (out[0, 0].isnan().any(-1).cpu() == expected).all()


@dtypes
@pytest.mark.parametrize("head_dim", [64, 129])
def test_infinite_scores(device: str, dtype: torch.dtype, head_dim: int) -> None:
    q, k, v = (values(device, dtype, 1, 1, 150, head_dim) for _ in range(3))
    k[..., 0] = k[..., 0].abs() + 1
    q[0, 0, 3, 0], q[0, 0, 5, 0] = math.inf, -math.inf
    check(q, k, v, window=(60, 60))
    check(q, k, v)


@dtypes
def test_layouts(device: str, dtype: torch.dtype) -> None:
    q, k, v = (values(device, dtype, 2, 90, 3, 64).transpose(1, 2) for _ in range(3))
    check(q, k, v, is_causal=True, bottom_right=True)
    check(q, k.mT.contiguous().mT, v, window=(9, 9))
    odd = torch.cat([q.new_zeros(1), q.flatten()])[1:].view(q.shape)
    check(odd, odd, v, window=(9, 9))


def test_empty(device: str) -> None:
    q = torch.zeros(2, 3, 0, 8, device=device)
    out, lse = flash(q, q, q, return_lse=True)
    assert out.shape == q.shape
    assert lse.shape == (2, 3, 0)
    flat = torch.zeros(2, 3, 5, 0, device=device)
    assert flash(flat, flat, flat, window=(1, 1)).shape == flat.shape


# ---- packed sequences -----------------------------------------------------------------------------------------------

PACKS = {
    "mixed": ([5, 130, 1, 64, 0, 77], [9, 130, 200, 1, 4, 0]),
    "one": ([100], [150]),
    "equal": ([64, 64, 64], [64, 64, 64]),
    "none": ([], []),
    "all empty": ([0, 0], [0, 3]),
}


def offsets(lengths: list[int], device: str) -> Tensor:
    return torch.tensor([0, *lengths]).cumsum(0).to(device, torch.int32)


def check_packed(
    q: Tensor, k: Tensor, v: Tensor, lengths_q: list[int], lengths_kv: list[int], *, spare: int = 0, **options: Any
) -> None:
    """`spare`: how much more than the longest the maxima say."""
    device = str(q.device)
    longest = (max(lengths_q, default=0) + spare, max(lengths_kv, default=0) + spare)
    out, lse = varlen(
        q, k, v, offsets(lengths_q, device), offsets(lengths_kv, device), *longest, return_lse=True, **options
    )
    assert (out.dtype, out.shape) == (q.dtype, q.shape)
    assert (lse.dtype, lse.shape) == (torch.float32, (q.shape[1], q.shape[0]))
    first_q = first_kv = 0
    is_causal, scale = options.pop("is_causal", False), options.pop("scale", None)
    for length_q, length_kv in zip(lengths_q, lengths_kv, strict=True):
        rows, keys = slice(first_q, first_q + length_q), slice(first_kv, first_kv + length_kv)
        one = [t.transpose(0, 1)[None] for t in (q[rows], k[keys], v[keys])]
        expected = reference.attention("flash_attention", *one, is_causal, scale, **options)
        reference.assert_right(out[rows].transpose(0, 1)[None], expected)
        reference.assert_right(lse[None, :, rows], reference.log_sum_exp(*one[:2], is_causal, scale, **options))
        first_q, first_kv = first_q + length_q, first_kv + length_kv


@dtypes
@pytest.mark.parametrize("pack", PACKS)
@pytest.mark.parametrize("mask", ["full", "causal", "bottom right", "window, bottom right", "window"])
def test_packed_sequences(device: str, dtype: torch.dtype, pack: str, mask: str) -> None:
    lengths_q, lengths_kv = PACKS[pack]
    q, k = values(device, dtype, sum(lengths_q), 4, 64), values(device, dtype, sum(lengths_kv), 2, 64)
    check_packed(q, k, k.flip(0), lengths_q, lengths_kv, spare=3, **MASKS[mask])


@dtypes
@pytest.mark.parametrize("head_dim", [1, 40, 65, 128, 129, 200, 256])
def test_packed_head_dims(device: str, dtype: torch.dtype, head_dim: int) -> None:
    lengths_q, lengths_kv = [3, 70, 130], [130, 71, 3]
    q, k = values(device, dtype, 203, 2, head_dim), values(device, dtype, 204, 2, head_dim)
    check_packed(q, k, k.flip(0), lengths_q, lengths_kv, is_causal=True, bottom_right=True)
    check_packed(q, k, k.flip(0), lengths_q, lengths_kv, scale=0.5)


@dtypes
@pytest.mark.parametrize("head_dim", [64, 129])
def test_packed_layouts(device: str, dtype: torch.dtype, head_dim: int) -> None:
    """Heads before tokens, q k and v of one projection, and tokens without a sequence at the end."""
    tokens = values(device, dtype, 120, 3, 2, head_dim)
    q, k, v = tokens.unbind(1)
    check_packed(q, k, v, [50, 60], [50, 60], is_causal=True)
    check_packed(q.transpose(0, 1).contiguous().transpose(0, 1), k, v.mT.contiguous().mT, [20, 100], [100, 20])


@dtypes
def test_a_sequence_does_not_see_its_neighbours(device: str, dtype: torch.dtype) -> None:
    q, k, v = (values(device, dtype, 200, 2, 64) for _ in range(3))
    k = k.clone()
    k[100:] = math.nan
    both = offsets([100, 100], device)
    out, lse = varlen(q, k, v, both, both, 100, 100, return_lse=True)
    assert out[:100].isfinite().all()
    assert lse[:, :100].isfinite().all()
    assert out[100:].isnan().all()


# ---- torch around it ------------------------------------------------------------------------------------------------


def calls(device: str, dtype: torch.dtype) -> dict[str, tuple[Callable[..., Any], list[Tensor]]]:
    q, k = values(device, dtype, 2, 4, 70, 64), values(device, dtype, 2, 2, 90, 64)
    packed, both = values(device, dtype, 100, 4, 64), offsets([30, 70], device)
    lengths = torch.tensor([90, 20], device=device, dtype=torch.int32)
    return {
        "plain": (flash, [q, k, k]),
        "general": (lambda *x: flash(*x, window=(30, 5), bottom_right=True, return_lse=True), [q, k, k]),
        "varlen": (lambda *x: varlen(*x, both, both, 70, 70, is_causal=True, return_lse=True), [packed] * 3),
        "naive": (cuda_llm_ops.naive_attention, [q, k, k]),
        "decode": (lambda *x: cuda_llm_ops.flash_decode(*x, lengths), [q[:, :, :1], k, k]),
        "gemm": (cuda_llm_ops.gemm, [q[0, 0], k[0, 0].mT]),
    }


@pytest.mark.parametrize("name", ["plain", "general", "varlen", "naive", "decode", "gemm"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
def test_autocast_casts_as_torch_does(device: str, name: str, dtype: torch.dtype) -> None:
    call, tensors = calls(device, torch.float32)[name]
    expected = call(*(tensor.to(dtype) for tensor in tensors))
    mixed = [tensors[0], tensors[1].bfloat16().to(dtype).float(), *tensors[2:]]
    with torch.autocast(device, dtype=dtype):
        got = call(*tensors)
        call(mixed[0].half(), *mixed[1:])  # of several dtypes: one of them after the cast
        with torch.autocast(device, enabled=False):
            untouched = call(*tensors)
    for one, other in zip(as_tuple(got), as_tuple(expected), strict=True):
        torch.testing.assert_close(one, other, equal_nan=True)
    assert as_tuple(got)[0].dtype == dtype
    assert as_tuple(untouched)[0].dtype == torch.float32
    with torch.autocast(device, dtype=dtype), pytest.raises(TypeError, match="is float64"):
        call(*(tensor.double() for tensor in tensors))


def as_tuple(result: Any) -> tuple[Tensor, ...]:
    return result if isinstance(result, tuple) else (result,)


@pytest.mark.parametrize("name", ["plain", "general", "varlen"])
@pytest.mark.parametrize("autocast", [False, True], ids=["", "autocast"])
def test_compiles_without_a_graph_break(device: str, name: str, autocast: bool) -> None:
    torch.compiler.reset()
    call, tensors = calls(device, torch.float32)[name]

    def under(*x: Tensor) -> tuple[Tensor, ...]:
        with torch.autocast(device, dtype=torch.bfloat16, enabled=autocast):
            return tuple(y * 2 for y in as_tuple(call(*x)))

    for one, other in zip(
        torch.compile(under, fullgraph=True, backend="aot_eager")(*tensors), under(*tensors), strict=True
    ):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("return_lse", [False, True])
def test_opcheck(device: str, return_lse: bool) -> None:
    q, k = values(device, torch.float16, 2, 4, 5, 8), values(device, torch.float16, 2, 2, 7, 8)
    general = torch.ops.cuda_llm_ops.flash_attention_general.default
    torch.library.opcheck(general, (q, k, k, True), {"bottom_right": True, "window_left": 3, "return_lse": return_lse})
    packed, both = values(device, torch.float16, 10, 4, 8), offsets([3, 7], device)
    packs = torch.ops.cuda_llm_ops.flash_attention_varlen.default
    torch.library.opcheck(packs, (packed, packed, packed, both, both, 7, 7), {"return_lse": return_lse})


# ---- refusals -------------------------------------------------------------------------------------------------------

Bad = tuple[dict[str, Any], type[Exception], str]
BAD_OPTIONS: dict[str, Bad] = {
    "window of one": ({"window": (3,)}, TypeError, "window is (3,); it must be a pair"),
    "window a number": ({"window": 3}, TypeError, "window is 3; it must be a pair"),
    "window of floats": ({"window": (1.0, 2)}, TypeError, "each side must be a whole number of keys"),
    "window negative": ({"window": (-2, 2)}, ValueError, "window is (-2, 2); each side must be a number of keys"),
    "bottom_right a string": ({"bottom_right": "no"}, TypeError, "bottom_right is of type str; it must be a bool"),
    "return_lse a string": ({"return_lse": "no"}, TypeError, "return_lse is of type str; it must be a bool"),
    "scale": ({"scale": -1.0, "window": (1, 1)}, ValueError, "scale is -1; it must be finite and not negative"),
}


@pytest.mark.parametrize("case", BAD_OPTIONS)
def test_bad_options_are_refused(device: str, case: str) -> None:
    options, error, words = BAD_OPTIONS[case]
    q, packed, both = torch.zeros(1, 2, 5, 8, device=device), torch.zeros(5, 2, 8, device=device), offsets([5], device)
    for name, call in {
        "flash_attention: ": lambda: flash(q, q, q, **options),
        "flash_attention_varlen: ": lambda: varlen(packed, packed, packed, both, both, 5, 5, **options),
    }.items():
        with pytest.raises(error) as caught:
            call()
        assert str(caught.value).startswith(name)
        assert words in str(caught.value)


def test_the_logarithm_of_a_row_without_columns_is_refused(device: str) -> None:
    q = torch.zeros(1, 1, 2, 0, device=device)
    with pytest.raises(ValueError, match="q has head_dim 0; with return_lse it must be at least 1"):
        flash(q, q, q, return_lse=True)
    wide = torch.zeros(1, 1, 2, 8, device=device)
    with pytest.raises(ValueError, match="v has head_dim 0; with return_lse it must be at least 1"):
        flash(wide, wide, q, return_lse=True)


Change = Callable[[dict[str, Any]], dict[str, Any]]
BAD_PACKS: dict[str, tuple[Change, type[Exception], str]] = {
    "rank": (lambda c: c | {"q": c["q"][None]}, ValueError, "q has 4 dimensions (1, 9, 4, 8); it must have 3"),
    "dtype": (lambda c: c | {"v": c["v"].half()}, TypeError, "v is float16 but q is float32"),
    "head_dim": (lambda c: c | {"k": c["k"][..., :7]}, ValueError, "k has head_dim 7 but q has 8"),
    "shape of v": (lambda c: c | {"v": c["v"][1:]}, ValueError, "v has shape (8, 2, 8) but k has (9, 2, 8)"),
    "heads": (lambda c: c | {"q": c["q"][:, :3]}, ValueError, "q has 3 heads and k has 2"),
    "wide v": (lambda c: c | {"v": c["v"].new_zeros(9, 2, 9)}, NotImplementedError, "v has head_dim 9 and q has 8"),
    "wide": (lambda c: c | {n: c[n].new_zeros(9, 2, 257) for n in "qkv"}, NotImplementedError, "head_dim 257"),
    "offsets int64": (lambda c: c | {"cu_seqlens_q": c["cu_seqlens_q"].long()}, TypeError, "is int64; it must be"),
    "offsets rank": (lambda c: c | {"cu_seqlens_k": c["cu_seqlens_k"][None]}, ValueError, "cu_seqlens_k has 2 dimen"),
    "offsets empty": (lambda c: c | {"cu_seqlens_q": c["cu_seqlens_q"][:0]}, ValueError, "cu_seqlens_q is empty"),
    "offsets differ": (lambda c: c | {"cu_seqlens_k": c["cu_seqlens_k"][:2]}, ValueError, "they must be as many"),
    "offsets a list": (lambda c: c | {"cu_seqlens_k": [0, 9]}, TypeError, "cu_seqlens_k is of type list"),
    "maximum negative": (lambda c: c | {"max_seqlen_q": -1}, ValueError, "max_seqlen_q is -1; it must not be negative"),
    "maximum huge": (lambda c: c | {"max_seqlen_k": 2**40}, NotImplementedError, "it must be at most 268435456"),
}  # fmt: skip
BAD_VALUES: dict[str, tuple[Change, str]] = {
    "not from 0": (lambda c: c | {"cu_seqlens_q": c["cu_seqlens_q"] + 1}, "cu_seqlens_q begins with 1; it must begin"),
    "falling": (lambda c: c | {"cu_seqlens_k": offsets([5, -1], "cpu")}, "cu_seqlens_k falls from 5 to 4"),
    "past the end": (
        lambda c: c | {"cu_seqlens_q": c["cu_seqlens_q"] * 2, "max_seqlen_q": 99},
        "cu_seqlens_q ends with 18 but there are 9",
    ),
    "maximum too small": (lambda c: c | {"max_seqlen_k": 5}, "max_seqlen_k is 5 but sequence 1 has 6 tokens"),
}  # fmt: skip


def packed_call(device: str) -> dict[str, Any]:
    kv, both = torch.zeros(9, 2, 8, device=device), offsets([3, 6], device)
    return {
        "q": torch.zeros(9, 4, 8, device=device),
        "k": kv,
        "v": kv,
        "cu_seqlens_q": both,
        "cu_seqlens_k": both,
        "max_seqlen_q": 6,
        "max_seqlen_k": 6,
    }


@pytest.mark.parametrize("case", BAD_PACKS)
def test_bad_packs_are_refused(device: str, case: str) -> None:
    change, error, words = BAD_PACKS[case]
    with pytest.raises(error) as caught:
        varlen(**change(packed_call(device)))
    assert str(caught.value).startswith("flash_attention_varlen: ")
    assert words in str(caught.value)


@pytest.mark.parametrize("case", BAD_VALUES)
def test_offsets_on_the_cpu_are_looked_at(case: str) -> None:
    change, words = BAD_VALUES[case]
    with pytest.raises(ValueError) as caught:
        varlen(**change(packed_call("cpu")))
    assert words in str(caught.value)


# ---- the GPU alone --------------------------------------------------------------------------------------------------


@pytest.mark.gpu
def test_offsets_beyond_the_tensor_do_no_harm() -> None:
    """They cannot be checked without waiting for the device; nothing outside the tensors is touched."""
    packed = values("cuda", torch.float16, 64, 2, 64)
    for wrong in ([0, 2**31 - 1], [-5, 64], [60, 10], [2**30, 2**31 - 1], [-(2**31), 2**31 - 1]):
        both = torch.tensor(wrong, dtype=torch.int64).to("cuda", torch.int32)
        varlen(packed, packed, packed, both, both, 4096, 4096, return_lse=True)
    torch.cuda.synchronize()


@pytest.mark.gpu
@pytest.mark.parametrize("head_dim", [64, 128, 256])
def test_more_tiles_than_multiprocessors(head_dim: int) -> None:
    """A kernel whose blocks stay takes several tiles in each, of different numbers of keys, some without any."""
    q, k = values("cuda", torch.float16, 4, 32, 300, head_dim), values("cuda", torch.float16, 4, 8, 400, head_dim)
    for mask in ("bottom right", "window", "window, bottom right"):
        check(q, k, k.flip(2), **MASKS[mask])
    check(k.repeat_interleave(4, 1), q[:, :8], q[:, 8:16], is_causal=True, bottom_right=True)
    lengths = [(37 * i) % 290 for i in range(40)]
    q, k = (values("cuda", torch.float16, sum(lengths), heads, head_dim) for heads in (16, 4))
    check_packed(q, k, k.flip(0), lengths, lengths, is_causal=True)
    check_packed(q, k, k.flip(0), lengths, lengths[::-1], bottom_right=True, window=(50, 3))


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["general", "varlen"])
def test_captured_in_a_graph_and_replayed_on_new_data(name: str) -> None:
    call, tensors = calls("cuda", torch.float16)[name]
    call(*tensors)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = call(*tensors)
    for tensor in tensors:
        tensor.normal_()
    graph.replay()
    for one, other in zip(captured, call(*tensors), strict=True):
        torch.testing.assert_close(one, other, rtol=0.0, atol=0.0)


@pytest.mark.gpu
def test_new_lengths_in_a_captured_graph() -> None:
    packed, both = values("cuda", torch.float16, 200, 2, 64), offsets([100, 100], "cuda")
    varlen(packed, packed, packed, both, both, 200, 200)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = varlen(packed, packed, packed, both, both, 200, 200)
    both.copy_(offsets([17, 183], "cuda"))
    graph.replay()
    torch.testing.assert_close(out, varlen(packed, packed, packed, both, both, 200, 200), rtol=0.0, atol=0.0)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["general", "varlen"])
def test_one_kernel_a_call(name: str) -> None:
    from torch.profiler import ProfilerActivity, profile

    call, tensors = calls("cuda", torch.float16)[name]
    call(*tensors)
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        call(*tensors)
        torch.cuda.synchronize()
    kernels = [event.name for event in seen.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    assert len([name for name in kernels if "Memcpy" not in name]) == 1, kernels
