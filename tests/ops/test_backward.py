"""The gradients of attention: against float64, by finite differences, under autograd and torch.compile."""

from __future__ import annotations

import concurrent.futures
import math
import os
from itertools import product
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the operators need torch")

import cuda_llm_ops  # noqa: E402
import ops_reference as reference  # noqa: E402
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch import Tensor  # noqa: E402

Gradients = tuple[Tensor, ...]
_backward = torch.ops.cuda_llm_ops.flash_attention_backward.default


def inputs(
    shape: tuple[int, int, int, int, int, int],
    dtype: torch.dtype,
    device: str,
    seed: int = 0,
    value_dim: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """q, k, v and the gradient of the output; shape: batch, heads, key heads, queries, keys, head_dim.

    value_dim: the head_dim of v and of the output, if it is another.
    """
    batch, heads, kv_heads, seq_q, seq_kv, head_dim = shape
    columns = head_dim if value_dim is None else value_dim
    generator = torch.Generator().manual_seed(seed)

    def normal(heads: int, rows: int, columns: int) -> Tensor:
        return torch.randn(batch, heads, rows, columns, generator=generator).to(device, dtype)

    q, k = normal(heads, seq_q, head_dim), normal(kv_heads, seq_kv, head_dim)
    return q, k, normal(kv_heads, seq_kv, columns), normal(heads, seq_q, columns)


def plain(q: Tensor, k: Tensor, v: Tensor, is_causal: bool, scale: float | None) -> Tensor:
    """The definition, of which torch computes the gradients."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = q @ k.mT * (q.shape[3] ** -0.5 if scale is None else scale)
    if is_causal:
        visible = reference.visible_keys(q.shape[2], k.shape[2], True).to(q.device)
        scores = scores.masked_fill(~visible, -math.inf)
    return scores.softmax(-1) @ v


def gradients(function: Any, q: Tensor, k: Tensor, v: Tensor, d_out: Tensor, *options: Any) -> Gradients:
    leaves = [tensor.detach().clone().requires_grad_() for tensor in (q, k, v)]
    return torch.autograd.grad(function(*leaves, *options), leaves, d_out)


def flash(q: Tensor, k: Tensor, v: Tensor, is_causal: bool, scale: float | None) -> Tensor:
    return cuda_llm_ops.flash_attention(q, k, v, is_causal, scale=scale)


def library(q: Tensor, k: Tensor, v: Tensor, is_causal: bool, scale: float | None) -> Tensor:
    """torch's own operator; key heads are repeated, since not all of its kernels take groups."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=is_causal, scale=scale)


def errors(found: Gradients, exact: Gradients) -> list[float]:
    return [((a.double() - b).norm() / b.norm().clamp(min=1e-300)).item() for a, b in zip(found, exact, strict=True)]


def assert_as_good_as_the_library(
    q: Tensor, k: Tensor, v: Tensor, d_out: Tensor, is_causal: bool, scale: float | None, name: str = "flash_attention"
) -> None:
    wide = [tensor.double() for tensor in (q, k, v, d_out)]
    exact = gradients(plain, *wide, is_causal, scale)
    ours = errors(gradients(portable(name), q, k, v, d_out, is_causal, scale), exact)
    theirs = errors(gradients(library, q, k, v, d_out, is_causal, scale), exact)
    # A rounding of the inputs' dtype, a fifth of it, is granted where the library rounds nothing but the result.
    floor = reference.rounding(q.dtype) if q.dtype == torch.float32 else 0.2 * reference.rounding(q.dtype)
    for name, our, their in zip(("q", "k", "v"), ours, theirs, strict=True):
        assert our <= 1.2 * their + floor, f"gradient of {name}: error {our:.3e}, the library's {their:.3e}"


def portable(name: str) -> Any:
    operator = getattr(cuda_llm_ops, name)
    return lambda q, k, v, is_causal, scale: operator(q, k, v, is_causal, scale=scale)


operators = pytest.mark.parametrize("name", reference.ATTENTION)
CPU_SHAPES = [
    (1, 1, 1, 1, 1, 1),
    (2, 4, 2, 17, 17, 8),
    (1, 6, 2, 9, 30, 5),
    (1, 2, 1, 30, 9, 64),
    (1, 1, 1, 70, 70, 40),
]


@operators
@pytest.mark.parametrize("shape", CPU_SHAPES, ids=str)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("scale", [None, 0.7])
def test_portable_gradients_in_float32(
    shape: tuple[int, int, int, int, int, int], is_causal: bool, scale: float | None, name: str
) -> None:
    q, k, v, d_out = inputs(shape, torch.float32, "cpu")
    exact = gradients(plain, *(tensor.double() for tensor in (q, k, v, d_out)), is_causal, scale)
    found = gradients(portable(name), q, k, v, d_out, is_causal, scale)
    for ours, right in zip(found, exact, strict=True):
        torch.testing.assert_close(ours.double(), right, rtol=1e-4, atol=1e-5)


@operators
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("is_causal", [False, True])
def test_portable_gradients_in_sixteen_bits(dtype: torch.dtype, is_causal: bool, name: str) -> None:
    assert_as_good_as_the_library(*inputs((2, 4, 2, 40, 40, 32), dtype, "cpu"), is_causal, None, name)


@pytest.mark.parametrize("name", reference.ATTENTION[:2])
def test_operators_that_return_no_logarithms(name: str, device: str) -> None:
    """What flash_attention is held to below."""
    operator, (q, k, v, d_out) = getattr(cuda_llm_ops, name), sixteen_bit(device)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        operator(q, k, v)
    assert not any("training" in event.name for event in profile.events())
    leaves = tuple(tensor.requires_grad_() for tensor in (q, k, v))
    checks = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
    training = getattr(torch.ops.cuda_llm_ops, f"{name}_training").default
    torch.library.opcheck(training, (*leaves, True), test_utils=checks)
    (dq,) = torch.autograd.grad(operator(*leaves), q, d_out, create_graph=True)
    with pytest.raises(NotImplementedError, match="there are no second derivatives"):
        dq.sum().backward()
    torch.compiler.reset()
    compiled = torch.compile(operator, fullgraph=True, backend="aot_eager")
    found = torch.autograd.grad(compiled(*leaves), leaves, d_out)
    torch.testing.assert_close(found, torch.autograd.grad(operator(*leaves), leaves, d_out))
    with torch.autocast(device, torch.bfloat16):
        out = operator(*(leaf.float() for leaf in leaves))
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(torch.autograd.grad(out, leaves, d_out), found)


class Portable(torch.autograd.Function):
    """The definition in float64, with the portable kernel's gradients, for finite differences."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, is_causal: bool, scale: float | None) -> Tensor:
        out = plain(q, k, v, is_causal, scale)
        ctx.save_for_backward(q, k, v, out)
        ctx.options = is_causal, scale
        return out

    @staticmethod
    def backward(ctx: Any, d_out: Tensor) -> Any:
        q, k, v, out = ctx.saved_tensors
        lse = torch.zeros(q.shape[:3])  # the portable kernel computes its own
        return *_backward(d_out, q, k, v, out, lse, *ctx.options, True), None, None


@pytest.mark.parametrize("shape", [(1, 2, 1, 5, 5, 3), (2, 1, 1, 4, 7, 2), (1, 2, 2, 6, 3, 4)], ids=str)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("scale", [None, 0.0, 0.3])
def test_portable_gradients_by_finite_differences(
    shape: tuple[int, int, int, int, int, int], is_causal: bool, scale: float | None
) -> None:
    leaves = [tensor.requires_grad_() for tensor in inputs(shape, torch.float64, "cpu")[:3]]
    assert torch.autograd.gradcheck(lambda *x: Portable.apply(*x, is_causal, scale), leaves)


ASKED = os.environ.get("CUDA_LLM_OPS_FUZZ_CALLS")  # 2000 for the whole


@settings(max_examples=int(ASKED or 60), deadline=None)
@given(st.data())
def test_random_shapes_on_the_cpu(data: st.DataObject) -> None:
    number = lambda low, high: data.draw(st.integers(low, high))  # noqa: E731
    kv_heads = number(1, 3)
    shape = (number(1, 2), kv_heads * number(1, 3), kv_heads, number(1, 40), number(1, 40), number(1, 40))
    is_causal, scale = data.draw(st.booleans()), data.draw(st.sampled_from([None, 0.0, 1.3]))
    function = portable(data.draw(st.sampled_from(reference.ATTENTION)))
    q, k, v, d_out = inputs(shape, torch.float32, "cpu", number(0, 1000))
    exact = gradients(plain, *(tensor.double() for tensor in (q, k, v, d_out)), is_causal, scale)
    for ours, right in zip(gradients(function, q, k, v, d_out, is_causal, scale), exact, strict=True):
        torch.testing.assert_close(ours.double(), right, rtol=1e-3, atol=1e-4)


def sixteen_bit(device: str, shape: tuple[int, ...] = (1, 4, 2, 48, 48, 64)) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return inputs(shape, torch.bfloat16, device)  # type: ignore[arg-type]


def test_strided_inputs_and_an_expanded_gradient(device: str) -> None:
    q, k, v, _ = (tensor.transpose(1, 2).contiguous().transpose(1, 2) for tensor in sixteen_bit(device))
    leaves = [tensor.requires_grad_() for tensor in (q, k, v)]
    cuda_llm_ops.flash_attention(*leaves, is_causal=True).sum().backward()
    dense = gradients(
        flash, q.contiguous(), k.contiguous(), v.contiguous(), torch.ones_like(q.contiguous()), True, None
    )
    for leaf, right in zip(leaves, dense, strict=True):
        torch.testing.assert_close(leaf.grad, right, rtol=0.05, atol=0.05)


def test_an_empty_input_has_empty_or_zero_gradients(device: str) -> None:
    q, k, v, d_out = sixteen_bit(device)
    for queries, keys in ((0, 48), (48, 0)):
        found = gradients(flash, q[:, :, :queries], k[:, :, :keys], v[:, :, :keys], d_out[:, :, :queries], False, None)
        assert all(not gradient.any() for gradient in found)


def test_a_query_without_a_finite_score_has_no_gradient(device: str) -> None:
    q, k, v, d_out = sixteen_bit(device)
    k[..., 0] = -math.inf
    q[:] = 0
    q[..., 0] = 1
    assert not any(gradient.any() for gradient in gradients(flash, q, k, v, d_out, False, None)[2:])


def test_second_derivatives_are_refused_by_name(device: str) -> None:
    q, k, v, d_out = sixteen_bit(device)
    q.requires_grad_()
    (dq,) = torch.autograd.grad(cuda_llm_ops.flash_attention(q, k, v), q, d_out, create_graph=True)
    with pytest.raises(NotImplementedError, match="flash_attention_backward: there are no second derivatives"):
        dq.sum().backward()


def test_calls_without_gradients_take_the_operator_without_them(device: str) -> None:
    q, k, v, _ = sixteen_bit(device)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        cuda_llm_ops.flash_attention(q, k, v)
    called = {event.name for event in profile.events()}
    assert "cuda_llm_ops::flash_attention" in called
    assert not any("training" in name or "general" in name for name in called)


@pytest.mark.parametrize("change", ["d_out shape", "lse dtype", "lse shape", "out dtype"])
def test_the_backward_operator_checks_what_it_gets(change: str, device: str) -> None:
    q, k, v, d_out = sixteen_bit(device)
    out, lse = cuda_llm_ops.flash_attention(q, k, v, return_lse=True)
    if change == "d_out shape":
        d_out, message = d_out[:, :, 1:], "ValueError: flash_attention_backward: d_out has shape"
    elif change == "lse dtype":
        lse, message = lse.double(), "TypeError: flash_attention_backward: lse is float64; it must be float32"
    elif change == "lse shape":
        lse, message = lse[:, :1], "ValueError: flash_attention_backward: lse has shape"
    else:
        out, message = out.float(), "TypeError: flash_attention_backward: out is float32"
    with pytest.raises(RuntimeError, match=message):
        _backward(d_out, q, k, v, out, lse)


def test_opcheck(device: str) -> None:
    q, k, v, d_out = sixteen_bit(device)
    training = torch.ops.cuda_llm_ops.flash_attention_training.default
    torch.library.opcheck(training, (q, k, v, True))
    out, lse = training(q, k, v, True, None)
    torch.library.opcheck(_backward, (d_out, q, k, v, out, lse, True))
    with_gradients = tuple(tensor.detach().requires_grad_() for tensor in (q, k, v))
    checks = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(training, (*with_gradients, True), test_utils=checks)


def test_a_training_step_compiles_without_a_graph_break(device: str) -> None:
    torch.compiler.reset()
    torch.manual_seed(0)
    weight = torch.randn(128, 3 * 128, device=device, dtype=torch.bfloat16).mul_(0.1).requires_grad_()
    x = torch.randn(2, 32, 128, device=device, dtype=torch.bfloat16)

    def loss(weight: Tensor) -> Tensor:
        q, k, v = (x @ weight).view(2, 32, 3, 2, 64).permute(2, 0, 3, 1, 4)
        return cuda_llm_ops.flash_attention(q, k, v, is_causal=True).float().square().mean()

    eager = torch.autograd.grad(loss(weight), weight)[0]
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(torch.autograd.grad(compiled(weight), weight)[0], eager, rtol=0.02, atol=1e-4)


def test_under_autocast(device: str) -> None:
    q, k, v, _ = (tensor.float() for tensor in sixteen_bit(device))
    q.requires_grad_()
    with torch.autocast(device, torch.bfloat16):
        out = cuda_llm_ops.flash_attention(q, k, v, is_causal=True)
    assert out.dtype == torch.bfloat16
    out.sum().backward()
    assert q.grad is not None
    assert q.grad.dtype == torch.float32
    assert q.grad.any()


def test_the_same_bits_under_checkpointing(device: str) -> None:
    from torch.utils.checkpoint import checkpoint

    q, k, v, d_out = sixteen_bit(device)
    again = lambda *x: checkpoint(flash, *x, True, None, use_reentrant=False)  # noqa: E731
    torch.use_deterministic_algorithms(True)
    try:
        once = gradients(lambda *x: flash(*x, True, None), q, k, v, d_out)
        twice = gradients(again, q, k, v, d_out)
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(torch.equal(a, b) for a, b in zip(once, twice, strict=True))


# ---- what only a Hopper GPU can show --------------------------------------------------------------------------------

hopper = pytest.mark.gpu(min_capability=(9, 0))
HOPPER_SHAPES = [
    (1, 2, 2, 128, 128), (2, 4, 2, 640, 640), (1, 4, 1, 333, 333), (1, 2, 1, 200, 520), (1, 2, 2, 500, 130),
    (1, 1, 1, 2, 2), (1, 8, 8, 65, 2049), (3, 6, 2, 1000, 1000),
]  # fmt: skip


FEWER_SHAPES = [(2, 4, 2, 640, 640), (1, 4, 1, 333, 333), (1, 2, 1, 200, 520), (1, 2, 2, 500, 130)]
WIDER = [(96, 96), (192, 192), (192, 128), (256, 256)]
"""Head_dims of q and k, and of v."""


@hopper
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(
    ("shape", "dims"),
    [*product(HOPPER_SHAPES, [(64, 64), (128, 128)]), *product(FEWER_SHAPES, WIDER)],
    ids=str,
)
def test_hopper_gradients(shape: tuple[int, ...], dims: tuple[int, int], is_causal: bool, dtype: torch.dtype) -> None:
    made = inputs((*shape, dims[0]), dtype, "cuda", value_dim=dims[1])  # type: ignore[arg-type]
    from torch.nn.attention import SDPBackend, sdpa_kernel

    fused = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION]
    for deterministic in (False, True):
        torch.use_deterministic_algorithms(deterministic, warn_only=True)
        try:
            with sdpa_kernel(fused):
                assert_as_good_as_the_library(*made, is_causal, None)
        finally:
            torch.use_deterministic_algorithms(False)


def test_with_one_key_only_v_has_a_gradient(device: str) -> None:
    """The weight is 1 whatever q and k are. What is left of their gradients is two float32 sums' difference."""
    q, k, v, d_out = inputs((2, 4, 2, 70, 1, 64), torch.float16, device)
    dq, dk, dv = gradients(flash, q, k, v, d_out, False, None)
    torch.testing.assert_close(
        dv.double(), d_out.double().view(2, 2, 2, 70, 64).sum((2, 3))[:, :, None], rtol=2e-3, atol=2e-3
    )
    rest = 64 * 2.0**-23 * (d_out.double().abs() @ v.double().abs().repeat_interleave(2, 1).mT).max() * 64**-0.5
    assert dq.double().abs().max() <= rest * k.double().abs().max()
    assert dk.double().abs().max() <= 140 * rest * q.double().abs().max()


@hopper
@pytest.mark.parametrize("dims", [(64, 64), (128, 128), *WIDER], ids=str)
@pytest.mark.parametrize("is_causal", [False, True])
def test_hopper_gives_the_same_bits_when_asked(is_causal: bool, dims: tuple[int, int]) -> None:
    q, k, v, d_out = inputs((2, 8, 2, 1024, 1024, dims[0]), torch.bfloat16, "cuda", value_dim=dims[1])
    out, lse = cuda_llm_ops.flash_attention(q, k, v, is_causal, return_lse=True)
    first = _backward(d_out, q, k, v, out, lse, is_causal, None, True)
    for _ in range(300):
        again = _backward(d_out, q, k, v, out, lse, is_causal, None, True)
        assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


@hopper
def test_hopper_in_a_cuda_graph() -> None:
    q, k, v, d_out = inputs((1, 4, 2, 300, 300, 64), torch.bfloat16, "cuda")
    leaves = [tensor.requires_grad_() for tensor in (q, k, v)]

    def step() -> Gradients:
        return torch.autograd.grad(cuda_llm_ops.flash_attention(*leaves, is_causal=True), leaves, d_out)

    torch.use_deterministic_algorithms(True)
    try:
        step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = step()
        with torch.no_grad():
            q.copy_(torch.randn_like(q))
        graph.replay()
        eager = step()
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(torch.equal(a, b) for a, b in zip(captured, eager, strict=True))


@hopper
def test_a_thread_that_has_not_used_the_card_yet_can_call() -> None:
    """As autograd's thread may be: it has no context before its first call of the CUDA runtime."""
    q, k, v, d_out = sixteen_bit("cuda")
    out, lse = cuda_llm_ops.flash_attention(q, k, v, return_lse=True)
    right = _backward(d_out, q, k, v, out, lse, False, None, True)
    alone = cuda_llm_ops.flash_attention(q, k, v)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        found = pool.submit(_backward, d_out, q, k, v, out, lse, False, None, True).result()
        again = pool.submit(cuda_llm_ops.flash_attention, q, k, v).result()
    assert all(torch.equal(one, other) for one, other in zip(found, right, strict=True))
    assert torch.equal(again, alone)
