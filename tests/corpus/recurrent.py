"""Recurrent networks."""

from __future__ import annotations

import torch
from torch import nn

from .written import Collection, normal

MODULES = Collection("recurrent")
add = MODULES.module


def sequence(length: int, batch: int, width: int) -> tuple[torch.Tensor]:
    return (normal(length, batch, width),)


def step(length: int, batch: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    return normal(batch, width), normal(batch, width)


class Vanilla(nn.Module):
    """h = tanh(W x + U h), written out."""

    def __init__(self, length: int, batch: int, width: int) -> None:
        super().__init__()
        self.into, self.over = nn.Linear(width, width), nn.Linear(width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = torch.zeros_like(x[0])
        for now in x:
            state = torch.tanh(self.into(now) + self.over(state))
        return state


class Selective(nn.Module):
    """A state-space layer whose step depends on the input."""

    def __init__(self, length: int, batch: int, width: int) -> None:
        super().__init__()
        self.rate = nn.Parameter(-torch.rand(width, 4))
        self.steps, self.into, self.out = nn.Linear(width, width), nn.Linear(width, 4), nn.Linear(width, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state, found = x.new_zeros(*x.shape[1:], 4), []
        for now in x:
            size = nn.functional.softplus(self.steps(now))[..., None]
            state = torch.exp(size * self.rate) * state + size * self.into(now)[..., None, :] * now[..., None]
            found.append((state * self.out(now)[..., None, :]).sum(-1))
        return torch.stack(found)


SMALL, CARD = (6, 3, 12), (128, 32, 256)
add("recurrent network", lambda n, b, w: nn.RNN(w, w), sequence, SMALL, CARD)
add("LSTM", lambda n, b, w: nn.LSTM(w, w), sequence, SMALL, CARD)
add("LSTM in both directions", lambda n, b, w: nn.LSTM(w, w, num_layers=2, bidirectional=True), sequence, SMALL, CARD)
add("GRU", lambda n, b, w: nn.GRU(w, w), sequence, SMALL, CARD)
add("cell of an LSTM", lambda n, b, w: nn.LSTMCell(w, w), lambda *n: (step(*n)[0], step(*n)), SMALL, (1, 4096, 1024))
add("cell of a GRU", lambda n, b, w: nn.GRUCell(w, w), step, SMALL, (1, 4096, 1024))
add("recurrence written out", Vanilla, sequence, SMALL, (32, 64, 256))
add("selective state space", Selective, sequence, SMALL, (32, 64, 256))
