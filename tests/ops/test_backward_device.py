"""The kernels of attention's backward for any mask, compiled for the host, against float64."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from device_sources import copy_without_ptx

torch = pytest.importorskip("torch", reason="the reference is torch's")

import ops_reference as reference  # noqa: E402
from backward_cases import Case, Made, make, random_case  # noqa: E402
from torch import Tensor  # noqa: E402

HOST = Path(__file__).with_name("backward_host.cpp")
EVERY_KEY = 1 << 29
TYPES = {torch.float16: 0, torch.bfloat16: 1, torch.float32: 2}  # GradientType


class Strides(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("batch", "head", "seq")]


class Options(ctypes.Structure):
    """AttentionOptions of kernels.h."""

    _fields_ = [
        ("left", ctypes.c_int32),
        ("right", ctypes.c_int32),
        ("bottom_right", ctypes.c_bool),
        ("lse", ctypes.c_void_p),
        ("lse_stride_batch", ctypes.c_int64),
        ("lse_stride_head", ctypes.c_int64),
        ("cu_seqlens_q", ctypes.c_void_p),
        ("cu_seqlens_kv", ctypes.c_void_p),
        ("total_q", ctypes.c_int32),
        ("total_kv", ctypes.c_int32),
    ]


class Arguments(ctypes.Structure):
    """BackwardArguments of backward.h."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("q", "k", "v", "out", "d_out", "lse", "d_lse", "dq", "dk", "dv")),
        *((name, ctypes.c_int32) for name in ("batch", "heads", "kv_heads", "seq_q", "seq_kv")),
        *((name, ctypes.c_int32) for name in ("head_dim", "value_dim")),
        *((f"{name}_stride", Strides) for name in ("q", "k", "v", "out", "d_out", "dq", "dk", "dv")),
        ("scale", ctypes.c_double),
        ("options", Options),
        ("deterministic", ctypes.c_bool),
        ("type", ctypes.c_int32),
        ("workspace", ctypes.c_void_p),
    ]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory, compile_for_host: Callable[..., ctypes.CDLL]) -> ctypes.CDLL:
    ptx = f'#define HOST_PTX\n#include "{HOST}"\n#undef HOST_PTX\n'
    build = copy_without_ptx(tmp_path_factory.mktemp("backward") / "csrc", ptx)
    library = compile_for_host(HOST, build, "-ffp-contract=off", "-O2", "-w", f"-I{build}/cuda")
    library.run.restype = ctypes.c_char_p
    assert library.bytes_of_arguments() == ctypes.sizeof(Arguments)
    return library


def aligned(tensor: Tensor, device: str) -> Tensor:
    """A copy with its rows on multiples of 16 bytes, and zeros between them."""
    wide = (tensor.shape[-1] + 7) // 8 * 8
    made = torch.zeros(*tensor.shape[:-1], wide, dtype=tensor.dtype, device=device)[..., : tensor.shape[-1]]
    return made.copy_(tensor)


def strides(tensor: Tensor) -> Strides:
    return Strides(*tensor.stride()[:3])


def gradients(
    library: ctypes.CDLL, case: Case, made: Made, device: str = "cpu", fill: float = float("nan")
) -> list[Tensor]:
    """By the kernels, of tensors on the device. fill: what is there before."""
    lse, d_lse = made.lse.to(device), None if made.d_lse is None else made.d_lse.to(device)
    given = {"q": made.q, "k": made.k, "v": made.v, "out": made.out, "d_out": made.d_out}
    tensors = {name: aligned(tensor, device) for name, tensor in given.items()}
    found = [torch.full(given[name].shape, fill, dtype=case.dtype, device=device) for name in "qkv"]
    arguments = Arguments(type=TYPES[case.dtype], scale=case.scale)
    tensors |= dict(zip(("dq", "dk", "dv"), found, strict=True))
    for name, tensor in tensors.items():
        setattr(arguments, name, tensor.data_ptr())
        setattr(arguments, f"{name}_stride", strides(tensor))
    arguments.lse, arguments.d_lse = lse.data_ptr(), None if d_lse is None else d_lse.data_ptr()
    arguments.heads, arguments.kv_heads = case.heads, case.kv_heads
    arguments.head_dim, arguments.value_dim = case.head_dim, case.value_dim
    arguments.batch = len(case.seq_q) if case.packed else case.batch
    arguments.seq_q, arguments.seq_kv = max(case.seq_q), max(case.seq_kv)
    options = arguments.options
    options.left = EVERY_KEY if case.left < 0 else case.left
    options.right = EVERY_KEY if case.right < 0 else case.right
    options.bottom_right = case.bottom_right
    offsets = [torch.tensor([0, *lengths]).cumsum(0).int().to(device) for lengths in (case.seq_q, case.seq_kv)]
    if case.packed:
        options.cu_seqlens_q, options.cu_seqlens_kv = (offset.data_ptr() for offset in offsets)
        options.total_q, options.total_kv = sum(case.seq_q), sum(case.seq_kv)
        for name in tensors:
            getattr(arguments, f"{name}_stride").batch = 0
    fault = library.run(ctypes.byref(arguments))
    assert fault is None, fault
    return found


def check(library: ctypes.CDLL, case: Case, device: str = "cpu") -> None:
    made = make(case)
    made.check(case, gradients(library, case, made, device))


HEAD_DIMS = [(64, 64), (96, 96), (128, 128), (192, 128), (192, 192), (256, 256)]


@pytest.mark.parametrize("shared", [227, 163, 99], ids=["hopper", "ampere", "small"])
@pytest.mark.parametrize("dtype", list(TYPES), ids=str)
@pytest.mark.parametrize(("head_dim", "value_dim"), HEAD_DIMS, ids=str)
def test_every_instance(host: ctypes.CDLL, head_dim: int, value_dim: int, dtype: torch.dtype, shared: int) -> None:
    """shared: what a device gives a thread block, in KB."""
    host.shared_per_block(shared * 1024)
    check(host, Case(dtype, 1, 2, 1, [70], [133], head_dim, value_dim, right=0, with_lse=True))


@pytest.mark.parametrize("seed", range(int(os.environ.get("CUDA_LLM_OPS_FUZZ_CALLS", "40"))))
def test_random_cases(host: ctypes.CDLL, seed: int) -> None:
    host.shared_per_block((227, 163, 99)[seed % 3] * 1024)
    check(host, random_case(seed))


def of_torch(case: Case, made: Made) -> list[Tensor]:
    """The gradients by torch's softmax in float32."""
    leaves = [tensor.clone().requires_grad_() for tensor in (made.q, made.k, made.v)]
    rows, keys = sum(case.seq_q), sum(case.seq_kv)
    seen = reference.visible_keys(rows, keys, False, case.bottom_right, (case.left, case.right), torch.device("cpu"))
    scores = (leaves[0] @ leaves[1].mT * case.scale).masked_fill(~seen, float("-inf"))
    out = scores.softmax(-1) @ leaves[2]
    return list(torch.autograd.grad(out, leaves, made.d_out))


def relative(found: list[Tensor], right: list[Tensor]) -> list[float]:
    return [((one.double() - exact).norm() / exact.norm()).item() for one, exact in zip(found, right, strict=True)]


@pytest.mark.parametrize("cancelling", [False, True])
@pytest.mark.parametrize("scale", [0.2, 0.05])
def test_a_rounded_logarithm_is_no_error_of_float32(host: ctypes.CDLL, scale: float, cancelling: bool) -> None:
    """dV's error would be up to 1.9 of torch's, were the weights not divided by their sum."""
    case = Case(torch.float32, 1, 1, 1, [64], [97], 64, 64, scale=scale, cancelling=cancelling, seed=3)
    made = make(case)
    (*_, ours), (*_, of_others) = (
        relative(found, made.exact) for found in (gradients(host, case, made), of_torch(case, made))
    )
    assert ours <= 1.2 * of_others


def test_logarithms_over_more_keys_count(host: ctypes.CDLL) -> None:
    """As where each of several devices has some of the keys: weights are shares of all keys."""
    case = Case(torch.float32, 1, 1, 1, [33], [40], 64, 64, seed=5)
    made = make(case)
    whole = gradients(host, case, made)
    half = made._replace(lse=made.lse + 0.6931472)  # as many keys again, elsewhere
    assert torch.allclose(gradients(host, case, half)[2], whole[2] / 2, rtol=1e-5, atol=1e-6)


def test_the_weight_of_a_single_key_is_one(host: ctypes.CDLL) -> None:
    case = Case(torch.float32, 1, 3, 3, [5], [5], 64, 64, left=0, right=0, seed=7)
    made = make(case)
    assert torch.equal(gradients(host, case, made)[2], made.d_out)


def test_a_logarithm_of_another_order_of_the_same_sum_is_no_error(host: ctypes.CDLL) -> None:
    """The forward adds up a score's terms in its own order, and these may be far larger than the score."""
    case = Case(torch.float32, 1, 3, 3, [64], [64], 256, 256, left=0, right=0, scale=0.25, cancelling=True, seed=9)
    made = make(case)
    terms = (made.q * made.k).flip(-1)
    score = torch.zeros(terms.shape[:-1])
    for place in range(256):
        score += terms[..., place]
    found = gradients(host, case, made._replace(lse=score * case.scale))
    assert torch.equal(found[2], made.d_out)
