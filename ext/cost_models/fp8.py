"""The cost model of FP8 products: its constants, the reading of a survey's times, and the fit.

Times are those that `python -m cuda_llm_ops.survey_fp8 --output FILE` writes: a line of JSON a product, with the
microseconds of every plan by its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cost_models import host_library, regret
from cost_models.compiled import CompiledModel
from cost_models.errors import UsageError
from cost_models.times import Rows, Seconds, read_survey

FOLDER = host_library.ROOT / "ext/csrc/cuda/fp8/sm90"
HEADER = FOLDER / "cost_model.h"
STRUCTS = {"PersistentCosts": "persistent_constants", "FewRowsCosts": "few_rows_constants"}
FIELDS = (
    *("m", "n", "k"),
    *("few_rows", "block_scales", "tile_m", "tile_n", "stage_k", "stages", "blocks_per_sm", "cluster"),
    "multiprocessors",
)
BLOCK = 128  # of k
MULTIPROCESSORS = 132  # of the Hopper cards that a survey runs on

_PRODUCT = re.compile(r"(\d+)x(\d+)x(\d+) (tensor|row|block)( fast)?")
_FEW_ROWS = re.compile(r"few rows (\d+) k(\d+) s(\d+)( block scales)? split (\d+)")
_PERSISTENT = re.compile(r"persistent (\d+)x(\d+)( block scales)? cluster (\d+)")
_FEW_ROWS_TILE = re.compile(r"CUDA_LLM_OPS_FEW_ROWS\(Q, (\d+), (\d+), (\d+), (\d+)\)")
_PERSISTENT_TILE = re.compile(r'Tile<P, \d, \d, \d+, (\d+), \w+>>\("persistent (\d+)x(\d+)( block scales)?"')
OTHERS = ("torch", "chosen")  # among the names of a line, those that are no plan


class Fp8Model(CompiledModel):
    """The model, compiled."""

    def __init__(self, header: Path = HEADER) -> None:
        sources = [host_library.HERE / "fp8_model.cpp", FOLDER / "cost_model.cu"]
        super().__init__(header, sources, STRUCTS, FIELDS, "few_rows")


def kernel_fields(plan: str) -> dict[str, int]:
    """The fields of a plan, by its name and the lists of kernels (few_rows.cuh, persistent.cuh).

    Raises:
        UsageError: no plan has this name.
    """
    if found := _FEW_ROWS.fullmatch(plan):
        tile, boxes, stages = map(int, found.group(1, 2, 3))
        for match in _FEW_ROWS_TILE.finditer((FOLDER / "few_rows.cuh").read_text()):
            listed = tuple(map(int, match.groups()))
            if listed[:3] == (tile, boxes, stages):
                shape = {"tile_m": tile, "tile_n": 64, "stage_k": boxes * BLOCK, "stages": stages}
                kinds = {"few_rows": 1, "block_scales": int(found[4] is not None)}
                return {**kinds, **shape, "blocks_per_sm": listed[3], "cluster": int(found[5])}
    if found := _PERSISTENT.fullmatch(plan):
        for match in _PERSISTENT_TILE.finditer((FOLDER / "persistent.cuh").read_text()):
            if match.group(2, 3, 4) == found.group(1, 2, 3):
                shape = {"tile_m": int(found[1]), "tile_n": int(found[2]), "stage_k": BLOCK, "stages": int(match[1])}
                kinds = {"few_rows": 0, "block_scales": int(found[3] is not None)}
                return {**kinds, **shape, "blocks_per_sm": 1, "cluster": int(found[4])}
    raise UsageError(f"no plan of FP8 products is called {plan!r}")


def read(path: Path) -> tuple[Rows, Seconds, list[str]]:
    """The rows, microseconds and plans of a survey's products; its other lines are not read.

    Raises:
        UsageError: the file has no times, or a line with times is no survey's.
    """
    return read_survey(path, _times, "no times; `python -m cuda_llm_ops.survey_fp8 --output FILE` writes some")


def product_of(row: Sequence[int]) -> tuple[int, ...]:
    """What two plans of one product have in common. One scale and scales of rows are the same kernels."""
    return row[0], row[1], row[2], row[FIELDS.index("block_scales")]


def near_best(rows: Rows, measured: Seconds, within: float | None) -> npt.NDArray[np.bool_]:
    """The rows of plans that take at most that share longer than the quickest of their product; None: all rows."""
    if within is None:
        return np.ones(len(rows), dtype=bool)
    return regret.near_best(regret.Products.of_rows(rows, product_of, fewest=1), measured, within)


def _times(line: dict[str, Any]) -> Iterable[tuple[list[int], float, str]]:
    if "time" not in line:
        return
    product, times = _PRODUCT.fullmatch(str(line["time"])), line.get("microseconds")
    if product is None or not isinstance(times, dict):
        raise UsageError(f"its product is {line['time']!r}, its microseconds {times!r}")
    m, n, k = map(int, product.group(1, 2, 3))
    for plan, time in times.items():
        if plan in OTHERS:
            continue
        if not (isinstance(time, float) and time > 0):
            raise UsageError(f"{plan} has microseconds {time!r}; they must be above 0")
        fields = {"m": m, "n": n, "k": k, **kernel_fields(plan), "multiprocessors": MULTIPROCESSORS}
        yield [fields[field] for field in FIELDS], time, plan
