"""Launches of attention's backward one after the other: they must give the same bits.

    python -m tests.ops.repeated --out records/h200/repeated-backward.json
    python -m tests.ops.repeated --part 0 2 --out half.json           # every second case
    python -m tests.ops.repeated --join half.json other.json --out all.json

Every instance that promises the same bits has cases here: all but those that add up the gradient of q in free order,
whose gradients of k and v are held to it where no query heads share a key head. The exit code is 1 if a launch gave
other bits, if there was too little time, or if an instance that the device can choose was not launched.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from cuda_llm_ops.levers import origin, whole
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent))  # the cases are imported by their own names, as under pytest

import backward_cases as cases
import sanitized

SIZES = ((64, 64), (96, 96), (128, 128), (192, 128), (192, 192), (256, 256))
LENGTH = 500
FREE_ORDER = re.compile(r"sm90_backward_d\d+(_of_\d+)?_b?float16(_window|_packed)?")
"""Names of the instances that add up in free order. With a window, deterministic calls take those of every card."""


def differing(call: Callable[..., Sequence[Tensor]], operands: Sequence[Tensor], launches: int) -> int:
    """How many of so many launches gave other bits than the first, for the same values at two places.

    Memory is busy between, so that blocks meet in other orders.
    """
    elsewhere = [tensor.clone() for tensor in operands]
    device = operands[0].device
    first, busy = call(*operands), torch.empty(1 << 25 if device.type == "cuda" else 1, device=device)
    others = torch.zeros((), dtype=torch.int64, device=device)
    for launch in range(launches):
        if launch % 3 == 0:
            busy.fill_(launch)
        found = call(*(elsewhere if launch % 2 else operands))
        unequal = [(a.view(torch.int16) != b.view(torch.int16)).any() for a, b in zip(found, first, strict=True)]
        others += torch.stack(unequal).any()
    return int(others)


@dataclass(frozen=True)
class Repeat:
    """A backward; deterministic, all three gradients, or in free order those of k and v."""

    form: str
    dtype: torch.dtype
    size: tuple[int, int]
    deterministic: bool = True

    @property
    def name(self) -> str:
        order = "" if self.deterministic else ", free order"
        return f"{self.size[0]}/{self.size[1]} {self.form} {str(self.dtype)[6:]}{order}"

    def case(self) -> cases.Case:
        heads = (8, 2) if self.deterministic else (4, 4)
        packed = self.form == "packed"
        lengths = [LENGTH, 3, 0, 170] if packed else [LENGTH]
        left = 200 if self.form == "window" else -1
        right = -1 if self.form == "full" else 0
        return cases.Case(
            self.dtype, 1 if packed else 2, *heads, lengths, lengths, *self.size, left, right, packed=packed,
            deterministic=self.deterministic,
        )  # fmt: skip

    def call(self, device: str) -> tuple[Callable[..., Sequence[Tensor]], list[Tensor]]:
        """The operator, of the tensors that follow it."""
        case = self.case()
        made = cases.make(case, device)
        options = False, case.scale, self.deterministic, False, case.left, case.right
        tensors = [made.d_out, made.q, made.k, made.v, made.out, made.lse]
        operator, offsets = torch.ops.cuda_llm_ops.flash_attention_backward.default, ()
        if case.packed:
            operator = torch.ops.cuda_llm_ops.flash_attention_varlen_backward.default
            tensors = [cases.packed(one) for one in tensors[:5]] + [made.lse[0]]
            offsets = cases.offsets_of(case, device)
        first = 0 if self.deterministic else 1
        return lambda *given: operator(*given, *offsets, *options)[first:], tensors


def repeats() -> list[Repeat]:
    halves = torch.float16, torch.bfloat16
    forms = "full", "causal", "window", "packed"
    found = [Repeat(form, dtype, size) for size in SIZES for dtype in halves for form in forms]
    found += [Repeat(form, torch.float32, size) for size in ((64, 64), (128, 128), (256, 256)) for form in forms]
    # Wider packed sequences have the same kernels in either order.
    in_free_order = {size: forms if size[0] <= 128 else forms[:3] for size in SIZES}
    return found + [
        Repeat(form, dtype, size, False) for size in SIZES for dtype in halves for form in in_free_order[size]
    ]


def coverage() -> dict[str, tuple[int, int]]:
    """Of the instances that promise the same bits, and of those in free order: how many the cases launch, and how many
    the device can choose."""
    import cuda_llm_ops

    def once(one: Repeat) -> sanitized.Call:
        call, operands = one.call("cuda")
        return lambda: call(*operands) and None

    shared_bytes = torch.cuda.get_device_properties("cuda").shared_memory_per_block_optin
    own = [one for one in map(dict, cuda_llm_ops.kernel_attributes()) if one["family"] == "flash_attention_backward"]
    free = [bool(FREE_ORDER.fullmatch(one["name"])) for one in sanitized.choosable(own, shared_bytes)]
    counted = {}
    for name, of in (("deterministic instances", False), ("instances in free order", True)):
        launched = sanitized.launched([(one.name, once(one)) for one in repeats() if one.deterministic is not of])
        counted[name] = len(launched), free.count(of)
    return counted


def rows(found: dict[Repeat, int], launches: int) -> Iterator[dict[str, Any]]:
    for dtype in dict.fromkeys(one.dtype for one in found):
        for deterministic in (True, False):
            own = {r: others for r, others in found.items() if (r.dtype, r.deterministic) == (dtype, deterministic)}
            if own:
                yield {
                    "dtype": str(dtype)[6:],
                    "gradients": "all" if deterministic else "of k and v, free order",
                    "cases": len(own),
                    "launches of each": launches,
                    "with other bits": sum(own.values()),
                }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--launches", type=whole(1), default=1500, metavar="N", help="of each case (default: 1500)")
    parser.add_argument("--seconds", type=float, default=60.0, help="begin no further case after these (default: 60)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the record")
    parser.add_argument(
        "--part", type=int, nargs=2, metavar=("I", "N"), default=(0, 1), help="every Nth case, from I on"
    )
    parser.add_argument("--join", type=Path, nargs="+", default=[], metavar="FILE", help="add cases of other records")
    given = parser.parse_args(arguments)
    start, all_of_them = time.monotonic(), repeats()
    known = {name: others for file in given.join for name, others in json.loads(file.read_text())["cases"].items()}
    found = {one: known[one.name] for one in all_of_them if one.name in known}
    mine = all_of_them[given.part[0] :: given.part[1]]
    for one in mine:
        if one in found:
            continue
        if time.monotonic() - start > given.seconds:
            break
        call, operands = one.call(given.device)
        found[one] = differing(call, operands, given.launches)
        if found[one]:
            print(f"OTHER BITS {one.name}: {found[one]} of {given.launches} launches", flush=True)
    counted = coverage() if given.device == "cuda" else {}
    environment = origin(given.device)
    environment |= {name: f"{launched} launched of {built}" for name, (launched, built) in counted.items()}
    if left := [one for one in mine if one not in found]:
        environment["cut at"] = f"{len(mine) - len(left)} of {len(mine)} cases"
    made = list(rows(found, given.launches))
    for row in made:
        print("  ".join(f"{name} {value}" for name, value in row.items()))
    print(f"{len(found)} of {len(all_of_them)} cases in {time.monotonic() - start:.0f} s; {counted}")
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        cases_of = {one.name: others for one, others in found.items()}
        given.out.write_text(json.dumps({"environment": environment, "rows": made, "cases": cases_of}, indent=1) + "\n")
    whole_of_it = len(found) == len(all_of_them) and all(launched == built for launched, built in counted.values())
    return 0 if whole_of_it and not any(found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
