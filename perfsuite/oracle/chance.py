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

    mine = _values(output)
    held = [_values(inputs.call(library)) for _ in range(HELD_OUT)]
    known = [_Known([one, *(each[place] for each in held)]) for place, one in enumerate(mine)]
    for _ in range(KNOWN):
        for one, value in zip(known, _values(inputs.call(library)), strict=True):
            one.add(value)
    for one, tensor in zip(known, mine, strict=True):
        if not tensor.numel():
            continue
        found, furthest = one.statistics()
        size = _size(one.mean)
        own, others = found[0], found[1:]
        slack = DEVIATIONS * others.std(0) + 4 * grain(tensor.dtype)[0] + 1 / tensor.numel()
        rare = RARE * furthest**2 / size
        slack[2] = max(slack[2], float((others[:, 2].mean() + slack[2]).square() + rare) ** 0.5 - others[:, 2].mean())
        off = (own - others.mean(0)).abs()
        for at, what in enumerate(_STATISTICS):
            if not float(off[at]) <= float(slack[at]):
                theirs = f"the library's {float(others.mean(0)[at]):.3g}, within {float(slack[at]):.2g}"
                said = f"judged by the distribution of random results: {what} is {float(own[at]):.3g}; {theirs}"
                return wrong(Reason.INACCURATE, said)
    said = f"right by the distribution of {KNOWN + HELD_OUT} results of the library, which draws random numbers"
    return Judgement(ok=True, reason=None, sentence=said)


class _Known:
    """One tensor of the library's results: their mean, and how near to them each judged result comes.

    The judged results are compared all at once: launches and passes over memory are what takes time here.
    """

    def __init__(self, judged: list[torch.Tensor]) -> None:
        """judged: the candidate's result, and the library's held-out ones."""
        import torch

        first = judged[0]
        # Of values as large as these no two differ by more than float32 holds. A difference is rounded there, alike
        # for the candidate and the library, by less than the slack of any statistic.
        narrow = first.is_floating_point() and first.element_size() <= 4
        together = torch.stack([one.float() if narrow else one.to(_wide(one)) for one in judged])
        if narrow and not float(together.abs().amax() if first.numel() else 0.0) < torch.finfo(torch.float32).max / 4:
            together = together.double()
        self._judged, self.mean = together, torch.zeros_like(first, dtype=_wide(first))
        self._nearest = torch.full_like(together.real, torch.inf)
        self._furthest = torch.zeros((), dtype=self._nearest.dtype, device=first.device)

    def add(self, result: torch.Tensor) -> None:
        """Count one more result of the library among the known ones."""
        import torch

        if not result.numel():
            return
        self.mean.add_(result.to(self.mean.dtype) if result.element_size() == 1 else result, alpha=1 / KNOWN)
        apart = self._judged - result.to(self._judged.dtype)
        apart = apart.abs() if apart.is_complex() else apart.abs_()
        torch.minimum(self._nearest, apart, out=self._nearest)
        self._furthest = torch.fmax(self._furthest, apart[1:].amax())

    def statistics(self) -> tuple[torch.Tensor, float]:
        """(the statistics of each judged result, the largest distance of a held-out result from a known one)."""
        import torch

        size, rows = _size(self.mean), []
        for one, nearest in zip(self._judged, self._nearest, strict=True):
            values = one.to(self.mean.dtype)
            along = (values * self.mean.conj()).sum() / size
            distances = map(torch.linalg.vector_norm, (values - self.mean, nearest.double()))
            apart = torch.stack([*distances]) / size**0.5
            rows.append(torch.cat([along.real.reshape(1), apart, (one == 0).double().mean().reshape(1)]))
        return torch.stack(rows).cpu(), float(self._furthest)


def _size(mean: torch.Tensor) -> float:
    return max(float(mean.abs().square().sum()), 1e-300)


def _wide(tensor: torch.Tensor) -> torch.dtype:
    import torch

    return torch.complex128 if tensor.is_complex() else torch.float64


def _values(result: Any) -> list[torch.Tensor]:
    return [value for _, value in values_in(result)]
