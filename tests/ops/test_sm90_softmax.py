"""The Hopper attention kernel's softmax, compiled for the host, where scores are not finite or leave float32."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from device_sources import copy_without_ptx

torch = pytest.importorskip("torch", reason="the reference is torch's")

from torch import Tensor  # noqa: E402

HOST = Path(__file__).with_name("sm90_softmax_host.cpp")
LOG2_E = math.log2(math.e)
CASES = 24  # each of 16 rows
WAYS = ("plain", "split keys", "summed")  # sm90_softmax_host.cpp's Way


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory, compile_for_host: Callable[..., ctypes.CDLL]) -> ctypes.CDLL:
    ptx = f'#define HOST_PTX\n#include "{HOST}"\n#undef HOST_PTX\n'
    build = copy_without_ptx(tmp_path_factory.mktemp("sm90_softmax") / "csrc", ptx)
    return compile_for_host(HOST, build, "-ffp-contract=off", "-w", f"-I{build}/cuda")


def attend(host: ctypes.CDLL, scores: Tensor, v: Tensor, limits: Tensor, scale: float, way: str) -> Tensor:
    """The kernel's output, (16, 8), in v's dtype; scores (16, keys) float32, limits (16,) int32."""
    arrays = [scores.contiguous(), v.float().contiguous(), limits.contiguous(), torch.empty(16, 8)]
    host.attend(
        *(ctypes.c_void_p(array.data_ptr()) for array in arrays),
        ctypes.c_int(scores.shape[1] // 16),
        ctypes.c_float(scale * LOG2_E),
        ctypes.c_int(WAYS.index(way)),
        ctypes.c_bool(v.dtype == torch.bfloat16),
    )
    return arrays[-1].to(v.dtype)


def expected(scores: Tensor, v: Tensor, limits: Tensor, scale: float) -> Tensor:
    """The plain formula in float64, of scores that float32 holds when they are multiplied by scale * log2(e)."""
    scaled = scores.double() * scale
    largest = torch.finfo(torch.float32).max / LOG2_E
    scaled = torch.where(scaled.abs() > largest, scaled.sign() * math.inf, scaled)
    hidden = torch.arange(scores.shape[1]) >= limits[:, None]
    scaled = scaled.masked_fill(hidden, -math.inf)
    empty = (scaled == -math.inf).all(1, keepdim=True)
    return torch.softmax(scaled, 1).masked_fill(empty, 0.0) @ v.double()


def plant(kind: str, scores: Tensor, chance: Tensor) -> float:
    """Put what `kind` says where `chance` is, (16, keys); the scale to use."""
    rows = chance.any(1)
    if kind == "minus infinity":
        scores[chance] = -math.inf
    elif kind == "rows of minus infinity":
        scores[rows] = -math.inf
    elif kind == "blocks of minus infinity":
        scores[:, chance[0].view(-1, 16)[:, 0].repeat_interleave(16)] = -math.inf
    elif kind == "plus infinity":
        scores[chance] = math.inf
    elif kind == "nan":
        scores[chance] = math.nan
    elif kind == "everything":
        values = torch.tensor([math.inf, -math.inf, math.nan])
        scores[chance] = values[torch.arange(int(chance.sum())) % 3]
    elif kind == "spikes":
        scores[chance] *= 1000
    elif kind == "overflow":
        scores[:] = 0
        scores[chance] = torch.tensor([1000.0, -1000.0])[rows.long()][:, None].expand_as(scores)[chance]
        return 1e38
    return 1.0


KINDS = (
    "plain",
    "minus infinity",
    "rows of minus infinity",
    "blocks of minus infinity",
    "plus infinity",
    "nan",
    "everything",
    "spikes",
    "overflow",
)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_against_the_plain_formula(host: ctypes.CDLL, kind: str, way: str, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(KINDS.index(kind))
    for case in range(CASES):
        keys = 16 * (1 + case % 6)
        scores = torch.randn(16, keys, generator=generator) * (1.0, 8.0)[case % 2]
        v = torch.randn(keys, 8, generator=generator).to(dtype)
        limits = torch.randint(1, keys + 1, (16,), generator=generator, dtype=torch.int32)
        chance = torch.rand(16, keys, generator=generator) < (0.01, 0.1, 0.6, 1.0)[case % 4]
        scale = plant(kind, scores, chance)
        out, right = attend(host, scores, v, limits, scale, way), expected(scores, v, limits, scale)
        tolerance = 4 * torch.finfo(dtype).eps
        torch.testing.assert_close(out.double(), right, rtol=tolerance, atol=tolerance, equal_nan=True)
