"""The checked-in table of the fastest plan of each measured matrix product: ext/csrc/cuda/gemm/sm90/plan_table.h."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

TABLE = Path(__file__).resolve().parents[1] / "csrc/cuda/gemm/sm90/plan_table.h"

_ROW = re.compile(
    r"\{(\d+), (\d+), (\d+), (true|false), (true|false), "
    r"KernelKind::(\w+), (\d+), (\d+), (\d+), (\d+), (\d+), (\d+), (\d+)\},"
)
_PLAN = re.compile(r"(\w+) (\d+)x(\d+)x(\d+)/(\d+) (?:[km]{2} )?split (\d+) cluster (\d+)x(\d+)")
_SMS = re.compile(r"kMeasuredMultiprocessors = (\d+);")


@dataclass(frozen=True)
class Product:
    """out = a b of m x n from k. `a_mn_major`: a is stored k x m; `b_mn_major`: b is stored k x n."""

    m: int
    n: int
    k: int
    a_mn_major: bool
    b_mn_major: bool


@dataclass(frozen=True)
class Plan:
    """A kernel of the Hopper path and how it is launched; see ext/csrc/cuda/gemm/sm90/plan.h."""

    kind: str
    tile: tuple[int, int, int]
    stages: int
    split: int
    cluster: tuple[int, int]

    @classmethod
    def named(cls, name: str) -> Plan:
        """The plan that `cuda_llm_ops._C.gemm_plans` calls so.

        Raises:
            ValueError: it is no plan's name.
        """
        found = _PLAN.fullmatch(name)
        if found is None:
            raise ValueError(f"{name!r} is no plan's name; one is 'persistent 128x256x64/4 kk split 1 cluster 1x1'")
        m, n, k, stages, split, cluster_m, cluster_n = map(int, found.groups()[1:])
        return cls(found[1], (m, n, k), stages, split, (cluster_m, cluster_n))

    @property
    def blocks(self) -> int:
        """Blocks of a cluster: of plans that are as fast, the one with fewest is the simplest."""
        return self.split * self.cluster[0] * self.cluster[1]


def parse(text: str) -> dict[Product, Plan]:
    """The rows of a table's text."""
    rows = {}
    for row in _ROW.finditer(text):
        m, n, k = map(int, row.groups()[:3])
        tile_m, tile_n, tile_k, stages, split, cluster_m, cluster_n = map(int, row.groups()[6:])
        plan = Plan(row[6], (tile_m, tile_n, tile_k), stages, split, (cluster_m, cluster_n))
        rows[Product(m, n, k, row[4] == "true", row[5] == "true")] = plan
    return rows


def line(product: Product, plan: Plan) -> str:
    """A row of the table."""
    flags = ", ".join(str(flag).lower() for flag in (product.a_mn_major, product.b_mn_major))
    numbers = ", ".join(map(str, (*plan.tile, plan.stages, plan.split, *plan.cluster)))
    return f"    {{{product.m}, {product.n}, {product.k}, {flags}, KernelKind::{plan.kind}, {numbers}}},"


def rewritten(text: str, rows: dict[Product, Plan], multiprocessors: int) -> str:
    """The table's text with these rows, squares first, by size, and the number of multiprocessors they hold for.

    Raises:
        ValueError: the text is not that of a table.
    """
    begin, end = text.find("kMeasured[] = {\n"), text.find("\n};\n\n}  // namespace")
    if begin < 0 or end < begin or _SMS.search(text) is None:
        raise ValueError(
            "the text is no table of plans: it must hold 'kMeasured[] = {', rows, and kMeasuredMultiprocessors"
        )

    def order(product: Product) -> tuple[bool, bool, int, int, int]:
        square = product.m == product.n == product.k
        return (not square, product.b_mn_major, product.n * product.k, product.n, product.m)

    lines = "\n".join(line(product, rows[product]) for product in sorted(rows, key=order))
    body = text[: begin + len("kMeasured[] = {\n")] + lines + text[end:]
    return _SMS.sub(f"kMeasuredMultiprocessors = {multiprocessors};", body)
