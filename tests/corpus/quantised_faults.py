"""Plants faults at every shape of the gates of 4- and 8-bit kernels: `python -m tests.corpus.quantised_faults`.

Nothing is timed. At each shape the honest answer must be right, and so must be that of `cuda_llm_ops`; every fault must
be WRONG. The record has a line for each shape and fault, and a row for each family and fault.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from perfsuite.oracle import check
from perfsuite.oracle.effort import on_adversarial_values
from perfsuite.problems import Decode, Fp8Gemm, GroupedGemm, Inputs, WeightOnlyGemm
from perfsuite.record.fingerprint import environment

from .planted import FAULTS, RIGHT, Fault

FAMILIES = tuple(FAULTS)
GATES = "tests.perf.hopper"
SHOWN = ("gpu", "torch", "commit", "dirty")


def weight_only() -> Iterator[WeightOnlyGemm]:
    gates = import_module(f"{GATES}.test_weight_only")
    for case in (*gates.FEW, *gates.FEW_INT8):
        yield case.values[0]
    for n, k in gates.LAYERS:
        for m in (1, 16, 64, 256, 512):
            yield from (WeightOnlyGemm(m, n, k, bits=bits) for bits in (4, 8))
        yield WeightOnlyGemm(64, n, k, zeros=True)


def decode() -> Iterator[Decode]:
    gates = import_module(f"{GATES}.test_decode_quantised")
    for case in gates.CASES:
        batch, heads, kv_heads, length, page_size = case.values
        for cache in ("float8_e4m3fn", "int8"):
            for scales in ("head", "token"):
                words = {"page_size": page_size, "cache_dtype": cache, "cache_scales": scales}
                yield Decode(batch, heads, length, 128, kv_heads=kv_heads, **words)


def fp8() -> Iterator[Fp8Gemm]:
    gates = import_module(f"{GATES}.test_fp8")
    for m, n, k in (*gates.SQUARES, *gates.LAYERS):
        yield from (Fp8Gemm(m, n, k, scales=scales) for scales in ("tensor", "row", "block"))
        yield Fp8Gemm(m, n, k, fast_sums=True)
        if k >= 16384:
            yield Fp8Gemm(m, n, k, out_dtype="float32")
    yield from (Fp8Gemm(m, n, k, scales="row") for n, k in gates.WEIGHTS for m in (1, 16, 64))


def grouped() -> Iterator[GroupedGemm]:
    gates = import_module(f"{GATES}.test_fp8")
    for marked in ("test_groups", "test_uneven_groups"):
        for mark in getattr(gates, marked).pytestmark:
            if mark.name == "parametrize" and mark.args[0] == ("groups", "rows", "n", "k"):
                for shape in (case.values for case in mark.args[1]):
                    yield from (GroupedGemm(*shape, scales=scales) for scales in ("row", "block"))
                    yield from (GroupedGemm(*shape, scales=scales, masked=True) for scales in ("row", "block"))


SHAPES = dict(zip(FAMILIES, (weight_only, decode, fp8, grouped), strict=True))
OURS = {"weight-only-gemm": "weight_only_gemm", "decode": "flash_decode", "fp8-gemm": "fp8_gemm"}
OURS["grouped-gemm"] = "fp8_grouped_gemm"


def shapes(family: str, *, small: bool = False) -> list[Any]:
    """The problems of a family's gates, the ones with few bytes first; small: of sizes that a CPU can judge."""
    found = dict.fromkeys(SHAPES[family]())
    if small:
        found = dict.fromkeys(map(shrunk, found))
    return sorted(found, key=lambda problem: problem.bytes)


def shrunk(problem: Any) -> Any:
    """The same with small sizes, and enough results for one draw to judge them."""
    if isinstance(problem, Decode):
        page = problem.page_size and min(problem.page_size, 16)
        return replace(problem, batch=2, heads=16, kv_heads=2, length=64, page_size=page)
    sizes = {"m": 64, "rows": 16, "groups": 4, "n": 128, "k": 1024}
    return replace(problem, **{name: size for name, size in sizes.items() if hasattr(problem, name)})


@dataclass(frozen=True)
class Line:
    """The fate of one fault at one shape."""

    family: str
    shape: str
    fault: str
    caught: bool
    inputs: str
    """The distribution on which it is WRONG, or the last one that was tried."""
    reason: str
    distance: float | None
    """The error over the limit, of the whole result; None if the form was wrong."""


class Judge:
    """Judges answers of one problem, each distribution drawn once.

    Raises ValueError where the honest answer, or that of `cuda_llm_ops`, is wrong on inputs that are drawn.
    """

    def __init__(self, problem: Any, device: str, seed: int = 0) -> None:
        self.problem, self.device, self.seed = problem, device, seed
        self._drawn: dict[str, tuple[Inputs, Any]] = {}

    def distributions(self, fault: Fault) -> Sequence[str]:
        """As a gate examines: ordinary inputs, and hard ones of problems that are not too large."""
        if fault.distribution != "normal" or not on_adversarial_values(self.problem, self.device):
            return (fault.distribution,)
        return ("normal", *self.problem.hard_distributions)

    def on(self, distribution: str) -> tuple[Inputs, Any]:
        """Inputs, and the library's answer."""
        if distribution not in self._drawn:
            problem = self.problem
            generator = torch.Generator(self.device).manual_seed(self.seed)
            inputs = problem.inputs(generator, distribution=distribution)
            expected = inputs.call(problem.library())
            self._drawn[distribution] = inputs, expected
            honest = RIGHT[problem.family](problem, inputs.args, inputs.kwargs)
            for who, answer in (("the honest answer", honest), ("cuda_llm_ops", ours_on(problem, inputs))):
                found = check(problem, inputs, answer, expected, distribution=distribution, whole=False)
                if not found.ok:
                    raise ValueError(f"{who} at {problem.name}, {distribution} inputs: {found.sentence}")
        return self._drawn[distribution]

    def line(self, name: str, fault: Fault) -> Line:
        """The first distribution on which the fault is WRONG, or the last one."""
        problem = self.problem
        for distribution in self.distributions(fault):
            inputs, expected = self.on(distribution)
            answer = fault.answer(problem, inputs.args, inputs.kwargs)
            found = check(problem, inputs, answer, expected, distribution=distribution, whole=False)
            if not found.ok:
                break
        far = found.candidate_error / found.limit if found.candidate_error is not None and found.limit else None
        return Line(problem.family, problem.name, name, not found.ok, distribution, str(found.reason), far)


def judged(problem: Any, device: str) -> Iterator[Line]:
    """Every fault of a problem."""
    judge = Judge(problem, device)
    for name, fault in FAULTS[problem.family].items():
        if fault.fits(problem):
            yield judge.line(name, fault)


def ours_on(problem: Any, inputs: Inputs) -> Any:
    import cuda_llm_ops

    return inputs.call(getattr(cuda_llm_ops, OURS[problem.family]))


def rows(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """One of each family and fault, for a table."""
    found = []
    for family, fault in dict.fromkeys((line.family, line.fault) for line in lines):
        own = [line for line in lines if (line.family, line.fault) == (family, fault)]
        least = min((line.distance for line in own if line.distance is not None), default=None)
        first = FAULTS[family][fault].distribution
        found.append(
            {
                "family": family,
                "fault": fault,
                "shapes": len(own),
                "WRONG": sum(line.caught for line in own),
                "only on hard inputs": sum(line.inputs != first for line in own),
                "least error, in limits": "-" if least is None else f"{least:.3g}",
            }
        )
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--family", nargs="+", choices=FAMILIES, default=FAMILIES, help="only these families")
    parser.add_argument("--small", action="store_true", help="small sizes, which a CPU can judge")
    parser.add_argument("--seconds", type=float, default=600.0, help="begin no further shape after these")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the record")
    parser.add_argument("--part", type=int, nargs=2, default=(0, 1), metavar=("I", "N"), help="every Nth shape, from I")
    parser.add_argument("--join", type=Path, nargs="+", default=[], metavar="FILE", help="add other records' shapes")
    given = parser.parse_args(arguments)
    others = [json.loads(file.read_text()) for file in given.join]
    lines = list(dict.fromkeys(Line(**line) for other in others for line in other["faults"]))
    known = {(line.family, line.shape) for line in lines}
    about = asdict(environment(Path(__file__).parents[2], device=given.device))
    commits = dict.fromkeys(str(other["environment"]["commit"])[:10] for other in others)
    older = ", ".join(one for one in commits if one != str(about["commit"])[:10])

    left = 0

    def save() -> None:
        if given.out:
            shown = {name: about[name] for name in SHOWN} | ({"some of commit": older} if older else {})
            shown |= {"cut at": f"{left} shapes left"} if left else {}
            record = {"environment": shown, "rows": rows(lines), "faults": [asdict(one) for one in lines]}
            given.out.parent.mkdir(parents=True, exist_ok=True)
            given.out.write_text(json.dumps(record, indent=1) + "\n")

    start, failed = time.monotonic(), 0
    for family in given.family:
        for problem in shapes(family, small=given.small)[given.part[0] :: given.part[1]]:
            if (family, problem.name) in known:
                continue
            if time.monotonic() - start > given.seconds:
                left += 1
                continue
            began = time.monotonic()
            with torch.no_grad():
                try:
                    own = list(judged(problem, given.device))
                except (ValueError, RuntimeError) as error:
                    failed += 1
                    print(f"{family} {problem.name}: {error}"[:400], flush=True)
                    continue
            lines += own
            missed = [f"{line.fault} ({line.distance})" for line in own if not line.caught]
            told = f"{len(own)} faults, {len(own) - len(missed)} WRONG, {time.monotonic() - began:.1f} s"
            print(f"{family:17}{problem.name:70} {told} {', '.join(missed)}", flush=True)
            if given.device == "cuda":
                torch.cuda.empty_cache()
            save()
    save()
    caught = sum(line.caught for line in lines)
    print(f"{caught} of {len(lines)} faults are WRONG; {failed} shapes failed, {left} were left out for time")
    return int(caught < len(lines) or failed > 0 or left > 0)


if __name__ == "__main__":
    sys.exit(main())
