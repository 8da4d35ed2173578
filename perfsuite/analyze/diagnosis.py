"""Finds what costs a program time, from observations of it: each finding with its evidence and advice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from perfsuite.report.units import text_of

ALIGNED = {"float16": 8, "bfloat16": 8, "int8": 16, "float8_e4m3fn": 16, "float8_e5m2": 16}
"""A product's contiguous sizes should be multiples of so many elements: 16 bytes, which is one vector load.
Tensor-core kernels need it (cuBLAS documentation, "Tensor Core Usage")."""
IDLE = 0.5
"""Share of idle time above which a program is launch bound: twice the work would cost nothing."""
LOADING = 0.2
FRAGMENTED = 0.8
"""Share of the reserved memory that should be in use at the peak."""
LEAST_RESERVED = 256 * 2**20
"""Below this much reserved memory, what is spare is the allocator's rounding."""
MOST_PLACES = 5


@dataclass(frozen=True)
class Place:
    """A line of the user's code."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Product:
    """A call of a matrix product or an attention. In an attention k is head_dim, and n is the length of the keys."""

    operator: str
    m: int
    n: int
    k: int
    batch: int
    dtype: str
    place: Place | None

    @property
    def flops(self) -> float:
        """Two a multiply-add; an attention has two products."""
        return 2.0 * self.batch * self.m * self.n * self.k * (2.0 if self.attention else 1.0)

    @property
    def attention(self) -> bool:
        return "attention" in self.operator

    @property
    def misaligned(self) -> tuple[str, ...]:
        """The contiguous sizes that are not multiples of ALIGNED. The rows of a product need no alignment."""
        multiple = ALIGNED.get(self.dtype, 1)
        sizes = {"head_dim": self.k} if self.attention else {"n": self.n, "k": self.k}
        return tuple(f"{name} {size}" for name, size in sizes.items() if size % multiple)


@dataclass(frozen=True)
class Observed:
    """Observations of a program, or of some calls, in seconds and bytes."""

    seconds: float
    """Duration of the timed pass."""
    busy_seconds: float
    kernels: int
    calls: int = 1
    waits: Mapping[Place, int] = field(default_factory=dict)
    """Number of times that the host waited for the device, by line."""
    products: Sequence[Product] = ()
    tf32: bool = False
    """True if float32 products may use tensor cores."""
    allocated_peak: float = 0.0
    reserved_peak: float = 0.0
    retries: int = 0
    """Allocations that succeeded only after the cache was emptied."""
    out_of_memory: int = 0
    loading_seconds: float = 0.0
    """Time for which the program waited for its DataLoaders."""
    batches: int = 0
    workers: int = 0
    """Workers of the DataLoader with the fewest."""
    pinned: bool = True


@dataclass(frozen=True)
class Finding:
    """Something that costs time or memory."""

    what: str
    evidence: str
    advice: str
    places: tuple[str, ...] = ()


def examine(seen: Observed) -> list[Finding]:
    checks = (_waits, _launches, _loading, _misaligned, _tensor_cores, _fragments)
    return [finding for check in checks if (finding := check(seen)) is not None]


def _waits(seen: Observed) -> Finding | None:
    if not seen.waits:
        return None
    count = sum(seen.waits.values())
    places = [f"{place} ({times}x)" for place, times in sorted(seen.waits.items(), key=lambda one: -one[1])]
    return Finding(
        "hidden synchronisation",
        f"the host waited for the device {count / seen.calls:g} times{_a_call(seen)}",
        "keep values on the device (no .item(), print, .cpu(), nonzero, boolean index in the loop); copy with "
        "non_blocking=True from pinned memory, and read results some steps later",
        _first(places),
    )


def _launches(seen: Observed) -> Finding | None:
    working = seen.seconds - seen.loading_seconds
    if working <= 0 or not seen.kernels or seen.busy_seconds >= (1.0 - IDLE) * working:
        return None
    average = seen.busy_seconds / seen.kernels
    return Finding(
        "launch bound",
        f"the device was busy for {seen.busy_seconds / working:.0%} of {working * 1e3 / seen.calls:.4g} ms"
        f"{_a_call(seen)}, with {seen.kernels / seen.calls:g} kernels of {average * 1e6:.3g} us on average",
        "CUDA graphs, torch.compile(mode='reduce-overhead'), fusion, larger batches",
    )


def _loading(seen: Observed) -> Finding | None:
    if not seen.batches or seen.loading_seconds < LOADING * seen.seconds:
        return None
    how = f"{seen.workers} workers, {'pinned' if seen.pinned else 'pageable'} memory"
    return Finding(
        "data loading",
        f"waited {seen.loading_seconds / seen.seconds:.0%} of the time for {seen.batches} batches "
        f"({seen.loading_seconds / seen.batches * 1e3:.3g} ms each; {how})",
        "more num_workers, pin_memory=True, prefetch_factor, persistent_workers; decode and augment beforehand",
    )


def _misaligned(seen: Observed) -> Finding | None:
    found = {one: ", ".join(one.misaligned) for one in seen.products if one.misaligned}
    advice = "pad to a multiple of 16 (cuda_llm_ops.pad_to_alignment does it): vocabulary, head_dim, hidden sizes"
    sizes = "with sizes that are not multiples of 8 (16-bit) or 16 (8-bit)"
    return _of_products("misaligned sizes", seen, found, sizes, advice)


def _tensor_cores(seen: Observed) -> Finding | None:
    wide = ("float64",) if seen.tf32 else ("float64", "float32")
    found = {one: f"{one.m}x{one.n}x{one.k}" for one in seen.products if one.dtype in wide}
    advice = "torch.autocast with FP16 or BF16; or torch.set_float32_matmul_precision('high') for TF32"
    dtypes = f"in {' and '.join(sorted({one.dtype for one in found}))}"
    return _of_products("tensor cores not used", seen, found, dtypes, advice)


def _fragments(seen: Observed) -> Finding | None:
    scattered = seen.reserved_peak >= LEAST_RESERVED and seen.allocated_peak < FRAGMENTED * seen.reserved_peak
    if not (scattered or seen.retries or seen.out_of_memory):
        return None
    share = seen.allocated_peak / seen.reserved_peak if seen.reserved_peak else 1.0
    counts = {"allocations only after the cache was emptied": seen.retries, "out of memory": seen.out_of_memory}
    trouble = [f"{count} {what}" for what, count in counts.items() if count]
    return Finding(
        "fragmentation",
        f"{text_of(seen.allocated_peak)} of {text_of(seen.reserved_peak)} reserved in use at the peak ({share:.0%})"
        + (f"; {', '.join(trouble)}" if trouble else ""),
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; fewer different sizes (pad or bucket lengths); preallocate "
        "(cuda_llm_ops.AttentionMemoryPool)",
    )


def _of_products(what: str, seen: Observed, found: Mapping[Product, str], how: str, advice: str) -> Finding | None:
    """A finding on the products that ran in one way, each with the text of its sizes."""
    part = sum(one.flops for one in seen.products if one in found)
    whole = sum(one.flops for one in seen.products)
    share = f"{part / whole:.0%} of the FLOPs of products ran" if whole else "products ran"
    places = [
        f"{f'{one.place}: ' if one.place else ''}{one.operator} {sizes}, {one.dtype}" for one, sizes in found.items()
    ]
    return Finding(what, f"{share} {how}", advice, _first(places)) if found else None


def _first(texts: Iterable[str]) -> tuple[str, ...]:
    unique = list(dict.fromkeys(texts))
    more = (f"and {len(unique) - MOST_PLACES} more",) if len(unique) > MOST_PLACES else ()
    return (*unique[:MOST_PLACES], *more)


def _a_call(seen: Observed) -> str:
    return " a call" if seen.calls > 1 else ""
