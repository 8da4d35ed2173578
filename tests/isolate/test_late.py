"""Inputs get their values right before the order: work of one sample cannot be done in the time of another."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

import isolated_kernels as kernels
from beside import gains_nothing

from perfsuite.case.ask import Ask
from perfsuite.clock.base import Sides
from perfsuite.clock.deck import Deck
from perfsuite.isolate import compare_isolated, sandbox
from perfsuite.isolate.clock import IsolatedClock
from perfsuite.isolate.late import Late
from perfsuite.isolate.remote import Remote
from perfsuite.outcome import Verdict
from perfsuite.problems import Gemm
from perfsuite.problems.base import Inputs
from perfsuite.problems.tensors import keep, same_bits
from perfsuite.problems.written import Written
from perfsuite.settings import Settings

SETTINGS = Settings(device="cpu", seconds=0.1)


@contextmanager
def opened(sides: Sides, *, apart: bool = True) -> Iterator[IsolatedClock]:
    """A clock of these sides. apart: the rival runs in a process as well."""
    limits: dict[str, Any] = {"device": "cpu", "seconds": 20.0, "room": 1 << 30}
    remote = Remote(sides.candidate, **limits)
    rival = Remote(sides.rival, trusted=True, **limits) if apart else None
    try:
        clock = IsolatedClock(sides, remote, SETTINGS, rival)
        clock.setup()
        yield clock
        clock.close()
    finally:
        for one in (remote, rival):
            if one is not None:
                one.close()


def operands() -> Inputs:
    return Inputs((torch.randn(200, 64), torch.randn(64, 64)))


@pytest.mark.parametrize("reuses", [False, True])
def test_a_process_that_goes_on_behind_its_receipt_has_no_values_of_later_calls(reuses: bool) -> None:
    with opened(Sides(kernels.product, kernels.product, operands, hard={"hard": operands})) as clock:
        clock._reuses = reuses  # rounds of drawn length
        seen = keep(clock._sets)
        """All that the candidate's process had so far."""
        run, handed_out = clock._run, []

        def noted(side: Any, first: int, calls: int, *rest: Any) -> Any:
            stopped = [one._process._stopped for one in clock._remotes.values()]
            if not handed_out:  # the first side of a round: the other one has not been asked yet
                handed_out.append(stopped)
            asked = {(first + call) % len(seen) for call in range(calls)}
            for place, (now, mine, before) in enumerate(zip(clock._sets, clock._mirror, seen, strict=True)):
                for one, theirs, old in zip(now.args, mine.args, before.args, strict=True):
                    assert torch.equal(one, old) is (place not in asked)
                    assert place not in asked or hard or torch.equal(one, theirs)
            return run(side, first, calls, *rest)

        clock._run = noted  # type: ignore[method-assign]
        # More rounds than there are sets: each comes again.
        for number in range(2 * len(seen) // clock.launches + 4):
            hard = "hard" if number == 2 else None
            handed_out.clear()
            clock._round(keeper=number % 2 == 0, hard=hard)
            assert handed_out == [[True, True]]
            seen = keep(clock._sets)


@pytest.mark.parametrize("apart", [True, False])
def test_what_a_rival_writes_is_restored_wherever_it_runs(apart: bool) -> None:
    sides = Sides(
        kernels.doubles, kernels.doubles_once, lambda: Inputs((torch.randn(64, 64),)), written=Written((0,), ("x",))
    )
    with opened(sides, apart=apart) as clock:
        assert len(clock.rounds(6)) == 6
        for call in clock.timed_calls(4):
            assert same_bits(call.candidate_output, {"x": kernels.doubles_and_returns(keep(call.inputs.args[0]))})


def test_values_of_all_forms_are_handed_out() -> None:
    def make() -> Inputs:
        wide = torch.randn(4, 1).expand(4, 3)
        with_gaps = torch.randn(6, 8)[:, ::2]
        return Inputs((wide, with_gaps, torch.randn(5, dtype=torch.complex64).conj()), {"index": torch.randperm(7)})

    for count in (2, 3):
        deck = Deck(make, make(), count, "elements")
        sides = {side: keep(deck.sets) for side in ("candidate", "rival")}
        late = Late(deck, sides)  # type: ignore[arg-type]
        before = keep(deck.sets)
        deck.deal([(0, count)])
        late.hand_out([(0, 1)])
        for given in sides.values():
            assert same_bits(given[0], deck.sets[0])
            assert same_bits(given[1:], before[1:])
        late.copy("rival", [(1, count - 1)], [3])
        assert same_bits(sides["rival"][-1].kwargs["index"], deck.sets[-1].kwargs["index"])
        assert same_bits(sides["rival"][-1].args, before[-1].args)
        assert same_bits(sides["candidate"][1:], before[1:])


AHEAD = [
    kernels.computes_ahead,
    kernels.computes_ahead_and_looks,
    kernels.computes_in_bunches,
    kernels.computes_ahead_in_a_thread,
    pytest.param(
        kernels.computes_ahead_in_a_helper,
        marks=pytest.mark.skipif(sandbox.why_not() is not None, reason="a process outside of the group goes on"),
    ),
]


@pytest.mark.parametrize("candidate", AHEAD)
def test_work_that_is_done_ahead_gains_nothing(candidate: Callable[..., Any]) -> None:
    """In bunches it was MET at 9 times the library's speed, and the others were on a busy machine."""
    problem = Gemm(256, 256, 256, "float32")
    gains_nothing(compare_isolated(Ask(problem, candidate, against="cublas", at_least=4.0, settings=SETTINGS), 20.0))


@pytest.mark.parametrize("candidate", [kernels.in_threads_that_join, kernels.leaves_garbage, kernels.into_one_buffer])
def test_honest_twins_are_met(candidate: Callable[..., Any]) -> None:
    problem = Gemm(256, 256, 256, "float32")
    one = compare_isolated(Ask(problem, candidate, against="cublas", at_least=1e-3, settings=SETTINGS), 20.0)
    assert one.verdict is Verdict.MET, one.sentence
