"""The object that the `perf` fixture gives to a test."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from perfsuite.case.comparison import Comparison
from perfsuite.problems import Custom
from perfsuite.problems.base import Inputs, Problem
from perfsuite.problems.checks import is_backward, label_of
from perfsuite.problems.naming import short_name
from perfsuite.pytest_plugin.measure import Gate, two_rivals
from perfsuite.record.kernels import ASPECT, comparison_of, measured_of
from perfsuite.settings import cache_modes

if TYPE_CHECKING:
    import torch


class Perf:
    """Checks and times a candidate; the test's markers name the rivals and set the targets.

    Use `perf(problem, candidate)` for a problem of perfsuite, `perf(candidate, args=…, against=…)` for anything else.
    A wrong or slow candidate raises nothing: the test fails when it ends, so its other calls still count.
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
        writes: tuple[str | int, ...] = (),
        reset: Callable[[Inputs], Any] | None = None,
        calls_per_reset: int | None = None,
        label: str | None = None,
        backward: bool | str = False,
        cache: str | None = None,
    ) -> Comparison:
        """Check and time one case; return the Comparison (with several rivals, the first marker's).

        what: a problem and a candidate, or a candidate alone.
        args, kwargs: the arguments of a lone candidate and its rival. `args` may be a callable that takes a
        torch.Generator and makes fresh ones.
        against: a callable, its dotted name ("torch.nn.functional.softmax"), or a rival that the problem knows.
        flops, bytes: of one call, for the record and the roofline.
        label: the case's name in tables and in the history; by default the candidate's, or the test's for a lambda.
        reference: computes the right answer in float64.
        writes: names or positions of arguments that a call writes; those that the rival changes are found without it.
        reset: called with the inputs before every sample, untimed; at most `calls_per_reset` calls follow.
        backward: True to time forward and backward together, of a lone candidate and its rival; "only" to time the
        backward alone, behind an untimed forward pass. The answer is the result, unless it is "only", the gradients by
        all arguments that require grad, and those by the parameters of modules.
        cache: "cold", "hot" or "both", instead of --perf-cache; "both" times the call twice, and both must be fast
        enough.

        Raises TypeError if these do not fit together.
        """
        if cache is not None:
            cache_modes(cache)
        if len(what) == 2:
            problem, candidate = what
            extra: dict[str, Any] = {
                "args": args,
                "kwargs": kwargs,
                "flops": flops,
                "bytes": bytes,
                "reference": reference,
            }
            extra |= {"writes": writes or None, "reset": reset, "calls_per_reset": calls_per_reset}
            extra["backward"] = backward or None
            if surplus := [name for name, value in extra.items() if value is not None]:
                raise TypeError(f"perf(problem, candidate) takes no {', '.join(surplus)}: the problem defines them")
            label = None if label is None else label_of(label)
            return self._gate.measure(
                _problem(problem), _callable("candidate", candidate), against, label=label, cache=cache
            )
        if len(what) != 1:
            raise TypeError(
                f"perf takes (problem, candidate) or (candidate, args=...); it was given {len(what)} arguments"
            )
        candidate = _callable("candidate", what[0])
        if args is None:
            raise TypeError("perf(candidate) needs args=..., or write perf(problem, candidate)")
        rival = _named(against) if isinstance(against, str) else against
        if marked := self._gate.marked_rivals():
            if rival is not None and rival not in marked:
                raise two_rivals(marked[0], against)
            rival = marked[0] if rival is None else rival
        problem = Custom(
            args=args,
            kwargs={} if kwargs is None else kwargs,
            flops=flops,
            bytes=bytes,
            label=label or short_name(candidate) or self._gate.test,
            against=rival,
            reference=reference,
            writes=writes,
            reset=reset,
            calls_per_reset=calls_per_reset,
        )
        if not is_backward(backward):
            raise TypeError(f'backward is {backward!r}; it must be True, False or "only"')
        if backward is False:
            return self._gate.measure(problem, candidate, None, label=label, cache=cache)
        from perfsuite.problems.backward import with_gradients

        whole, both = with_gradients(problem, candidate, only=backward == "only")
        return self._gate.measure(whole, both, None, label=label, cache=cache, as_rival=both.like)

    def kernels(self, kernels: Iterable[Mapping[str, Any]], *, of: str) -> Comparison:
        """Put the resources of compiled kernels on record, as one case of the module that `of` names.

        kernels: each with "family" and "name" (text), "registers" (per thread) and "local" (bytes per thread in local
        memory: spills and stack), as cudaFuncGetAttributes reports them. Nothing is judged; the history shows when a
        kernel began to spill. ValueError if the list is empty or a kernel lacks a field.
        """
        measured = measured_of(kernels)
        comparison = comparison_of(measured, of)
        self._gate.begin_call()
        self._gate.keep(comparison, aspect=ASPECT, measured=measured)
        return comparison


def _problem(value: Any) -> Problem:
    if isinstance(value, Problem):
        return value
    given = f"a {type(value).__name__}"  # not its text: that of a tensor takes many lines
    if isinstance(value, type):
        given = f"the class {value.__name__}; give an instance of it: {value.__name__}(...)"
    raise TypeError(
        f"the problem is {given}; perf(problem, candidate) takes an instance of a subclass of perfsuite.Problem first, "
        "such as Gemm(...), and the candidate second; without a problem write perf(candidate, args=..., against=...)"
    )


def _callable(what: str, value: Any) -> Callable[..., Any]:
    if not callable(value):
        raise TypeError(f"the {what} is {value!r}; it must be callable")
    return value


def _named(path: str) -> Callable[..., Any]:
    try:
        return _callable("rival", resolve_name(path))
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"against is {path!r}, and there is no such function: {error}") from None
