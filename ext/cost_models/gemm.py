"""The cost model of the Hopper GEMM: its constants, its plans' fields, and the fit of both of its structs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cost_models import host_library
from cost_models.compiled import CompiledModel

FOLDER = host_library.ROOT / "ext/csrc/cuda/gemm/sm90"
HEADER = FOLDER / "cost_model.h"
STRUCTS = {"PlanCosts": "plan_constants", "MulticastCosts": "multicast_constants"}
FIELDS = (
    *("m", "n", "k", "batch", "out_float"),
    *("persistent", "swap", "pingpong", "multicasts", "p_mn_major", "q_mn_major"),
    *("tile_m", "tile_n", "tile_k", "stages", "shared_bytes", "blocks_per_sm"),
    *("split", "cluster_m", "cluster_n", "parts", "clusters", "multiprocessors"),
)
SHARES = {"balanced", "short_line_bandwidth"}  # constants that cannot be above 1


def product_of(row: Sequence[int]) -> tuple[int, ...]:
    """What tells a product: its sizes and types, and how `a` and `b` are stored."""
    of = dict(zip(FIELDS, row, strict=True))
    stored = of["p_mn_major"], of["q_mn_major"]
    return (*(of[name] for name in ("m", "n", "k", "batch", "out_float")), *(stored[::-1] if of["swap"] else stored))


class GemmModel(CompiledModel):
    """The model, compiled."""

    def __init__(self, header: Path = HEADER) -> None:
        sources = [host_library.HERE / "gemm_model.cpp", FOLDER / "cost_model.cu"]
        super().__init__(header, sources, STRUCTS, FIELDS, "multicasts", SHARES)
