"""`python -m cost_models.tables PAGE...` makes the tables that pages show of surveys; `--check` only compares them.

A table stands between two comments, and its name says which one it is:

    <!-- survey:fp8-errors -->
    <!-- /survey:fp8-errors -->

`perfsuite table` makes all other tables; it knows nothing of these kernels' surveys.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from machine_code import sizes

from cost_models import host_library, weights
from cost_models.errors import UsageError
from cost_models.shapes import ShapesTable, ceiling_rows, rule_rows
from perfsuite.problems import WeightOnlyGemm

Line = dict[str, Any]
_BLOCK = re.compile(r"^<!-- survey:(?P<name>[\w-]+) -->\n.*?^<!-- /survey:(?P=name) -->$", re.DOTALL | re.MULTILINE)
_MARK = re.compile(r"^<!-- /?survey:", re.MULTILINE)
_TILE = re.compile(r"\d+x\d+ ?")


@dataclass(frozen=True)
class Table:
    """What a table shows of a survey, whose first line is of the run and whose others are of one product each."""

    survey: str
    """The file, from the root of the tree."""
    head: tuple[str, ...]
    rows: Callable[[Line, list[Line]], Iterable[Sequence[str]]]
    """The cells of each row, from the first line and the others."""

    def made(self, root: Path) -> str:
        """The table, and a sentence on the run. UsageError if the survey does not have what the table shows."""
        path = root / self.survey
        try:
            run, *products = map(json.loads, path.read_text().splitlines())
            rows = [self.head, ("---",) * len(self.head), *self.rows(run, products)]
            seen = ""
            if "products_checked" in run:
                seen = f"; {run['products_checked']:,} products were checked, {run['wrong']} of them wrong"
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror}") from None
        except (ValueError, TypeError, KeyError) as error:
            raise UsageError(f"{path} is no such survey: {type(error).__name__}, {error}") from None
        lines = [f"| {' | '.join(cells)} |" for cells in rows]
        return "\n".join([*lines, "", f"Measured on one {run['device']} (`{self.survey}`){seen}."])


def products_by_sums(of: str, form: str) -> Callable[[Line, list[Line]], Iterable[Sequence[str]]]:
    """The rows of FP8 products that have the field `of`: torch's two kinds of sums, and the largest of our tiles'."""

    def rows(run: Line, products: list[Line]) -> Iterable[Sequence[str]]:
        for line in products:
            if of in line:
                ours: dict[str, float] = {}
                for plan, value in line["ours"].items():
                    kind = _TILE.sub("", plan, count=1)
                    ours[kind] = max(value, ours.get(kind, value))
                torch = line["torch"] or {}  # a survey leaves it out where there are few rows
                values = [torch.get("promoted"), torch.get("fast")]
                values += [ours[kind] for kind in ("", "fast sums", "every 512", "none")]
                size = str(line[of]).replace("x", " x ")
                yield [size, *("-" if value is None else format(value, form) for value in values)]

    return rows


def pairs(run: Line, products: list[Line]) -> Iterable[Sequence[str]]:
    """The speed of FP8 products by the plan that is chosen, beside the best rival of the same kind of sums.

    The rival is torch's call or the quickest of cuBLASLt's proposals. The kernels as they were before stand beside.
    """
    found: dict[str, dict[str, Line]] = {}
    for line in products:
        if "pairs" in line:
            found.setdefault(line["pairs"], {})[line["sums"]] = line
    for size, of in found.items():
        cells = [size.replace("x", " x ")]
        for sums in ("promoted", "fast"):
            line = of[sums]
            speeds = [line["speed"][one] for one in ("before", "chosen")] + [line["speed_of_torch"]["chosen"]]
            cells += [f"{line['speed_teraflops']:.0f}", *(f"{speed:.2f}" for speed in speeds)]
        yield cells


def block_scales(run: Line, products: list[Line]) -> Iterable[Sequence[str]]:
    """The quickest plan of each product of many rows, with one scale and with scales of blocks."""
    found: dict[str, dict[str, Line]] = {}
    for line in products:
        size, kind = line["time"].split()
        found.setdefault(size, {})[kind] = line
    for size, of in found.items():
        best = [of[kind]["best"] for kind in ("tensor", "block")]
        if all(plan.startswith("persistent ") for plan in best):
            speeds = [of[kind]["teraflops"] for kind in ("tensor", "block")]
            tiles = [plan.split()[1].replace("x", " x ") for plan in best]
            cells = [f"{speeds[0]:.0f}", tiles[0], f"{speeds[1]:.0f}", tiles[1], f"{speeds[1] / speeds[0]:.2f}"]
            yield [size.replace("x", " x "), *cells]


def shares(run: Line, products: list[Line]) -> Iterable[Sequence[str]]:
    """The share of the read bandwidth that each weight's product with one row had, for the two plain kinds."""
    found: dict[tuple[int, int], dict[int, float]] = {}
    for line in products:
        fields = weights.product_fields(line["time"])
        if fields["m"] == 1 and not fields["zeros"]:
            n, k, bits = fields["n"], fields["k"], fields["bits"]
            problem = WeightOnlyGemm(1, n, k, bits=bits, group=fields["group"])
            share = problem.bytes / (1e-6 * line["chosen"]["fetched"]) / run["read_bandwidth"]
            found.setdefault((n, k), {})[bits] = share
    for (n, k), of in sorted(found.items(), key=lambda one: one[0][0] * one[0][1]):
        yield [f"{n} x {k}", f"{n * k / 2e6:.0f}", f"{of[4]:.2f}", f"{of[8]:.2f}"]


class BuildTable:
    """The families of the build on record, against its limits."""

    def made(self, root: Path) -> str:
        """The table, and a sentence on the whole. UsageError if the record cannot be read."""
        path = root / sizes.RECORD.relative_to(host_library.ROOT)
        if not path.exists():
            return "No build is on record."
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            limits = (
                f"{sizes.MOST_BYTES / 1e6:.0f} MB and {sizes.MOST_SECONDS:.0f} s on {sizes.CORES} cores are allowed"
            )
            missed = "; ".join(sizes.misses(record)) or "both are kept"
            return f"{sizes.table(record)} {limits}: {missed} (`{path.relative_to(root)}`)."
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror}") from None
        except (ValueError, TypeError, KeyError) as error:
            raise UsageError(f"{path} is no record of a build: {type(error).__name__}, {error}") from None


SUMS = ("torch, promoted", "torch, fast", "ours, promoted", "ours, fast sums", "every 512", "never promoted")
PAIRS = (
    "m x n x k",
    *("promoted: rival, TFLOPS", "before", "now", "now, of torch"),
    *("fast: rival, TFLOPS", "before", "now", "now, of torch"),
)
BLOCK_SCALES = (
    "m x n x k",
    *("one scale: TFLOPS", "quickest tile", "block scales: TFLOPS", "quickest tile", "of one scale"),
)
TABLES: dict[str, Table | ShapesTable | BuildTable] = {
    "fp8-errors": Table("records/h200/fp8-sums.txt", ("k", *SUMS), products_by_sums("constant_rows_k", ".2f")),
    "fp8-teraflops": Table("records/h200/fp8-sums.txt", ("m x n x k", *SUMS), products_by_sums("tflops", ".0f")),
    "fp8-pairs": Table("records/h200/survey-fp8-step-16.txt", PAIRS, pairs),
    "fp8-block-scales": Table("records/h200/survey-fp8.txt", BLOCK_SCALES, block_scales),
    "weights-few-rows": Table(
        "records/h200/survey-weights-few-rows.txt", ("weights", "MB as int4", "int4, groups of 128", "int8"), shares
    ),
    "shapes": ShapesTable(rule_rows),
    "read-ceilings": ShapesTable(ceiling_rows),
    "build": BuildTable(),
}


def refreshed(page: Path, root: Path = host_library.ROOT) -> str:
    """The page's text with every table of a survey made anew.

    Raises:
        UsageError: the page cannot be read, a table has no end, is not known, or its survey does not have it.
    """
    try:
        text = page.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{page} cannot be read: {error}") from None
    if 2 * len(_BLOCK.findall(text)) != len(_MARK.findall(text)):
        raise UsageError(f"{page}: a table needs <!-- survey:NAME --> and <!-- /survey:NAME -->, each on its own line")

    def made(block: re.Match[str]) -> str:
        name = block["name"]
        if name not in TABLES:
            raise UsageError(f"{page}: there is no table {name}; known are {', '.join(TABLES)}")
        return f"<!-- survey:{name} -->\n{TABLES[name].made(root)}\n<!-- /survey:{name} -->"

    return _BLOCK.sub(made, text)


def main(arguments: list[str] | None = None) -> int:
    """Make or compare the tables: 0 done, 1 `--check` finds a page that is out of date, 2 bad input."""
    parser = argparse.ArgumentParser(
        prog="cost_models.tables", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pages", nargs="+", type=Path, metavar="PAGE", help="a markdown file with such tables")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where a table is out of date")
    given = parser.parse_args(arguments)
    late = 0
    try:
        for page in given.pages:
            text = refreshed(page)
            if text != page.read_text(encoding="utf-8"):
                late += 1
                print(f"{page}: {'out of date' if given.check else 'made anew'}")
                if not given.check:
                    page.write_text(text, encoding="utf-8")
    except UsageError as error:
        print(f"cost_models.tables: {error}", file=sys.stderr)
        return 2
    return 1 if given.check and late else 0


if __name__ == "__main__":
    sys.exit(main())
