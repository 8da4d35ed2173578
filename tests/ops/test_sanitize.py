"""Small calls of everything the dispatch tells apart: what compute-sanitizer can afford to watch.

    PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --tool memcheck --error-exitcode 1 \\
        python -m pytest --gpu -q tests/ops/test_sanitize.py
    compute-sanitizer --tool racecheck --error-exitcode 1 python -m pytest --gpu -q tests/ops/test_sanitize.py

Without the caching allocator every tensor is an allocation of its own, so that memcheck sees a read one element past
its end. The dispatch chooses by type, alignment, transposition, size and head_dim, and so do these cases; racecheck
takes minutes over all of them, `-k 70x129` and the like choose some. Kernels that the dispatch keeps for large
problems, or for other GPUs, are run by gemm_plans.cu and attention_plans.cu, beside this file, which need no torch.
"""

from __future__ import annotations

import itertools

import pytest

torch = pytest.importorskip("torch", reason="the operators need torch")

import cuda_llm_ops  # noqa: E402
import decode_cases as cases  # noqa: E402
import ops_reference as reference  # noqa: E402
import sanitized  # noqa: E402
from torch import Tensor  # noqa: E402

dtypes = pytest.mark.parametrize("dtype", reference.DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))

# (m, n, k): one element; less than a tile in every direction; whole tiles; one more than whole tiles; few rows with a
# long k, which a kernel may split; enough tiles for the large configurations of every multiprocessor.
GEMM_SIZES = [(1, 1, 1), (17, 9, 5), (128, 128, 64), (129, 257, 65), (16, 128, 2048), (33, 40, 1032), (640, 512, 96)]
# With options: the sizes of every kernel that takes them, and rows that begin anywhere.
OPTION_HEAD_DIMS = [40, 65, 96, 128, 129, 192, 250, 256]
HEAD_DIMS = [1, 40, 64, 65, 128, 129, 192, 256]
# And one for each further size that flash_attention has kernels of: rows that begin at any multiple of 16 bytes, or
# anywhere.
FLASH_HEAD_DIMS = [72, 80, 96, 97, 104, 112, 113, 136, 137, 144, 152, 160, 161, 184]


def values(dtype: torch.dtype, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape))).to("cuda", dtype)


@pytest.mark.gpu
@dtypes
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt", "odd"])
@pytest.mark.parametrize(("m", "n", "k"), GEMM_SIZES)
def test_gemm(dtype: torch.dtype, layout: str, m: int, n: int, k: int) -> None:
    a, b = values(dtype, m, k), values(dtype, k, n)
    if layout == "odd":  # an offset and a leading dimension that no vector load can use
        a = torch.cat([a, a[:, :1]], 1).flatten()[1:].as_strided((m, k), (k + 1, 1))
        b = torch.cat([b, b[:, :1]], 1).flatten()[1:].as_strided((k, n), (n + 1, 1))
    a = a.mT.contiguous().mT if layout[0] == "t" else a
    b = b.mT.contiguous().mT if layout[1] == "t" else b
    c = values(dtype, m, n)
    out = cuda_llm_ops.gemm(a, b, alpha=0.5, beta=2.0, c=c)
    reference.assert_right(out, reference.gemm(a, b, dtype, alpha=0.5, beta=2.0, c=c))
    if dtype != torch.float32:
        out = cuda_llm_ops.tensor_core_gemm(a.expand(2, m, k), b)
        reference.assert_right(out, reference.gemm(a.expand(2, m, k), b, torch.float32))


@pytest.mark.gpu
@dtypes
def test_gemm_of_many_tiles(dtype: torch.dtype) -> None:
    """More tiles than the device has multiprocessors, for the kernels that stay and take one after the other."""
    a, b = values(dtype, 2304, 64), values(dtype, 2048, 64).mT
    reference.assert_right(cuda_llm_ops.gemm(a, b), reference.gemm(a, b, dtype))


@pytest.mark.gpu
@dtypes
@pytest.mark.parametrize("is_causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("head_dim", HEAD_DIMS, ids=lambda head_dim: f"d{head_dim}")
@pytest.mark.parametrize(("seq_q", "seq_kv"), [(1, 70), (130, 130), (70, 129)], ids=["1x70", "130x130", "70x129"])
@pytest.mark.parametrize("name", reference.ATTENTION)
def test_attention(name: str, seq_q: int, seq_kv: int, head_dim: int, is_causal: bool, dtype: torch.dtype) -> None:
    q = values(dtype, 1, 2, seq_q, head_dim)
    k, v = values(dtype, 1, 1, seq_kv, head_dim), values(dtype, 1, 1, seq_kv, head_dim)
    out = getattr(cuda_llm_ops, name)(q, k, v, is_causal)
    reference.assert_right(out, reference.attention(name, q, k, v, is_causal, None))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("is_causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("head_dim", FLASH_HEAD_DIMS, ids=lambda head_dim: f"d{head_dim}")
def test_flash_attention(head_dim: int, is_causal: bool, dtype: torch.dtype) -> None:
    q = values(dtype, 1, 2, 130, head_dim)
    k, v = values(dtype, 1, 1, 150, head_dim), values(dtype, 1, 1, 150, head_dim)
    out = cuda_llm_ops.flash_attention(q, k, v, is_causal)
    reference.assert_right(out, reference.attention("flash_attention", q, k, v, is_causal, None))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("is_causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize(
    ("head_dim", "seq"), [(64, 192), (64, 256), (65, 140), (128, 256), (129, 140), (192, 70), (256, 70)]
)
def test_attention_of_many_tiles(head_dim: int, seq: int, is_causal: bool, dtype: torch.dtype) -> None:
    """Several for each multiprocessor, of tall tiles and of joined ones too."""
    q = values(dtype, 1, 264 if head_dim == 64 else 150, seq, head_dim)
    k, v = values(dtype, 1, q.shape[1] // 2, seq, head_dim), values(dtype, 1, q.shape[1] // 2, seq, head_dim)
    out = cuda_llm_ops.flash_attention(q, k, v, is_causal)
    reference.assert_right(out, reference.attention("flash_attention", q, k, v, is_causal, None))


@pytest.mark.gpu
@dtypes
@pytest.mark.parametrize("head_dim", OPTION_HEAD_DIMS, ids=lambda head_dim: f"d{head_dim}")
def test_attention_with_options(head_dim: int, dtype: torch.dtype) -> None:
    q, k = values(dtype, 1, 2, 150, head_dim), values(dtype, 1, 1, 220, head_dim)
    for is_causal, mask in ((True, {"bottom_right": True}), (False, {"window": (60, 5)})):
        out, lse = cuda_llm_ops.flash_attention(q, k, k, is_causal, return_lse=True, **mask)
        reference.assert_right(out, reference.attention("flash_attention", q, k, k, is_causal, None, **mask))
        reference.assert_right(lse, reference.log_sum_exp(q, k, is_causal, None, **mask))


@pytest.mark.gpu
@dtypes
@pytest.mark.parametrize("head_dim", OPTION_HEAD_DIMS, ids=lambda head_dim: f"d{head_dim}")
def test_packed_sequences(head_dim: int, dtype: torch.dtype) -> None:
    """Of 1, 130 and 70 tokens; each as a call of its own."""
    packed, ends = values(dtype, 201, 2, head_dim), [0, 1, 131, 201]
    offsets = torch.tensor(ends, device="cuda", dtype=torch.int32)
    out = cuda_llm_ops.flash_attention_varlen(packed, -packed, packed, offsets, offsets, 130, 130, is_causal=True)
    for first, end in itertools.pairwise(ends):
        one = packed[first:end].transpose(0, 1)[None]
        expected = reference.attention("flash_attention", one, -one, one, True, None)
        reference.assert_right(out[first:end].transpose(0, 1)[None], expected)


def check_decode(case: cases.Decode) -> None:
    """What is compared with is computed on the CPU: no other kernel is watched."""
    given = {name: tensor.cuda() for name, tensor in case.arguments.items()}
    cases.assert_right(cuda_llm_ops.flash_decode(**given).cpu(), case)


@pytest.mark.gpu
@dtypes
@pytest.mark.parametrize("page_size", [None, 1, 16, 64], ids=lambda size: f"p{size}")
@pytest.mark.parametrize("head_dim", [33, 40, 64, 128, 192], ids=lambda head_dim: f"d{head_dim}")
@pytest.mark.parametrize("lengths", [[70, 0, 16], [700]], ids=["short", "split"])
def test_decode(lengths: list[int], head_dim: int, page_size: int | None, dtype: torch.dtype) -> None:
    check_decode(cases.small(dtype, lengths, head_dim, page_size))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("name", cases.kernels())
def test_decode_kernels(name: str, dtype: torch.dtype) -> None:
    check_decode(cases.small(dtype, **cases.kernels()[name]))


@pytest.mark.gpu
@pytest.mark.parametrize("family", sanitized.FAMILIES)
def test_operands_of_few_bits(family: str) -> None:
    """Every instance; `python -m tests.ops.sanitized` runs the same calls with less around them."""
    assert sanitized.main(["--family", family]) == 0
