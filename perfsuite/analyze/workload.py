"""Workloads of an analysis: a kernel on a problem, or a user's function, and the same with other costs."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from perfsuite.analyze.roofline import Cost
from perfsuite.outcome import UserError
from perfsuite.problems.base import Inputs, Problem
from perfsuite.problems.differentiated import prepared

Call = Callable[[], Any]
SCALES = ("arithmetic", "bytes")
"""Parameters by which a function of the user's may be asked for more work: factors, 1 by default."""
MOST_ROTATED_BYTES = 8 * 2**30
FACTOR = 2.0


class WorkloadError(UserError):
    """It cannot be called as an analysis calls it; the text says why and what would do."""


@dataclass(frozen=True)
class Workload:
    """Something to be called again and again, without arguments."""

    name: str
    build: Callable[[], Call]
    """Makes inputs on the device and returns the call; what it allocates lives as long as the call."""
    arithmetic: float = 1.0
    """FLOPs, as a multiple of those of the workload that it is a variation of."""
    bytes: float = 1.0
    """Bytes through device memory, likewise."""
    cost: Cost | None = None
    """FLOPs and bytes of a call, where they are known."""
    dtype: str | None = None
    variations: tuple[Workload, ...] = ()
    """The same with more or less arithmetic, or bytes, and the other held; empty where it cannot be varied."""


def of_problem(problem: Problem, kernel_for: Callable[[Problem], Callable[..., Any]]) -> Workload:
    """A kernel on a problem, its inputs rotated past the caches; varied as the problem's family varies it.

    `kernel_for` gives the function for a problem: a library has one for batches and one without.
    """
    base = _one(problem, problem, kernel_for(problem))
    variations = tuple(_one(other, problem, kernel_for(other)) for other in problem.variations())
    return dataclasses.replace(base, variations=variations)


def of_function(function: Callable[..., Any], name: str) -> Workload:
    """A function without arguments. Where it returns a function, it was the setup, and that one is called.

    With the parameters `arithmetic` and `bytes` (factors) it can be asked for more of either, the other held.
    Raises WorkloadError where it needs arguments.
    """
    known = _parameters(function, name)
    scales = [scale for scale in SCALES if scale in known]
    base = Workload(name, _builder(function, {}))
    variations = [
        Workload(
            name,
            _builder(function, {scale: FACTOR}),
            arithmetic=FACTOR if scale == "arithmetic" else 1.0,
            bytes=FACTOR if scale == "bytes" else 1.0,
        )
        for scale in scales
    ]
    return dataclasses.replace(base, variations=tuple(variations))


def started(workload: Workload) -> Call:
    """The workload's call, made and called once; WorkloadError where that fails."""
    import torch

    try:
        call = workload.build()
        call()
        torch.cuda.synchronize()
    except Exception as error:  # of the user's function, or of a library that cannot run the shape
        why = (str(error).splitlines() or [""])[0]
        raise WorkloadError(f"{workload.name} fails with {type(error).__name__}: {why}") from error
    return call


def _one(problem: Problem, base: Problem, candidate: Callable[..., Any]) -> Workload:
    def build() -> Call:
        side = problem.called(candidate)
        # Of backward alone the forward pass runs here, once for each set.
        turn = itertools.cycle([(inputs, prepared(side, inputs)) for inputs in _rotation(problem)])

        def call() -> Any:
            inputs, function = next(turn)
            return inputs.call(function)

        return call

    return Workload(
        f"{problem.family} {problem.name}",
        build,
        arithmetic=(problem.flops or 1.0) / (base.flops or 1.0),
        bytes=(problem.bytes or 1.0) / (base.bytes or 1.0),
        cost=Cost(problem.flops, problem.bytes) if problem.flops and problem.bytes else None,
        dtype=str(problem.params["dtype"]) if "dtype" in problem.params else None,
    )


def _rotation(problem: Problem) -> list[Inputs]:
    """Sets of inputs for calls in turn, so many that none is in the L2 when its turn comes again."""
    import torch

    from perfsuite.clock.cache import l2_bytes
    from perfsuite.clock.rotation import bytes_in, sets_needed

    generator = torch.Generator(device="cuda").manual_seed(0)
    first = problem.inputs(generator)
    size = bytes_in(first)
    wanted = min(sets_needed(size, l2_bytes(torch.cuda.current_device())), max(1, MOST_ROTATED_BYTES // max(1, size)))
    return [first, *(problem.inputs(generator) for _ in range(wanted - 1))]


def _parameters(function: Callable[..., Any], name: str) -> list[str]:
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        raise WorkloadError(f"{name} does not say what it takes; wrap it in a function without arguments") from None
    needed = [
        one.name
        for one in parameters.values()
        if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]
    if needed:
        raise WorkloadError(
            f"{name} takes {', '.join(needed)}; name a function without arguments, or one that returns such a function"
        )
    return list(parameters)


def _builder(function: Callable[..., Any], scales: dict[str, float]) -> Callable[[], Call]:
    def build() -> Call:
        made = function(**scales)
        if callable(made):
            return made
        return lambda: function(**scales)

    return build


def change(workload: Workload) -> tuple[float, float]:
    """Natural logarithms of the factors on arithmetic and bytes."""
    return math.log(workload.arithmetic), math.log(workload.bytes)
