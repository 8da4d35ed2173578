"""Counters of attention's backward and of its rivals under ncu: python -m records.counters --output FILE.

Each row is the longest kernel of one call: its time under ncu with empty caches, that of the call's other kernels,
shares of the peak, and for what its warps wait longest. Clocks stay as they are. `perfsuite counters` says the same of
one call. Some programs of ncu run at once, since to start one takes longer than to count; ncu lets one at a time count.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from perfsuite.analyze.counters import Kernel
from perfsuite.cli.commands import counters
from perfsuite.cli.programs import find_ncu
from perfsuite.outcome import UserError
from perfsuite.record.atomic_write import write_whole

FREE, IN_TURN, CUDNN, FLASH = "free order", "in turn", "cuDNN", "FlashAttention-4"
CANDIDATES = {
    FREE: "cuda_llm_ops:flash_attention",
    IN_TURN: "records.counters:in_turn",
    CUDNN: "sdpa:cudnn",
    FLASH: "flash-attn",
}
CASES = {
    "2x64/8x8192x128 bfloat16 backward": (FREE, IN_TURN, CUDNN, FLASH),
    "2x64/8x8192x128 bfloat16 causal backward": (FREE, IN_TURN, FLASH),
    "2x8x8192x64 bfloat16 backward": (FREE, FLASH),
    "2x8x8192x64 bfloat16 causal backward": (FREE, FLASH),
    "4x8x8192x192 bfloat16 backward": (FREE, FLASH),
    "4x16x8192x192/128 bfloat16 causal backward": (FREE, CUDNN, FLASH),
    "4x8x8192x256 bfloat16 backward": (FREE, IN_TURN),
    "4x16x8192x128 bfloat16 window 256,256 backward": (FREE, FLASH),
    "4x16x8192x64 bfloat16 causal window 127,0 backward": (FREE, FLASH),
    "4x16x512x64 bfloat16 backward": (FREE, FLASH),
    "4x16x512x128 bfloat16 backward": (FREE, CUDNN, FLASH),
}
MOST_KERNELS, LIMIT_SECONDS, BESIDE = 8, 120.0, 4


def in_turn(*operands: Any, **options: Any) -> Any:
    """This project's attention, whose backward gives the same bits at every launch, as all of its process now do."""
    import torch
    from cuda_llm_ops import flash_attention

    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # no part of it
    torch.use_deterministic_algorithms(True)
    return flash_attention(*operands, **options)


def row_of(case: str, side: str, kernels: Sequence[Kernel]) -> dict[str, Any]:
    """The row of a call with these kernels."""
    longest = max(kernels, key=lambda one: one.seconds)
    others = sum(one.seconds for one in kernels) - longest.seconds
    waits = ", ".join(f"{reason} {cycles:.2g}" for reason, cycles in longest.stalls[:4])
    return {
        "problem": case.removesuffix(" backward").replace(" bfloat16", ""),
        "kernel": side,
        "us": f"{longest.seconds * 1e6:.0f}",
        "others, us": f"{others * 1e6:.0f}",
        "tensor cores": counters.share_text(longest.tensor_share),
        "SMs": counters.share_text(longest.compute_share),
        "memory": counters.share_text(longest.memory_share),
        "L2 hits": counters.share_text(longest.l2_hit_rate),
        "registers": longest.registers or "?",
        "waits, cycles an instruction": waits or "none",
    }


def counted(ncu: str, case: str, side: str, kept: Path | None) -> dict[str, Any]:
    """The row of a call, counted. UserError if ncu gives no counters. kept: a folder for its output."""
    name = "-".join([*case.replace("/", "of").replace(",", "-").split(), *side.split()])
    given = argparse.Namespace(
        workload=f"attention {case}", candidate=CANDIDATES[side], kernel=None, most=MOST_KERNELS,
        timeout=LIMIT_SECONDS, csv=kept and kept / f"{name}.csv",
    )  # fmt: skip
    return row_of(case, side, counters.count(ncu, given))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="the record")
    parser.add_argument("--seconds", type=float, default=300.0, help="begin no further case after these (default: 300)")
    parser.add_argument("--csv", type=Path, metavar="FOLDER", help="also keep what ncu prints")
    given = parser.parse_args(arguments)
    begun, ncu = time.monotonic(), find_ncu()
    if given.csv is not None:
        given.csv.mkdir(parents=True, exist_ok=True)
    asked = [(case, side) for case, sides in CASES.items() for side in sides]

    def one(at: tuple[str, str]) -> dict[str, Any] | str | None:
        if time.monotonic() - begun > given.seconds:
            return None
        try:
            return counted(ncu, *at, given.csv)
        except UserError as error:
            return str(error)

    rows, failed = [], 0
    with ThreadPoolExecutor(BESIDE) as some:
        for (case, side), found in zip(asked, some.map(one, asked), strict=True):
            if isinstance(found, dict):
                rows.append(found)
                print("  ".join(f"{name} {value}" for name, value in found.items()), flush=True)
            elif found is not None:
                failed += 1
                print(f"{case}, {side}: {found}", file=sys.stderr, flush=True)
    if rows:
        from cuda_llm_ops.levers import origin

        environment = origin("cuda")
        if len(rows) < len(asked):
            environment["cut at"] = f"{len(rows)} of {len(asked)} calls"
        write_whole(given.output, json.dumps({"environment": environment, "rows": rows}, indent=1) + "\n")
    print(f"{len(rows)} of {len(asked)} calls in {time.monotonic() - begun:.0f} s, {failed} failed")
    return 0 if len(rows) == len(asked) else 1


if __name__ == "__main__":
    sys.exit(main())
