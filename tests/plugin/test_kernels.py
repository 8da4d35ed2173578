"""Registers and spills of compiled kernels: one case for all of a module, and a series each in the history."""

from __future__ import annotations

import math

import pytest

from perfsuite import Comparison, Reason, Verdict
from perfsuite.analyze.takes import captured_kernels, takes
from perfsuite.history import series
from perfsuite.problems import Gemm
from perfsuite.record.case import Case, case_record
from perfsuite.record.kernels import by_kernel, measured_of

from .conftest import Suite

FACTS = dict.fromkeys(("commit", "dirty", "gpu", "torch", "cuda", "driver")) | {"harness": "2"}
TEST = """
def kernel(name, registers, local): return {"family": "gemm", "name": name, "registers": registers, "local": local}

def test_kernels(perf):
    perf.kernels([kernel("big", 168, 0), kernel("spilling", 255, 64), kernel("big", 96, 0)], of="made_up")

def test_none(perf):
    perf.kernels([], of="made_up")
"""


def test_kernels_are_one_case_on_record_and_a_series_each(suite: Suite) -> None:
    suite.write(TEST)
    outcome = suite.run("--gpu")
    assert outcome.junit == {"test_kernels": "passed", "test_none": "failed"}
    outcome.has("ValueError: no kernels were given")
    (case,) = outcome.cases
    assert (case["aspect"], case["verdict"], case["speed"]) == ("kernels", "MET", None)
    assert case["sentence"] == (
        "3 kernels, local memory in 1 of them: gemm spilling; most registers: 255 in gemm spilling"
    )
    (group,) = series.values(outcome.records).values()
    assert group == {
        "registers": {"gemm big": 168.0, "gemm spilling": 255.0, "gemm big #2": 96.0},
        "spilled_bytes": {"gemm big": 0.0, "gemm spilling": 64.0, "gemm big #2": 0.0},
    }
    assert series.of_kernels(series.declared(outcome.records)) == series.declared(outcome.records)


def test_a_kernel_without_a_field_is_named() -> None:
    with pytest.raises(ValueError, match="without registers, local"):
        measured_of([{"family": "gemm", "name": "x"}])
    assert dict(by_kernel({"registers/a/b": 3.0})) == {"a/b": {"registers": 3.0}}


def test_what_a_call_takes_is_a_series_of_every_timed_case() -> None:
    def timed(measured: dict[str, float] | None) -> Case:
        comparison = Comparison(
            "gemm", "8x8x8", {}, "mine", "cublas", Verdict.MET, Reason.FAST_ENOUGH, "", target=0.9, speed=1.0
        )
        return case_record(comparison, test="t.py::t", fingerprint=FACTS, measured=measured)

    (found,) = series.values([timed({"peak_bytes": 2048.0, "launches": 2.0})]).values()
    assert set(found["launches"].values()) == {2.0}
    assert set(found["peak_bytes"].values()) == {2048.0}
    (without,) = series.values([timed(None)]).values()
    assert all(map(math.isnan, without["launches"].values()))


@pytest.mark.gpu
def test_what_a_call_takes_on_a_card() -> None:
    problem = Gemm(256, 256, 256)
    assert captured_kernels(problem, lambda a, b: (a + 1).relu()) == 2
    assert takes(problem, lambda a, b: a + 1) == {"peak_bytes": 256 * 256 * 2.0, "launches": 1.0}
