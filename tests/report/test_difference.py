"""Comparing two records: which cases are the same, and whether the kernel or its yardstick changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perfsuite.cli.main import main
from perfsuite.record.case import Case
from perfsuite.record.store import write_record
from perfsuite.report.difference import Change, differences, lines, versions_changed

from .conftest import case


def timed(own: float, rivals: float = 1e-5, **changes: Any) -> Case:
    speed = rivals / own
    times = {"candidate_seconds": own, "rival_seconds": rivals}
    interval = {"speed": speed, "speed_low": speed * 0.995, "speed_high": speed * 1.005}
    return case(**{**times, **interval, **changes})


def roofline(seconds: float, ceiling: float, share: float, **changes: Any) -> Case:
    measured = {"seconds": seconds, "attainable_flops": ceiling, "share": share}
    names = {"rival": None, "aspect": "roofline", "case": "kernels.gemm gemm 8x8x8: roofline", "target": None}
    return case(**{**names, "speed": None, "speed_low": None, "speed_high": None, "measured": measured, **changes})


def limit(aspect: str, **measured: float) -> Case:
    return case(aspect=aspect, rival=None, speed=None, speed_low=None, speed_high=None, measured=measured)


def only(before: Case, after: Case) -> Change:
    (change,) = differences([before], [after])
    return change


def test_of_two_calls_alike_the_first_cannot_get_slower_unseen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_record(tmp_path / "a", [timed(1e-5, call=1), timed(1e-5, call=2)])
    write_record(tmp_path / "b", [timed(6.4e-5, call=1), timed(1e-5, call=2)])
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "b")]) == 1
    out = capsys.readouterr().out
    assert "-84.4 %" in out
    assert "(tests/test_it.py::test_it, call 1)" in out
    assert "2 cases: 1 slower, 1 same" in out


def test_calls_of_older_records_are_matched_by_their_order() -> None:
    before, after = [timed(1e-5), timed(2e-5)], [timed(6.4e-5), timed(2e-5)]
    assert [change.kind for change in differences(before, after)] == ["slower", "same"]


def test_calls_alike_in_other_numbers_are_not_matched_and_said() -> None:
    changes = differences([timed(1e-5, call=1)], [timed(6e-5, call=1), timed(1e-5, call=2)])
    assert [change.kind for change in changes] == ["unmatched"] * 3
    assert "1 calls alike in the first record, 2 in the second: give each a label" in lines(changes)[0][1]


def test_labels_tell_calls_apart_whatever_their_order() -> None:
    before = [timed(1e-5, label="one", call=1), timed(4e-5, label="two", call=2)]
    after = [timed(4e-5, label="two", call=1), timed(2e-5, label="one", call=2)]
    changes = differences(before, after)
    assert [(change.kind, change.before and change.before.label) for change in changes] == [
        ("slower", "one"),
        ("same", "two"),
    ]


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"test": "tests/test_moved.py::test_it"}, "test 'tests/test_it.py::test_it' is now 'tests/test_moved.py"),
        ({"candidate": "other.gemm", "case": "other.gemm gemm 8x8x8"}, "candidate 'kernels.gemm' is now 'other.gemm'"),
        ({"label": "small"}, "label None is now 'small'"),
    ],
)
def test_a_case_under_one_new_name_is_found_and_said(changes: dict[str, Any], note: str) -> None:
    change = only(timed(1e-5), timed(2e-5, **changes))
    assert change.kind == "slower"
    assert change.notes[0].startswith(note)


def test_a_case_of_several_tests_is_not_matched_with_another_test() -> None:
    before = [timed(1e-5, test="a"), timed(1e-5, test="b")]
    after = [timed(1e-5, test="c"), timed(6e-5, test="d")]
    assert {change.kind for change in differences(before, after)} == {"gone", "new"}


@pytest.mark.parametrize(
    ("before", "after", "kind", "note"),
    [
        # The kernel is as it was; the ceiling measured in the run rose.
        (
            roofline(62.81e-6, 35.01e12, 0.97),
            roofline(62.62e-6, 35.49e12, 0.959, verdict="MISSED"),
            "yardstick",
            "62.8 us under a ceiling of 35.01 TFLOPS -> 62.6 us under a ceiling of 35.49 TFLOPS (the kernel's own part "
            "-0.3 %, the yardstick +1.4 %)",
        ),
        (roofline(105.6e-6, 4.2e12, 1.051), roofline(121.3e-6, 4.2e12, 0.917), "slower", "121 us under a ceiling"),
        (roofline(105.6e-6, 4.2e12, 0.9), roofline(90e-6, 4.2e12, 1.05), "faster", ""),
        (
            roofline(105.6e-6, 4.2e12, 0.9),
            roofline(121.3e-6, 4.2e12, 0.78, verdict="MISSED"),
            "worse verdict",
            "106 us under a ceiling of 4.2 TFLOPS -> 121 us",
        ),
        # The rival got faster.
        (timed(1e-5, 1e-5), timed(1e-5, 0.9e-5), "yardstick", "the kernel's own part +0.0 %, the yardstick +11.1 %"),
        (timed(1e-5, 1e-5), timed(1e-5, 0.9e-5, verdict="MISSED"), "yardstick", "the yardstick +11.1 %"),
        (timed(1e-5, 1e-5), timed(1.2e-5, 1e-5, verdict="MISSED"), "worse verdict", "12 us against the rival's 10 us"),
        (timed(1e-5, 1e-5), timed(1e-5, 1.2e-5), "yardstick", "the yardstick -16.7 %"),
        (timed(1e-5), timed(1e-5, target=1.1, verdict="MISSED"), "yardstick", "the target 0.90 is now 1.10"),
        (timed(1e-5), timed(1e-5, 0.9e-5, verdict="WRONG"), "worse verdict", ""),
        # The card's clock rose by 10 %, and so the rival's speed; the kernel's time stayed, so its cycles rose.
        (
            timed(1e-5, 1e-5, telemetry={"sm_clock_hz": 1.8e9}),
            timed(1e-5, 0.9e-5, telemetry={"sm_clock_hz": 2e9}),
            "slower",
            "",
        ),
        (limit("launches", launches=1.0), limit("launches", launches=2.0), "costlier", "launches: 1 -> 2"),
        (limit("memory", peak_bytes=64e6), limit("memory", peak_bytes=32e6), "cheaper", "peak_bytes: 6.4e+07"),
        (limit("no_sync", synchronises=0.0), limit("no_sync", synchronises=1.0), "costlier", "synchronises: 0 -> 1"),
        (
            limit("kernels", **{"registers/gemm k": 90.0, "spilled_bytes/gemm k": 0.0}),
            limit("kernels", **{"registers/gemm k": 99.0, "spilled_bytes/gemm k": 8.0}),
            "costlier",
            "spilled bytes of gemm k: 0 -> 8",
        ),
        (
            timed(1e-5, candidate_error=1e-4, rival_error=1e-4),
            timed(1e-5, candidate_error=2e-4, rival_error=1e-4),
            "less accurate",
            "error: 0.0001, the rival's 0.0001 -> 0.0002, the rival's 0.0001",
        ),
        (
            timed(1e-5, candidate_error=1e-4, rival_error=1e-4),
            timed(1e-5, candidate_error=1.2e-4, rival_error=1e-4),
            "same",
            "",
        ),
    ],
)
def test_the_kernel_and_its_yardstick_are_told_apart(before: Case, after: Case, kind: str, note: str) -> None:
    change = only(before, after)
    assert change.kind == kind
    assert note in "; ".join(change.notes)
    assert change.regression == (kind in ("slower", "worse verdict", "costlier", "less accurate"))


def test_versions_of_the_yardstick_are_told() -> None:
    found = versions_changed([case(cublas="13.0.0")], [case(cublas="13.1.0")])
    assert found == ["cublas 13.0.0 is now 13.1.0"]
