"""cuBLAS with its algorithm chosen by measurement: the fastest of what cuBLASLt proposes and of torch's own call.

The choice is made at the first call with operands of a kind, on this card, as the clock measures: in CUDA graphs, cold,
on random values. It then holds for the process, and later calls may be captured. A call that is captured before there
is a choice is an error. Whatever is chosen adds in float32 and agrees with torch's own call to within rounding.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .cublas_lt import FULL_ALIGNMENT, WORKSPACE_BYTES, Algorithm, Library, LtError, Product, alignment, load
from .rivals import RivalUnavailableError, cublas

if TYPE_CHECKING:
    import torch

Call = Callable[["torch.Tensor", "torch.Tensor"], "torch.Tensor"]

MOST_ALGORITHMS = 32
"""Answers to one question to cuBLASLt."""
FINALISTS = 4
ROUNDS = 8
"""Measurements of each finalist, in turn, by two captures, whose median decides."""
LAUNCH_CYCLES = 150_000
"""Some 80 µs, in which the host launches what is measured."""
CACHE_MULTIPLE = 3
"""Operands are rotated past so many caches, as the clock does."""
MOST_SETS = 512
LEAST_SECONDS = 200e-6
"""Of a measurement: shorter passes over the operands are replayed several times in it."""
FARTHEST = 2e-2
"""Relative distance from the result of torch's own call at which an algorithm's result is not the same product's."""


@dataclass(frozen=True)
class Choice:
    """What was chosen for operands of one kind, and why."""

    call: Call
    name: str
    """"torch" for torch's own call, or what cuBLASLt tells of the algorithm."""
    proposed: int
    """Algorithms that cuBLASLt proposed."""
    speed: float
    """Seconds of torch's own call over those of the choice, as measured when choosing."""


_LIBRARIES: dict[int, tuple[Library, torch.Tensor]] = {}
_CHOICES: dict[tuple[Any, ...], Choice] = {}


def cublas_tuned(*, batched: bool, out_dtype: torch.dtype | None) -> Callable[..., Any]:
    """A rival like `rivals.cublas` that chooses its algorithm at the first call with operands of a kind.

    The function raises RivalUnavailableError for operands on a CPU, and where there is no cuBLASLt.
    """
    own = cublas(batched=batched, out_dtype=out_dtype)

    def library_gemm_tuned(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return chosen(own, a, b, out_dtype or a.dtype).call(a, b)

    return library_gemm_tuned


def chosen(own: Call, a: torch.Tensor, b: torch.Tensor, out_dtype: torch.dtype) -> Choice:
    """The choice for operands like these; made now, if there is none yet.

    own: torch's call, which takes part.
    """
    key = (a.device, a.shape, a.stride(), b.shape, b.stride(), a.dtype, out_dtype, alignment(a), alignment(b))
    found = _CHOICES.get(key)
    if found is None:
        found = _CHOICES[key] = _choose(own, a, b, out_dtype)
    return found


def _choose(own: Call, a: torch.Tensor, b: torch.Tensor, out_dtype: torch.dtype) -> Choice:
    import torch

    if a.device.type != "cuda":
        raise RivalUnavailableError(
            "cublas:tuned cannot run this problem: cuBLASLt runs on a GPU only, and the operands are on the CPU"
        )
    if torch.cuda.is_current_stream_capturing():
        raise RuntimeError("cublas:tuned measures its algorithms at its first call, which must not be captured")
    with torch.cuda.device(a.device), torch.no_grad():
        try:
            library, workspace = _library(a.device)
            product = Product(library, a, b, out_dtype)
            algorithms = product.algorithms(MOST_ALGORITHMS)
        except LtError as error:
            raise RivalUnavailableError(f"cublas:tuned cannot run this problem: {error}") from error
        calls = [own, *(_by(product, one, out_dtype, workspace) for one in algorithms)]
        names = ["torch", *(_told(product.config(one)) for one in algorithms)]
        sets = _operands(a, b)
        right = own(*sets[0])
        same = [place for place, call in enumerate(calls) if place == 0 or _agrees(call, sets[0], right)]
        seconds = _race([calls[place] for place in same], sets)
    best = min(range(len(same)), key=seconds.__getitem__)
    return Choice(calls[same[best]], names[same[best]], len(algorithms), seconds[0] / seconds[best])


def _library(device: torch.device) -> tuple[Library, torch.Tensor]:
    """The library with a handle on a device, and the memory that its algorithms may use there."""
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


def _told(config: dict[str, int]) -> str:
    return " ".join(f"{name} {value}" for name, value in config.items())


def _operands(a: torch.Tensor, b: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Random operands that lie as these do, so many pairs that none is still in the cache when its turn comes again."""
    import torch

    generator = torch.Generator(device=a.device).manual_seed(0)
    a_pair = sum(one.numel() * one.element_size() for one in (a, b))
    cache = torch.cuda.get_device_properties(a.device).L2_cache_size
    pairs = min(MOST_SETS, 1 + max(1, math.ceil(CACHE_MULTIPLE * cache / a_pair)))

    def like(given: torch.Tensor) -> torch.Tensor:
        reach = 1 + sum((size - 1) * stride for size, stride in zip(given.shape, given.stride(), strict=True))
        shift = alignment(given) // given.element_size() if alignment(given) < FULL_ALIGNMENT else 0
        memory = torch.empty(reach + shift, dtype=given.dtype, device=given.device).normal_(generator=generator)
        return memory.as_strided(given.shape, given.stride(), shift)

    return [(like(a), like(b)) for _ in range(pairs)]


def _agrees(call: Call, operands: tuple[torch.Tensor, torch.Tensor], right: torch.Tensor) -> bool:
    """Whether a call gives the product; an algorithm that the library proposes and then refuses does not."""
    try:
        found = call(*operands)
    except LtError:
        return False
    return bool((found - right).float().norm() <= FARTHEST * right.float().norm())


def _race(calls: list[Call], sets: list[tuple[torch.Tensor, torch.Tensor]]) -> list[float]:
    """Seconds of each call's pass over the sets: one measurement, and for the fastest and the first many in turn."""
    import torch

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    pool = torch.cuda.graph_pool_handle()
    before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def captured(call: Call) -> Any:
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin(pool=pool, capture_error_mode="thread_local")
        try:
            # Held until the end, so that each call writes to a place of its own, as it does under the clock.
            results = [call(*operands) for operands in sets]
        finally:
            graph.capture_end()
        del results
        graph.replay()  # the first replay uploads it
        return graph

    def seconds(graph: Any, passes: int) -> float:
        torch.cuda._sleep(LAUNCH_CYCLES)  # so that the replays are there before the first begins
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
    decided = {
        place: statistics.median(found) for place, found in zip(finalists, zip(*rounds, strict=True), strict=True)
    }
    return [decided.get(place, math.inf) for place in range(len(calls))]
