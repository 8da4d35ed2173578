"""Faults at the gates' shapes: the shapes, the record, and candidates that hide from it. A card judges all of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="problems are drawn with torch")
pytest.importorskip("cuda_llm_ops", reason="the extension is not installed", exc_type=ImportError)

from perfsuite.problems import Fp8Gemm  # noqa: E402
from perfsuite.problems.fp8 import BLOCK  # noqa: E402
from perfsuite.report.rows import rows_table  # noqa: E402

from . import planted, quantised_faults  # noqa: E402


@pytest.mark.parametrize("family", quantised_faults.FAMILIES)
def test_every_fault_is_planted_at_some_shape_and_most_at_each(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    problems = quantised_faults.shapes(family)
    assert len(problems) == len(set(problems)) >= 10
    faults = [fault for fault in planted.FAULTS[family].values() if any(map(fault.fits, problems))]
    elsewhere = {"fp8-gemm": 1, "grouped-gemm": 2}.get(family, 0)  # faults of groups, or of promised sums
    assert len(faults) == len(planted.FAULTS[family]) - elsewhere
    assert all(sum(fault.fits(problem) for fault in faults) >= 7 for problem in problems)


def test_the_record_and_its_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "faults.json"
    words = ["--small", "--device", "cpu", "--out", str(file)]
    assert quantised_faults.main([*words, "--family", "decode"]) == 0
    assert quantised_faults.main([*words, "--family", "fp8-gemm", "--join", str(file)]) == 0
    assert "0 shapes failed, 0 were left out" in capsys.readouterr().out
    found = json.loads(file.read_text())
    assert set(found["environment"]) == {"gpu", "torch", "commit", "dirty"}
    assert len(found["faults"]) == sum(row["shapes"] for row in found["rows"]) > 100
    table = rows_table(file, {"family": "decode"})
    assert "| page read twice | 4 | 4 |" in table
    assert "scale of a left out" not in table
    cut = [line for line in found["faults"] if line["family"] == "decode"][:-20]
    file.write_text(json.dumps(found | {"faults": cut, "environment": {"commit": "c0ffee" * 6}}))
    assert (
        quantised_faults.main([*words, "--family", "decode", "--part", "0", "2", "--join", str(file), str(file)]) == 0
    )
    found = json.loads(file.read_text())
    assert "cut at" not in found["environment"]
    assert len({str(line) for line in found["faults"]}) == len(found["faults"]) > len(cut)
    assert found["environment"]["some of commit"] == "c0ffeec0ff"


def test_a_record_says_what_the_time_left_out(tmp_path: Path) -> None:
    file = tmp_path / "faults.json"
    words = ["--small", "--device", "cpu", "--family", "decode", "--seconds", "-1", "--out", str(file)]
    assert quantised_faults.main(words) == 1
    left = len(list(quantised_faults.shapes("decode", small=True)))
    assert json.loads(file.read_text())["environment"]["cut at"] == f"{left} shapes left"


def test_a_fault_that_is_none_and_an_answer_that_is_wrong_are_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small = Fp8Gemm(64, 64, 256, scales="row")
    monkeypatch.setitem(quantised_faults.SHAPES, "fp8-gemm", lambda: iter([small]))
    monkeypatch.setitem(planted.FP8, "zeros", planted.Fault(planted.fp8))
    words = ["--device", "cpu", "--family", "fp8-gemm"]
    assert quantised_faults.main(words) == 1
    assert "8 faults, 7 WRONG" in (told := capsys.readouterr().out)
    assert "zeros (" in told

    def wrong(problem: Any, inputs: Any) -> Any:
        return planted.fp8(problem, inputs.args, inputs.kwargs) * 1.1

    monkeypatch.setattr(quantised_faults, "ours_on", wrong)
    assert quantised_faults.main(words) == 1
    assert "cuda_llm_ops at 64x64x256" in capsys.readouterr().out
    assert quantised_faults.main([*words, "--seconds", "0"]) == 1
    assert "1 were left out for time" in capsys.readouterr().out


def test_a_fault_of_hard_inputs_alone_is_found_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def zeros_where_rows_are_constant(problem: Any, args: Any, options: Any) -> Any:
        out, a = planted.fp8(problem, args, options), args[0][:, :BLOCK].float()
        return out * 0 if bool((a == a[:, :1]).all()) else out

    monkeypatch.setitem(planted.FP8, "zeros", planted.Fault(zeros_where_rows_are_constant))
    lines = list(quantised_faults.judged(Fp8Gemm(64, 64, 256), "cpu"))
    by_name = {line.fault: line for line in lines}
    assert (by_name["zeros"].caught, by_name["zeros"].inputs) == (True, "constant-rows")
    assert by_name["inverted sign"].inputs == "normal"
    assert {row["fault"]: row["only on hard inputs"] for row in quantised_faults.rows(lines)}["zeros"] == 1
