"""flash_attention where rows start anywhere: odd head_dims and the like, every alignment, the ends of rows and tensors.

A kernel for such rows reads whole 16-byte chunks, the ends of neighbouring rows with them, and shifts them: what lies
beside a row must never show.
"""

from __future__ import annotations

import math
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="the operators need torch")

import cuda_llm_ops  # noqa: E402
import ops_reference as reference  # noqa: E402
from torch import Tensor  # noqa: E402

dtypes = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
masks = pytest.mark.parametrize("is_causal", [False, True], ids=["full", "causal"])


def check(q: Tensor, k: Tensor, v: Tensor, is_causal: bool) -> Tensor:
    out = cuda_llm_ops.flash_attention(q, k, v, is_causal)
    reference.assert_right(out, reference.attention("flash_attention", q, k, v, is_causal, None))
    return out


def check_many(q: Tensor, k: Tensor, v: Tensor, is_causal: bool) -> None:
    """As check(), which takes minutes for so many heads: exactly for the first and the last, all others by norm."""
    out, group = cuda_llm_ops.flash_attention(q, k, v, is_causal), q.shape[1] // k.shape[1]
    masked = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).triu(1) if is_causal else None
    for batch in range(q.shape[0]):
        keys, values = (tensor[batch].double().repeat_interleave(group, 0) for tensor in (k, v))
        scores = q[batch].double() @ keys.mT / math.sqrt(q.shape[3])
        if masked is not None:
            scores.masked_fill_(masked, -math.inf)
        expected = scores.softmax(-1) @ values
        errors = (out[batch] - expected).norm(dim=(1, 2)) / expected.norm(dim=(1, 2))
        assert float(errors.max()) < 1e-3, (batch, int(errors.argmax()))
    for one in (slice(0, 1), slice(-1, None)):
        exact = reference.attention("flash_attention", q[one, one], k[one, one], v[one, one], is_causal, None)
        reference.assert_right(out[one, one], exact)


def rows(device: str, dtype: torch.dtype, shape: tuple[int, int, int, int], *, offset: int = 0, pad: int = 0) -> Tensor:
    """Random rows that begin `offset` elements into their memory, `pad` elements apart, with NaN all around."""
    batch, heads, seq, head_dim = shape
    pitch = head_dim + pad
    memory = torch.full((offset + batch * heads * seq * pitch + 8,), math.nan, dtype=dtype, device=device)
    view = memory[offset:].as_strided(shape, (heads * seq * pitch, seq * pitch, pitch, 1))
    generator = torch.Generator().manual_seed(sum(shape) + offset + pad)
    view.copy_(torch.randn(shape, generator=generator))
    return view


@pytest.mark.gpu
@dtypes
@masks
@pytest.mark.parametrize(
    "head_dim", [33, 47, 63, 65, 79, 95, 97, 111, 113, 127, 129, 131, 143, 161, 175, 193, 207, 223, 241, 255]
)
def test_odd_head_dims(head_dim: int, is_causal: bool, dtype: torch.dtype) -> None:
    q = rows("cuda", dtype, (2, 4, 300, head_dim))
    k = rows("cuda", dtype, (2, 2, 333, head_dim))
    check(q, k, k.flip(2), is_causal)


@pytest.mark.gpu
@dtypes
@masks
@pytest.mark.parametrize("head_dim", [34, 98, 100, 114, 130, 132, 134, 146, 150, 178, 190])
def test_even_head_dims(head_dim: int, is_causal: bool, dtype: torch.dtype) -> None:
    q = rows("cuda", dtype, (2, 4, 300, head_dim))
    k = rows("cuda", dtype, (2, 2, 333, head_dim))
    check(q, k, k.flip(2), is_causal)


@dtypes
@masks
@pytest.mark.parametrize("pad", [0, 1, 4])
@pytest.mark.parametrize("offset", [0, 1, 2, 4, 7])
@pytest.mark.parametrize("head_dim", [65, 128, 129, 135, 136])
def test_alignments(device: str, head_dim: int, offset: int, pad: int, is_causal: bool, dtype: torch.dtype) -> None:
    q = rows(device, dtype, (1, 2, 40, head_dim), offset=offset, pad=pad)
    k = rows(device, dtype, (1, 1, 70, head_dim), offset=(offset + 3) % 8, pad=pad)
    v = rows(device, dtype, (1, 1, 70, head_dim), offset=(offset + 5) % 8, pad=5 - pad)
    check(q, k, v, is_causal)


@pytest.mark.gpu
@dtypes
@masks
@pytest.mark.parametrize("head_dim", [97, 129, 161])
@pytest.mark.parametrize(
    ("batch", "heads", "kv_heads", "seq_q", "seq_kv"),
    [(1, 1, 1, 1, 1), (1, 2, 1, 1, 1000), (1, 2, 2, 1000, 1), (2, 3, 3, 127, 129), (1, 4, 2, 129, 127),
     (3, 5, 5, 257, 385), (2, 16, 4, 640, 640), (1, 1, 1, 130, 2100), (1, 6, 3, 2100, 130)],
)  # fmt: skip
def test_lengths(
    batch: int, heads: int, kv_heads: int, seq_q: int, seq_kv: int, head_dim: int, is_causal: bool, dtype: torch.dtype
) -> None:
    q = rows("cuda", dtype, (batch, heads, seq_q, head_dim), offset=1)
    k = rows("cuda", dtype, (batch, kv_heads, seq_kv, head_dim), offset=2)
    check(q, k, rows("cuda", dtype, (batch, kv_heads, seq_kv, head_dim), offset=3), is_causal)


@pytest.mark.gpu
@dtypes
@masks
def test_heads_side_by_side(is_causal: bool, dtype: torch.dtype) -> None:
    """(batch, seq, heads, dim) in memory: rows that do not follow one another."""
    q, k, v = (rows("cuda", dtype, (2, 500, 4, 129)).transpose(1, 2) for _ in range(3))
    check(q, k, v, is_causal)


@dtypes
@pytest.mark.parametrize("column", [0, 7, 64, 127, 128])
def test_nan_in_a_key_spoils_no_other_key(device: str, column: int, dtype: torch.dtype) -> None:
    q, k, v = (rows(device, dtype, (1, 1, 200, 129), offset=n) for n in range(3))
    k[0, 0, 140, column] = math.nan
    out = check(q, k, v, True)
    assert not out[0, 0, :140].isnan().any()
    assert out[0, 0, 140:].isnan().all()


@dtypes
@pytest.mark.parametrize("column", [0, 7, 64, 127, 128])
def test_nan_in_a_value_spoils_its_column_alone(device: str, column: int, dtype: torch.dtype) -> None:
    q, k, v = (rows(device, dtype, (1, 1, 200, 129), offset=n) for n in range(3))
    v[0, 0, 140, column] = math.nan
    out = check(q, k, v, False)
    assert out[..., column].isnan().all()
    assert int(out.isnan().sum()) == 200


@dtypes
def test_a_key_at_minus_infinity_is_not_seen(device: str, dtype: torch.dtype) -> None:
    q, k, v = (rows(device, dtype, (1, 1, 200, 129), offset=n) for n in range(3))
    q.abs_()
    k[0, 0, 7, 128] = -math.inf
    k[0, 0, 8, 0] = -math.inf
    assert not check(q, k, v, False).isnan().any()


@pytest.mark.gpu
def test_the_same_each_time() -> None:
    q, k, v = (rows("cuda", torch.float16, (4, 16, 1024, 129), offset=n) for n in range(3))
    first = cuda_llm_ops.flash_attention(q, k, v, True)
    for _ in range(20):
        assert torch.equal(cuda_llm_ops.flash_attention(q, k, v, True), first)


# Long enough that blocks take several tiles each, of heads in several sections.
LONG = (4, 24, 1100, 129)


@pytest.mark.gpu
@masks
@pytest.mark.parametrize("head_dim", [63, 100, 127, 129, 132, 150, 191])
def test_several_tiles_of_a_block(head_dim: int, is_causal: bool) -> None:
    q = rows("cuda", torch.float16, (*LONG[:3], head_dim), offset=1)
    k = rows("cuda", torch.float16, (4, 8, 1200, head_dim), offset=2)
    check_many(q, k, k.flip(2), is_causal)


@pytest.mark.gpu
@masks
def test_more_heads_than_counters(is_causal: bool) -> None:
    q, k, v = (rows("cuda", torch.float16, (600, 8, 70, 65), offset=n) for n in range(3))
    check_many(q, k, v, is_causal)


@pytest.mark.gpu
def test_launches_that_follow_one_another_in_a_graph() -> None:
    inputs = [[rows("cuda", torch.float16, LONG, offset=n + i) for n in range(3)] for i in range(3)]
    expected = [cuda_llm_ops.flash_attention(*x, i == 1) for i, x in enumerate(inputs)]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = [cuda_llm_ops.flash_attention(*x, i == 1) for _ in range(4) for i, x in enumerate(inputs)]
    for _ in range(5):
        for out in found:
            out.fill_(math.nan)
        graph.replay()
        torch.cuda.synchronize()
        assert all(torch.equal(out, expected[i % 3]) for i, out in enumerate(found))


MANY_CAPTURES = """
import torch, cuda_llm_ops
q, k, v = (torch.randn(1, 2, 300, 129, device="cuda", dtype=torch.float16) for _ in range(3))
expected = cuda_llm_ops.flash_attention(q, k, v)
kept = []
for i in range(600):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = cuda_llm_ops.flash_attention(q, k, v)
    if i < KEPT:
        kept.append((graph, out))
    for _ in range(3):
        out.fill_(0)
        graph.replay()
        assert torch.equal(out, expected), i
"""


NODES = """
import ctypes
graph = torch.cuda.CUDAGraph(keep_graph=True)
with torch.cuda.graph(graph):
    out = cuda_llm_ops.flash_attention(q, k, v)
count = ctypes.c_size_t()
asked = ctypes.CDLL("libcuda.so.1").cuGraphGetNodes(ctypes.c_void_p(graph.raw_cuda_graph()), None, ctypes.byref(count))
print(asked, count.value)
"""


@pytest.mark.gpu
@pytest.mark.parametrize("kept", [0, 300])
def test_graphs_that_have_ended_give_their_counters_back(kept: int) -> None:
    """One kernel a call, after 600 captures too; where 300 graphs live, none is left, and counters are set to zero."""
    program = MANY_CAPTURES.replace("KEPT", str(kept)) + NODES
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100)
    assert run.returncode == 0, run.stderr[-2000:]
    assert run.stdout.split() == ["0", "1" if kept == 0 else "2"]


@pytest.mark.gpu
def test_streams_at_once() -> None:
    inputs = [[rows("cuda", torch.float16, LONG, offset=n + i) for n in range(3)] for i in range(3)]
    expected = [cuda_llm_ops.flash_attention(*x) for x in inputs]
    streams = [torch.cuda.Stream() for _ in inputs]
    found: list[tuple[int, Tensor]] = []
    torch.cuda.synchronize()
    for _ in range(10):
        for i, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                found.append((i, cuda_llm_ops.flash_attention(*inputs[i])))
    torch.cuda.synchronize()
    assert all(torch.equal(out, expected[i]) for i, out in found)


@pytest.mark.gpu
@dtypes
@masks
@pytest.mark.parametrize(("head_dim", "offset", "pad"), [(193, 0, 0), (222, 1, 3), (255, 3, 0), (248, 1, 0)])
def test_long_rows_of_many_queries(head_dim: int, offset: int, pad: int, dtype: torch.dtype, is_causal: bool) -> None:
    """On Hopper they are computed on copies that are padded with zeros."""
    q = rows("cuda", dtype, (2, 4, 600, head_dim), offset=offset, pad=pad)
    k, v = (rows("cuda", dtype, (2, 2, 777, head_dim), offset=offset, pad=pad + more) for more in (0, 1))
    check(q, k, v, is_causal)
