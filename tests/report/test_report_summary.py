"""The short table of a record."""

from __future__ import annotations

from perfsuite.record.case import Case
from perfsuite.report.summary import table

from .conftest import case


def _case(candidate: str, rival: str, speed: float | None, verdict: str, name: str) -> Case:
    return case(name, candidate=candidate, rival=rival, speed=speed, verdict=verdict)


def test_a_row_for_each_candidate_and_rival() -> None:
    rows = table(
        [
            _case("ops.gemm", "cublas", 2.0, "MET", "8x8x8 float16"),
            _case("ops.gemm", "cublas", 0.5, "MISSED", "9x9x9 float16"),
            _case("ops.flash", "sdpa", 1.2, "MET", "1x1x8x64 float16"),
            _case("ops.flash", "sdpa", None, "MET", "checked, not timed"),
        ]
    ).splitlines()
    assert rows[2:] == [
        "| gemm | cublas | 2 | 1 | 1.000 | 0.500 | 9x9x9 fp16 |",
        "| flash | sdpa | 1 | 1 | 1.200 | 1.200 | 1x1x8x64 fp16 |",
    ]
