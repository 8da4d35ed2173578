"""The kernels of attention's backward for any mask, compiled for the host, against float64."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
from device_sources import copy_without_ptx

torch = pytest.importorskip("torch", reason="the reference is torch's")

import ops_reference as reference  # noqa: E402
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


@dataclass
class Case:
    """Of packed sequences `batch` is 1 and seq_q, seq_kv are the lengths of each."""

    dtype: torch.dtype
    batch: int
    heads: int
    kv_heads: int
    seq_q: list[int]
    seq_kv: list[int]
    head_dim: int
    value_dim: int
    left: int = -1
    right: int = -1
    bottom_right: bool = False
    with_lse: bool = False  # its gradient too
    scale: float = 0.2
    packed: bool = False
    seed: int = 0


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory, compile_for_host: Callable[..., ctypes.CDLL]) -> ctypes.CDLL:
    ptx = f'#define HOST_PTX\n#include "{HOST}"\n#undef HOST_PTX\n'
    build = copy_without_ptx(tmp_path_factory.mktemp("backward") / "csrc", ptx)
    library = compile_for_host(HOST, build, "-ffp-contract=off", "-O2", "-w", f"-I{build}/cuda")
    library.run.restype = ctypes.c_char_p
    assert library.bytes_of_arguments() == ctypes.sizeof(Arguments)
    return library


def aligned(tensor: Tensor, device: str) -> Tensor:
    """A copy with its rows on multiples of 16 bytes."""
    wide = (tensor.shape[-1] + 7) // 8 * 8
    made = torch.empty(*tensor.shape[:-1], wide, dtype=tensor.dtype, device=device)[..., : tensor.shape[-1]]
    return made.copy_(tensor)


def strides(tensor: Tensor) -> Strides:
    return Strides(*tensor.stride()[:3])


def attend(case: Case, q: Tensor, k: Tensor, v: Tensor, seq_q: int, seq_kv: int) -> tuple[Tensor, Tensor]:
    """The output and the logarithms by the definition; a query that sees no key gets zeros, and minus infinity."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    seen = reference.visible_keys(seq_q, seq_kv, False, case.bottom_right, (case.left, case.right))
    scores = (q @ k.mT * case.scale).masked_fill(~seen, float("-inf"))
    lse = scores.logsumexp(-1)
    weights = (scores - torch.where(lse == float("-inf"), 0.0, lse)[..., None]).exp()
    return weights @ v, lse


def gradients(library: ctypes.CDLL, case: Case, device: str = "cpu") -> tuple[list[Tensor], list[Tensor], float]:
    """By the kernels; by float64; and the largest logarithm of a row's sum, whose rounding shows in every weight."""
    generator = torch.Generator().manual_seed(case.seed)
    batch = 1 if case.packed else case.batch
    rows_q, rows_kv = sum(case.seq_q), sum(case.seq_kv)

    def normal(heads: int, rows: int, columns: int) -> Tensor:
        return torch.randn(batch, heads, rows, columns, generator=generator).to(case.dtype)

    q, k = normal(case.heads, rows_q, case.head_dim), normal(case.kv_heads, rows_kv, case.head_dim)
    v, d_out = normal(case.kv_heads, rows_kv, case.value_dim), normal(case.heads, rows_q, case.value_dim)
    d_lse = torch.randn(batch, case.heads, rows_q, generator=generator) if case.with_lse else None

    leaves = [tensor.double().requires_grad_() for tensor in (q, k, v)]
    outs, lses = [], []
    at_q = at_kv = 0
    for seq_q, seq_kv in zip(case.seq_q, case.seq_kv, strict=True):
        q_rows, kv_rows = slice(at_q, at_q + seq_q), slice(at_kv, at_kv + seq_kv)
        of = [leaves[0][:, :, q_rows], leaves[1][:, :, kv_rows], leaves[2][:, :, kv_rows]]
        out, lse = attend(case, *of, seq_q, seq_kv)
        outs.append(out)
        lses.append(lse)
        at_q, at_kv = at_q + seq_q, at_kv + seq_kv
    out, lse = torch.cat(outs, 2), torch.cat(lses, 2)
    loss = (out * d_out.double()).sum()
    if d_lse is not None:
        loss = loss + (torch.where(lse == float("-inf"), 0.0, lse) * d_lse.double()).sum()
    exact = list(torch.autograd.grad(loss, leaves, allow_unused=True))

    dense_lse = lse.detach().float().to(device)
    d_lse = None if d_lse is None else d_lse.to(device)
    given = {"q": q, "k": k, "v": v, "out": out.detach().to(case.dtype), "d_out": d_out}
    tensors = {name: aligned(tensor, device) for name, tensor in given.items()}
    found = [torch.full(tensor.shape, float("nan"), dtype=case.dtype, device=device) for tensor in (q, k, v)]
    arguments = Arguments(type=TYPES[case.dtype], scale=case.scale)
    tensors |= dict(zip(("dq", "dk", "dv"), found, strict=True))
    for name, tensor in tensors.items():
        setattr(arguments, name, tensor.data_ptr())
        setattr(arguments, f"{name}_stride", strides(tensor))
    arguments.lse, arguments.d_lse = dense_lse.data_ptr(), None if d_lse is None else d_lse.data_ptr()
    arguments.heads, arguments.kv_heads = case.heads, case.kv_heads
    arguments.head_dim, arguments.value_dim = case.head_dim, case.value_dim
    arguments.batch = len(case.seq_q) if case.packed else batch
    arguments.seq_q, arguments.seq_kv = max(case.seq_q), max(case.seq_kv)
    options = arguments.options
    options.left = EVERY_KEY if case.left < 0 else case.left
    options.right = EVERY_KEY if case.right < 0 else case.right
    options.bottom_right = case.bottom_right
    offsets = [torch.tensor([0, *lengths]).cumsum(0).int() for lengths in (case.seq_q, case.seq_kv)]
    offsets = [offset.to(device) for offset in offsets]
    if case.packed:
        options.cu_seqlens_q, options.cu_seqlens_kv = (offset.data_ptr() for offset in offsets)
        options.total_q, options.total_kv = rows_q, rows_kv
        for name in tensors:
            getattr(arguments, f"{name}_stride").batch = 0
    fault = library.run(ctypes.byref(arguments))
    assert fault is None, fault
    return [tensor.cpu() for tensor in found], exact, dense_lse[dense_lse.isfinite()].abs().max().item()


def check(library: ctypes.CDLL, case: Case, device: str = "cpu") -> None:
    found, exact, largest = gradients(library, case, device)
    # Weights, their gradients and the output are rounded to the dtype; sums are kept in float32.
    limit = (2 + largest) * 4 * reference.UNIT
    if case.dtype != torch.float32:
        limit += 3.5 * reference.rounding(case.dtype)
    for name, ours, right in zip(("q", "k", "v"), found, exact, strict=True):
        assert not ours.isnan().any(), f"{case}: the gradient of {name} is not written everywhere"
        error = ((ours.double() - right).norm() / (right.norm() + 1e-3 * right.numel() ** 0.5)).item()
        assert error <= limit, f"{case}: gradient of {name} is off by {error:.2e} of its norm, more than {limit:.1e}"


HEAD_DIMS = [(64, 64), (96, 96), (128, 128), (192, 128), (192, 192), (256, 256)]


@pytest.mark.parametrize("small", [False, True], ids=["", "small"])
@pytest.mark.parametrize("dtype", list(TYPES), ids=str)
@pytest.mark.parametrize(("head_dim", "value_dim"), HEAD_DIMS, ids=str)
def test_every_instance(host: ctypes.CDLL, head_dim: int, value_dim: int, dtype: torch.dtype, small: bool) -> None:
    """small: as on a device with little shared memory."""
    host.shared_per_block(99 * 1024 if small else 163 * 1024)
    check(host, Case(dtype, 1, 2, 1, [70], [133], head_dim, value_dim, right=0, with_lse=True))


def random_case(seed: int) -> Case:
    random = Random(seed)
    kv_heads = random.randint(1, 2)
    head_dim = random.choice([8, 24, 40, 64, 80, 96, 128]) if seed % 3 else random.randint(1, 256)
    value_dim = head_dim if seed % 4 else random.randint(1, head_dim)
    packed = random.random() < 0.3
    side = lambda: random.randint(0, 90)  # noqa: E731
    window = random.choice([(-1, -1), (-1, 0), (side(), 0), (side(), side()), (side(), -1), (-1, side())])
    counts = [random.randint(1, 4) if packed else 1] * 2
    lengths = [[random.randint(int(i == 0), 150) for i in range(count)] for count in counts]
    return Case(
        random.choice(list(TYPES)),
        1 if packed else random.randint(1, 2),
        kv_heads * random.randint(1, 2),
        kv_heads,
        *lengths,
        head_dim,
        value_dim,
        *window,
        bottom_right=random.random() < 0.5,
        with_lse=random.random() < 0.3,
        scale=random.choice([0.0, 0.2, 1.3]),
        packed=packed,
        seed=seed,
    )


@pytest.mark.parametrize("seed", range(int(os.environ.get("CUDA_LLM_OPS_FUZZ_CALLS", "40"))))
def test_random_cases(host: ctypes.CDLL, seed: int) -> None:
    host.shared_per_block((163 if seed % 5 else 99) * 1024)
    check(host, random_case(seed))
