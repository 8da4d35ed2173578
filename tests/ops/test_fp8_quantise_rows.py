"""The quantisers of CUDA, run on the host by an emulator of thread blocks, against the portable ones."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from emulated_sources import copy_for_emulator, emulator_flags

torch = pytest.importorskip("torch", reason="the portable quantisers are operators of torch")

import cuda_llm_ops  # noqa: E402
from torch import Tensor  # noqa: E402

HOST = Path(__file__).with_name("fp8_quantise_host.cpp")
TYPES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}
FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)
KINDS = ("tensor", "row", "1x128", "128x128")
SOURCES = ("values", "rms_norm", "swiglu")
EPSILON = 1e-5
BLOCK = 128


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory, compile_for_host: Callable[..., ctypes.CDLL]) -> ctypes.CDLL:
    build = copy_for_emulator(tmp_path_factory.mktemp("fp8_quantise") / "csrc")
    library = compile_for_host(HOST, build, *emulator_flags(build))
    library.quantise.restype = ctypes.c_char_p
    return library


class Emulated:
    """One call, and how its rows lay."""

    def __init__(
        self, host: ctypes.CDLL, x: Tensor, kind: str, other: Tensor | None = None, *, to: int = 0, card: int = 0
    ) -> None:
        source = 0 if other is None else 1 if other.dim() == 1 else 2
        shape = x.shape if x.dim() == 3 else (1, *x.shape)
        blocks = [-(-size // BLOCK) for size in shape]
        sizes = {
            "tensor": (),
            "row": x.shape[:-1],
            "1x128": (*x.shape[:-1], blocks[2]),
            "128x128": (*x.shape[:-2], *blocks[1:]),
        }
        self.numbers = torch.full(x.shape, 0x55, dtype=torch.uint8)
        self.scales = torch.full(sizes[kind], math.nan)
        strides = [x.stride(0) if x.dim() == 3 else 0, x.stride(-2), 0, 0]
        if source == 2 and other is not None:
            strides[2:] = [other.stride(0) if x.dim() == 3 else 0, other.stride(-2)]
        given = [*shape, *strides, TYPES[x.dtype], to, KINDS.index(kind), source]
        tensors = (x, other, self.numbers, self.scales)
        pointers = (ctypes.c_void_p * 4)(*(None if one is None else one.data_ptr() for one in tensors))
        plan = (ctypes.c_int * 2)()
        integers = (ctypes.c_int64 * len(given))(*given)
        assert host.quantise(pointers, integers, ctypes.c_float(EPSILON), card, plan) is None
        self.vectors, self.rows = plan

    def values(self) -> Tensor:
        return self.numbers.view(torch.float8_e4m3fn).double()


def hard(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> Tensor:
    """Rows of all magnitudes, a row of zeros, and an outlier."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, generator=generator) * torch.randn((*shape[:-1], 1), generator=generator).mul(3).exp2()
    x[..., 0, :] = 0.0
    x[..., -1, -1] = 1000.0
    x[..., -1, 0] = -0.0
    return x.to(dtype)


# On a card that is full at once, and on one of 132 multiprocessors: vectors a thread and rows a block.
SHAPES = [
    ((3, 40), (4, 64), (1, 16)),
    ((9, 128), (4, 32), (1, 8)),
    ((2, 3, 520), (1, 1), (1, 1)),  # batches; two warps of four vectors were nearly half idle
    ((2, 1520), (2, 1), (1, 1)),
    ((1, 8192), (4, 1), (1, 1)),
    ((1, 12), (0, 0), (0, 0)),  # no whole vectors
]
CARDS = [0, 132]


@pytest.mark.parametrize("to", [0, 1], ids=["e4m3", "e5m2"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("given", TYPES)
def test_numbers_are_those_of_a_division(host: ctypes.CDLL, given: torch.dtype, kind: str, to: int) -> None:
    """To the last bit, the sign of zeros as well."""
    for shape, *_ in [((2, 130, 300),)] if kind == "128x128" else SHAPES:
        x = hard(shape, given)
        ours = Emulated(host, x, kind, to=to)
        numbers, scales = cuda_llm_ops.quantize_fp8(x, kind, dtype=FP8[to])
        assert torch.equal(ours.scales, scales)
        assert torch.equal(ours.numbers, numbers.view(torch.uint8))


@pytest.mark.parametrize("kind", ["row", "1x128"])
@pytest.mark.parametrize("given", TYPES)
def test_fused(host: ctypes.CDLL, given: torch.dtype, kind: str) -> None:
    """Within the rounding of a number of the portable ones."""
    for shape, *_ in SHAPES:
        x, other = hard(shape, given), hard(shape, given, 1)
        weight = other[(0,) * (x.dim() - 2)][-1].contiguous()
        calls = [
            (Emulated(host, x, kind, weight), cuda_llm_ops.rms_norm_fp8(x, weight, EPSILON, kind)),
            (Emulated(host, x, kind, other), cuda_llm_ops.swiglu_fp8(x, other, kind)),
        ]
        for ours, (numbers, scales) in calls:
            torch.testing.assert_close(ours.scales, scales, rtol=2e-6, atol=0.0)
            # Neighbours differ by at most an eighth, and by 2^-9 below the smallest normal number.
            error = (ours.values() - numbers.double()).abs()
            assert (error <= numbers.double().abs() / 8 + 2**-9).all()
            assert (error > 0).double().mean() < 0.01  # products of 16-bit values may lie on a middle


@pytest.mark.parametrize(("shape", "full", "empty"), SHAPES)
def test_plans(host: ctypes.CDLL, shape: tuple[int, ...], full: tuple[int, int], empty: tuple[int, int]) -> None:
    x = hard(shape, torch.bfloat16)
    numbers, scales = cuda_llm_ops.quantize_fp8(x, "row")
    for card, plan in zip(CARDS, (full, empty), strict=True):
        ours = Emulated(host, x, "row", card=card)
        assert (ours.vectors, ours.rows) == plan
        assert torch.equal(ours.scales, scales)
        assert torch.equal(ours.numbers, numbers.view(torch.uint8))


@pytest.mark.parametrize(("given", "longest"), [(torch.bfloat16, 32768), (torch.float32, 16384)])
@pytest.mark.parametrize("more", [0, 8])
def test_long_rows(host: ctypes.CDLL, given: torch.dtype, longest: int, more: int) -> None:
    """The longest that registers hold, and one that they do not."""
    x = hard((1, longest + more), given)
    ours = Emulated(host, x, "row")
    numbers, scales = cuda_llm_ops.quantize_fp8(x, "row")
    assert bool(ours.vectors) == (more == 0)
    assert torch.equal(ours.scales, scales)
    assert torch.equal(ours.numbers, numbers.view(torch.uint8))


@pytest.mark.parametrize("kind", KINDS)
def test_views(host: ctypes.CDLL, kind: str) -> None:
    """Rows apart, and rows that begin anywhere: nothing beside them is read or written."""
    whole = torch.full((9, 300), math.nan)
    for first in (8, 3):
        whole[:, first : first + 256] = hard((9, 256), torch.float32)
        x = whole[:, first : first + 256]
        ours = Emulated(host, x, kind)
        numbers, scales = cuda_llm_ops.quantize_fp8(x, kind)
        assert bool(ours.vectors) == (first == 8 and kind != "128x128")
        assert torch.equal(ours.scales, scales)
        assert torch.equal(ours.numbers, numbers.view(torch.uint8))
        whole[:] = math.nan


@pytest.mark.parametrize("special", [math.nan, math.inf, 1e-40, 2e-36, 3e38])
@pytest.mark.parametrize("kind", KINDS)
def test_odd_scales(host: ctypes.CDLL, kind: str, special: float) -> None:
    """What is not finite spoils the values that share its scale; a scale below the normal range serves."""
    x = torch.linspace(-1, 1, 3 * 256).reshape(3, 256)
    x[1] *= min(special, 1.0) if special < 1 else 1.0
    x[1, 200] = special
    ours = Emulated(host, x, kind)
    numbers, scales = cuda_llm_ops.quantize_fp8(x, kind)
    assert torch.equal(ours.scales.nan_to_num(-1.0), scales.nan_to_num(-1.0))
    left, right = (one.view(torch.float8_e4m3fn).float() for one in (ours.numbers, numbers))
    torch.testing.assert_close(left, right, rtol=0.0, atol=0.0, equal_nan=True)


@pytest.mark.parametrize("to", [0, 1], ids=["e4m3", "e5m2"])
def test_one_step_is_enough_for_16_bits(host: ctypes.CDLL, to: int) -> None:
    """Near each middle between two numbers, at each mantissa of a 16-bit value."""
    numbers = torch.arange(127, dtype=torch.uint8).view(FP8[to]).double()
    numbers = numbers[numbers.isfinite()]
    middles = (numbers[1:] + numbers[:-1]).div(2).float()
    tried = ctypes.c_long()
    found = host.differences(to, (ctypes.c_float * len(middles))(*middles.tolist()), len(middles), ctypes.byref(tried))
    assert tried.value == 1024 * 9 * len(middles)
    assert found == 0
