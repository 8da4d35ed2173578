"""The record of counters: its rows from what ncu prints, and what is left if the time is up."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perfsuite.cli.problem_specs import problem_of
from perfsuite.record.schema import RecordError
from perfsuite.report.rows import rows_table
from records import counters
from records.make import findings

COLUMNS = {
    "ID": "",
    "Kernel Name": "",
    "gpu__time_duration.sum": "ns",
    "dram__bytes_read.sum": "byte",
    "dram__bytes_write.sum": "byte",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": "%",
    "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active": "%",
    "lts__t_sector_hit_rate.pct": "%",
    "launch__registers_per_thread": "register/thread",
    "smsp__average_warps_issue_stalled_gmma_per_issue_active.ratio": "inst",
    "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio": "inst",
}
KERNELS = (
    ("0", "sums", "4,000", "1", "1", "20", "0", "50", "32", "0.1", "0"),
    ("1", "main", "200,000", "1", "1", "70", "64.4", "80", "240", "1.25", "3"),
    ("2", "round", "6,000", "1", "1", "20", "0", "50", "32", "0.1", "0"),
)


@pytest.fixture
def ncu(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The lines by which ncu was called; it refuses FlashAttention-4."""
    asked: list[list[str]] = []

    def run(line: list[str], **_: Any) -> Any:
        asked.append(line)
        if line[-1] == counters.CANDIDATES[counters.FLASH]:
            return SimpleNamespace(stdout="", stderr="perfsuite counters: no objects\n", returncode=2)
        rows = [list(COLUMNS), list(COLUMNS.values()), *KERNELS]
        text = "\n".join(",".join(f'"{cell}"' for cell in row) for row in rows)
        Path(line[line.index("--log-file") + 1]).write_text(f"==PROF== Connected\n{text}\n")
        return SimpleNamespace(stdout="", stderr="", returncode=0)

    monkeypatch.setattr(counters, "find_ncu", lambda: "ncu")
    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr("cuda_llm_ops.levers.origin", lambda device: {"card": device, "torch": "2", "commit": "abc"})
    return asked


def test_every_call_has_a_row_of_its_longest_kernel(
    ncu: list[list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "made/counters.json"
    file.parent.mkdir()
    assert counters.main(["--output", str(file), "--csv", str(tmp_path / "csv")]) == 1
    asked = [(case, side) for case, sides in counters.CASES.items() for side in sides]
    assert sorted((line[-2], line[-1]) for line in ncu) == sorted(
        (f"attention {case}", counters.CANDIDATES[side]) for case, side in asked
    )
    record = json.loads(file.read_text())
    mine = [(case, side) for case, side in asked if side != counters.FLASH]
    assert record["environment"]["cut at"] == f"{len(mine)} of {len(asked)} calls"
    assert findings.counters(file) == (False, f"{len(mine)} calls; cut at {len(mine)} of {len(asked)} calls")
    first = record["rows"][0]
    assert (first["problem"], first["kernel"]) == ("2x64/8x8192x128", "free order")
    assert (first["us"], first["others, us"], first["tensor cores"], first["registers"]) == ("200", "10", "64%", 240)
    assert first["waits, cycles an instruction"] == "barrier 3, gmma 1.2"
    assert len(list((tmp_path / "csv").iterdir())) == len(mine)
    assert "no objects" in capsys.readouterr().err
    assert "| 2x64/8x8192x128 causal | in turn |" in rows_table(file, {})
    with pytest.raises(RecordError):
        rows_table(file, {"kernel": "FlashAttention-4"})


def test_no_call_begins_when_the_time_is_up(ncu: list[list[str]], tmp_path: Path) -> None:
    assert counters.main(["--output", str(tmp_path / "none.json"), "--seconds", "-1"]) == 1
    assert not ncu
    assert not (tmp_path / "none.json").exists()


def test_cases_are_named_as_records_name_them() -> None:
    for case in counters.CASES:
        assert problem_of(f"attention {case}").name == case
