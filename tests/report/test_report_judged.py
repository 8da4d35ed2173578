"""The tables of a judge.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perfsuite.record.schema import RecordError
from perfsuite.report.judged import NOTHING, judge_table

ENVIRONMENT = {
    "harness": "3",
    "cuda": None,
    "gpu": "NVIDIA H200",
    "torch": "2.11.0",
    "commit": "0123456789abcdef",
    "dirty": False,
}
STAGE = {"median": 0.25, "p95": 2.5, "most": 9.0, "jobs": 100}
COLD = {"jobs": 100, "goal": 4.0, "stages": {"asked": STAGE, "run": STAGE}, "environment": ENVIRONMENT}
HTTP = {
    "jobs": 1000, "workers": 2, "jobs_per_hour": 8123.4, "workers_killed": 49, "service_restarts": 2, "faults": ["one"],
    "stages": {"wait": STAGE}, "environment": {**ENVIRONMENT, "commit": "fedcba9876543210"},
}  # fmt: skip
CARDS = {"jobs": 50, "goal": 1.9, "ratio": 1.954, "processes": 2, "stages": {}, "environment": ENVIRONMENT}


def made(folder: Path, **parts: Any) -> Path:
    file = folder / "judge.json"
    file.write_text(json.dumps({name.replace("_", "-"): part for name, part in parts.items()}))
    return file


def test_speeds_have_a_row_for_each_measurement(tmp_path: Path) -> None:
    hourly = {"cases": 40, "per_hour": 31234.5, "goal": 30000.0, "environment": ENVIRONMENT}
    file = made(tmp_path, in_process=hourly, cards=CARDS, triton=COLD)
    rows = judge_table(file, {"table": "speeds"}).splitlines()
    assert rows[2].endswith("| 31,234 an hour | 30,000 an hour or more | 40 |")
    assert rows[3].endswith("| 1.95 times with 2 | 1.9 times or more with 2 | 50 |")
    assert rows[4].endswith("| 2.5 s | 4 s or less | 100 |")
    assert rows[-1] == "Measured on NVIDIA H200; torch 2.11.0, harness 3; commit 0123456789ab."


def test_jobs_and_stages_name_each_machine_once(tmp_path: Path) -> None:
    file = made(tmp_path, http=HTTP, triton=COLD)
    jobs = judge_table(file, {"table": "jobs"}).splitlines()
    assert jobs[2] == "| HTTP | 1000 | 2 | 8,123 | 49 | 2 | 0 | 1 |"
    stages = judge_table(file, {"table": "stages"}).splitlines()
    assert stages[2] == "| cold Triton | - | - | - | 250 ms, 2.5 s | - | - | - |"
    assert stages[3].startswith("| HTTP | 250 ms, 2.5 s |")
    assert stages[-1].count("NVIDIA H200") == 2


def test_what_was_not_measured_has_no_table(tmp_path: Path) -> None:
    assert judge_table(tmp_path / "none.json", {"table": "speeds"}) == NOTHING
    assert judge_table(made(tmp_path, triton=COLD), {"table": "jobs"}) == NOTHING


@pytest.mark.parametrize("filters", [{}, {"table": "others"}, {"table": "jobs", "gpu": "H200"}])
def test_other_filters_are_refused(tmp_path: Path, filters: dict[str, str]) -> None:
    with pytest.raises(RecordError, match="needs table= one of speeds, jobs, stages"):
        judge_table(made(tmp_path), filters)


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"triton": [1]}, "an object of objects"),
        ({"triton": {"jobs": 1, "environment": ENVIRONMENT}}, "lacks a field"),
        ({"triton": {**COLD, "environment": {"dirty": "maybe"}}}, "triton"),
        ({"triton": {name: value for name, value in COLD.items() if name != "environment"}}, "no environment"),
    ],
)
def test_bad_records_are_named(tmp_path: Path, parts: dict[str, Any], said: str) -> None:
    with pytest.raises(RecordError, match=said):
        judge_table(made(tmp_path, **parts), {"table": "speeds"})
