"""The portable kernels split their work over torch's threads: any number of them gives the same answer."""

from __future__ import annotations

from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch", reason="the operators need torch")

import cuda_llm_ops  # noqa: E402
import ops_reference as reference  # noqa: E402
from torch import Tensor  # noqa: E402

THREADS = [1, 2, 3, 7]


def answers(operator: Callable[[], Tensor]) -> list[Tensor]:
    found = []
    for threads in THREADS:
        torch.set_num_threads(threads)
        found.append(operator())
    return found


@pytest.mark.parametrize("name", reference.ATTENTION)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(("heads", "seq"), [(1, 5), (3, 200), (16, 64)])
def test_attention(name: str, heads: int, seq: int, is_causal: bool) -> None:
    q, k, v = (torch.randn(2, heads, seq, 40) for _ in range(3))
    expected = reference.attention(name, q, k, v, is_causal, None)
    for out in answers(lambda: getattr(cuda_llm_ops, name)(q, k, v, is_causal)):
        reference.assert_right(out, expected)


@pytest.mark.parametrize("name", reference.GEMM)
@pytest.mark.parametrize(
    ("batch", "m", "n", "k"), [(1, 1, 1000, 70), (1, 1000, 1, 70), (5, 3, 3, 3), (1, 200, 300, 257)]
)
def test_gemm(name: str, batch: int, m: int, n: int, k: int) -> None:
    a, b = torch.randn(batch, m, k).half(), torch.randn(batch, k, n).half()
    out_dtype = torch.float16 if name == "gemm" else torch.float32
    expected = reference.gemm(a, b, out_dtype)
    for out in answers(lambda: getattr(cuda_llm_ops, name)(a, b)):
        reference.assert_right(out, expected)


def test_called_from_several_threads_at_once() -> None:
    """Each calling thread has its own answer: the kernels share no scratch memory."""
    from concurrent.futures import ThreadPoolExecutor

    torch.set_num_threads(2)
    pairs = [(torch.randn(40 + i, 60), torch.randn(60, 50 + i)) for i in range(16)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda pair: cuda_llm_ops.gemm(*pair), pairs))
    for out, (a, b) in zip(found, pairs, strict=True):
        reference.assert_right(out, reference.gemm(a, b, torch.float32))
