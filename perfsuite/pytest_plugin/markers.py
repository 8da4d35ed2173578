"""The markers: each is a function whose arguments are the marker's, and whose value is what the gate needs to know."""

import inspect
import math
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import pytest


class MarkerError(Exception):
    """A marker was given something that it does not know; the text says what is allowed."""


class Need(NamedTuple):
    """What a test needs of the card; memory in bytes."""

    min_capability: tuple[int, int] | None
    min_memory: float | None


class Correctness(NamedTuple):
    """Which library's own error sets the tolerance; None: that of the rival."""

    against: str | None


class PerfTarget(NamedTuple):
    """The least speed asked for, as a fraction of the rival's; `against` None means the problem's default rival."""

    against: str | Callable[..., Any] | None
    at_least: float

    @property
    def rival_name(self) -> str | None:
        """The name under which perf_targets.toml knows the rival."""
        return getattr(self.against, "__name__", None) if callable(self.against) else self.against


class MemoryTarget(NamedTuple):
    """Bytes that a call may hold at once, and how they may grow with the sequence length; None: no such limit."""

    peak_bytes: float | None
    growth: str | None


class Launches(NamedTuple):
    """Kernels that a call may launch."""

    at_most: int


class NoSync(NamedTuple):
    """A call must not wait for the device."""


class RooflineTarget(NamedTuple):
    """The least share of what the roofline lets a call attain; which measured bandwidth is its slope."""

    at_least: float
    bandwidth: str = "copy"


class Alignment(NamedTuple):
    """By which share a FLOP may take longer at a misaligned size of the innermost dimension."""

    dim: int
    max_drop: float


class Regression(NamedTuple):
    """By which share the cost may rise above the recent commits, and above the anchor; where the history lies."""

    slower: float
    drift: float
    history: str


GROWTH = {"linear": 1.1, "quadratic": 2.1}
"""Kind of growth -> largest power of the sequence length; the tenth is for the allocator's rounding."""


BANDWIDTHS = ("copy", "read")
"""What the slope of a roofline can be measured with: memory that is read and written in turn, or only read."""


def gpu(*, min_capability: tuple[int, int] | None = None, min_memory: float | None = None) -> Need:
    """The test needs a GPU, of at least that compute capability and with at least that many bytes of memory."""
    if min_capability is not None and not _is_capability(min_capability):
        raise MarkerError(f"min_capability is {min_capability!r}; it must be a pair such as (8, 0)")
    if min_memory is not None and not _is_positive(min_memory):
        raise MarkerError(f"min_memory is {min_memory!r}; it must be a number of bytes over 0")
    return Need(min_capability, min_memory)


def correctness(*, against: str | None = None) -> Correctness:
    """The answer must be right; the tolerance is set from the error of the library `against` (default: the rival's)."""
    if against is not None and not isinstance(against, str):
        raise MarkerError(f"against is {against!r}; it must be the name of a library, such as 'cublas'")
    return Correctness(against)


def perf_target(*, against: str | Callable[..., Any] | None = None, at_least: float = 1.0) -> PerfTarget:
    """The candidate must reach at least that fraction of the rival's speed; give it once for each rival."""
    if against is not None and not isinstance(against, str) and not callable(against):
        raise MarkerError(f"against is {against!r}; it must be a rival's name, such as 'cublas', or a callable")
    if not _is_positive(at_least):
        raise MarkerError(
            f"at_least is {at_least!r}; it must be a number over 0 (0.9: nine tenths of the rival's speed)"
        )
    return PerfTarget(against, float(at_least))


def memory_target(*, peak_bytes: float | None = None, growth: str | None = None) -> MemoryTarget:
    """A call may hold at most that many bytes at once, growing "linear" or "quadratic" in the sequence length."""
    if peak_bytes is None and growth is None:
        raise MarkerError("needs peak_bytes, growth or both")
    if peak_bytes is not None and not _is_positive(peak_bytes):
        raise MarkerError(f"peak_bytes is {peak_bytes!r}; it must be a number of bytes over 0")
    if growth is not None and growth not in GROWTH:
        raise MarkerError(f"growth is {growth!r}; allowed are {' and '.join(map(repr, GROWTH))}")
    return MemoryTarget(peak_bytes, growth)


def launches(*, at_most: int) -> Launches:
    """A call of the candidate may launch that many kernels at most."""
    if isinstance(at_most, bool) or not isinstance(at_most, int) or at_most < 1:
        raise MarkerError(f"at_most is {at_most!r}; it must be a whole number of kernels, at least 1")
    return Launches(at_most)


def no_sync() -> NoSync:
    """A call of the candidate must return without waiting for the device."""
    return NoSync()


def roofline_target(*, at_least: float, bandwidth: str = "copy") -> RooflineTarget:
    """A call must reach that share of the attainable FLOPs a second, by the bandwidth of a "copy" or a "read" here."""
    if not _is_positive(at_least) or at_least > 1.0:
        raise MarkerError(f"at_least is {at_least!r}; it must be a share over 0 and at most 1 (0.6: 60 % of the roof)")
    if bandwidth not in BANDWIDTHS:
        raise MarkerError(f"bandwidth is {bandwidth!r}; allowed are {' and '.join(map(repr, BANDWIDTHS))}")
    return RooflineTarget(float(at_least), bandwidth)


def alignment(*, dim: int, max_drop: float = 0.20) -> Alignment:
    """At that head_dim (of attention) or k (of a product) a FLOP may take at most that share longer than at its own."""
    if isinstance(dim, bool) or not isinstance(dim, int) or dim < 1:
        raise MarkerError(f"dim is {dim!r}; it must be a whole number of elements, at least 1, such as 129")
    if not _is_positive(max_drop):
        raise MarkerError(f"max_drop is {max_drop!r}; it must be a number over 0 (0.2: a fifth more time a FLOP)")
    return Alignment(dim, float(max_drop))


def regression(*, slower: float = 0.01, drift: float = 0.02, history: str = "benchmarks_asv/results") -> Regression:
    """A timed case must not have got slower than the stored history of the same card, at once or step by step."""
    for name, value in (("slower", slower), ("drift", drift)):
        if not _is_positive(value) or value >= 1.0:
            raise MarkerError(f"{name} is {value!r}; it must be a share between 0 and 1 (0.01: one per cent)")
    if not isinstance(history, str):
        raise MarkerError(f"history is {history!r}; it must be a folder of asv's results, below the root")
    return Regression(float(slower), float(drift), history)


LIMIT_MARKERS = ("memory_target", "launches", "no_sync", "roofline_target", "alignment")
MARKERS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        gpu,
        correctness,
        perf_target,
        memory_target,
        launches,
        no_sync,
        roofline_target,
        alignment,
        regression,
    )
}


def help_lines() -> Iterator[str]:
    """One line a marker for `pytest --markers`, read off the functions above."""
    for name, function in MARKERS.items():
        arguments = ", ".join(_written(parameter) for parameter in inspect.signature(function).parameters.values())
        yield f"{name}({arguments}): {inspect.getdoc(function)}"


def parse(mark: pytest.Mark) -> Any:
    """The value of one of our markers; MarkerError where an argument is unknown or has a bad value."""
    function = MARKERS[mark.name]
    parameters = inspect.signature(function).parameters
    known = list(parameters)
    if mark.args:
        raise MarkerError(
            f"@pytest.mark.{mark.name} takes no positional arguments (was given {mark.args!r}); "
            f"name them: {', '.join(known)}"
        )
    unknown = [name for name in mark.kwargs if name not in known]
    if unknown:
        raise MarkerError(
            f"@pytest.mark.{mark.name} has no argument {', '.join(map(repr, unknown))}; known are {', '.join(known)}"
        )
    missing = [name for name, one in parameters.items() if one.default is one.empty and name not in mark.kwargs]
    if missing:
        raise MarkerError(f"@pytest.mark.{mark.name} needs {', '.join(missing)}")
    try:
        return function(**mark.kwargs)
    except MarkerError as error:
        raise MarkerError(f"@pytest.mark.{mark.name}: {error}") from None


def parse_all(node: pytest.Item) -> None:
    """Check every one of our markers on a collected test; MarkerError for the first that is wrong, or misspelt."""
    for mark in node.iter_markers():
        if mark.name in MARKERS:
            parse(mark)
        elif meant := _misspelt(mark.name, node.config):
            raise MarkerError(
                f"there is no @pytest.mark.{mark.name}; did you mean {meant}? (Or register it with pytest.)"
            )


def _misspelt(name: str, config: pytest.Config) -> str | None:
    """Which of our markers is meant by one that nobody has registered: a gate that asks nothing would be met."""
    meant = _nearest(name)
    if meant is None or any(re.match(rf"{re.escape(name)}\b", line) for line in config.getini("markers")):
        return None
    return meant


@lru_cache  # asked of every marker of every test, and there are few names
def _nearest(name: str) -> str | None:
    from difflib import get_close_matches

    return next(iter(get_close_matches(name, MARKERS, n=1, cutoff=0.8)), None)


def targets_of(node: pytest.Item) -> list[PerfTarget]:
    """The test's targets, one a rival; the nearest marker of a rival wins: parameter, function, class, module."""
    # pytest lists a parameter's marks behind those of the function, as if they were further away.
    of_parameters = getattr(getattr(node, "callspec", None), "marks", ())
    marks = [mark for mark in of_parameters if mark.name == "perf_target"]
    marks += [mark for mark in node.iter_markers("perf_target") if not any(mark is own for own in marks)]
    nearest: dict[Any, PerfTarget] = {}
    for target in map(parse, marks):
        nearest.setdefault(target.against, target)
    return list(nearest.values())


def announced(node: pytest.Item) -> list[PerfTarget]:
    """The test's targets before it runs; none where a marker is wrong, which its setup tells."""
    try:
        return targets_of(node)
    except MarkerError:
        return []


def _written(parameter: inspect.Parameter) -> str:
    return parameter.name if parameter.default is parameter.empty else f"{parameter.name}={parameter.default!r}"


def _is_positive(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value > 0


def _is_capability(value: object) -> bool:
    return (
        isinstance(value, (tuple, list))
        and len(value) == 2
        and all(isinstance(part, int) and not isinstance(part, bool) and part >= 0 for part in value)
    )
