"""The Hopper kernels of FP8 products, run on the host by an emulator of thread blocks, against float64."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import pytest
from emulated_sources import copy_for_emulator, emulator_flags

torch = pytest.importorskip("torch", reason="the reference is torch's")

import fp8_cases as cases  # noqa: E402
from torch import Tensor  # noqa: E402

HOST = Path(__file__).with_name("fp8_wgmma_host.cpp")
TYPES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory, compile_for_host: Callable[..., ctypes.CDLL]) -> ctypes.CDLL:
    build = copy_for_emulator(tmp_path_factory.mktemp("fp8_wgmma") / "csrc")
    folder = build / "cuda/fp8/sm90"
    hosts = [str(one) for one in (folder / "gemm.cu", folder / "cost_model.cu", *(folder / "instances").glob("*.cu"))]
    library = compile_for_host(HOST, build, *emulator_flags(build), *hosts)
    library.plans.restype = library.product.restype = ctypes.c_char_p
    return library


class Call:
    """A call of the operator, as its kernels get it."""

    def __init__(self, case: cases.Case, out_dtype: torch.dtype = torch.float32) -> None:
        given = self.given = dict(case.arguments)
        a, b, groups = given["a"], given["b"], given.get("groups")
        masked = groups is not None and a.dim() == 3
        rows = a.shape[0] * a.shape[1] if masked else a.shape[0]
        n, k = b.shape[-2:]
        blocks = given["scale_a"].dim() == a.dim()
        scale_a, scale_b = given["scale_a"], given["scale_b"]
        if masked and scale_a.dim():
            scale_a = scale_a.flatten(0, 1).contiguous()
        of_a = [scale_a.stride(0) if scale_a.dim() else 0, scale_a.stride(1) if blocks else 0]
        inner = scale_b[0] if groups is not None and scale_b.dim() else scale_b
        of_b = [inner.stride(0) if inner.dim() else 0, inner.stride(1) if blocks else 0]
        of_b.append(scale_b.stride(0) if groups is not None and scale_b.dim() else 0)
        self.out = torch.zeros((*a.shape[:-1], n), dtype=out_dtype)
        self.keep = [a, b, scale_a, scale_b, given.get("bias"), self.out, groups]
        self.pointers = (ctypes.c_void_p * 7)(*(None if one is None else one.data_ptr() for one in self.keep))
        sizes = [rows, n, k, 1 if groups is None else len(groups), a.shape[1] if masked else 0, 128 if blocks else 1]
        strides = [a.stride(-2), b.stride(-2), b.stride(0) if groups is not None else 0, *of_a, *of_b]
        kinds = [int(a.dtype == torch.float8_e5m2), TYPES[out_dtype], int(blocks)]
        self.numbers = (ctypes.c_int64 * 17)(*sizes, *strides, *kinds)

    def plans(self, host: ctypes.CDLL) -> list[str]:
        names: bytes = host.plans(self.pointers, self.numbers)
        return names.decode().splitlines()

    def run(self, host: ctypes.CDLL, plan: str, seed: int = 0) -> Tensor:
        self.out.fill_(float("nan"))  # rows of no group are zeros by the kernel
        assert host.product(self.pointers, self.numbers, plan.encode(), seed) is None
        return self.out


@pytest.mark.parametrize("kind", ["row", "block"])
def test_every_plan(host: ctypes.CDLL, kind: str) -> None:
    """More tiles than multiprocessors, partial in all directions; k is longer than a ring of stages."""
    case = cases.gemm(130, 200, 640, kind, padding=16)
    if kind == "block":  # neighbours lie side by side, as rows and not as k
        case.arguments["scale_a"] = case.arguments["scale_a"].mT.contiguous().mT
    call = Call(case)
    plans = call.plans(host)
    assert any("cluster 2" in plan for plan in plans)
    assert any("split 2" in plan for plan in plans)
    for plan in plans:
        cases.assert_right(call.run(host, plan, seed=len(plan)), case)


@pytest.mark.parametrize("kind", ["tensor", "mixed", "row", "block"])
@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2], ids=["e4m3", "e5m2"])
def test_kinds(host: ctypes.CDLL, kind: str, dtype: torch.dtype) -> None:
    case = cases.gemm(70, 144, 272, kind, 1, dtype=dtype, bias=True, out_dtype=torch.bfloat16)
    call = Call(case, torch.bfloat16)
    persistent = next(plan for plan in call.plans(host) if plan.startswith("persistent 192x128"))
    few = next(plan for plan in call.plans(host) if plan.startswith("few rows 64"))
    for plan in (persistent, few):
        cases.assert_right(call.run(host, plan), case)


@pytest.mark.parametrize("rows", [192, 256, 512, 700])
def test_even_groups_have_the_same_plans_contiguous_and_masked(host: ctypes.CDLL, rows: int) -> None:
    """The plan for contiguous groups once took each group to end behind the first row of its last tile."""
    sizes = torch.zeros(16, dtype=torch.int32)
    pointers = (ctypes.c_void_p * 7)(*[None] * 6, sizes.data_ptr())
    found = []
    for capacity in (0, rows):
        shape = [16 * rows, 4096, 4096, 16, capacity, 1]
        numbers = (ctypes.c_int64 * 17)(*shape, 4096, 4096, 4096 * 4096, *[0] * 5, 0, TYPES[torch.bfloat16], 0)
        found.append(host.plans(pointers, numbers))
    assert found[0] == found[1] != b""


@pytest.mark.parametrize("masked", [False, True], ids=["contiguous", "masked"])
@pytest.mark.parametrize("kind", ["row", "block"])
def test_groups(host: ctypes.CDLL, kind: str, masked: bool) -> None:
    """Sizes that end inside a tile, in a warpgroup's rows, and between warpgroups; groups without a row."""
    sizes = [65, 0, 256, 193] if masked else [1, 300, 0, 128]
    room = {"capacity": 300} if masked else {"spare": 3}
    case = cases.grouped(sizes, 136, 400, kind, **room)
    for out_dtype, tiles in ((torch.float32, ["192x128"]), (torch.bfloat16, ["192x128", "256x128", "128x64"])):
        call = Call(case, out_dtype)
        for plan in call.plans(host):
            if any(tile in plan for tile in tiles):
                cases.assert_right(call.run(host, plan, len(plan)), case)
