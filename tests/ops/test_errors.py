"""Bad arguments end in a ValueError, TypeError or NotImplementedError that names the argument and what is allowed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy
import pytest

torch = pytest.importorskip("torch", reason="the operators need torch")

import cuda_llm_ops  # noqa: E402
import ops_reference as reference  # noqa: E402
from torch import Tensor  # noqa: E402

Change = Callable[[dict[str, Any]], dict[str, Any]]


def attention_call(device: str) -> dict[str, Any]:
    q, kv = torch.randn(2, 4, 5, 8, device=device), torch.randn(2, 2, 7, 8, device=device)
    return {"q": q, "k": kv, "v": kv.clone()}


def gemm_call(device: str) -> dict[str, Any]:
    return {"a": torch.randn(3, 4, device=device), "b": torch.randn(4, 5, device=device)}


def half_gemm_call(device: str) -> dict[str, Any]:
    return {name: tensor.half() for name, tensor in gemm_call(device).items()}


def put(name: str, value: Any) -> Change:
    return lambda call: call | {name: value}


def alter(name: str, change: Callable[[Tensor], Any]) -> Change:
    return lambda call: call | {name: change(call[name])}


def alter_all(change: Callable[[Tensor], Any]) -> Change:
    return lambda call: {name: change(value) for name, value in call.items()}


def far(tensor: Tensor) -> Tensor:
    """The same shape in float16, with the second of the first dimension 2**31 elements away (virtual memory alone)."""
    store = torch.empty(2**31 + 2**20, dtype=torch.float16, device=tensor.device)
    return store.as_strided(tensor.shape, (2**31, *tensor.stride()[1:]))


def elsewhere(tensor: Tensor) -> Tensor:
    return tensor.to("meta")


TYPE, VALUE, MISSING = TypeError, ValueError, NotImplementedError

ATTENTION_ERRORS: dict[str, tuple[Change, type[Exception], str]] = {
    "rank 3": (alter("q", lambda q: q[0]), VALUE, "q has 3 dimensions (4, 5, 8); it must have 4"),
    "rank 5": (alter("v", lambda v: v[None]), VALUE, "v has 5 dimensions"),
    "rank 0": (alter("k", lambda k: k.sum()), VALUE, "k has 0 dimensions ()"),
    "batch": (alter("k", lambda k: k[:1]), VALUE, "k has batch 1 but q has 2"),
    "batch of v": (alter("v", lambda v: v[:1]), VALUE, "v has batch 1 but q has 2"),
    "head_dim": (alter("k", lambda k: k[..., :7]), VALUE, "k has head_dim 7 but q has 8"),
    "head_dim of v": (alter("v", lambda v: v.new_zeros(*v.shape[:3], 9)), MISSING, "v has head_dim 9 and q has 8"),
    "sequence": (alter("v", lambda v: v[:, :, :6]), VALUE, "v has sequence 6 but k has 7"),
    "heads of v": (alter("v", lambda v: v[:, :1]), VALUE, "v has heads 1 but k has 2"),
    "heads not divisible": (alter("q", lambda q: q[:, :3]), VALUE, "q has 3 heads and k has 2; the heads of q must"),
    "no kv heads": (lambda c: c | {n: c[n][:, :0] for n in "kv"}, VALUE, "q has 4 heads and k has 0"),
    "fewer heads": (alter("q", lambda q: q[:, :1]), VALUE, "q has 1 heads and k has 2"),
    "head_dim 257": (alter_all(lambda t: t.new_zeros(*t.shape[:3], 257)), MISSING, "q has head_dim 257; it must"),
    "float64": (alter_all(Tensor.double), TYPE, "q is float64; it must be float32, float16 or bfloat16"),
    "int32": (alter_all(Tensor.int), TYPE, "q is int32; it must be"),
    "bool": (alter_all(Tensor.bool), TYPE, "q is bool; it must be"),
    "complex64": (alter_all(lambda t: t.cfloat()), TYPE, "q is complex64; it must be"),
    "float8": (alter_all(lambda t: t.to(torch.float8_e4m3fn)), TYPE, "q is float8_e4m3fn; it must be"),
    "mixed dtypes": (alter("v", Tensor.half), TYPE, "v is float16 but q is float32; they must have one dtype"),
    "float64 k": (alter("k", Tensor.double), TYPE, "k is float64; it must be"),
    "negative scale": (put("scale", -1.0), VALUE, "scale is -1; it must be finite and not negative"),
    "NaN scale": (put("scale", math.nan), VALUE, "scale is nan; it must be finite"),
    "infinite scale": (put("scale", math.inf), VALUE, "scale is inf; it must be finite"),
    "huge scale": (put("scale", 1e300), VALUE, "scale is 1e+300, which float32 cannot hold"),
    "scale beyond float": (put("scale", 10**400), VALUE, "scale is beyond the range of a float"),
    "scale a string": (put("scale", "0.5"), TYPE, "scale is of type str; it must be a number or None"),
    "scale complex": (put("scale", 1j), TYPE, "scale is of type complex"),
    "is_causal a string": (put("is_causal", "yes"), TYPE, "is_causal is of type str; it must be a bool"),
    "list": (put("q", [1.0]), TYPE, "q is of type list; it must be a torch.Tensor"),
    "None": (put("k", None), TYPE, "k is None; it must be a tensor"),
    "numpy": (alter("v", lambda v: v.cpu().numpy()), TYPE, "v is of type ndarray; it must be a torch.Tensor"),
    "number": (put("v", 1.0), TYPE, "v is of type float; it must be a torch.Tensor"),
    "sparse": (alter("q", lambda q: q.to_sparse()), MISSING, "q has layout torch.sparse_coo; it must be torch.strided"),
    "another device": (alter("k", elsewhere), VALUE, "k"),
    "far apart": (
        lambda c: {"q": far(c["q"]), "k": c["k"].half(), "v": c["v"].half()}, VALUE,
        "q of shape (2, 4, 5, 8) and strides (2147483648, 40, 8, 1) has elements 2**31 or more from its first",
    ),
    "huge sequence": (
        alter("q", lambda q: q[:, :, :1].expand(2, 4, 2**27, 8)), VALUE,
        "the output would have shape (2, 4, 134217728, 8); it must have fewer than 2**31 elements",
    ),
    "huge size": (
        lambda c: c | {n: c[n][:, :, :1].expand(2, 2, 2**31, 8) for n in "kv"}, VALUE, "every size must be below 2**31"
    ),
    "huge copy": (
        lambda c: c | {n: c[n][:, :, :1, :1].expand(2, 2, 2**27, 8) for n in "kv"}, VALUE, "k of shape (2, 2, 134217728"
    ),
}  # fmt: skip

GEMM_ERRORS: dict[str, tuple[Change, type[Exception], str]] = {
    "rank 1": (alter("a", lambda a: a[0]), VALUE, "a has 1 dimensions (4,); it must have 2"),
    "rank 4": (alter("b", lambda b: b[None, None]), VALUE, "b has 4 dimensions"),
    "rank 0": (alter("a", lambda a: a.sum()), VALUE, "a has 0 dimensions ()"),
    "inner size": (alter("b", lambda b: b[:3]), VALUE, "a has inner size 4 but b has 3 (a (3, 4), b (3, 5))"),
    "batches": (
        lambda c: {"a": c["a"].expand(2, 3, 4), "b": c["b"].expand(3, 4, 5)}, VALUE, "a has batch 2 but b has 3"
    ),
    "batch 1 against 3": (
        lambda c: {"a": c["a"][None], "b": c["b"].expand(3, 4, 5)}, VALUE, "a has batch 1 but b has 3"
    ),
    "float64": (alter_all(Tensor.double), TYPE, "a is float64; it must be"),
    "int8": (alter_all(lambda t: t.to(torch.int8)), TYPE, "a is int8; it must be"),
    "mixed dtypes": (alter("b", Tensor.bfloat16), TYPE, "b is bfloat16"),
    "list": (put("a", [[1.0]]), TYPE, "a is of type list; it must be a torch.Tensor"),
    "None": (put("b", None), TYPE, "b is of type NoneType; it must be a torch.Tensor"),
    "numpy": (alter("b", lambda b: b.cpu().numpy()), TYPE, "b is of type ndarray"),
    "sparse": (alter("b", lambda b: b.to_sparse()), MISSING, "b has layout torch.sparse_coo; it must be torch.strided"),
    "another device": (alter("b", elsewhere), VALUE, "b"),
    "huge output": (
        alter_all(lambda t: t[:1, :1].expand(65536, 1) if t.shape[0] == 3 else t[:1, :1].expand(1, 65536)), VALUE,
        "the output would have shape (65536, 65536)",
    ),
    "huge copy": (
        lambda c: {"a": c["a"][:1, :1].expand(65536, 65536), "b": c["b"][:1, :1].expand(65536, 1)}, VALUE,
        "a of shape (65536, 65536) and strides (0, 0) must be made contiguous",
    ),
    "far apart": (
        lambda c: {"a": far(c["a"][:2]), "b": c["b"].half()}, VALUE, "has elements 2**31 or more from its first"
    ),
}  # fmt: skip

GEMM_OPTION_ERRORS: dict[str, tuple[Change, type[Exception], str]] = {
    "beta without c": (put("beta", 1.0), VALUE, "beta is 1 but c is None; c must be given"),
    "huge alpha": (put("alpha", 1e39), VALUE, "alpha is 1e+39, which float32 cannot hold"),
    "huge beta": (put("beta", -1e39), VALUE, "beta is -1e+39, which float32 cannot hold"),
    "alpha a string": (put("alpha", "1"), TYPE, "alpha is of type str; it must be a number"),
    "alpha None": (put("alpha", None), TYPE, "alpha is of type NoneType; it must be a number"),
    "alpha beyond float": (put("alpha", 10**400), VALUE, "alpha is beyond the range of a float"),
    "trans_a a string": (put("trans_a", "T"), TYPE, "trans_a is of type str; it must be a bool"),
    "inner size when transposed": (put("trans_b", True), VALUE, "but b (transposed) has 5"),
    "c of another shape": (lambda c: c | {"beta": 1.0, "c": c["a"]}, VALUE, "c has shape (3, 4); it must have the"),
    "c of a row": (lambda c: c | {"beta": 1.0, "c": c["b"][0]}, VALUE, "c has shape (5,); it must have the shape of"),
    "c of another dtype": (
        lambda c: c | {"beta": 1.0, "c": (c["a"] @ c["b"]).half()}, TYPE, "c is float16; it must be float32"
    ),
    "c elsewhere": (lambda c: c | {"beta": 1.0, "c": elsewhere(c["a"] @ c["b"])}, VALUE, "c"),
    "c a list": (put("c", [1.0]), TYPE, "c is of type list; it must be a torch.Tensor"),
    "alpha requires grad": (
        put("alpha", torch.ones((), requires_grad=True)), MISSING, "alpha requires grad, but has no gradient"
    ),
    "beta requires grad": (
        lambda c: c | {"beta": torch.ones((), requires_grad=True), "c": c["a"] @ c["b"]}, MISSING, "beta requires grad"
    ),
}  # fmt: skip


def assert_refused(name: str, call: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        getattr(cuda_llm_ops, name)(**call)
    assert type(caught.value) is error, "a subclass would say something else"
    assert str(caught.value).startswith(f"{name}: ")
    assert message in str(caught.value)


@pytest.mark.parametrize("name", reference.ATTENTION)
@pytest.mark.parametrize("case", ATTENTION_ERRORS)
def test_attention(name: str, device: str, case: str) -> None:
    change, error, message = ATTENTION_ERRORS[case]
    assert_refused(name, change(attention_call(device)), error, message)


@pytest.mark.parametrize("name", reference.GEMM)
@pytest.mark.parametrize("case", GEMM_ERRORS)
def test_gemm(name: str, device: str, case: str) -> None:
    change, error, message = GEMM_ERRORS[case]
    call = gemm_call(device) if name == "gemm" else half_gemm_call(device)
    assert_refused(name, change(call), error, message)


@pytest.mark.parametrize("case", GEMM_OPTION_ERRORS)
def test_gemm_options(device: str, case: str) -> None:
    change, error, message = GEMM_OPTION_ERRORS[case]
    assert_refused("gemm", change(gemm_call(device)), error, message)


def test_tensor_core_gemm_takes_16_bit_alone(device: str) -> None:
    assert_refused("tensor_core_gemm", gemm_call(device), TypeError, "a is float32; it must be float16 or bfloat16")


@pytest.mark.parametrize(
    "value", [numpy.float32(2.0), numpy.float64(2.0), numpy.int64(2), 2, True], ids=lambda value: type(value).__name__
)
def test_numbers_of_other_kinds_are_numbers(value: Any) -> None:
    call = gemm_call("cpu")
    torch.testing.assert_close(cuda_llm_ops.gemm(**call, alpha=value), float(value) * (call["a"] @ call["b"]))


def test_torch_ops_are_checked_as_well(device: str) -> None:
    """Who calls the dispatcher directly gets torch's RuntimeError, with the same words."""
    call = gemm_call(device)
    with pytest.raises(RuntimeError, match=r"^ValueError: gemm: a has inner size 4 but b has 3"):
        torch.ops.cuda_llm_ops.gemm(call["a"], call["a"])


@pytest.mark.parametrize("name", reference.ATTENTION)
def test_tangents_and_torch_func_are_refused_and_detached_inputs_are_not(name: str) -> None:
    operator, call = getattr(cuda_llm_ops, name), attention_call("cpu")
    call["q"].requires_grad_()
    with torch.no_grad():
        operator(**call)
    operator(**call | {"q": call["q"].detach()})
    with pytest.raises(NotImplementedError, match="q carries a tangent"):
        torch.func.jvp(lambda q: operator(q, call["k"], call["v"]), (call["q"].detach(),), (call["q"].detach(),))
    with pytest.raises(NotImplementedError, match=f"{name}: torch.func does not differentiate it"):
        torch.func.grad(lambda q: operator(q, call["k"], call["v"]).sum())(call["q"].detach())


@pytest.mark.skipif(cuda_llm_ops.build_info()["flavour"] == "cuda", reason="this build has CUDA kernels")
def test_portable_build_names_itself_for_a_cuda_tensor() -> None:
    """Without a GPU there is no CUDA tensor; a fake one takes the same way through the translation."""
    from cuda_llm_ops.errors import translated
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        q = torch.empty(1, device="cuda")
    refused = translated("gemm", NotImplementedError("Could not run"), {"a": q, "b": q}, {})
    assert isinstance(refused, NotImplementedError)
    assert "a is on cuda:0, but cuda_llm_ops is built portable" in str(refused)
