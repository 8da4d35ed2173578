"""Tables of the surveys of shapes: what each card's record says of the rules, and both ceilings of a decode."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cost_models.errors import UsageError

if TYPE_CHECKING:
    from cuda_llm_ops.survey.record import Record

SURVEYS = "records/*/survey.jsonl"
"""The official surveys, from the root of the tree."""
STATES = {True: "met", False: "**missed**", None: "-"}
SIZES = ((0, 1 << 20), (1 << 20, 16 << 20), (16 << 20, 256 << 20), (256 << 20, 1 << 62))
"""Bytes of caches that are shown together."""


@dataclass(frozen=True)
class ShapesTable:
    """A table of every card's survey."""

    rows: Callable[[Sequence[Record]], Iterable[Sequence[str]]]
    """The head and the rows."""

    def made(self, root: Path) -> str:
        """The table, and a sentence for each record. UsageError if one cannot be read, or the extension is missing."""
        try:
            from cuda_llm_ops.survey import record
        except ImportError as error:
            raise UsageError(f"the extension cannot be imported ({error}); its survey knows the rules") from None
        paths = sorted(root.glob(SURVEYS))
        if not paths:
            return "No card's survey is on record."
        try:
            records = [record.read(path) for path in paths]
        except record.RecordError as error:
            raise UsageError(str(error)) from None
        head, *rows = self.rows(records)
        lines = [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]
        said = [
            f"Measured on one {of.run['device']} with torch {of.run['torch']}, seed {of.run['seed'][:12]}: "
            f"{len(of.lines):,} of {sum(of.run['counts'].values()):,} cases (`{path.relative_to(root)}`)."
            for path, of in zip(paths, records, strict=True)
        ]
        return "\n".join([*lines, "", *said])


def rule_rows(records: Sequence[Record]) -> Iterable[Sequence[str]]:
    """Every rule, and what each record says of it."""
    from cuda_llm_ops.survey import rules

    cards = [of.run["device"].removeprefix("NVIDIA ") for of in records]
    yield ["cases", "figure", "asked", *(part for card in cards for part in (card, "cases", ""))]
    found = [rules.findings(of.lines) for of in records]
    for of_rule in zip(*found, strict=True):
        rule = of_rule[0].rule
        cells = (part for one in of_rule for part in (one.text(), str(one.cases), STATES[one.met]))
        yield [rule.subject, rule.figure, rule.asked(), *cells]


def ceiling_rows(records: Sequence[Record]) -> Iterable[Sequence[str]]:
    """Shares of decodes under a large read, as it was, and under the fastest read of their size."""
    yield ["card", "bytes", "cases", "mean share of a large read", "highest", "mean share of their size", "highest"]
    for of in records:
        lines = [line for line in of.lines if line["kind"] == "decode" and "ratio" in line]
        for low, high in SIZES:
            some = [line for line in lines if low <= line["bytes"] < high]
            if some:
                large = [line["bytes"] / line["ours"] / of.run["large_read"] for line in some]
                own = [line["ratio"] for line in some]
                means = [text for each in (large, own) for text in (statistics.fmean(each), max(each))]
                size = f"from {low >> 20} MiB" + (f" to {high >> 20}" if high < 1 << 60 else "")
                yield [of.run["device"], size, str(len(some)), *(f"{value:.3f}" for value in means)]
