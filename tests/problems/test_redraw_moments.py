"""Mean and deviation of given arguments are found once, and again when their values have changed."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch

from perfsuite.problems import redraw


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of all tensors whose moments were found."""
    sizes: list[int] = []
    genuine = redraw._moments

    def moments(values: torch.Tensor) -> Any:
        sizes.append(values.numel())
        return genuine(values)

    monkeypatch.setattr(redraw, "_moments", moments)
    return sizes


def drawn(given: Any, distribution: str = "normal", seed: int = 0) -> Any:
    return redraw.redrawn(given, {}, torch.Generator().manual_seed(seed), distribution)[0]


@pytest.mark.parametrize("distribution", ["normal", "uniform", "offset", "large"])
@pytest.mark.parametrize(
    "make",
    [
        lambda: (5.0 + 3.0 * torch.randn(40, 30), torch.rand(60).half()),
        lambda: (torch.randn(7, 1).expand(7, 9), torch.randn(12, dtype=torch.complex64)),
        lambda: (torch.nn.Parameter(torch.randn(6, 5)), torch.randn(8, 6).t()),
    ],
)
def test_draws_are_the_same_whether_or_not_the_moments_are_known(make: Any, distribution: str) -> None:
    given = make()
    before = [drawn(given, distribution, seed) for seed in (1, 2)]
    alike = tuple(one.detach().clone() if one.is_contiguous() else one.detach() for one in given)
    anew = [drawn(alike, distribution, seed) for seed in (1, 2)]
    for one, other in zip(before, anew, strict=True):
        assert all(torch.equal(mine, theirs) for mine, theirs in zip(one, other, strict=True))


def test_moments_of_a_tensor_are_found_once(found: list[int]) -> None:
    given = (torch.randn(40), torch.randn(5, 1).expand(5, 8), torch.arange(9))
    for seed in range(6):
        drawn(given, "offset" if seed % 2 else "normal", seed)
    assert sorted(found) == [5, 40]


def test_other_values_have_other_moments(found: list[int]) -> None:
    given = torch.randn(4000)
    for factor in (1.0, 8.0):
        given.mul_(factor)
        drawn((given,))
        assert float(drawn((given,))[0].std()) == pytest.approx(factor, rel=0.2)
    given.data = torch.randn(4000) * 100.0
    assert float(drawn((given,))[0].std()) == pytest.approx(100.0, rel=0.2)
    assert len(found) == 3
    with torch.inference_mode():  # without a count of its changes a tensor is looked at each time
        unknown = torch.randn(4000)
        drawn((unknown,))
        unknown *= 9.0
        assert float(drawn((unknown,))[0].std()) == pytest.approx(9.0, rel=0.2)


def test_nothing_keeps_a_tensor_whose_moments_are_known() -> None:
    before = len(redraw._known())
    given = torch.randn(50)
    drawn((given,))
    assert len(redraw._known()) == before + 1
    del given
    gc.collect()
    assert len(redraw._known()) == before


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_drawn_values_keep_their_range_and_their_moments_in_every_dtype(dtype: torch.dtype) -> None:
    shares, logarithms = torch.rand(64, 256).to(dtype), torch.rand(64, 256).log().to(dtype)
    far = (1000 + 4 * torch.randn(64, 256)).to(dtype)
    share, logarithm, other = drawn((shares, logarithms, far))
    assert share.min() >= 0
    assert share.max() <= 1
    assert logarithm.max() <= 0
    assert other.dtype is dtype
    assert abs(float(other.double().mean()) - 1000) < 2
    assert 3 < float(other.double().std()) < 6
    assert other.data_ptr() != far.data_ptr()


def test_a_constant_argument_is_drawn_in_memory_of_its_own() -> None:
    given = torch.ones(8, 8), torch.arange(5)
    for one, other in zip(drawn(given), given, strict=True):
        assert torch.equal(one, other)
        assert one.data_ptr() != other.data_ptr()
