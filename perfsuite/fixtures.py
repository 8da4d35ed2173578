"""The fixtures: `perf`, and what a test wants to know of the device it runs on."""

from __future__ import annotations

import gc
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from perfsuite.gate import Gate, admit
from perfsuite.run import RUN

if TYPE_CHECKING:
    import torch

    from perfsuite.comparison import Comparison
    from perfsuite.problems.base import Problem


class Perf:
    """Checks and times a candidate; the test's markers say against what, and how fast it must be.

    `perf(problem, candidate)` for a problem of perfsuite, `perf(candidate, args=…, against=…)` for anything else.
    Returns the Comparison (with several rivals, that of the first marker). It does not raise where the candidate is
    wrong or slow: the test fails when it ends, and its other calls still count.
    """

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        """Every comparison of this test so far."""
        return tuple(self._gate.comparisons)

    def __call__(
        self,
        *what: Any,
        args: tuple[Any, ...] | Callable[[torch.Generator], Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        against: str | Callable[..., Any] | None = None,
        flops: float | None = None,
        bytes: float | None = None,
        reference: Callable[..., Any] | None = None,
        label: str | None = None,
    ) -> Comparison:
        """Check and time one case.

        what: a problem and a candidate, or a candidate alone.
        args, kwargs: what a lone candidate and its rival are called with; `args` may be a callable that takes a
        torch.Generator and makes fresh ones.
        against: the rival: a callable, its dotted name ("torch.nn.functional.softmax"), or a rival that the problem
        knows. flops, bytes: of one call, for the record and the roofline. reference: computes the right answer in
        float64. label: the case's name in tables.

        Raises TypeError where these do not fit together.
        """
        if len(what) == 2:
            problem, candidate = what
            extra = {
                "args": args,
                "kwargs": kwargs,
                "flops": flops,
                "bytes": bytes,
                "reference": reference,
                "label": label,
            }
            if surplus := [name for name, value in extra.items() if value is not None]:
                raise TypeError(f"perf(problem, candidate) takes no {', '.join(surplus)}: the problem says it")
            return self._gate.measure(_problem(problem), _callable("candidate", candidate), against)
        if len(what) != 1:
            raise TypeError(
                f"perf takes (problem, candidate) or (candidate, args=...); it was given {len(what)} arguments"
            )
        candidate = _callable("candidate", what[0])
        if args is None:
            raise TypeError("perf(candidate) needs args=..., or write perf(problem, candidate)")
        rival = _named(against) if isinstance(against, str) else against

        from perfsuite.problems import Custom

        named = label or str(getattr(candidate, "__name__", type(candidate).__name__))
        problem = Custom(
            args=args,
            kwargs=dict(kwargs or {}),
            flops=flops,
            bytes=bytes,
            label=named,
            against=rival,
            reference=reference,
        )
        return self._gate.measure(problem, candidate, None)


def _problem(value: Any) -> Problem:
    missing = [name for name in ("family", "name", "inputs", "rival") if not hasattr(value, name)]
    if missing:
        raise TypeError(
            f"the problem is {value!r}, which has no {', '.join(missing)}; give a Gemm, an Attention or another "
            "perfsuite problem first, the candidate second"
        )
    return value  # type: ignore[no-any-return]


def _callable(what: str, value: Any) -> Callable[..., Any]:
    if not callable(value):
        raise TypeError(f"the {what} is {value!r}; it must be callable")
    return value  # type: ignore[no-any-return]


def _named(path: str) -> Callable[..., Any]:
    from pkgutil import resolve_name

    try:
        return _callable("rival", resolve_name(path))
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"against is {path!r}, and there is no such function: {error}") from None


@pytest.fixture
def perf(request: pytest.FixtureRequest) -> Perf:
    """Checks a candidate kernel and times it against its rival: perf(problem, candidate)."""
    run = request.config.stash[RUN]
    if not run.options.portable:
        admit(run, request.node)
    return Perf(Gate(request.node))


@dataclass(frozen=True)
class Gpu:
    """Facts of the card in use. Sizes in bytes."""

    name: str
    capability: tuple[int, int]
    memory_bytes: int
    l2_bytes: int
    multiprocessors: int
    device: torch.device
    """What torch calls it."""


@pytest.fixture
def gpu(request: pytest.FixtureRequest) -> Gpu:
    """The device's facts: name, capability, memory_bytes, l2_bytes, multiprocessors, and torch's device."""
    return _gpu(request, 0)


@pytest.fixture
def gpus(request: pytest.FixtureRequest) -> tuple[Gpu, ...]:
    """Every device of this host that the run may use; the test is skipped where there are fewer than two."""
    run = request.config.stash[RUN]
    admit(run, request.node)
    count = len(run.devices().cards)
    if count < 2:
        pytest.skip(f"needs at least two GPUs; this process may use {count}")
    return tuple(_gpu(request, index) for index in range(count))


def _gpu(request: pytest.FixtureRequest, index: int) -> Gpu:
    run = request.config.stash[RUN]
    admit(run, request.node)
    import torch

    properties = torch.cuda.get_device_properties(index)
    return Gpu(
        name=properties.name,
        capability=(properties.major, properties.minor),
        memory_bytes=properties.total_memory,
        l2_bytes=properties.L2_cache_size,
        multiprocessors=properties.multi_processor_count,
        device=torch.device("cuda", index),
    )


@pytest.fixture
def gpu_rng(request: pytest.FixtureRequest) -> torch.Generator:
    """A torch.Generator on the device, seeded from --perf-seed and the test's id: the same whatever ran before."""
    run = request.config.stash[RUN]
    admit(run, request.node)
    import torch

    seed = (run.options.seed << 32 | zlib.crc32(request.node.nodeid.encode())) % 2**63
    return torch.Generator(device="cuda").manual_seed(seed)


@dataclass
class MemoryUse:
    """Device memory that a block used, by torch's allocator; in bytes, known when the block has ended."""

    peak_bytes: int = 0
    """Most that was allocated at once, over what there was before the block."""
    leaked_bytes: int = 0
    """Still allocated after the block, over what there was before it; a result that is kept counts."""


@pytest.fixture
def gpu_memory(request: pytest.FixtureRequest) -> Callable[[], Any]:
    """Measures device memory: `with gpu_memory() as use: ...`, then `use.peak_bytes` and `use.leaked_bytes`."""
    admit(request.config.stash[RUN], request.node)
    return _measure_memory


@contextmanager
def _measure_memory() -> Iterator[MemoryUse]:
    import torch

    use = MemoryUse()
    gc.collect()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    yield use
    torch.cuda.synchronize()
    use.peak_bytes = torch.cuda.max_memory_allocated() - before
    # Cycles are garbage, not leaks.
    gc.collect()
    use.leaked_bytes = torch.cuda.memory_allocated() - before
