"""Tables of a calibration in documents, and where the gate finds the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perfsuite.calibrate.summary import summarise
from perfsuite.record.schema import RecordError
from perfsuite.report.blocks import refresh
from perfsuite.verdict.noise import find_calibration


def calibration(gpu: str = "NVIDIA H200") -> dict[str, Any]:
    gate = {"kind": "gate", "case": "gemm-512", "process": 1, "seconds": 4e-6, "gpu_seconds": 0.04, "setups": []}
    rows = [gate | {"slowdown": 0.0, "alarm": number == 0, "speed": 1.0} for number in range(200)]
    rows += [gate | {"slowdown": 0.01, "alarm": True, "speed": 0.99} for _ in range(100)]
    peer = {"kind": "peer", "peer": "timer, rule", "process": 1, "case": "gemm-512", "seconds": 0.2}
    rows += [peer | {"slowdown": 0.0, "alarm": number < 3} for number in range(10)]
    return summarise(rows, {"gpu": gpu, "harness": "1", "commit": "abc"})


def test_documents_show_what_the_calibration_found(tmp_path: Path) -> None:
    (tmp_path / "calibration.json").write_text(json.dumps(calibration()))
    document = tmp_path / "page.md"
    blocks = [
        f"<!-- perfsuite:{kind} calibration.json -->\n<!-- /perfsuite:{kind} -->" for kind in ("calibration", "peers")
    ]
    document.write_text("\n\n".join(blocks) + "\n")
    text = refresh(document)
    assert "| gemm-512 | 4.00 us | 1 of 200 (≤ 2.75%) | 100 of 100 (≥ 96.4%) | 40.0 ms |" in text
    assert "200 gates of identical code, 1 false alarms: at most 2.75% at 95 %" in text
    assert "| perfsuite | 1 of 200 (≤ 2.75%) |" in text
    assert "| timer, rule | 3 of 10 (≤ 65.25%) |" in text
    document.write_text(text)
    assert refresh(document) == text


def test_documents_name_the_parts_and_pairs_of_a_calibration(tmp_path: Path) -> None:
    gate = {"kind": "gate", "case": "gemm-512", "seconds": 4e-6, "gpu_seconds": 0.04}
    rows = [
        gate
        | {
            "process": number // 20,
            "slowdown": 0.0,
            "alarm": False,
            "speed": 1.0,
            "setups": [(1e-3 * (number % 3), 1e-4, 20)],
        }
        for number in range(200)
    ]
    values = summarise(rows, {"gpu": "NVIDIA H200", "harness": "4", "commit": None, "isolated": True})
    values["parts"] = [{"commit": name * 40, "dirty": False, "driver": "580", "cards": 1} for name in "ab"]
    (tmp_path / "calibration.json").write_text(json.dumps(values))
    document = tmp_path / "page.md"
    document.write_text("<!-- perfsuite:calibration calibration.json -->\n<!-- /perfsuite:calibration -->\n")
    text = refresh(document)
    assert "They share 10 pairs of processes, 0 with an alarm: if gates of a pair err together, at most 30.85%." in text
    assert "a pair differs from others by 0.0" in text
    where = f"NVIDIA H200, in 2 runs (driver 580) in 10 pairs of processes, harness 4, commits {'a' * 12}, {'b' * 12}."
    assert f"Measured on {where}" in text


@pytest.mark.parametrize("text", ["{", "[]", "{}"])
def test_what_is_no_calibration_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "calibration.json").write_text(text)
    document = tmp_path / "page.md"
    document.write_text("<!-- perfsuite:peers calibration.json -->\n<!-- /perfsuite:peers -->\n")
    with pytest.raises(RecordError, match="calibration"):
        refresh(document)


def test_the_gate_finds_the_calibration_of_its_card(tmp_path: Path) -> None:
    assert find_calibration(tmp_path, "NVIDIA H200") is None
    for folder, gpu in (("records/a100", "NVIDIA A100"), ("records/h200", "NVIDIA H200")):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "calibration.json").write_text(json.dumps(calibration(gpu)))
    assert find_calibration(tmp_path, "NVIDIA H200") == tmp_path / "records/h200/calibration.json"
    (tmp_path / ".perfsuite").mkdir()
    own = tmp_path / ".perfsuite/calibration.json"
    own.write_text("not yet")
    assert find_calibration(tmp_path, "NVIDIA H200") == tmp_path / "records/h200/calibration.json"
    own.write_text(json.dumps(calibration()))
    assert find_calibration(tmp_path, "NVIDIA H200") == own
    assert find_calibration(tmp_path, "NVIDIA L4") is None
