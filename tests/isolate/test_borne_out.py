"""Samples that are long and short in turn: work of one that was done in the time of another."""

from __future__ import annotations

from dataclasses import replace

import isolated_kernels as kernels
import pytest

from perfsuite.case.ask import Ask
from perfsuite.case.comparison import Comparison
from perfsuite.clock.rounds import Round
from perfsuite.isolate import compare_isolated
from perfsuite.isolate.alone import borne_out
from perfsuite.outcome import Reason, Verdict
from perfsuite.problems import Gemm
from perfsuite.settings import Settings


@pytest.fixture(scope="module")
def met() -> Comparison:
    settings = Settings(device="cpu", seconds=0.1)
    ask = Ask(Gemm(64, 64, 64, "float32"), kernels.product, against="cublas", at_least=1e-3, settings=settings)
    found = compare_isolated(ask, 20.0)
    assert found.verdict is Verdict.MET, found.sentence
    return found


def samples(like: Round, candidate: list[float]) -> tuple[Round, ...]:
    return tuple(replace(like, candidate_seconds=one, rival_seconds=1e-3) for one in candidate)


def test_work_that_moves_between_samples_gains_nothing(met: Comparison) -> None:
    rounds = samples(met.rounds[0], [4e-3, 1e-4, 1e-4, 1e-4, 3e-3, 1e-4])
    found = borne_out(replace(met, rounds=rounds, discarded=(), speed=10.0, target=2.0))
    assert (found.verdict, found.reason) == (Verdict.UNDECIDED, Reason.SAMPLES_DISAGREE)
    assert "all samples together give a speed of 0.811, their median 10" in found.sentence


def test_a_moment_of_a_busy_machine_doubts_nothing_that_is_met_anyway(met: Comparison) -> None:
    rounds = samples(met.rounds[0], [4e-3, *[5e-4] * 9])
    for speed, target in ((2.0, 1.0), (1.2, 1.0)):
        found = replace(met, rounds=rounds, discarded=(), speed=speed, target=target)
        assert borne_out(found) is found
