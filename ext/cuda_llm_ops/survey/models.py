"""The models whose layers are drawn from: models.toml."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

PLACE = Path(__file__).with_name("models.toml")
COPIES = (2, 4, 8)
"""Devices among which a layer may be divided (tensor parallelism)."""


@dataclass(frozen=True)
class Model:
    """Sizes of a transformer's layers."""

    name: str
    source: str
    """The repository at huggingface.co whose config.json has the sizes."""
    kind: str
    """decoder, encoder or diffusion."""
    hidden: int
    intermediate: int
    gated: bool
    """The feed-forward part has two matrices that lead in."""
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int | None = None
    tokens: int | None = None
    """Of a sequence, where the model fixes them."""

    def layers(self) -> list[tuple[int, int]]:
        """n and k of the weights: of each layer whole, and of its part where several devices divide it."""
        query, both = self.heads * self.head_dim, (self.heads + 2 * self.kv_heads) * self.head_dim
        wide = self.intermediate * (2 if self.gated else 1)
        found = [(both, self.hidden), (self.hidden, query), (wide, self.hidden), (self.hidden, self.intermediate)]
        for devices in COPIES:
            if self.kv_heads % devices == 0 and self.intermediate % (64 * devices) == 0:
                found += [(both // devices, self.hidden), (self.hidden, query // devices)]
                found += [(wide // devices, self.hidden), (self.hidden, self.intermediate // devices)]
        return found + ([(self.vocabulary, self.hidden)] if self.vocabulary else [])


@dataclass(frozen=True)
class Cross:
    """Cross attention of a model that makes pictures: one entry a level in each list."""

    name: str
    source: str
    heads: list[int]
    head_dims: list[int]
    pixels: list[int]


@cache
def models() -> tuple[Model, ...]:
    """Every model, in the order of the file."""
    return tuple(Model(**one) for one in _document()["model"])


@cache
def crosses() -> tuple[Cross, ...]:
    """Every cross attention, in the order of the file."""
    return tuple(Cross(**one) for one in _document()["cross"])


def of_kind(kind: str) -> list[Model]:
    """The models of a kind."""
    return [one for one in models() if one.kind == kind]


@cache
def _document() -> dict[str, Any]:
    return tomllib.loads(PLACE.read_text(encoding="utf-8"))
