"""The errors of a record by those of the rival."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfsuite.record.case import Case
from perfsuite.record.store import read_record
from perfsuite.report.accuracy import table

from .conftest import case

RECORDS = Path(__file__).parents[2] / "records" / "h200"


def _case(own: float | None, theirs: float | None, name: str, distribution: str = "normal") -> Case:
    errors = {"candidate_error": own, "rival_error": theirs, "distribution": distribution}
    return case(name, candidate="ops.gemm", **errors)


def test_a_row_for_each_distribution_with_the_worst_case() -> None:
    rows = table(
        [
            _case(2e-4, 1e-4, "8x8x8 float16"),
            _case(1e-4, 2e-4, "9x9x9 float16"),
            _case(3e-4, 2e-4, "9x9x9 float16 cancellation", "cancellation"),
        ]
    ).splitlines()
    assert rows[2:] == [
        "| gemm | cublas | normal | 2 | 1.000 | 2.000 | 8x8x8 fp16 |",
        "| gemm | cublas | cancellation | 1 | 1.500 | 1.500 | 9x9x9 fp16 |",
    ]


def test_cases_without_both_errors_are_left_out() -> None:
    rows = table([_case(None, 1e-4, "a"), _case(1e-4, None, "b"), _case(1e-4, 0.0, "c"), _case(0.0, 1e-4, "d")])
    assert rows.splitlines()[2:] == ["| gemm | cublas | normal | 1 | 0.000 | 0.000 | d |"]


@pytest.mark.parametrize("record", ["gates.jsonl", "cancellation.jsonl"])
def test_no_kernel_on_record_is_a_fifth_further_off_than_its_rival(record: str) -> None:
    errors = [
        (one.candidate_error / one.rival_error, one.case)
        for one in read_record(RECORDS / record)
        if one.candidate_error is not None and one.rival_error
    ]
    assert len(errors) > 200
    assert max(errors)[0] <= 1.2, max(errors)
