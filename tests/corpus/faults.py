"""Plants faults in modules of the corpus and gates them: python -m tests.corpus.faults --device cuda --out FILE.

A fault counts where it moves the result by more than ten times the limit of an honest copy on some input. Every fault
that counts must be WRONG. The record has one line for each module and fault.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import chain, pairwise, zip_longest
from pathlib import Path
from typing import Any

import torch
from torch import nn

from perfsuite.case.run import compare
from perfsuite.outcome import Verdict
from perfsuite.problems import Custom
from perfsuite.problems.tensors import map_tensors, tensors_in
from perfsuite.record.fingerprint import environment
from perfsuite.settings import Settings

from .written import Module, Size, all_modules

MODULES = 30
LIMITS = 10.0
"""Times the limit that a fault must move the result to count."""
FEWEST = 8
"""Faults that must count in each module."""
RANDOM = "sampling"

Call = Callable[..., Any]
Fault = Callable[[nn.Module], Call]


def changed(change: Callable[[torch.Tensor], torch.Tensor]) -> Fault:
    """A fault that changes every tensor of the result."""

    def plant(module: nn.Module) -> Call:
        return lambda *args: map_tensors(module(*args), faulty)

    def faulty(one: torch.Tensor) -> torch.Tensor:
        if one.is_floating_point() and one.element_size() == 1:  # hardly an operator takes float8
            return change(one.float()).to(one.dtype)
        return change(dense(one))

    return plant


def dense(one: torch.Tensor) -> torch.Tensor:
    return one.clone(memory_format=torch.contiguous_format)


def last_block(one: torch.Tensor) -> torch.Tensor:
    if one.numel() > 1:
        flat = one.view(-1)
        flat[-max(1, len(flat) // 8) :] = 0
    return one


def one_row(one: torch.Tensor) -> torch.Tensor:
    rows = one.reshape(-1, one.shape[-1]) if one.dim() else one.reshape(1, 1)
    rows = rows.clone()
    rows[len(rows) // 2] = 0
    return rows.view(one.shape)


def narrower(module: nn.Module) -> Call:
    """Inputs and results rounded to the next narrower dtype, as a kernel that computes in it has them."""
    down = {torch.float64: torch.float32, torch.float32: torch.float16}

    def rounded(one: torch.Tensor) -> torch.Tensor:
        if not one.is_floating_point():
            return one
        return one.to(down.get(one.dtype, torch.float8_e4m3fn)).to(one.dtype)

    return lambda *args: map_tensors(module(*map_tensors(args, rounded)), rounded)


def stale(module: nn.Module) -> Call:
    """The result of the first call, ever after."""
    kept: list[Any] = []

    def call(*args: Any) -> Any:
        now = module(*args)
        kept.append(map_tensors(now, torch.clone)) if not kept else None
        alike = [a.shape == b.shape for a, b in zip(tensors_in(kept[0]), tensors_in(now), strict=True)]
        return map_tensors(kept[0], torch.clone) if all(alike) else now

    return call


def stale_block(module: nn.Module) -> Call:
    """The last eighth of the result is that of the call before."""
    kept: list[Any] = []

    def call(*args: Any) -> Any:
        now = map_tensors(module(*args), dense)
        before = kept.pop() if kept else now
        kept.append(map_tensors(now, dense))
        for one, other in zip(tensors_in(now), tensors_in(before), strict=True):
            if one.shape == other.shape and one.numel() > 1:
                part = max(1, one.numel() // 8)
                one.view(-1)[-part:] = other.view(-1)[-part:]
        return now

    return call


def copied(module: nn.Module) -> Call:
    """The first argument in place of the result, cut or repeated to its size."""

    def call(*args: Any) -> Any:
        source = next(tensors_in(args)).flatten()
        if source.is_complex():
            source = torch.view_as_real(source).flatten()

        def fit(one: torch.Tensor) -> torch.Tensor:
            times = -(-max(one.numel(), 1) // len(source))
            return source.repeat(times)[: one.numel()].to(one.dtype).view(one.shape)

        return map_tensors(module(*args), fit)

    return call


def swapped(module: nn.Module) -> Call:
    """The first two arguments of one shape exchanged; a lone argument with its rows in reverse order."""

    def call(*args: Any) -> Any:
        given = list(args)
        tensors = [place for place, one in enumerate(given) if isinstance(one, torch.Tensor)]
        for one, other in pairwise(tensors):
            if given[one].shape == given[other].shape and given[one].dtype is given[other].dtype:
                given[one], given[other] = given[other], given[one]
                return module(*given)
        given[tensors[0]] = given[tensors[0]].flip(0)
        return module(*given)

    return call


def clipped(module: nn.Module) -> Call:
    """Right for ordinary values alone: large arguments are cut off, as where a row's maximum is not subtracted."""

    def call(*args: Any) -> Any:
        return module(*map_tensors(args, lambda one: one.clamp(-8, 8) if one.is_floating_point() else one))

    return call


FAULTS: dict[str, Fault] = {
    "zeros": changed(torch.zeros_like),
    "first result kept": stale,
    "inverted sign": changed(lambda one: ~one if one.dtype is torch.bool else -one),
    "copied input": copied,
    "dropped last block": changed(last_block),
    "dropped row": changed(one_row),
    "narrower inside": narrower,
    "right for ordinary values alone": clipped,
    "wrong axis": changed(lambda one: one.flip(0) if one.dim() else one + 1),
    "off by one": changed(lambda one: one.roll(1, -1) if one.dim() else one + 1),
    "stale buffer": stale_block,
    "swapped argument": swapped,
}


@dataclass(frozen=True)
class Line:
    """The fate of one fault in one module."""

    module: str
    kind: str
    fault: str
    counts: bool
    """True if the fault moves the result by more than ten times the limit on some input."""
    caught: bool
    reason: str
    distance: float
    """The largest distance from the honest result, in limits."""


def chosen() -> list[Module]:
    """The modules in which faults are planted: the first of every kind, then the second, and so on.

    Random results hide small faults.
    """
    kinds: dict[str, list[Module]] = {}
    for module in all_modules():
        if module.kind != RANDOM:
            kinds.setdefault(module.kind, []).append(module)
    return [module for module in chain(*zip_longest(*kinds.values())) if module is not None][:MODULES]


def planted(module: Module, settings: Settings, size: Size) -> Iterator[Line]:
    """Every fault in one module, gated by the plain call."""
    torch.manual_seed(0)
    model = module.build(*size).to(settings.device).eval()
    inputs = map_tensors(tuple(module.make(*size)), lambda one: one.to(settings.device))
    problem = Custom(inputs, against=model, label=module.name)
    honest = compare(problem, copy.deepcopy(model), settings=settings)
    if honest.verdict is not Verdict.MET:
        raise ValueError(f"an honest copy of {module.name} is {honest.verdict}: {honest.sentence}")
    limit = honest.error_limit or torch.finfo(torch.float32).eps
    for name, plant in FAULTS.items():
        distance = moved(problem, model, plant, settings, limit)
        found = compare(problem, plant(copy.deepcopy(model)), settings=settings)
        caught = found.verdict is Verdict.WRONG
        yield Line(module.name, module.kind, name, distance > LIMITS, caught, str(found.reason), distance)


def moved(problem: Custom, model: nn.Module, plant: Fault, settings: Settings, limit: float) -> float:
    """The largest distance between faulty and honest results over ordinary and hard inputs, in limits."""
    generator = torch.Generator(settings.device).manual_seed(1)
    faulty, furthest = plant(copy.deepcopy(model)), 0.0
    with torch.no_grad():
        for name in ("normal", "normal", *problem.hard_inputs()):
            inputs = problem.inputs(generator, distribution=name)
            right, wrong = (list(tensors_in(inputs.call(one))) for one in (copy.deepcopy(model), faulty))
            if all(bool(one.double().isfinite().all()) for one in right if not one.is_complex()):
                furthest = max(furthest, *(apart(a, b, limit) for a, b in zip(wrong, right, strict=True)))
    return furthest


def apart(wrong: torch.Tensor, right: torch.Tensor, limit: float) -> float:
    """Their distance in limits. Of integers, any share of them that differs is far."""
    if wrong.shape != right.shape:
        return float("inf")
    if not (right.is_floating_point() or right.is_complex()):
        return float((wrong != right).double().mean()) * 1e3
    kind = torch.complex128 if right.is_complex() else torch.float64
    off, size = ((one.to(kind)).abs().square().sum().sqrt() for one in (wrong.to(kind) - right.to(kind), right))
    return float((off / size).nan_to_num(nan=0.0)) / limit


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--out", type=Path, help="write the record")
    parser.add_argument("--name", nargs="+", help="only these modules")
    given = parser.parse_args()
    settings = Settings(device=given.device)
    lines: list[Line] = []
    for module in chosen():
        if given.name and module.name not in given.name:
            continue
        own = list(planted(module, settings, module.card if given.device == "cuda" else module.small))
        lines += own
        counted = [line for line in own if line.counts]
        missed = [f"{line.fault} ({line.distance:.3g} limits)" for line in counted if not line.caught]
        told = f"{len(counted)} count, {len(counted) - len(missed)} caught"
        print(
            f"{module.kind:12} {module.name:32} {told}{'; missed: ' if missed else ''}{', '.join(missed)}", flush=True
        )
    if given.out:
        record = {
            "environment": asdict(environment(Path(__file__).parents[2], device=given.device)),
            "faults": [asdict(one) for one in lines],
        }
        given.out.write_text(json.dumps(record, indent=1) + "\n")
    counts = Counter(line.module for line in lines if line.counts)
    few = [name for name in {line.module for line in lines} if counts[name] < FEWEST]
    print(f"{sum(counts.values())} faults count; too few in: {', '.join(few) or 'none'}")
    return int(any(line.counts and not line.caught for line in lines))


if __name__ == "__main__":
    sys.exit(main())
