"""Random calls of the 4- and 8-bit kernels, of decode and of attention's backward, and errors over a plain kernel's.

    python -m tests.ops.random_errors --configurations 2000 --out records/h200/random-errors.json
    python -m tests.ops.random_errors --family decode --part 0 2 --out half.json     # every second call
    python -m tests.ops.random_errors --seconds 0 --join half.json other.json --out all.json

Each call is judged against float64 on the values that its operands stand for. The plain kernel is torch's product or
attention in float32 on these values; of FP8 products it is torch's own, promoted every 128 of k; of 16-bit caches and
of gradients it is SDPA in the same dtype. A ratio of errors says something where a call has at least 1024 results. It
is a ratio of configurations, not of draws: where one draw is above 1.2, the configuration is drawn 26 times more,
and the ratio is that of the root mean squares of the errors of all its draws. Where few rows decide the error,
kernels with equal roundings are above 1.2 in up to 12 % of the draws (docs/ladder-backward.md). The record has a row
for each kind of call, and every call that is wrong or whose ratio is above 1.2. The exit code is 1 if there is one.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import cuda_llm_ops
import torch
from torch import Tensor

from perfsuite.oracle.measures import measure
from perfsuite.problems import Fp8Gemm, GroupedGemm, Inputs, WeightOnlyGemm
from perfsuite.problems.fp8 import BLOCK, values_of
from perfsuite.record.fingerprint import environment
from tests.ops.random_backward import backward
from tests.ops.random_calls import Drawer, Found, pairs_of, ratio_of
from tests.ops.random_decode import decode, decode_16

MOST_RATIO = 1.2
DRAWS = 27
"""Of a configuration whose first ratio is above MOST_RATIO. The number is fixed: to draw until the ratio is small
enough would hide a kernel that is slightly worse than the library."""
AS_THE_LIBRARY = ("fp8-gemm", "grouped-gemm")
"""A tensor core cuts 32 products off at a fraction of the largest. Where terms differ much, one result may be further
off than is promised, as torch's own promoted sums then are too: MOST_RATIO times their error is right."""
SHOWN = ("gpu", "torch", "commit", "dirty")
HARD = ("normal", "normal", "dominant", "constant-rows", "cancellation", "heavy-tails")


def judged(
    kind: str, problem: Any, inputs: Inputs, exact: tuple[Tensor, Tensor], call: tuple[Callable[..., Any], float, str]
) -> Found:
    """exact: the product in float64, and that of magnitudes. call: the operator, the bits that its sums keep of the
    latter, and the distribution of its operands."""
    operator, bits, distribution = call
    out, (right, size) = inputs.call(operator), exact
    library = inputs.call(problem.library())
    info = torch.finfo(out.dtype)
    eps = info.eps if out.dtype != torch.float32 else 0.0
    allowed = 0.51 * eps * right.abs() + 2.0**-bits * size + info.smallest_normal * info.eps
    if problem.family in AS_THE_LIBRARY:
        allowed = torch.maximum(allowed, MOST_RATIO * (library.double() - right).abs())
    # A sum so near to the largest number may also be rounded to infinity.
    finite = right.abs() + allowed < info.max
    share = float(torch.where(finite, (out.double() - right).abs() / allowed, 0.0).max())
    found = measure(out, right, library)
    errors = pairs_of(found.frobenius, found.library_frobenius, out.numel())
    said = f"{share:.3g} of what is allowed at the worst element, {found.frobenius:.2e} of the whole"
    return Found(kind, f"{problem.name}, {distribution}", share <= 1.0, said, ratio_of(errors), errors)


def product(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    return left @ right, left.abs() @ right.abs()


def promoted_bits(device: str) -> float:
    """`fp8_gemm` promises sums that are off by 0.2 % of the magnitudes on a GPU; on a CPU, as `fp8_cases` has it."""
    return -math.log2(0.002) if device == "cuda" else 15.9


def weight_only(draw: Drawer) -> Found:
    pick = draw.choice.choice
    bits, group, dtype = pick((4, 4, 8)), pick((64, 128)), pick(("float16", "bfloat16"))
    depth = group if bits == 4 else 64
    k = depth * max(1, draw.size(1, 4 * draw.most // depth))
    zeros = bits == 4 and pick((False, True))
    m, n = draw.size(1, min(512, draw.most)), draw.size(1, 2 * draw.most)
    problem = WeightOnlyGemm(m, n, k, bits=bits, group=group, zeros=zeros, dtype=dtype)
    distribution = pick(HARD)
    x, *weights = problem.inputs(draw.generator, distribution=distribution).args
    inputs = Inputs((draw.strided(x), *weights))
    exact = product(x.double(), problem.values(inputs, torch.float64))
    call = cuda_llm_ops.weight_only_gemm, 20.0, distribution
    return judged(f"int{bits}, {dtype}", problem, inputs, exact, call)


def fp8(draw: Drawer) -> Found:
    pick = draw.choice.choice
    scales, out = pick(("tensor", "row", "mixed", "block")), pick(("bfloat16", "float16", "float32"))
    m = draw.size(1, pick((64, draw.most)))
    words = {"scales": "row" if scales == "mixed" else scales, "out_dtype": out}
    problem = Fp8Gemm(m, draw.size(), draw.size(1, 4 * draw.most), a_dtype=pick(E4M3_OR_E5M2), **words)
    distribution = pick(HARD)
    drawn = problem.inputs(draw.generator, distribution=distribution)
    a, b, scale_a, scale_b = drawn.args
    if scales == "mixed":
        scale_b = scale_b.mean()
    inputs = Inputs((draw.strided(a), draw.strided(b), scale_a, scale_b), drawn.kwargs)
    exact = product(values_of(a, scale_a, 1, torch.float64), values_of(b, scale_b, BLOCK, torch.float64).T)
    call = cuda_llm_ops.fp8_gemm, promoted_bits(draw.device), distribution
    return judged(f"{scales}, {_wide(out)}", problem, inputs, exact, call)


def grouped(draw: Drawer) -> Found:
    pick = draw.choice.choice
    words: dict[str, Any] = {"masked": pick((False, True)), "scales": pick(("tensor", "row", "block"))}
    out = pick(("bfloat16", "float16", "float32"))
    sizes = draw.size(1, 8), draw.size(1, draw.most // 4), draw.size(), draw.size(1, 2 * draw.most)
    problem = GroupedGemm(*sizes, a_dtype=pick(E4M3_OR_E5M2), out_dtype=out, **words)
    distribution = pick(HARD)
    drawn = problem.inputs(draw.generator, distribution=distribution)
    inputs = Inputs((draw.strided(drawn.args[0]), *drawn.args[1:]), drawn.kwargs)
    a, b, scale_a, scale_b, groups = inputs.args
    exact = tuple(torch.zeros((*a.shape[:-1], problem.n), dtype=torch.float64, device=draw.device) for _ in range(2))
    for group, part in enumerate(problem.parts(groups)):
        of_rows = scale_a[part] if scale_a.dim() else scale_a
        left = values_of(a[part], of_rows, 1, torch.float64)
        exact[0][part], exact[1][part] = product(left, values_of(b[group], scale_b[group], BLOCK, torch.float64).T)
    kind = f"{words['scales']}{', masked' if words['masked'] else ''}, {_wide(out)}"
    call = cuda_llm_ops.fp8_grouped_gemm, promoted_bits(draw.device), distribution
    return judged(kind, problem, inputs, (exact[0], exact[1]), call)


E4M3_OR_E5M2 = ("float8_e4m3fn", "float8_e5m2")


def _wide(out: str) -> str:
    return "float32" if out == "float32" else "16 bits"


FAMILIES: dict[str, Callable[[Drawer], Found]] = {
    "weight-only-gemm": weight_only,
    "decode": decode,
    "decode-16": decode_16,
    "fp8-gemm": fp8,
    "grouped-gemm": grouped,
    "backward": backward,
}


def calls(family: str, device: str, numbers: Sequence[int], most: int, seed: int, seconds: float) -> Iterator[Found]:
    """Those of these numbers: a call depends on its number, and on no call before it."""
    start = time.monotonic()
    for number in numbers:
        if time.monotonic() - start > seconds:
            return
        draws = [_draw(family, device, most, seed, number, 0)]
        if draws[0].right and (draws[0].ratio or 0.0) > MOST_RATIO:
            draws += [_draw(family, device, most, seed, number, again) for again in range(1, DRAWS)]
        yield pooled(draws)


def _draw(family: str, device: str, most: int, seed: int, number: int, again: int) -> Found:
    choice = random.Random(f"{family} {seed} {number}")
    generator = torch.Generator(device).manual_seed(choice.getrandbits(60) + again)
    with torch.no_grad():
        return FAMILIES[family](Drawer(device, most, choice, generator))


def pooled(draws: Sequence[Found]) -> Found:
    """The first, with the errors of all: where few numbers decide the error, the ratio of one draw is luck.

    The largest of the ratios of several results is taken last: the mean of the largest is above 1 for equal kernels.
    """
    if len(draws) == 1:
        return draws[0]
    wrong = next((one for one in draws if not one.right), None)
    if wrong is not None:
        return wrong
    results = [zip(*result, strict=True) for result in zip(*(one.errors for one in draws), strict=True)]
    errors = tuple((math.hypot(*mine), math.hypot(*plain)) for mine, plain in results)
    ratios = [one.ratio for one in draws if one.ratio]
    told = f"{draws[0].sentence}; {len(draws)} draws, ratios {min(ratios):.3f} to {max(ratios):.3f}"
    return replace(draws[0], ratio=ratio_of(errors), sentence=told, errors=errors, draws=len(draws))


def rows(family: str, found: Sequence[Found]) -> list[dict[str, Any]]:
    """One of each kind, for a table."""
    made = []
    for kind in sorted({one.kind for one in found}):
        own = [one for one in found if one.kind == kind]
        ratios = sorted(one.ratio for one in own if one.ratio is not None)
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else math.nan
        made.append(
            {
                "family": family,
                "kind": kind,
                "calls": len(own),
                "wrong": sum(not one.right for one in own),
                "ratios": len(ratios),
                "mean": f"{mean:.3f}",
                "99 % below": f"{ratios[int(0.99 * (len(ratios) - 1))]:.3f}" if ratios else "-",
                "worst": f"{ratios[-1]:.3f}" if ratios else "-",
                "drawn again": sum(one.draws > 1 for one in own),
                "above 1.2": sum(one > MOST_RATIO for one in ratios),
            }
        )
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--family", nargs="+", choices=tuple(FAMILIES), default=tuple(FAMILIES))
    parser.add_argument("--configurations", type=int, default=2000, metavar="N", help="calls of a family")
    parser.add_argument("--most", type=int, default=1024, metavar="N", help="bounds sizes (default: 1024)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=60.0, help="begin no further call of a family after these")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the record")
    parser.add_argument("--join", type=Path, nargs="+", default=[], metavar="FILE", help="add calls of other records")
    parser.add_argument("--part", type=int, nargs=2, metavar=("I", "N"), help="every Nth call, from I on")
    given = parser.parse_args(arguments)
    about = asdict(environment(Path(__file__).parents[2], device=given.device))
    record: dict[str, Any] = {"environment": {name: about[name] for name in SHOWN}, "rows": [], "told": []}
    joined: dict[str, list[Found]] = {}
    for file in given.join:
        other = json.loads(file.read_text())
        record["told"] += other["told"]
        if (commit := other["environment"]["commit"]) != about["commit"]:
            of_other = dict.fromkeys(one["family"] for one in other.get("calls", other["rows"]))
            record["environment"] |= {f"{family} of commit": str(commit)[:10] for family in of_other}
        for one in other.get("calls", ()):
            call = Found(one["kind"], "", one["right"], "", one["ratio"], draws=one["draws"])
            joined.setdefault(one["family"], []).append(call)
        record["rows"] += [row for row in other["rows"] if "calls" not in other]
    short = False
    first, step = given.part or (0, 1)
    numbers = range(first, given.configurations, step)
    for family in [name for name in FAMILIES if name in given.family or name in joined]:
        start, found = time.monotonic(), list(joined.get(family, ()))
        mine = numbers if family in given.family else ()
        for one in calls(family, given.device, mine, given.most, given.seed, given.seconds):
            found.append(one)
            if not one.right or (one.ratio or 0.0) > MOST_RATIO:
                record["told"].append({"family": family, **asdict(replace(one, errors=()))})
                if not one.right:
                    print(f"WRONG {family} {one.what}: {one.sentence}", flush=True)
        record["rows"] += rows(family, found)
        if given.part is not None:  # whoever joins the parts makes rows of all their calls
            known = [(one.kind, one.right, one.ratio, one.draws) for one in found]
            names = ("kind", "right", "ratio", "draws")
            told = [{"family": family, **dict(zip(names, one, strict=True))} for one in known]
            record.setdefault("calls", []).extend(told)
        if len(found) < len(numbers):
            short = True
            record["environment"][f"{family} cut at"] = f"{len(found)} of {len(numbers)} calls"
        print(f"{family}: {len(found)} calls in {time.monotonic() - start:.0f} s", flush=True)
        for row in rows(family, found):
            print("  " + "  ".join(f"{name} {value}" for name, value in row.items() if name != "family"), flush=True)
        if given.out:
            given.out.parent.mkdir(parents=True, exist_ok=True)
            given.out.write_text(json.dumps(record, indent=1) + "\n")
    return int(short or bool(record["told"]))


if __name__ == "__main__":
    sys.exit(main())
