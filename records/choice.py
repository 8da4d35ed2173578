"""Make ext/cuda_llm_ops/choose_table.py from the record of an H200: `python records/choice.py [--check]`.

The record is records/h200/choice.jsonl (runs of `perfsuite bench attention --candidate cuda_llm_ops:KERNEL_attention
--output`, one a kernel, in one file) where it is there, else the gates'.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RECORDS = (ROOT / "records" / "h200" / "choice.jsonl", ROOT / "records" / "h200" / "gates.jsonl")
TABLE = ROOT / "ext" / "cuda_llm_ops" / "choose_table.py"
KERNELS = ("naive", "tiled", "flash")
HEAD = '''"""Seconds of a call of each attention kernel by length. Made by records/choice.py: do not edit.

From {record}: one {gpu}, torch {torch}; {dtype}, batch {batch}, {heads} heads of {head_dim},
full attention; inputs not in the L2.
"""

from __future__ import annotations

H200: tuple[tuple[int, float, float, float], ...] = (
    # length, naive, tiled, flash
'''


def record() -> Path:
    """The record that the table is made from."""
    return next(path for path in RECORDS if path.is_file())


def times(cases: Iterable[dict[str, Any]]) -> tuple[dict[str, Any], dict[int, dict[str, float]]]:
    """A shape and its seconds, length -> kernel -> seconds, of the lengths at which all three kernels were timed.

    The shape is the one with most such lengths. Raises ValueError where there is none.
    """
    found: dict[tuple[Any, ...], dict[int, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for case in cases:
        params = case["params"]
        kernel = case["candidate"].rpartition(".")[2].removesuffix("_attention")
        plain = case["family"] == "attention" and not params["causal"] and params["seq_q"] == params["seq_kv"]
        if plain and kernel in KERNELS and case["candidate_seconds"]:
            shape = tuple(params[name] for name in ("batch", "heads", "head_dim", "dtype"))
            found[(*shape, case["gpu"], case["torch"])][params["seq_kv"]][kernel] = case["candidate_seconds"]
    whole = {
        shape: {length: one for length, one in by_length.items() if len(one) == len(KERNELS)}
        for shape, by_length in found.items()
    }
    best = max(whole, key=lambda shape: len(whole[shape]), default=None)
    if best is None or not whole[best]:
        raise ValueError("the record has no length at which all three kernels were timed")
    return dict(zip(("batch", "heads", "head_dim", "dtype", "gpu", "torch"), best, strict=True)), whole[best]


def made() -> str:
    """The table's source."""
    path = record()
    shape, found = times(json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    rows = [
        f"    ({length}, {', '.join(f'{one[kernel]:.4g}' for kernel in KERNELS)}),\n"
        for length, one in sorted(found.items())
    ]
    return HEAD.format(record=path.relative_to(ROOT), **shape) + "".join(rows) + ")\n"


def main(arguments: list[str]) -> int:
    """Write the table, or say whether it is as the record says."""
    source = made()
    if arguments == ["--check"]:
        same = TABLE.is_file() and TABLE.read_text(encoding="utf-8") == source
        print(f"{TABLE.name}: {'as the record says' if same else 'out of date; run python records/choice.py'}")
        return 0 if same else 1
    TABLE.write_text(source, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
