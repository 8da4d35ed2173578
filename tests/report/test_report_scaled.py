"""The tables and the picture of a scale.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perfsuite.cli.main import main
from perfsuite.record.schema import RecordError
from perfsuite.report.blocks import BlockError, pictures
from perfsuite.report.judged import NOTHING
from perfsuite.report.scaled import picture, scale_block

ENVIRONMENT = {
    "harness": "5", "cuda": None, "gpu": "NVIDIA H200", "torch": "2.11.0", "commit": "0123456789abcdef", "dirty": False,
}  # fmt: skip
STAGE = {"median": 0.25, "p95": 2.5, "most": 9.0, "jobs": 100}
JUDGED = {
    "cards": 1, "processes": 4, "jobs": 400, "jobs_per_hour": 4000.0, "host_busy": 0.25, "host_processors": 16,
    "deaths": 0, "faults": [], "stages": {"run": STAGE, "asked": {**STAGE, "median": 1.0}},
    "processor_seconds_a_job": 3.6, "card_busy": [0.5],
    "parent_seconds_a_job": 0.0005, "environment": ENVIRONMENT,
}  # fmt: skip
SUITE = {
    "cards": 4, "cases": 90, "equal_verdicts": 88, "interval_holds_target": 1, "different": ["one"],
    "in_one_run_only": 0, "plain": {"seconds": 70.0}, "auto": {"seconds": 20.0}, "environment": ENVIRONMENT,
    "places": [
        {"card": "3", "tests": 22, "whole": 40.0, "start": 20.0, "timed": 8.0, "checks": 4.0, "other": 4.0,
         "between": 2.0, "end": 2.0, "kernel_share": 0.3},
    ],
}  # fmt: skip


def made(folder: Path, **parts: Any) -> Path:
    file = folder / "scale.json"
    file.write_text(json.dumps({name.replace("_", "-"): part for name, part in parts.items()}))
    return file


@pytest.fixture
def record(tmp_path: Path) -> Path:
    four = {**JUDGED, "cards": 4, "jobs_per_hour": 15040.0, "card_busy": [0.4, 0.6, 0.5, 0.5], "host_processors": 64}
    removed = {**JUDGED, "cards": 4, "deaths": 1, "faults": ["one"], "card_busy": [], "parent_seconds_a_job": None}
    return made(tmp_path, cards_4=four, cards_1=JUDGED, removed=removed, suite_auto=SUITE)


def rows(record: Path, table: str) -> list[str]:
    return scale_block(record, {"table": table}).splitlines()[2:-2]


def test_cards_have_a_row_each_in_order_with_their_share_of_linear(record: Path) -> None:
    assert rows(record, "judge") == [
        "| 1 card | 4 | 400 | 4,000 | 1.00 | 0 | 0 |",
        "| 4 cards | 4 | 400 | 15,040 | 0.94 | 0 | 0 |",
        "| all, one taken away in the middle | 4 | 400 | 4,000 | - | 1 | 1 |",
    ]
    assert rows(record, "stages")[1].startswith("| 4 cards | 1 s, 2.5 s | - |")
    assert "| jobs | asked | parse |" in scale_block(record, {"table": "stages"})


def test_without_one_card_there_is_no_share_and_no_picture(tmp_path: Path) -> None:
    file = made(tmp_path, cards_2={**JUDGED, "cards": 2}, cards_3={**JUDGED, "cards": 3})
    assert rows(file, "judge")[0] == "| 2 cards | 4 | 400 | 4,000 | - | 0 | 0 |"
    assert picture(file) is None


def test_the_host_s_limits_are_in_verdicts_an_hour(record: Path) -> None:
    assert rows(record, "host")[0].startswith("| 1 card | 16 | 25% | 3.6 s | 16,000 | 50% | 7,200,000 |")
    assert rows(record, "host")[1].startswith("| 4 cards | 64 | 25% | 3.6 s | 64,000 | 50% |")


def test_a_host_that_counts_no_time_has_no_share(tmp_path: Path) -> None:
    file = made(tmp_path, cards_1={**JUDGED, "host_busy": None, "processor_seconds_a_job": None})
    assert rows(file, "host")[0].startswith("| 1 card | 16 | - | - | - |")


def test_a_suite_has_its_verdicts_and_what_each_card_did(record: Path) -> None:
    assert rows(record, "suite") == ["| -n auto | 4 | 90 | 88 | 1 | 1 | 20.0 | 70.0 | 0.88 |"]
    assert rows(record, "places") == ["| -n auto | 3 | 22 | 40.0 | 50% | 20% | 10% | 10% | 5% | 5% | 30% |"]


def test_identical_code_has_a_row_for_each_number_of_cards(tmp_path: Path) -> None:
    told = {"gates": 1000, "false_alarms": 3, "undecided": 2, "lower95": 0.0006, "upper95": 0.0087}
    part = {"aa": told, "wall_seconds_per_gate_median": 0.15, "environment": ENVIRONMENT}
    file = made(tmp_path, identical_8=part, identical_1={**part, "wall_seconds_per_gate_median": None})
    assert rows(file, "same") == ["| 1 | 1000 | 3 | 0.87% | 2 | - |", "| 8 | 1000 | 3 | 0.87% | 2 | 150 ms |"]


def test_what_was_not_measured_is_said(tmp_path: Path, record: Path) -> None:
    assert scale_block(tmp_path / "none.json", {"table": "judge"}) == NOTHING
    assert scale_block(tmp_path / "none.json", {"picture": "scale.svg"}) == NOTHING
    assert scale_block(record, {"table": "same"}) == NOTHING


@pytest.mark.parametrize("filters", [{}, {"table": "speeds"}, {"table": "judge", "picture": "a.svg"}])
def test_other_filters_are_refused(record: Path, filters: dict[str, str]) -> None:
    with pytest.raises(RecordError, match=r"a scale\.json needs table= one of judge, host"):
        scale_block(record, filters)


def test_a_bad_measurement_is_named(tmp_path: Path) -> None:
    file = made(tmp_path, cards_1={"cards": 1, "environment": ENVIRONMENT})
    for filters in ({"table": "judge"}, {"picture": "scale.svg"}):
        with pytest.raises(RecordError, match="lacks a field"):
            scale_block(file, filters)


def test_a_picture_is_drawn_beside_its_page_and_compared(record: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, drawn = record.with_name("page.md"), record.with_name("scale.svg")
    page.write_text("<!-- perfsuite:scale scale.json picture=scale.svg -->\n<!-- /perfsuite:scale -->\n")
    assert main(["table", str(page)]) == 0
    assert "](scale.svg)" in page.read_text()
    assert "15,040 (0.94)" in drawn.read_text()
    assert main(["table", "--check", str(page)]) == 0
    values = json.loads(record.read_text())
    values["cards-4"]["jobs_per_hour"] = 15000.0
    record.write_text(json.dumps(values))
    capsys.readouterr()
    assert main(["table", "--check", str(page)]) == 1, "the page is the same, its picture is not"
    assert f"{drawn}: out of date; run `perfsuite table {page}`" in capsys.readouterr().out
    drawn.unlink()
    assert main(["table", "--check", str(page)]) == 1


@pytest.mark.parametrize("name", ["../scale.svg", "/tmp/scale.svg", "scale.png", ""])
def test_a_picture_lies_beside_its_page(record: Path, name: str) -> None:
    page = record.with_name("page.md")
    page.write_text(f"<!-- perfsuite:scale scale.json picture={name} -->\n<!-- /perfsuite:scale -->\n")
    with pytest.raises(BlockError, match=r"must be the name of an \.svg file beside"):
        pictures(page)


@pytest.mark.parametrize("most", [1.0, 9.0, 101.0, 4000.0, 16000.0, 123456.0])
def test_a_picture_has_some_lines_at_every_size(tmp_path: Path, most: float) -> None:
    parts = {f"cards_{count}": {**JUDGED, "cards": count, "jobs_per_hour": count * most} for count in (1, 8)}
    assert 4 <= str(picture(made(tmp_path, **parts))).count('stroke="#ddd"') <= 10
