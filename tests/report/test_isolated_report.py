"""Isolated cases beside the same ones in-process: differences, verdicts, and the words about them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perfsuite.cli.main import main
from perfsuite.outcome import UserError
from perfsuite.record.store import write_record
from perfsuite.report.blocks import refresh
from perfsuite.report.isolated import pairs_of, verdict

from .conftest import case


def one(
    size: int, speed: float, *, seconds: float = 50e-6, target: float = 0.9, isolated: bool = False, **more: Any
) -> Any:
    name = f"{size}x{size}x{size} float16"
    met = "MET" if speed >= target else "MISSED"
    return case(
        name,
        case=f"kernels.gemm gemm {name} vs cublas",
        speed=speed,
        candidate_seconds=seconds,
        target=target,
        verdict=more.pop("verdict", met),
        clock_note="isolated: timed on the card" if isolated else None,
        **more,
    )


def test_alike_runs_agree() -> None:
    here = [one(size, 1.0 + size / 1e4) for size in (64, 128, 256)]
    apart = [one(size, (1.0 + size / 1e4) * 1.001, isolated=True) for size in (64, 128, 256)]
    good, said = verdict(pairs_of(here, apart))
    assert good
    assert "3 cases: 3 with the same verdict, 0 with another" in said
    assert "median difference +0.10 %; 3 of 3 within" in said


@pytest.mark.parametrize(
    ("here", "apart", "words"),
    [
        (one(64, 1.0), one(64, 1.011, isolated=True), "more than 1 %"),
        (one(64, 1.0, seconds=5e-6), one(64, 1.011, isolated=True), ""),
        (one(64, 1.0, seconds=5e-6), one(64, 1.021, isolated=True), "more than 2 %"),
        (one(64, 1.0, seconds=1e-6), one(64, 1.5, isolated=True), ""),
        (one(64, 0.905), one(64, 0.897, isolated=True), "near its target"),
        (one(64, 0.92), one(64, 0.89, isolated=True), "OTHER VERDICT"),
        (one(64, 0.905), one(64, 0.91, isolated=True, verdict="UNDECIDED"), "near its target"),
        (one(64, 1.5), one(64, 1.5, isolated=True, verdict="WRONG"), "OTHER VERDICT"),
    ],
)
def test_margins_go_by_the_length_of_a_call(here: Any, apart: Any, words: str) -> None:
    (pair,) = pairs_of([here], [apart])
    assert pair.said == words


def test_runs_that_are_off_do_not_agree() -> None:
    few = [one(size, 1.0) for size in range(1, 21)]
    assert not verdict(pairs_of(few, [one(size, 1.003, isolated=True) for size in range(1, 21)]))[0]
    off = [one(size, 1.02 if size > 18 else 1.0, isolated=True) for size in range(1, 21)]
    assert not verdict(pairs_of(few, off))[0]
    off[18] = one(19, 1.0, isolated=True)
    assert verdict(pairs_of(few, off))[0]


def test_records_that_cannot_be_laid_side_by_side_are_errors() -> None:
    with pytest.raises(UserError, match="no gated case stands in both"):
        pairs_of([one(64, 1.0)], [one(65, 1.0, isolated=True)])
    with pytest.raises(UserError, match="give the in-process record first"):
        pairs_of([one(64, 1.0, isolated=True)], [one(64, 1.0)])
    with pytest.raises(UserError, match="different machines"):
        pairs_of([one(64, 1.0, gpu="NVIDIA A")], [one(64, 1.0, isolated=True, gpu="NVIDIA B")])


def test_the_command_and_the_table_of_a_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_record(tmp_path / "here.jsonl", [one(64, 1.0), one(128, 0.92)])
    write_record(tmp_path / "apart.jsonl", [one(64, 1.001, isolated=True), one(128, 0.88, isolated=True)])
    line = ["compare", "--isolated", str(tmp_path / "here.jsonl"), str(tmp_path / "apart.jsonl")]
    assert main(line) == 1
    printed = capsys.readouterr().out
    assert "-4.35 %  OTHER VERDICT" in printed
    assert main([*line, "--json"]) == 1
    assert [row["said"] for row in json.loads(capsys.readouterr().out)["cases"]] == ["", "OTHER VERDICT"]
    page = tmp_path / "page.md"
    page.write_text("<!-- perfsuite:isolated apart.jsonl here=here.jsonl -->\n<!-- /perfsuite:isolated -->\n")
    assert "| +0.10 % |  |" in refresh(page)
    page.write_text("<!-- perfsuite:isolated apart.jsonl -->\n<!-- /perfsuite:isolated -->\n")
    with pytest.raises(UserError, match="needs here=NAME"):
        refresh(page)
