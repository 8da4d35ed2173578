"""The gradients of attention with a window, either diagonal, packed sequences, and those of the logarithms."""

from __future__ import annotations

import math
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the operators need torch")

import backward_cases as cases  # noqa: E402
import cuda_llm_ops  # noqa: E402
import ops_reference as reference  # noqa: E402
from torch import Tensor  # noqa: E402

_backward = torch.ops.cuda_llm_ops.flash_attention_backward.default
_varlen_backward = torch.ops.cuda_llm_ops.flash_attention_varlen_backward.default


def check(case: cases.Case, device: str) -> None:
    made = cases.make(case)
    made.check(case, cases.gradients(case, made, device))


@pytest.mark.parametrize("seed", range(60))
def test_random_cases(seed: int, device: str) -> None:
    check(cases.random_case(seed), device)


@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("right", [-1, 0])
def test_of_the_logarithms(head_dim: int, right: int, device: str) -> None:
    """Where no window keeps Hopper's kernels from it."""
    for dtype in cases.DTYPES:
        check(cases.Case(dtype, 2, 4, 2, [150], [150], head_dim, head_dim, right=right, with_lse=True), device)


def test_of_the_logarithms_alone(device: str) -> None:
    q, k, v = (torch.randn(1, 2, 20, 16, device=device) for _ in range(3))
    q.requires_grad_()
    lse = cuda_llm_ops.flash_attention(q, k, v, True, return_lse=True)[1]
    lse.sum().backward()
    scores = (q.detach().double().requires_grad_(), k.double())
    hidden = ~reference.visible_keys(20, 20, True).to(device)
    ((scores[0] @ scores[1].mT) / 4).masked_fill(hidden, -math.inf).logsumexp(-1).sum().backward()
    torch.testing.assert_close(q.grad.double(), scores[0].grad, rtol=1e-4, atol=1e-5)


def test_rows_of_no_sequence_have_no_gradient(device: str) -> None:
    q, k, v = (torch.randn(30, 2, 16, device=device, requires_grad=True) for _ in range(3))
    offsets = torch.tensor([0, 8, 20], dtype=torch.int32, device=device)
    out = cuda_llm_ops.flash_attention_varlen(q, k, v, offsets, offsets, 12, 12, is_causal=True)
    out[:20].sum().backward()
    for leaf in (q, k, v):
        assert leaf.grad is not None
        assert leaf.grad[:20].any()
        assert not leaf.grad[20:].any()


class Portable(torch.autograd.Function):
    """The definition in float64 with the portable kernel's gradients, for finite differences."""

    @staticmethod
    def forward(ctx: Any, case: cases.Case, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        out, lse = cases.attend(case, q, k, v, q.shape[2], k.shape[2])
        ctx.case = case
        ctx.save_for_backward(q, k, v, out)
        return out, torch.where(lse == -math.inf, 0.0, lse)

    @staticmethod
    def backward(ctx: Any, d_out: Tensor, d_lse: Tensor) -> Any:
        q, k, v, out = ctx.saved_tensors
        case = ctx.case
        mask = False, case.scale, False, case.bottom_right, case.left, case.right
        return None, *_backward(d_out, q, k, v, out, torch.zeros(q.shape[:3]), *mask, d_lse.float())


@pytest.mark.parametrize("bottom_right", [False, True])
@pytest.mark.parametrize("window", [(-1, -1), (2, 0), (1, 1), (-1, 1), (0, -1)], ids=str)
@pytest.mark.parametrize(("seq_q", "seq_kv", "value_dim"), [(4, 6, 3), (6, 4, 2)])
def test_by_finite_differences(
    seq_q: int, seq_kv: int, value_dim: int, window: tuple[int, int], bottom_right: bool
) -> None:
    case = cases.Case(torch.float64, 1, 2, 1, [seq_q], [seq_kv], 3, value_dim, *window, bottom_right, scale=0.7)
    generator = torch.Generator().manual_seed(0)
    leaves = [
        torch.randn(1, heads, rows, columns, dtype=torch.float64, generator=generator).requires_grad_()
        for heads, rows, columns in ((2, seq_q, 3), (1, seq_kv, 3), (1, seq_kv, value_dim))
    ]
    assert torch.autograd.gradcheck(lambda *x: Portable.apply(case, *x), leaves, rtol=1e-3, atol=1e-5)


def test_opcheck(device: str) -> None:
    generator = torch.Generator().manual_seed(0)
    q, k, v, d_out = (torch.randn(20, 2, 16, generator=generator).to(device, torch.bfloat16) for _ in range(4))
    offsets = torch.tensor([0, 8, 20], dtype=torch.int32, device=device)
    training = torch.ops.cuda_llm_ops.flash_attention_varlen_training.default
    rest = offsets, offsets, 12, 12, True, None, True, 5, 0
    torch.library.opcheck(training, (q, k, v, *rest))
    out, lse = training(q, k, v, *rest)
    last = True, None, True, True, 5, 0, torch.zeros_like(lse)
    torch.library.opcheck(_varlen_backward, (d_out, q, k, v, out, lse, *rest[:4], *last))
    leaves = tuple(tensor.requires_grad_() for tensor in (q, k, v))
    checks = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(training, (*leaves, *rest), test_utils=checks)


def test_a_step_with_packed_sequences_compiles_without_a_graph_break(device: str) -> None:
    torch.compiler.reset()
    offsets = torch.tensor([0, 8, 20], dtype=torch.int32, device=device)
    x = torch.randn(20, 2, 16, device=device, requires_grad=True)

    def loss(x: Tensor) -> Tensor:
        out = cuda_llm_ops.flash_attention_varlen(x, x, x, offsets, offsets, 12, 12, is_causal=True, window=(4, 0))
        return out.square().sum()

    eager = torch.autograd.grad(loss(x), x)
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(torch.autograd.grad(compiled(x), x), eager)


def test_second_derivatives_of_packed_sequences_are_refused(device: str) -> None:
    x = torch.randn(20, 2, 16, device=device, requires_grad=True)
    offsets = torch.tensor([0, 20], dtype=torch.int32, device=device)
    out = cuda_llm_ops.flash_attention_varlen(x, x, x, offsets, offsets, 20, 20)
    (dx,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="there are no second derivatives"):
        dx.sum().backward()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"d_lse": torch.zeros(1, 1, 20)}, "ValueError: flash_attention_backward: d_lse has shape"),
        (
            {"d_lse": torch.zeros(1, 2, 20, dtype=torch.float64)},
            "TypeError: flash_attention_backward: d_lse is float64",
        ),
        ({"window_left": -2}, "ValueError: flash_attention_backward: window_left is -2"),
        ({"v": torch.zeros(1, 2, 20, 17)}, "NotImplementedError: flash_attention_backward: v has head_dim 17"),
    ],
    ids=str,
)
def test_the_backward_operator_checks_what_it_gets(change: dict[str, Any], message: str) -> None:
    x = torch.zeros(1, 2, 20, 16)
    v = change.get("v", x)
    given = {"d_out": v, "q": x, "k": x, "v": v, "out": v, "lse": torch.zeros(1, 2, 20)} | change
    with pytest.raises(RuntimeError, match=message):
        _backward(**given)
