"""The cost model of weight-only products of few rows: its constants, the reading of a survey's times, and the fit.

A survey is lines of JSON, one a product: the microseconds of plans by name (`tiles.parts.cluster`), and plans that were
only seen to be slower than a time. Of such a plan the model's time counts where it is below that time.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cost_models import host_library
from cost_models.compiled import CompiledModel
from cost_models.errors import UsageError
from cost_models.times import Rows, Seconds, read_survey

FOLDER = host_library.ROOT / "ext/csrc/cuda/weight_only/sm90"
HEADER = FOLDER / "few_rows_plan.h"
STRUCTS = {"FewRowsCosts": "few_rows_constants"}
FIELDS = (
    *("m", "n", "k", "bits", "group", "zeros"),
    *("tiles", "parts", "cluster"),
    *("multiprocessors", "cut_nanoseconds"),
)
MULTIPROCESSORS = 132  # of the Hopper cards that a survey runs on
MOST_ROWS = 16  # that the kernel takes; a survey may have more

_PRODUCT = re.compile(r"(\d+)x(\d+)x(\d+) (?:int4 g(64|128)( zeros)?|int8)")
_PLAN = re.compile(r"(\d+)\.(\d+)\.(\d+)")


class WeightsModel(CompiledModel):
    """The model, compiled."""

    def __init__(self, header: Path = HEADER) -> None:
        sources = [host_library.HERE / "weights_model.cpp", FOLDER / "few_rows_plan.cu"]
        super().__init__(header, sources, STRUCTS, FIELDS)

    def chosen(self, m: int, n: int, k: int, bits: int, group: int = 128, zeros: bool = False) -> str:
        """The name of the plan that the kernel takes for a product of at most MOST_ROWS rows."""
        row = (ctypes.c_int32 * len(FIELDS))(m, n, k, bits, group, zeros, 0, 0, 0, MULTIPROCESSORS, 0)
        plan = (ctypes.c_int32 * 3)()
        self._library.chosen(row, plan)
        return ".".join(map(str, plan))


def product_fields(product: str) -> dict[str, int]:
    """The fields of a product: `16x8192x8192 int4 g128`, with ` zeros` or not, or `16x8192x8192 int8`.

    Raises:
        UsageError: a product is not called so.
    """
    found = _PRODUCT.fullmatch(product)
    if found is None:
        raise UsageError(f"no weight-only product is called {product!r}")
    m, n, k = map(int, found.group(1, 2, 3))
    kind = {"bits": 4 if found[4] else 8, "group": int(found[4] or 128), "zeros": int(found[5] is not None)}
    return {"m": m, "n": n, "k": k, **kind}


def read(path: Path) -> tuple[Rows, Seconds, list[str]]:
    """The rows, microseconds and plans of products of at most MOST_ROWS rows; other lines are not read.

    Raises:
        UsageError: the file has no such times, or a line with times is no survey's.
    """
    table, times, plans = read_survey(path, _times, f"no times of products of up to {MOST_ROWS} rows")
    model = WeightsModel()
    possible = model.microseconds(table, model.start()) > 0  # a survey forces plans that are none today
    return table[possible], times[possible], [plan for plan, one in zip(plans, possible, strict=True) if one]


def _times(line: dict[str, Any]) -> Iterable[tuple[list[int], float, str]]:
    if "time" not in line:
        return
    product, times = product_fields(str(line["time"])), line.get("microseconds")
    if not isinstance(times, dict):
        raise UsageError(f"its microseconds are {times!r}")
    if product["m"] > MOST_ROWS:
        return
    for plan, time in times.items():
        if not (isinstance(time, float) and time > 0):
            raise UsageError(f"{plan} has microseconds {time!r}; they must be above 0")
        yield _row(product, plan), time, plan
    for plan in line.get("slower", ()):
        time = line.get("slower_than")
        if not (isinstance(time, float) and time > 0):
            raise UsageError(f"plans are slower than {time!r} microseconds; that must be above 0")
        yield _row(product, plan, round(1000 * time)), time, plan


def _row(product: dict[str, int], plan: str, cut: int = 0) -> list[int]:
    found = _PLAN.fullmatch(plan)
    if found is None:
        raise UsageError(f"no plan is called {plan!r}; a name is tiles.parts.cluster, such as 2.4.1")
    tiles, parts, cluster = map(int, found.groups())
    fields = {**product, "tiles": tiles, "parts": parts, "cluster": cluster}
    fields |= {"multiprocessors": MULTIPROCESSORS, "cut_nanoseconds": cut}
    return [fields[field] for field in FIELDS]
