"""The gradients of gemm and tensor_core_gemm: against float64, by finite differences, under autograd and torch.compile.

    CUDA_LLM_OPS_FUZZ_CALLS=2000 pytest tests/ops/test_gemm_gradients.py    # 2,000 random configurations

The few of a plain run are the same every time; a number that is asked for explores new ones.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the operators need torch")

import cuda_llm_ops  # noqa: E402
import ops_fuzz as fuzz  # noqa: E402
import ops_reference as reference  # noqa: E402
from cuda_llm_ops import backward_gemm  # noqa: E402
from hypothesis import HealthCheck, Phase, given, settings  # noqa: E402
from torch import Tensor  # noqa: E402

ASKED = os.environ.get("CUDA_LLM_OPS_FUZZ_CALLS")
fuzzing = settings(
    max_examples=int(ASKED or 300) // len(reference.GEMM),
    deadline=None,
    database=None,
    derandomize=ASKED is None,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)
BATCHES = [(None, None), (3, 3), (None, 3), (3, None)]
_gradient = torch.ops.cuda_llm_ops.gemm_gradient.default


def normal(dtype: torch.dtype, device: str, *shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=generator).to(device, dtype)


def plain(
    a: Tensor, b: Tensor, alpha: float = 1.0, beta: float = 0.0, c: Tensor | None = None, trans_a: bool = False,
    trans_b: bool = False,
) -> Tensor:  # fmt: skip
    """The definition, of which torch computes the gradients."""
    product = alpha * ((a.mT if trans_a else a) @ (b.mT if trans_b else b))
    return product if c is None else product + beta * c


def as_one(left: Tensor, right: Tensor, summed: bool) -> tuple[Tensor, Tensor]:
    """Operands of the product that is the gradient: summed over a batch, of one long inner dimension."""
    if not summed:
        return left, right
    return left.permute(1, 0, 2).flatten(1, 2), right.flatten(0, 1)


def assert_gradients_are_right(name: str, call: dict[str, Any], seed: int = 0) -> None:
    """Every gradient is within the bound of a product in float32, elementwise."""
    leaves = {key: call[key].detach().requires_grad_() for key in ("a", "b", "c") if key in call}
    out = getattr(cuda_llm_ops, name)(**call | leaves)
    d_out = normal(out.dtype, out.device.type, *out.shape, seed=seed)
    found = dict(zip(leaves, torch.autograd.grad(out, list(leaves.values()), d_out), strict=True))
    a, b, alpha = call["a"].detach(), call["b"].detach(), float(call.get("alpha", 1.0))
    rounded = d_out.to(a.dtype)  # the float32 gradient of tensor_core_gemm is rounded, and judged so
    left, right = a.mT if call.get("trans_a") else a, b.mT if call.get("trans_b") else b
    products = {
        "a": (*as_one(rounded, right.mT, a.dim() < out.dim()), call.get("trans_a")),
        "b": (*as_one(left.mT, rounded, b.dim() < out.dim()), call.get("trans_b")),
    }
    for key, (first, second, transposed) in products.items():
        assert found[key].dtype == a.dtype
        expected = reference.gemm(first, second, a.dtype, alpha=alpha)
        reference.assert_right(found[key].mT if transposed else found[key], expected)
    if "c" in found:
        beta = float(call.get("beta", 0.0))
        right_c = beta * d_out.cpu().double() if beta != 0 else torch.zeros(d_out.shape, dtype=torch.float64)
        tolerance = 2 * reference.rounding(d_out.dtype) * right_c.abs() + reference.tiny(d_out.dtype)
        reference.assert_right(found["c"], reference.Expected(right_c, tolerance, torch.zeros_like(right_c).bool()))


@pytest.mark.parametrize("dtype", reference.DTYPES, ids=str)
@pytest.mark.parametrize("trans_a", [False, True])
@pytest.mark.parametrize("trans_b", [False, True])
@pytest.mark.parametrize("batches", BATCHES, ids=str)
def test_every_transposition_and_batch(
    device: str, dtype: torch.dtype, trans_a: bool, trans_b: bool, batches: tuple[int | None, int | None]
) -> None:
    m, n, k = 17, 33, 24
    batch_a, batch_b = ((batch,) if batch else () for batch in batches)
    call: dict[str, Any] = {
        "a": normal(dtype, device, *batch_a, *((k, m) if trans_a else (m, k))),
        "b": normal(dtype, device, *batch_b, *((n, k) if trans_b else (k, n))),
        "c": normal(dtype, device, *(batch_a or batch_b), m, n),
    }
    assert_gradients_are_right("gemm", call | {"alpha": -0.75, "beta": 0.3, "trans_a": trans_a, "trans_b": trans_b})


@pytest.mark.parametrize("name", reference.GEMM)
def test_random_calls(name: str, device: str) -> None:
    @fuzzing
    @given(fuzz.gemm_calls(device, name == "tensor_core_gemm", spoiled=False))
    def run(call: fuzz.Call) -> None:
        assert_gradients_are_right(name, call.arguments)

    run()


def _without_alpha(d_out: Tensor, other: Tensor, alpha: float, *options: bool) -> Tensor:
    return _gradient(d_out, other, 1.0, *options)


def _without_a_batch(d_out: Tensor, other: Tensor, alpha: float, *options: bool) -> Tensor:
    if options[3] and d_out.shape[0] > 1:
        d_out = torch.cat([d_out[:-1], torch.zeros_like(d_out[-1:])])
    return _gradient(d_out, other, alpha, *options)


FAULTS: dict[str, Callable[..., Tensor]] = {
    "scaled by 0.98": lambda *call: _gradient(*call) * 0.98,
    "transposed": lambda *call: (g := _gradient(*call)).mT.reshape(g.shape),
    "without alpha": _without_alpha,
    "without one batch": _without_a_batch,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_random_calls_find_a_planted_fault(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backward_gemm, "_gemm_gradient", FAULTS[fault])
    quick = settings(fuzzing, max_examples=200, derandomize=True, phases=[Phase.generate])
    calls = fuzz.gemm_calls("cpu", False, spoiled=False)
    with pytest.raises(AssertionError, match="wrong"):
        quick(given(calls)(lambda call: assert_gradients_are_right("gemm", call.arguments)))()


def test_random_calls_find_the_gradient_of_c_without_beta(monkeypatch: pytest.MonkeyPatch) -> None:
    plain_mul = Tensor.__mul__
    monkeypatch.setattr(Tensor, "__mul__", lambda x, y: x if isinstance(y, float) and y == 0.3 else plain_mul(x, y))
    c = torch.zeros(2, 3)
    with pytest.raises(AssertionError, match="wrong"):
        assert_gradients_are_right("gemm", {"a": torch.ones(2, 4), "b": torch.ones(4, 3), "c": c, "beta": 0.3})


@pytest.mark.parametrize("batches", BATCHES, ids=str)
@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.filterwarnings("ignore:Input .* requires gradient and is not a double precision:UserWarning")
def test_finite_differences_are_exact(trans: bool, batches: tuple[int | None, int | None]) -> None:
    """The kernels take no float64. A product of small integers is exact in float32, and it is linear in each operand,
    so that finite differences with a step of 1 are exact too."""
    batch_a, batch_b = ((batch,) if batch else () for batch in batches)
    leaves = [
        normal(torch.float32, "cpu", *shape).mul(4).round().requires_grad_()
        for shape in (
            (*batch_a, *((4, 2) if trans else (2, 4))),
            (*batch_b, *((3, 4) if trans else (4, 3))),
            (*(batch_a or batch_b), 2, 3),
        )
    ]

    def product(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        return cuda_llm_ops.gemm(a, b, alpha=-2.0, beta=0.5, c=c, trans_a=trans, trans_b=trans)

    assert torch.autograd.gradcheck(product, leaves, eps=1.0, atol=0.0, rtol=0.0, nondet_tol=0.0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shared", ["a", "b"])
@pytest.mark.parametrize("cancelling", [False, True])
def test_errors_of_a_sum_over_the_batch_are_the_librarys(
    device: str, dtype: torch.dtype, shared: str, cancelling: bool
) -> None:
    a, b = normal(dtype, device, 16, 40, 48), normal(dtype, device, 16, 48, 56)
    d_out = normal(dtype, device, 16, 40, 56)
    if cancelling:  # the second half of the batch takes the first half back, but for a small rest
        d_out[8:] = -d_out[:8] + 0.01 * d_out[8:]
        a[8:], b[8:] = a[:8], b[:8]
    operands = {"a": a, "b": b} | {shared: {"a": a, "b": b}[shared][0]}

    def gradient(function: Callable[..., Tensor], to: torch.dtype) -> Tensor:
        given = {key: value.detach().to(to) for key, value in operands.items()}
        leaf = given[shared].requires_grad_()
        return torch.autograd.grad(function(given["a"], given["b"]), leaf, d_out.to(to))[0].double()

    exact = gradient(torch.matmul, torch.float64)
    ours, theirs = ((gradient(f, dtype) - exact).norm() for f in (cuda_llm_ops.gemm, torch.matmul))
    assert ours <= 1.2 * theirs


def test_partial_products_are_bounded(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backward_gemm, "_PARTIAL_ELEMENTS", 2 * 7 * 9)
    call = {"a": normal(torch.float16, device, 7, 9), "b": normal(torch.float16, device, 5, 9, 11)}
    assert_gradients_are_right("gemm", call)
    assert_gradients_are_right("gemm", {key: value.float() for key, value in call.items()} | {"alpha": 0.5})


def profiled(function: Callable[[], object]) -> list[Any]:
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, record_shapes=True) as profile:
        function()
    return list(profile.events())


def events(function: Callable[[], object]) -> list[str]:
    return [event.name for event in profiled(function)]


def copies(function: Callable[[], object]) -> list[Any]:
    """Shapes of the tensors that were copied; a number, as alpha, has none."""
    found = [event.input_shapes[0] for event in profiled(function) if event.name == "aten::copy_"]
    return [shape for shape in found if shape]


@pytest.mark.parametrize("trans_a", [False, True])
@pytest.mark.parametrize("trans_b", [False, True])
@pytest.mark.parametrize("batches", BATCHES, ids=str)
def test_no_operand_is_copied(
    device: str, trans_a: bool, trans_b: bool, batches: tuple[int | None, int | None]
) -> None:
    batch_a, batch_b = ((batch,) if batch else () for batch in batches)
    a = normal(torch.float32, device, *batch_a, *((7, 6) if trans_a else (6, 7))).requires_grad_()
    b = normal(torch.float32, device, *batch_b, *((5, 7) if trans_b else (7, 5))).requires_grad_()
    out = cuda_llm_ops.gemm(a, b, trans_a=trans_a, trans_b=trans_b)
    d_out = torch.ones_like(out)
    assert copies(lambda: torch.autograd.grad(out, (a, b), d_out)) == []


def test_a_copy_would_be_seen(device: str) -> None:
    a = normal(torch.float32, device, 6, 7).requires_grad_()
    out = cuda_llm_ops.gemm(a, normal(torch.float32, device, 7, 5))
    every_second = torch.ones(12, 10, device=device)[::2, ::2]
    assert copies(lambda: torch.autograd.grad(out, a, every_second)) == [[6, 5]]


@pytest.mark.parametrize("needed", [("a",), ("b",), ("c",), ("a", "b"), ("a", "b", "c")], ids=str)
def test_only_gradients_that_are_needed_are_computed(device: str, needed: tuple[str, ...]) -> None:
    tensors = {key: torch.ones(4, 4, device=device, requires_grad=key in needed) for key in "abc"}
    out = cuda_llm_ops.gemm(**tensors, beta=2.0)  # type: ignore[arg-type]
    seen = events(lambda: out.sum().backward())
    assert seen.count("cuda_llm_ops::gemm_gradient") == len(set(needed) - {"c"})
    assert {key for key, tensor in tensors.items() if tensor.grad is not None} == set(needed)


@pytest.mark.parametrize("name", reference.GEMM)
def test_calls_without_gradients_take_the_operator_without_them(name: str, device: str) -> None:
    a = torch.ones(4, 4, device=device, dtype=torch.float16)
    seen = events(lambda: getattr(cuda_llm_ops, name)(a, a))
    with torch.no_grad():
        seen += events(lambda: getattr(cuda_llm_ops, name)(a.requires_grad_(), a))
    assert seen.count(f"cuda_llm_ops::{name}") == 2
    assert not any("training" in event for event in seen)


def test_a_gradient_multiplied_by_zero_reads_nothing(device: str) -> None:
    a, b, c = (torch.ones(3, 3, device=device, requires_grad=True) for _ in range(3))
    out = cuda_llm_ops.gemm(a, b, alpha=0.0, beta=0.0, c=c)
    found = torch.autograd.grad(out, (a, b, c), torch.full_like(out, torch.nan))
    assert all(not gradient.any() for gradient in found)


@pytest.mark.parametrize("name", reference.GEMM)
def test_second_derivatives_are_refused_by_name(name: str, device: str) -> None:
    a = normal(torch.float16, device, 4, 4).requires_grad_()
    out = getattr(cuda_llm_ops, name)(a, a.detach())
    (of_a,) = torch.autograd.grad(out.float().square().sum(), a, create_graph=True)
    with pytest.raises(NotImplementedError, match="gemm_gradient: there are no second derivatives"):
        of_a.sum().backward()


@pytest.mark.parametrize("name", reference.GEMM)
@pytest.mark.parametrize("transform", [torch.func.grad, torch.func.jacrev, torch.func.hessian])
def test_torch_func_is_refused_by_name(name: str, transform: Callable[..., Any], device: str) -> None:
    a = normal(torch.float16, device, 4, 4)
    with pytest.raises(NotImplementedError, match=f"{name}: (torch.func does not|a carries a tangent)"):
        transform(lambda a: getattr(cuda_llm_ops, name)(a, a).sum())(a)


@pytest.mark.parametrize("name", reference.GEMM)
def test_tangents_are_refused_by_name(name: str, device: str) -> None:
    a = normal(torch.float16, device, 4, 4)
    with pytest.raises(NotImplementedError, match=f"{name}: a carries a tangent"):
        torch.func.jvp(lambda a: getattr(cuda_llm_ops, name)(a, a), (a,), (a,))


def test_vmap_over_tensors_that_require_grad(device: str) -> None:
    a, b = (normal(torch.float32, device, *shape).requires_grad_() for shape in ((3, 4, 5), (5, 6)))
    found = torch.autograd.grad(torch.vmap(cuda_llm_ops.gemm, in_dims=(0, None))(a, b).square().sum(), (a, b))
    torch.testing.assert_close(found, torch.autograd.grad((a @ b).square().sum(), (a, b)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", reference.GEMM)
def test_under_autocast(name: str, dtype: torch.dtype, device: str) -> None:
    a, b = (normal(torch.float32, device, *shape).requires_grad_() for shape in ((4, 5), (5, 6)))
    with torch.autocast(device, dtype):
        out = getattr(cuda_llm_ops, name)(a, b)
        assert out.dtype == (dtype if name == "gemm" else torch.float32)
        found = torch.autograd.grad(out.float().sum(), (a, b))
    right = torch.autograd.grad((a @ b).sum(), (a, b))
    assert all(gradient.dtype == torch.float32 for gradient in found)
    torch.testing.assert_close(found, right, rtol=0.02, atol=0.02)


def test_a_backward_inside_autocast_keeps_the_dtypes_of_the_forward(device: str) -> None:
    a, b = (normal(torch.float32, device, 4, 4, seed=seed).requires_grad_() for seed in (0, 1))
    out = cuda_llm_ops.gemm(a, b)
    with torch.autocast(device, torch.bfloat16):
        found = torch.autograd.grad(out, (a, b), torch.ones_like(out))
    torch.testing.assert_close(found, torch.autograd.grad(a @ b, (a, b), torch.ones_like(out)))


def test_training_with_a_scaler_and_checkpointing(device: str) -> None:
    from torch.utils.checkpoint import checkpoint

    def trained(product: Callable[..., Tensor], again: bool) -> Tensor:
        x, y = normal(torch.float32, device, 32, 8), normal(torch.float32, device, 32, 4)
        weight = normal(torch.float32, device, 4, 8, seed=1).requires_grad_()
        optimizer, scaler = torch.optim.SGD([weight], lr=0.1), torch.amp.GradScaler(device, init_scale=256.0)
        for _ in range(5):
            with torch.autocast(device, torch.float16):
                out = checkpoint(product, x, weight, use_reentrant=False) if again else product(x, weight)
                loss = (out.float() - y).square().mean()
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        return weight.detach()

    ours = lambda x, weight: cuda_llm_ops.gemm(x, weight, trans_b=True)  # noqa: E731
    once = trained(ours, again=False)
    assert torch.equal(once, trained(ours, again=True))
    torch.testing.assert_close(once, trained(lambda x, weight: x @ weight.mT, again=False), rtol=0.01, atol=0.005)
    assert (once - normal(torch.float32, device, 4, 8, seed=1)).abs().max() > 0.1


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_training_step_compiles_without_a_graph_break(device: str, dynamic: bool) -> None:
    torch.compiler.reset()
    weight, bias = (normal(torch.float32, device, *shape).requires_grad_() for shape in ((6, 8), (5, 3, 6)))
    shared = normal(torch.float32, device, 3, 4).requires_grad_()
    x = normal(torch.float32, device, 5, 4, 8)

    def loss(weight: Tensor, bias: Tensor, shared: Tensor) -> Tensor:
        out = cuda_llm_ops.gemm(x, weight, alpha=0.5, trans_b=True)
        out = cuda_llm_ops.gemm(shared, out, beta=2.0, c=bias)
        return cuda_llm_ops.tensor_core_gemm(out.half(), out.mT.half()).square().mean()

    leaves = (weight, bias, shared)
    eager = torch.autograd.grad(loss(*leaves), leaves)
    compiled = torch.compile(loss, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    torch.testing.assert_close(torch.autograd.grad(compiled(*leaves), leaves), eager)


def test_opcheck(device: str) -> None:
    a, b, c = (normal(torch.float16, device, *shape) for shape in ((3, 4), (2, 3, 5), (2, 4, 5)))
    for leaf in (a, b, c):
        leaf.requires_grad_()
    checks = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
    ops = torch.ops.cuda_llm_ops
    torch.library.opcheck(ops.gemm_training.default, (a, b, 2.0, 0.5, c, True), test_utils=checks)
    torch.library.opcheck(ops.gemm_training.default, (b.mT, a), test_utils=checks)
    torch.library.opcheck(ops.tensor_core_gemm_training.default, (a.mT, b), test_utils=checks)
    d_out = normal(torch.float16, device, 2, 4, 5)
    for own in (False, True):
        for summed in (False, True):
            torch.library.opcheck(_gradient, (d_out, b.detach(), 0.5, True, own, False, summed))
            torch.library.opcheck(_gradient, (d_out, b.detach().mT, 0.5, True, own, True, summed))
            of_b = normal(torch.float16, device, 2, 4, 3)
            torch.library.opcheck(_gradient, (d_out, of_b, 0.5, False, own, False, summed))
