"""Resources of one call besides its time: peak memory, kernel launches, synchronisation, a place on the roofline."""

from __future__ import annotations

import dataclasses
import gc
import math
import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from perfsuite.problems.base import Inputs, Problem
from perfsuite.problems.differentiated import prepared

if TYPE_CHECKING:
    from perfsuite.clock.base import Sides
    from perfsuite.clock.rounds import Round

SHORTEST_SPIN_SECONDS = 0.05
SPIN_MULTIPLE = 10
"""The device is kept busy for this many times the host time of a call, so that a slow host is not taken for a wait."""
ATTEMPTS = 3
TIMED_ROUNDS = 20
LEAK_CALLS = 8
"""Calls after which the memory must be as before."""


class ResourceError(Exception):
    """A resource cannot be measured here; the text gives the reason."""


def peak_bytes(problem: Problem, candidate: Callable[..., Any], *, seed: int = 0) -> int:
    """Most bytes that torch's allocator held at once during a call, over what it held before: output and scratch.

    The inputs are there before and do not count; nor does what a first call allocates for good (workspaces), or what
    a forward pass has kept for a backward alone.
    """
    import torch

    inputs, candidate = _call(problem, candidate, seed)
    inputs.call(candidate)
    torch.cuda.synchronize()
    # No garbage is freed between the two readings. To collect it before would do as well, but takes 80 ms.
    collects = gc.isenabled()
    gc.disable()
    try:
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        result = inputs.call(candidate)
        torch.cuda.synchronize()
        peak = torch.cuda.max_memory_allocated()
    finally:
        if collects:
            gc.enable()
    del result
    return peak - before


def leaked_bytes(problem: Problem, candidate: Callable[..., Any], *, seed: int = 0) -> int:
    """Bytes of torch's allocator that LEAK_CALLS calls leave behind, once their results and all garbage are gone.

    What a first call allocates for good (workspaces, plans) is no leak.
    """
    import torch

    inputs, candidate = _call(problem, candidate, seed)
    inputs.call(candidate)
    held = []
    for calls in (1, LEAK_CALLS):
        for _ in range(calls):
            inputs.call(candidate)
        torch.cuda.synchronize()
        gc.collect()  # reference cycles are garbage, not leaks
        held.append(torch.cuda.memory_allocated())
    return max(0, held[1] - held[0])


def kernel_launches(problem: Problem, candidate: Callable[..., Any], *, seed: int = 0) -> int:
    """Kernels that one call runs, counted by torch's profiler; copies and fills by the copy engine are none.

    Raises ResourceError where the profiler sees no kernel at all.
    """
    import torch

    inputs, candidate = _call(problem, candidate, seed)
    inputs.call(candidate)
    torch.cuda.synchronize()
    kinds = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=kinds, acc_events=True) as profile:
        inputs.call(candidate)
        torch.cuda.synchronize()
    on_device = [event.name for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    kernels = [name for name in on_device if not name.startswith(("Memcpy", "Memset"))]
    if not kernels:
        raise ResourceError("torch's profiler saw no kernel: its access to the card (CUPTI) may be barred")
    return len(kernels)


def synchronises(problem: Problem, candidate: Callable[..., Any], *, seed: int = 0) -> bool:
    """True if a call waits for the device, by any means: it returns only after work that was enqueued before it.

    A kernel keeps the device busy meanwhile. If it has not ended when the call returns, the call did not wait.
    """
    import torch

    from perfsuite.clock.cuda import spin

    inputs, candidate = _call(problem, candidate, seed)
    inputs.call(candidate)
    torch.cuda.synchronize()
    started = time.perf_counter()
    inputs.call(candidate)
    longest = max(SHORTEST_SPIN_SECONDS, SPIN_MULTIPLE * (time.perf_counter() - started))
    torch.cuda.synchronize()
    for _ in range(ATTEMPTS):
        ended = torch.cuda.Event()
        spin(longest)
        ended.record()
        inputs.call(candidate)
        still_busy = not ended.query()
        torch.cuda.synchronize()
        if still_busy:
            return False
    return True


def seconds(problem: Problem, candidate: Callable[..., Any], *, seed: int = 0) -> float:
    """Device time of one call, by the clock of the gates: inputs rotated past the L2, median over rounds."""
    import torch

    from perfsuite.clock.base import Sides

    generator = torch.Generator(device="cuda").manual_seed(seed)
    rounds = _rounds(Sides(candidate, candidate, lambda: problem.inputs(generator)), seed)
    return statistics.median(side for one in rounds for side in (one.candidate_seconds, one.rival_seconds))


def side_by_side(one: Problem, other: Problem, candidate: Callable[..., Any], *, seed: int = 0) -> tuple[float, float]:
    """Device times of a call at `one` and of a call at `other`, in turn, so that both meet the same clocks and power.

    Where the card's power is the limit, a call by itself runs at clocks of its own, and two times that were taken apart
    are of two clocks.
    """
    import torch

    from perfsuite.clock.base import Sides

    generator = torch.Generator(device="cuda").manual_seed(seed)
    first, second = (each.inputs(generator) for each in (one, other))
    split, options, others = len(first.args), first.kwargs, second.kwargs
    del first, second

    def inputs() -> Inputs:
        return Inputs((*one.inputs(generator).args, *other.inputs(generator).args))

    def at_one(*args: Any) -> Any:
        return candidate(*args[:split], **options)

    def at_other(*args: Any) -> Any:
        return candidate(*args[split:], **others)

    rounds = _rounds(Sides(at_one, at_other, inputs), seed)
    return statistics.median(r.candidate_seconds for r in rounds), statistics.median(r.rival_seconds for r in rounds)


def _rounds(sides: Sides, seed: int) -> list[Round]:
    """Rounds by the clock of the gates, of which none is empty; ResourceError where every one was discarded."""
    from perfsuite.clock.choose import open_clock
    from perfsuite.settings import Settings

    clock = open_clock(sides, Settings(seed=seed))
    try:
        rounds = [one for one in clock.rounds(TIMED_ROUNDS) if one.discarded is None]
    finally:
        clock.close()
    if not rounds:
        raise ResourceError("every round was discarded: the card is throttled")
    return rounds


def attainable_flops(problem: Problem, candidate: Callable[..., Any], *, seed: int = 0) -> float:
    """FLOPs a second at most, by the roofline of this card: ceilings of a large copy and a large product, measured.

    Without the problem's bytes, that of a product alone; without its FLOPs, the bytes a second of a copy. Raises
    ResourceError for a problem that has neither, or FLOPs of a dtype that is not known.
    """
    from perfsuite.machine.ceilings import copy_bytes_a_second

    return _attainable(problem, copy_bytes_a_second)


def attainable_flops_reading(problem: Problem, candidate: Callable[..., Any], *, seed: int = 0) -> float:
    """The same for a call that writes next to nothing: under the ceiling of a large sum in place of a copy."""
    from perfsuite.machine.ceilings import read_bytes_a_second

    return _attainable(problem, read_bytes_a_second)


def attainable_flops_of_own_size(problem: Problem, candidate: Callable[..., Any], *, seed: int = 0) -> float:
    """The same under the ceiling of the fastest of several reads of as many bytes as the problem has."""
    from perfsuite.machine.reads import own_size_bytes_a_second

    if problem.bytes is None:
        raise ResourceError(f"{problem.family} {problem.name} has no known bytes, so no read is of its size")
    bytes_ = int(problem.bytes)
    return _attainable(problem, lambda device: own_size_bytes_a_second(device, bytes_))


def _attainable(problem: Problem, bytes_a_second: Callable[[int], float]) -> float:
    import torch

    from perfsuite.analyze.roofline import Ceiling, Cost
    from perfsuite.machine.ceilings import PRODUCT_DTYPES, product_flops_a_second

    dtype = _dtype(problem)
    device = torch.cuda.current_device()
    if problem.flops is None and problem.bytes is not None:
        return bytes_a_second(device)
    if problem.flops is None:
        raise ResourceError(f"{problem.family} {problem.name} has no known FLOPs or bytes")
    if dtype not in PRODUCT_DTYPES:
        known = ", ".join(PRODUCT_DTYPES)
        raise ResourceError(
            f"{problem.family} {problem.name} has FLOPs of {dtype}, whose ceiling is not known (known: {known}); "
            "without FLOPs, its bytes alone are judged"
        )
    product = product_flops_a_second(device, dtype)
    if problem.bytes is None:
        return product
    return Ceiling(product, bytes_a_second(device)).attainable(Cost(problem.flops, problem.bytes).intensity)


RESOURCES: dict[str, Callable[..., float]] = {
    "peak_bytes": peak_bytes,
    "leaked_bytes": leaked_bytes,
    "launches": kernel_launches,
    "synchronises": synchronises,
    "seconds": seconds,
    "attainable_flops": attainable_flops,
    "attainable_flops_reading": attainable_flops_reading,
    "attainable_flops_of_own_size": attainable_flops_of_own_size,
}
"""Measurements that markers can limit, by their names in `pytest_perfsuite_resource`."""


def at_dim(problem: Problem, dim: int) -> tuple[str, Problem]:
    """The same problem with another innermost size: the name of that parameter, and the problem.

    ValueError if the family has no such parameter.
    """
    name = problem.innermost
    if name is None or not dataclasses.is_dataclass(problem):
        raise ValueError(f"alignment needs an attention or a product; {problem.family} has no innermost dimension")
    return name, dataclasses.replace(problem, **{name: dim})


def exponent(small: float, large: float, factor: float = 2.0) -> float:
    """p in cost ~ size^p, from the cost at one size and at `factor` times that size; 0 where nothing is used."""
    if small <= 0:
        return 0.0 if large <= 0 else math.inf
    return math.log(large / small, factor) if large > 0 else 0.0


def _dtype(problem: Problem) -> str:
    """The problem's dtype, or that of its first operand; of a custom problem, its first tensor's ("float16[64x64]")."""
    told = next((problem.params[name] for name in ("dtype", "a_dtype", "arg0") if name in problem.params), None)
    return str(told).partition("[")[0]


def _call(problem: Problem, candidate: Callable[..., Any], seed: int) -> tuple[Inputs, Callable[..., Any]]:
    """The arguments of a call, and the function to call: of backward alone, the forward pass on them has run."""
    import torch

    inputs = problem.inputs(torch.Generator(device="cuda").manual_seed(seed))
    return inputs, prepared(candidate, inputs)
