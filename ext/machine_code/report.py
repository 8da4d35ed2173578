"""The table of a comparison."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePosixPath

from machine_code.comparison import Difference
from machine_code.cubin import Kernel
from machine_code.pairing import Pairs


@dataclass(frozen=True)
class Row:
    """A pair of kernels and what differs between them."""

    old: Kernel
    new: Kernel
    difference: Difference


def print_report(
    rows: list[Row],
    pairs: Pairs,
    names: dict[str, str],
    show_same: bool,
    instruction: Callable[[Kernel, int], str],
) -> bool:
    """Print the table; True if every kernel has an equal one on the other side."""
    different = [row for row in rows if row.difference]
    for row in rows:
        if row.difference or show_same:
            _print_pair(row, names, instruction)
    for word, kernels in (("ONLY OLD", pairs.only_old), ("ONLY NEW", pairs.only_new)):
        for kernel in sorted(kernels, key=lambda kernel: (kernel.source, names[kernel.symbol], kernel.arch)):
            print(f"{word}   {_title(kernel, names)}")
            print(f"    {_figures(kernel)}")
    _print_folders(rows, pairs)
    print(
        f"{len(rows) - len(different)} kernels the same, {len(different)} different, {len(pairs.only_old)} only old, "
        f"{len(pairs.only_new)} only new"
    )
    return not (different or pairs.only_old or pairs.only_new)


def _print_pair(row: Row, names: dict[str, str], instruction: Callable[[Kernel, int], str]) -> None:
    old, new, difference = row.old, row.new, row.difference
    moved = [] if old.source == new.source else [f"    was in {old.source}"]
    if names[old.symbol] != names[new.symbol]:
        moved.append(f"    was {names[old.symbol]}")
    print(f"{'DIFFERENT' if difference else 'SAME'}   {_title(new, names)}", *moved, sep="\n")
    if not difference:
        print(f"    {_figures(new)}")
        return
    print(
        f"    differs in {', '.join(difference.parts)}",
        f"    old: {_figures(old)}",
        f"    new: {_figures(new)}",
        sep="\n",
    )
    if difference.at is not None:
        print(f"    instruction {difference.at}, old: {instruction(old, difference.at)}")
        print(f"    instruction {difference.at}, new: {instruction(new, difference.at)}")


def _title(kernel: Kernel, names: dict[str, str]) -> str:
    return f"sm_{kernel.arch} {names[kernel.symbol]} ({kernel.source})"


def _figures(kernel: Kernel) -> str:
    r = kernel.resources
    return (
        f"{kernel.instructions} instructions, {r.registers} registers, {r.shared} bytes shared, {r.stack} bytes stack, "
        f"{r.spills} bytes spilled"
    )


def _print_folders(rows: list[Row], pairs: Pairs) -> None:
    counts: Counter[tuple[str, str]] = Counter()
    for row in rows:
        counts[_folder(row.new), "different" if row.difference else "same"] += 1
    for word, kernels in (("only old", pairs.only_old), ("only new", pairs.only_new)):
        for kernel in kernels:
            counts[_folder(kernel), word] += 1
    folders = sorted({folder for folder, _ in counts})
    columns = ("same", "different", "only old", "only new")
    width = max((len(folder) for folder in folders), default=0)
    print(f"{'folder':<{width}}", *(f"{column:>9}" for column in columns))
    for folder in folders:
        print(f"{folder:<{width}}", *(f"{counts[folder, column]:>9}" for column in columns))


def _folder(kernel: Kernel) -> str:
    return f"{PurePosixPath(kernel.source).parent} sm_{kernel.arch}"
