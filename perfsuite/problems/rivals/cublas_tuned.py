"""cuBLAS with an algorithm chosen by measurement: the fastest of torch's own call and cuBLASLt's proposals.

The first call with operands of a kind makes the choice on this card, as the clock measures: in CUDA graphs, with a cold
cache, on random values. The choice holds for the process, and later calls may be captured. Capturing a call before the
choice is made is an error. Every candidate adds in float32 and agrees with torch's own call to within rounding.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perfsuite.problems.base import RivalUnavailableError
from perfsuite.problems.checks import torch_dtype
from perfsuite.problems.cublas_lt import (
    FULL_ALIGNMENT,
    WORKSPACE_BYTES,
    Algorithm,
    Library,
    LtError,
    Product,
    alignment,
    load,
)
from perfsuite.problems.rivals.cublas import cublas

if TYPE_CHECKING:
    import torch

    from perfsuite.problems.families.gemm import Gemm

Call = Callable[["torch.Tensor", "torch.Tensor"], "torch.Tensor"]
Make = Callable[[Library, "torch.Tensor", "torch.Tensor", "torch.dtype"], Product]

SERVES = ("gemm",)
NAMES = ("cublas:tuned",)
MOST_ALGORITHMS = 32
"""Proposals that each query asks cuBLASLt for."""
FINALISTS = 4
ROUNDS = 8
"""Measurements of each finalist, in turn, by two captures. Their median decides."""
LAUNCH_CYCLES = 150_000
"""About 80 µs, during which the host launches the work to be measured."""
CACHE_MULTIPLE = 3
"""Operands are rotated past this many times the size of the L2 cache, as by the clock."""
MOST_SETS = 512
LEAST_SECONDS = 200e-6
"""Least length of a measurement; shorter passes over the operands are replayed several times."""
FARTHEST = 2e-2
"""Largest relative distance from the result of torch's own call; a result farther away is not the same product."""


@dataclass(frozen=True)
class Choice:
    """The call chosen for operands of one kind, with the measurements that decided."""

    call: Call
    name: str
    """"torch" for torch's own call, or cuBLASLt's description of the algorithm."""
    proposed: int
    """Algorithms that cuBLASLt proposed."""
    speed: float
    """Seconds of torch's own call over those of the choice, as measured when choosing."""
    product: Product
    """The product of cuBLASLt, also where torch's own call is the choice."""


_LIBRARIES: dict[int, tuple[Library, torch.Tensor]] = {}
_CHOICES: dict[tuple[Any, ...], Choice] = {}


def rival(problem: Gemm, name: str) -> Callable[..., Any]:
    """A product that chooses its algorithm at the first call with operands of a kind.

    It raises RivalUnavailableError for operands on a CPU, and on machines without cuBLASLt.
    """
    out_dtype = torch_dtype(problem.out_dtype) if problem.out_dtype else None
    own = cublas(batched=problem.batch is not None, out_dtype=out_dtype)

    def library_gemm_tuned(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return chosen(own, a, b, out_dtype or a.dtype).call(a, b)

    return library_gemm_tuned


def chosen(
    own: Call,
    a: torch.Tensor,
    b: torch.Tensor,
    out_dtype: torch.dtype,
    *,
    make: Make = Product,
    name: str = NAMES[0],
    kind: str = "",
) -> Choice:
    """The choice for operands like these; the first call makes it. own: torch's call, a contender.

    make: the product; its `kind` tells products of the same operands apart. name: the rival's, for errors.
    """
    key = (a.device, a.shape, a.stride(), b.shape, b.stride(), a.dtype, b.dtype, out_dtype, alignment(a), alignment(b))
    if (*key, name, kind) not in _CHOICES:
        _CHOICES[*key, name, kind] = _choose(own, a, b, out_dtype, make, name)
    return _CHOICES[*key, name, kind]


def _choose(own: Call, a: torch.Tensor, b: torch.Tensor, out_dtype: torch.dtype, make: Make, rival_name: str) -> Choice:
    import torch

    if a.device.type != "cuda":
        raise RivalUnavailableError(
            f"{rival_name} cannot run this problem: cuBLASLt runs on a GPU only, and the operands are on the CPU"
        )
    if torch.cuda.is_current_stream_capturing():
        raise RuntimeError(f"{rival_name} measures its algorithms at its first call, which must not be captured")
    with torch.cuda.device(a.device), torch.no_grad():
        try:
            library, workspace = _library(a.device)
            product = make(library, a, b, out_dtype)
            algorithms = product.algorithms(MOST_ALGORITHMS)
        except LtError as error:
            raise RivalUnavailableError(f"{rival_name} cannot run this problem: {error}") from error
        calls = [own, *(_by(product, one, out_dtype, workspace) for one in algorithms)]
        configs = [product.config(one) for one in algorithms]
        names = ["torch", *(" ".join(f"{name} {value}" for name, value in one.items()) for one in configs)]
        sets = _operands(a, b)
        right = own(*sets[0])
        same = [place for place, call in enumerate(calls) if place == 0 or _agrees(call, sets[0], right)]
        seconds = _race([calls[place] for place in same], sets)
    best = min(range(len(same)), key=seconds.__getitem__)
    return Choice(calls[same[best]], names[same[best]], len(algorithms), seconds[0] / seconds[best], product)


def _library(device: torch.device) -> tuple[Library, torch.Tensor]:
    """(the library with a handle on a device, the workspace of its algorithms there)."""
    import torch

    index = torch.cuda.current_device()
    if index not in _LIBRARIES:
        workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=device)
        _LIBRARIES[index] = Library(load(torch.version.cuda)), workspace
    return _LIBRARIES[index]


def _by(product: Product, algorithm: Algorithm, out_dtype: torch.dtype, workspace: torch.Tensor) -> Call:
    import torch

    def call(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        out = torch.empty((*a.shape[:-1], b.shape[-1]), dtype=out_dtype, device=a.device)
        product.run(algorithm, a, b, out, workspace, torch.cuda.current_stream(a.device).cuda_stream)
        return out

    return call


def _operands(a: torch.Tensor, b: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Random operands of the same layout, in enough pairs to push each out of the cache before its next turn."""
    import torch

    generator = torch.Generator(device=a.device).manual_seed(0)
    a_pair = sum(one.numel() * one.element_size() for one in (a, b))
    cache = torch.cuda.get_device_properties(a.device).L2_cache_size
    pairs = min(MOST_SETS, 1 + max(1, math.ceil(CACHE_MULTIPLE * cache / a_pair)))

    def like(given: torch.Tensor) -> torch.Tensor:
        reach = 1 + sum((size - 1) * stride for size, stride in zip(given.shape, given.stride(), strict=True))
        shift = alignment(given) // given.element_size() if alignment(given) < FULL_ALIGNMENT else 0
        # torch draws no 8-bit numbers.
        drawn = given.dtype if given.element_size() > 1 else torch.float32
        memory = torch.empty(reach + shift, dtype=drawn, device=given.device).normal_(generator=generator)
        return memory.to(given.dtype).as_strided(given.shape, given.stride(), shift)

    return [(like(a), like(b)) for _ in range(pairs)]


def _agrees(call: Call, operands: tuple[torch.Tensor, torch.Tensor], right: torch.Tensor) -> bool:
    """True if a call gives the product; False also if the library refuses the algorithm that it proposed."""
    try:
        found = call(*operands)
    except LtError:
        return False
    return bool((found - right).float().norm() <= FARTHEST * right.float().norm())


def _race(calls: list[Call], sets: list[tuple[torch.Tensor, torch.Tensor]]) -> list[float]:
    """Seconds of each call's pass over the sets; infinite for a call that is not a finalist.

    Each is measured once, then the fastest and the first many times in turn.
    """
    import torch

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    pool = torch.cuda.graph_pool_handle()
    before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def captured(call: Call) -> Any:
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin(pool=pool, capture_error_mode="thread_local")
        try:
            # Results are held until the end, so that each call writes to other memory, as under the clock.
            results = [call(*operands) for operands in sets]
        finally:
            graph.capture_end()
        del results
        graph.replay()  # the first replay uploads it
        return graph

    def seconds(graph: Any, passes: int) -> float:
        torch.cuda._sleep(LAUNCH_CYCLES)  # so that all replays are launched before the first begins
        before.record()
        for _ in range(passes):
            graph.replay()
        after.record()
        after.synchronize()
        return float(before.elapsed_time(after)) / 1e3 / passes

    with torch.cuda.stream(stream):
        graphs = [captured(call) for call in calls]
        passes = math.ceil(LEAST_SECONDS / seconds(graphs[0], 1))
        found = [seconds(graph, passes) for graph in graphs]
        fastest = sorted(range(len(calls)), key=found.__getitem__)[:FINALISTS]
        finalists = [0, *(place for place in fastest if place)]
        again = [captured(calls[place]) for place in finalists]
        pairs = [(graphs[place], other) for place, other in zip(finalists, again, strict=True)]
        rounds = [[seconds(pair[turn % 2], passes) for pair in pairs] for turn in range(ROUNDS)]
        stream.synchronize()
    for graph in (*graphs, *again):
        graph.reset()
    decided = dict(zip(finalists, map(statistics.median, zip(*rounds, strict=True)), strict=True))
    return [decided.get(place, math.inf) for place in range(len(calls))]
