"""A candidate is examined once on the same terms; its timed calls are judged in every case."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from perfsuite.case import checks
from perfsuite.case.ask import Ask
from perfsuite.case.run import run_case
from perfsuite.outcome import Reason, Verdict
from perfsuite.problems import Gemm
from perfsuite.settings import Settings

SETTINGS = Settings(device="cpu", seconds=0.1)
_calls: list[None] = []
"""The candidate's calls in examinations."""


@pytest.fixture(autouse=True)
def _nobody_examined() -> Iterator[None]:
    checks._examined._found.clear()
    yield
    checks._examined._found.clear()


def looked_at() -> bool:
    """True if there was an examination since the last look."""
    found = bool(_calls)
    _calls.clear()
    return found


def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    if any(one.filename.endswith("examine.py") for one in traceback.extract_stack(limit=16)):
        _calls.append(None)
    return torch.mm(a, b)


def wrong(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return product(a, b) * 1.5


def other(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.mm(a, b)


def verdict(candidate: Any, **terms: Any) -> Verdict:
    asked = {"against": "cublas", "at_least": 0.001, "settings": SETTINGS, **terms}
    return run_case(Ask(Gemm(32, 32, 32, dtype="float32"), candidate, **asked)).verdict


def test_what_another_process_has_examined_is_judged_in_its_timed_calls_alone() -> None:
    for candidate, expected in ((product, Verdict.MET), (wrong, Verdict.WRONG)):
        assert verdict(candidate, examined=True) is expected
        assert not looked_at()


def test_rounds_that_confirm_the_miss_of_another_process_are_not_judged() -> None:
    for candidate in (product, wrong):
        ask = Ask(Gemm(32, 32, 32), candidate, against="cublas", at_least=1000.0, settings=SETTINGS, examined=True)
        one = run_case(ask)
        assert (one.verdict, one.reason) == (Verdict.MISSED, Reason.TOO_SLOW)
        assert one.rounds
        assert one.candidate_error is None
        assert one.candidate_host_seconds is None
    assert not looked_at()
    assert verdict(wrong, at_least=1000.0) is Verdict.WRONG, "a case that asks for itself is judged, however slow"


def test_one_examination_serves_all_rivals_on_its_terms() -> None:
    for terms in ({}, {"correctness": "cublas"}, {"deterministic": False}, {"other_sizes": True}):
        assert verdict(product, **terms) is Verdict.MET
        assert looked_at()
        assert verdict(product, **terms, against=other) is Verdict.MET
        assert not looked_at()


def test_a_function_with_its_backward_is_examined_once_though_each_call_makes_it_anew() -> None:
    both, alone = (Gemm(32, 32, 32, dtype="float32", backward=backward) for backward in (True, "only"))
    for problem, new in ((alone, True), (alone, False), (both, True), (both, False)):
        ask = Ask(problem, problem.called(product), against="cublas", at_least=0.001, settings=SETTINGS)
        assert run_case(ask).verdict is Verdict.MET
        assert looked_at() is new
    ask = Ask(alone, alone.called(other), against="cublas", at_least=0.001, settings=SETTINGS)
    assert not checks._examined.has(ask.candidate, alone, ask.terms), "another function"


def test_a_wrong_answer_is_not_remembered_as_right() -> None:
    for _ in range(2):
        assert verdict(wrong, correctness="cublas") is Verdict.WRONG
        assert looked_at()


def test_without_a_check_there_is_no_examination() -> None:
    assert verdict(product, correctness=False) is Verdict.MET
    assert not looked_at()
