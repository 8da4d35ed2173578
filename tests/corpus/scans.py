"""Running sums and products, and recurrences along an axis."""

from __future__ import annotations

import torch

from .written import Collection, normal, positive

MODULES = Collection("scans")


def rows(batch: int, width: int) -> tuple[torch.Tensor]:
    return (normal(batch, width),)


def decays(batch: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    return normal(batch, width), 0.5 + 0.5 * positive(batch, width)


def reverse(x: torch.Tensor) -> torch.Tensor:
    return x.flip(-1).cumsum(-1).flip(-1)


def exclusive(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([torch.zeros_like(x[:, :1]), x.cumsum(-1)[:, :-1]], -1)


def masked(x: torch.Tensor) -> torch.Tensor:
    return torch.cumsum(x * (x > 0), -1)


def recurrence(x: torch.Tensor, decay: torch.Tensor) -> torch.Tensor:
    """h[t] = decay[t] h[t-1] + x[t], step after step."""
    steps, state = [], torch.zeros_like(x[:, 0])
    for time in range(x.shape[1]):
        state = decay[:, time] * state + x[:, time]
        steps.append(state)
    return torch.stack(steps, 1)


SMALL, CARD = (16, 64), (4096, 8192)
FUNCTIONS = {
    "running sum": lambda x: x.cumsum(-1),
    "running sum of columns": lambda x: x.cumsum(0),
    "reversed running sum": reverse,
    "exclusive running sum": exclusive,
    "masked running sum": masked,
    "running maximum of rows": lambda x: x.cummax(-1).values,
    "running logarithm of sums": lambda x: x.logcumsumexp(-1),
}
for name, function in FUNCTIONS.items():
    MODULES.function(name, function, rows, SMALL, CARD)
MODULES.function("running product", lambda x: x.cumprod(-1), lambda b, w: (0.9 + 0.2 * positive(b, w),), (16, 32), CARD)
MODULES.function("linear recurrence", recurrence, decays, (8, 24), (65536, 64))
MODULES.function("differences", lambda x: x.diff(dim=-1), rows, SMALL, CARD)
