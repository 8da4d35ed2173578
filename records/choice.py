"""Make ext/cuda_llm_ops/choose_table.py from records/h200/choice.jsonl: `python records/choice.py [--check]`.

The record comes from three runs of `perfsuite bench attention --candidate cuda_llm_ops:KERNEL_attention`, one a kernel.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "records" / "h200" / "choice.jsonl"
TABLE = ROOT / "ext" / "cuda_llm_ops" / "choose_table.py"
KERNELS = ("naive", "tiled", "flash")
HEAD = '''"""Seconds of a call of each attention kernel by length. Made by records/choice.py from a record: do not edit.

{origin}
"""

from __future__ import annotations

H200: tuple[tuple[int, float, float, float], ...] = (
    # length, naive, tiled, flash
'''


def made(lines: list[str]) -> str:
    """The table's source. Raises ValueError where the record lacks a kernel at a length, or has several shapes."""
    times: dict[int, dict[str, float]] = defaultdict(dict)
    shapes, origins = set(), set()
    for case in map(json.loads, lines):
        params = case["params"]
        kernel = case["candidate"].rpartition(".")[2].removesuffix("_attention")
        if case["verdict"] != "MET":
            raise ValueError(f"{case['case']} is {case['verdict']}")
        times[params["seq_kv"]][kernel] = case["candidate_seconds"]
        shapes.add((params["batch"], params["heads"], params["head_dim"], params["dtype"], params["causal"]))
        origins.add((case["gpu"], case["torch"]))
    if len(shapes) != 1 or len(origins) != 1:
        raise ValueError(f"{RECORD.name} has {len(shapes)} shapes of {len(origins)} machines; it must have one of each")
    [(batch, heads, head_dim, dtype, causal)], [(gpu, torch)] = shapes, origins
    mask = "causal" if causal else "full"
    origin = (
        f"One {gpu}, torch {torch}, {dtype}, batch {batch}, {heads} heads of {head_dim}, {mask}; inputs not in the L2."
    )
    rows = []
    for length, found in sorted(times.items()):
        if missing := [kernel for kernel in KERNELS if kernel not in found]:
            raise ValueError(f"{RECORD.name} has no {', '.join(missing)} at length {length}")
        rows.append(f"    ({length}, {', '.join(f'{found[kernel]:.4g}' for kernel in KERNELS)}),\n")
    return HEAD.format(origin=origin) + "".join(rows) + ")\n"


def main(arguments: list[str]) -> int:
    """Write the table, or say whether it is as the record says."""
    source = made(RECORD.read_text(encoding="utf-8").splitlines())
    if arguments == ["--check"]:
        same = TABLE.is_file() and TABLE.read_text(encoding="utf-8") == source
        print(f"{TABLE.name}: {'as the record says' if same else 'out of date; run python records/choice.py'}")
        return 0 if same else 1
    TABLE.write_text(source, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
