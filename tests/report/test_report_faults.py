"""The tables of planted faults and of the corpus."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perfsuite.record.schema import RecordError
from perfsuite.report.corpus import corpus_table
from perfsuite.report.faults import faults_table

CARD = {"gpu": "NVIDIA H200", "commit": "c0ffee" * 6, "dirty": False, "harness": "3", "torch": "2.11", "cuda": "13.0"}


def line(module: str, fault: str, **changes: Any) -> dict[str, Any]:
    values = {"module": module, "kind": "sorting", "fault": fault, "counts": True, "caught": True}
    return {**values, "reason": "inaccurate", "distance": 1e6, **changes}


def record(folder: Path, *lines: dict[str, Any], **changes: Any) -> Path:
    file = folder / "faults.json"
    file.write_text(json.dumps({"environment": CARD, "faults": list(lines), **changes}))
    return file


def test_a_row_for_each_fault_counts_only_what_counts(tmp_path: Path) -> None:
    lines = [
        line("sort", "zeros"),
        line("top", "zeros", caught=False, reason="checked"),
        line("top", "sign", reason="not-finite"),
        line("sort", "sign", counts=False, caught=False, reason="checked"),
    ]
    table = faults_table(record(tmp_path, *lines), {})
    assert "| zeros | 2 | 1 | inaccurate |" in table
    assert "| sign | 1 | 1 | not-finite |" in table
    assert "2 of 3 planted faults that count are WRONG, in 2 modules; at least 1 count in each." in table
    assert "Measured on one NVIDIA H200" in table


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"environment": None}, "it has no environment"),
        ({"environment": {"gpu": 7}}, "environment"),
        ({"faults": []}, "a list of at least one line"),
        ({"faults": [{"module": "sort"}]}, "a line of faults must hold module, kind, fault"),
        ({"faults": [line("sort", "zeros", caught="yes")]}, "a line of faults must hold"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, changes: dict[str, Any], told: str) -> None:
    with pytest.raises(RecordError, match=told):
        faults_table(record(tmp_path, line("sort", "zeros"), **changes), {})


def test_a_file_that_is_no_json_and_filters_are_refused(tmp_path: Path) -> None:
    (tmp_path / "faults.json").write_text("{")
    with pytest.raises(RecordError, match="cannot be read as a record of faults"):
        faults_table(tmp_path / "faults.json", {})
    with pytest.raises(RecordError, match="takes no kind="):
        faults_table(record(tmp_path, line("sort", "zeros")), {"kind": "sorting"})


def test_the_corpus_is_counted_by_kind_and_what_is_not_met_is_shown(tmp_path: Path) -> None:
    def judged(name: str, verdict: str, **changes: Any) -> dict[str, Any]:
        told = {"reason": "inaccurate", "sentence": f"{name} | was {verdict}"}
        return {"case": name, "kind": "norms", "what": "modules", "verdict": verdict, "wall": 0.25, **told, **changes}

    lines = [
        judged("layer norm", "MET"),
        judged("sort", "MISSED", kind="sorting", plain={"confirmed": True, "said": "2 us against 1 us"}),
        judged("group norm", "WRONG", plain={"confirmed": None, "said": "no memory"}),
        judged("a list", "UNDECIDED", what="calls"),
    ]
    file = tmp_path / "corpus.json"
    file.write_text(json.dumps({"environment": CARD, "corpus": lines}))
    table = corpus_table(file, {})
    assert "| modules | norms | 2 | 1 | 0 | 0 | 1 | 0 | 0.25 |" in table
    assert "| modules | all | 3 | 1 | 1 | 0 | 1 | 0 | 0.25 |" in table
    assert "| calls | all | 1 | 0 | 0 | 1 | 0 | 0 | 0.25 |" in table
    assert "| modules | sort | MISSED | sort \\| was MISSED | confirmed: 2 us against 1 us |" in table
    assert "| modules | group norm | WRONG | group norm \\| was WRONG | cannot tell: no memory |" in table
    assert "| calls | a list | UNDECIDED | a list \\| was UNDECIDED | - |" in table
    assert "layer norm |" not in table
    assert "Checks took" not in table
    timed = [judged("x", "MET", wall=3.0, checks=0.5), judged("y", "MET", wall=1.0, checks=0.5), judged("z", "MET")]
    file.write_text(json.dumps({"environment": CARD, "corpus": timed}))
    assert "Checks took 25% of 4 s, first examinations included." in corpus_table(file, {})
    file.write_text(json.dumps({"environment": CARD, "corpus": [judged("x", "MET", wall="long")]}))
    with pytest.raises(RecordError, match="a line of corpus must hold case, kind, what"):
        corpus_table(file, {})
