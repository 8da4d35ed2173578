"""Exporters: all in the help, each on a committed record, and files that a spreadsheet or a program can read."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from perfsuite.cli.main import main
from perfsuite.exporters.listing import exporters, load
from perfsuite.record.store import read_record

RECORD = Path(__file__).resolve().parents[2] / "records" / "h200" / "gates.jsonl"


def test_help_lists_every_exporter_with_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["export", "--help"])
    shown = capsys.readouterr().out
    assert {"asv", "csv", "html", "json", "markdown"} <= set(exporters())
    for name, text in exporters().items():
        assert f" {name} {text} " in f" {' '.join(shown.split())} "


@pytest.mark.parametrize("name", [name for name in exporters() if hasattr(load(name), "text")])
def test_a_record_becomes_text_or_a_file(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", name, str(RECORD)]) == 0
    text = capsys.readouterr().out
    assert "flash_attention" in text
    file = tmp_path / "exported"
    assert main(["export", name, str(RECORD), "--output", str(file)]) == 0
    assert capsys.readouterr().out == f"{file}\n"
    assert file.read_text(encoding="utf-8") == text


def test_a_csv_row_holds_the_figures_of_its_case(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "csv", str(RECORD)]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    cases = read_record(RECORD)
    assert len(rows) == len(cases)
    timed = next(place for place, case in enumerate(cases) if case.speed is not None and case.family == "gemm")
    assert float(rows[timed]["speed"]) == cases[timed].speed
    assert rows[timed]["params.m"] == str(cases[timed].params["m"])
    assert rows[timed]["params.head_dim"] == ""


def test_a_csv_cell_is_no_formula() -> None:
    first = read_record(RECORD)[0].changed(name="=HYPERLINK(1)", sentence="x")
    assert "'=HYPERLINK(1)" in load("csv").text([first], title="")


def test_json_leaves_the_samples_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "json", str(RECORD)]) == 0
    cases = json.loads(capsys.readouterr().out)
    assert len(cases) == len(read_record(RECORD))
    assert not [key for key in cases[0] if key.endswith("samples")]


def test_report_prints_the_same_as_the_exporter(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "json", str(RECORD)]) == 0
    exported = capsys.readouterr().out
    assert main(["report", str(RECORD), "--json"]) == 0
    assert capsys.readouterr().out == exported


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["csv", "absent.jsonl"], "absent.jsonl: cannot be read as a record"),
        (["csv"], "there is no record under .perfsuite/runs here"),
        (["html", str(RECORD), "--output", "no/x.html"], "--output is 'no/x.html', which cannot be written"),
    ],
)
def test_bad_input_is_one_sentence(
    words: list[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["export", *words]) == 2
    said = capsys.readouterr()
    assert (sentence in said.err, said.out) == (True, ""), said.err


def test_an_unknown_exporter_lists_the_known(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["export", "exel", str(RECORD)])
    assert "'csv'" in capsys.readouterr().err
    with pytest.raises(ValueError, match="exporter is 'exel'; it must be one of asv, csv"):
        load("exel")
