"""Judges results that hang on random numbers: by equal generators where they can be had, else by their distribution.

The library is called many times. Its results give a mean for every element, and the values that each element takes. A
right result is as far from both as a further result of the library.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from perfsuite.oracle.form import values_in
from perfsuite.oracle.judgement import Judgement, wrong
from perfsuite.oracle.measures import grain
from perfsuite.outcome import Reason
from perfsuite.problems.base import Inputs

if TYPE_CHECKING:
    import torch

KNOWN, HELD_OUT = 32, 8
"""Results of the library that give means and values, and further ones that show how much a right one differs."""
DEVIATIONS = 12.0
"""Standard deviations of the held-out results by which a right one may differ in each statistic. They come from few
results, so a right one is off by eight of them once in thousands."""
RARE = 4
"""Elements that may take a value none of the known results has: dropout may drop one for the first time."""
_STATISTICS = (
    "its size along the mean of the library's results",
    "its distance from that mean",
    "its distance from the values that the library's elements take",
    "its share of zeros",
)


class Dice:
    """The states of torch's default generators: calls that begin from the same draw the same numbers."""

    def __init__(self, device: torch.device) -> None:
        import torch

        self._device = device
        self._cpu = torch.get_rng_state()
        self._card = torch.cuda.get_rng_state(device) if device.type == "cuda" else None

    def rewind(self) -> None:
        """Set the generators back to where they were."""
        import torch

        torch.set_rng_state(self._cpu)
        if self._card is not None:
            torch.cuda.set_rng_state(self._card, self._device)


def judge_by_distribution(library: Callable[..., Any], inputs: Inputs, output: Any) -> Judgement:
    """Judge one result of the candidate by many of the library on the same inputs, with other random numbers."""
    import torch

    mine = _values(output)
    held = [_values(inputs.call(library)) for _ in range(HELD_OUT)]
    means: list[torch.Tensor] = [torch.zeros_like(one, dtype=_wide(one)) for one in mine]
    nearest = [[torch.full_like(mean.abs(), torch.inf) for mean in means] for _ in range(HELD_OUT + 1)]
    furthest = [0.0 for _ in means]
    for _ in range(KNOWN):
        for place, one in enumerate(_values(inputs.call(library))):
            means[place] += one.to(means[place].dtype) / KNOWN
            for judged, each in enumerate([mine, *held]):
                apart = (each[place].to(means[place].dtype) - one.to(means[place].dtype)).abs()
                torch.minimum(nearest[judged][place], apart, out=nearest[judged][place])
                if judged and apart.numel():
                    furthest[place] = max(furthest[place], float(apart.max()))
    for place, mean in enumerate(means):
        if not mean.numel():
            continue
        rows = [_statistics(each[place], mean, nearest[at][place]) for at, each in enumerate([mine, *held])]
        found = torch.tensor(rows, dtype=torch.float64)
        own, others = found[0], found[1:]
        slack = DEVIATIONS * others.std(0) + 4 * grain(mine[place].dtype)[0] + 1 / mean.numel()
        rare = RARE * furthest[place] ** 2 / _size(mean)
        slack[2] = max(slack[2], float((others[:, 2].mean() + slack[2]).square() + rare) ** 0.5 - others[:, 2].mean())
        off = (own - others.mean(0)).abs()
        for at, what in enumerate(_STATISTICS):
            if not float(off[at]) <= float(slack[at]):
                theirs = f"the library's {float(others.mean(0)[at]):.3g}, within {float(slack[at]):.2g}"
                said = f"judged by the distribution of random results: {what} is {float(own[at]):.3g}; {theirs}"
                return wrong(Reason.INACCURATE, said)
    said = f"right by the distribution of {KNOWN + HELD_OUT} results of the library, which draws random numbers"
    return Judgement(ok=True, reason=None, sentence=said)


def _statistics(one: torch.Tensor, mean: torch.Tensor, nearest: torch.Tensor) -> list[float]:
    values = one.to(mean.dtype)
    size = _size(mean)
    along = (values * mean.conj()).sum() / size
    return [
        float(along.real if along.is_complex() else along),
        (float((values - mean).abs().square().sum()) / size) ** 0.5,
        (float(nearest.square().sum()) / size) ** 0.5,
        float((values == 0).double().mean()),
    ]


def _size(mean: torch.Tensor) -> float:
    return max(float(mean.abs().square().sum()), 1e-300)


def _wide(tensor: torch.Tensor) -> torch.dtype:
    import torch

    return torch.complex128 if tensor.is_complex() else torch.float64


def _values(result: Any) -> list[torch.Tensor]:
    return [value for _, value in values_in(result)]
