"""The operators as torch sees them: opcheck, fake kernels, torch.compile, vmap, build facts."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the operators need torch")

import cuda_llm_ops  # noqa: E402
import ops_reference as reference  # noqa: E402


def samples(name: str, device: str) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
    if name in reference.ATTENTION:
        q, kv = torch.randn(2, 4, 5, 8, device=device), torch.randn(2, 2, 7, 8, device=device)
        strided = torch.randn(2, 5, 4, 8, device=device).transpose(1, 2)
        return [
            ((q, kv, kv), {}),
            ((strided.half(), kv.half(), kv.half(), True), {"scale": 0.5}),
            ((q[:, :, :0], kv, kv), {}),
        ]
    a, b = torch.randn(3, 4, device=device).half(), torch.randn(4, 5, device=device).half()
    plain: list[tuple[tuple[Any, ...], dict[str, Any]]] = [((a, b), {}), ((a.expand(2, 3, 4), b), {}), ((a[:0], b), {})]
    if name == "gemm":
        plain.append(((a.mT, b.mT, 2.0, 0.5, a.new_ones(3, 5), True, True), {}))
    return plain


@pytest.mark.parametrize("name", reference.ATTENTION + reference.GEMM)
def test_opcheck(name: str, device: str) -> None:
    operator = getattr(torch.ops.cuda_llm_ops, name).default
    for arguments, options in samples(name, device):
        torch.library.opcheck(operator, arguments, options)


@pytest.mark.parametrize("name", reference.ATTENTION + reference.GEMM)
@pytest.mark.parametrize("dynamic", [False, True])
def test_compiles_without_a_graph_break(name: str, device: str, dynamic: bool) -> None:
    torch.compiler.reset()
    operator = getattr(cuda_llm_ops, name)
    compiled = torch.compile(lambda *x: operator(*x) * 2 + 1, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for arguments, _ in samples(name, device)[:2]:
        tensors = [argument for argument in arguments if isinstance(argument, torch.Tensor)]
        torch.testing.assert_close(compiled(*tensors), operator(*tensors) * 2 + 1)


@pytest.mark.parametrize("name", reference.ATTENTION + reference.GEMM)
def test_meta_tensors_give_the_shape_alone(name: str) -> None:
    for arguments, options in samples(name, "cpu"):
        operator = getattr(torch.ops.cuda_llm_ops, name).default
        real = operator(*arguments, **options)
        fake = operator(*(x.to("meta") if isinstance(x, torch.Tensor) else x for x in arguments), **options)
        assert fake.device.type == "meta"
        assert (fake.shape, fake.dtype, fake.stride()) == (real.shape, real.dtype, real.stride())


@pytest.mark.parametrize("name", reference.ATTENTION)
@pytest.mark.parametrize(
    ("shapes", "error"),
    [
        (((2, 3, 4), (2, 3, 4), (2, 3, 4)), ValueError),
        (((2, 3, 4, 5), (2, 3, 4, 6), (2, 3, 4, 6)), ValueError),
        (((2, 3, 4, 5), (2, 2, 4, 5), (2, 2, 4, 5)), ValueError),
        (((2, 3, 4, 5), (2, 3, 4, 5), (2, 3, 3, 5)), ValueError),
        (((2, 3, 4, 300), (2, 3, 4, 300), (2, 3, 4, 300)), NotImplementedError),
    ],
)
def test_fake_attention_refuses_what_the_kernel_refuses(
    name: str, shapes: tuple[tuple[int, ...], ...], error: type[Exception]
) -> None:
    for device in ("meta", "cpu"):
        with pytest.raises(error, match=name):
            getattr(cuda_llm_ops, name)(*(torch.empty(shape, device=device) for shape in shapes))


@pytest.mark.parametrize(
    ("a", "b", "dtype", "error"),
    [
        ((2,), (2, 3), torch.float16, ValueError),
        ((2, 3), (2, 3), torch.float16, ValueError),
        ((2, 3, 4), (3, 4, 5), torch.float16, ValueError),
        ((2, 3), (3, 4), torch.float64, TypeError),
    ],
)
@pytest.mark.parametrize("name", reference.GEMM)
def test_fake_gemm_refuses_what_the_kernel_refuses(
    name: str, a: tuple[int, ...], b: tuple[int, ...], dtype: torch.dtype, error: type[Exception]
) -> None:
    for device in ("meta", "cpu"):
        with pytest.raises(error, match=name):
            getattr(cuda_llm_ops, name)(
                torch.empty(a, dtype=dtype, device=device), torch.empty(b, dtype=dtype, device=device)
            )


def test_vmap(device: str) -> None:
    a, b = torch.randn(3, 4, 5, device=device), torch.randn(3, 5, 6, device=device)
    torch.testing.assert_close(torch.vmap(cuda_llm_ops.gemm)(a, b), torch.vmap(torch.mm)(a, b))


@pytest.mark.parametrize("name", reference.ATTENTION + reference.GEMM)
def test_vmap_keeps_gradients(name: str, device: str) -> None:
    """torch.vmap hides from a function that what it is given requires grad."""
    count = 3 if name in reference.ATTENTION else 2
    shape = (2, 1, 2, 8, 8) if name in reference.ATTENTION else (2, 8, 8)
    leaves = [torch.randn(shape, device=device).half().requires_grad_() for _ in range(count)]
    operator = getattr(cuda_llm_ops, name)
    right = torch.stack([operator(*(leaf[i] for leaf in leaves)) for i in range(2)])
    found = torch.vmap(operator)(*leaves)
    d_out = torch.randn_like(right)
    torch.testing.assert_close(torch.autograd.grad(found, leaves, d_out), torch.autograd.grad(right, leaves, d_out))


def test_build_info_is_of_this_torch_and_these_sources() -> None:
    info = cuda_llm_ops.build_info()
    assert info["flavour"] in ("cuda", "portable")
    assert ("sm_80" in info["architectures"]) == (info["flavour"] == "cuda") == (info["nvcc"] is not None)
    assert info["stale"] is not True, "the extension is older than ext/csrc: build it again"
    assert info["cxx"]
    if info["flavour"] == "portable":
        assert cuda_llm_ops.kernel_attributes() == []


@pytest.mark.gpu
def test_kernel_attributes_name_every_family() -> None:
    kernels = cuda_llm_ops.kernel_attributes()
    assert {kernel["family"].split()[0] for kernel in kernels} == {"gemm", "flash_decode", *reference.ATTENTION}
    assert all(kernel["registers"] > 0 and kernel["max_threads"] > 0 for kernel in kernels)
