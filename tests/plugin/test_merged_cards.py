"""Records of several card models as one: its table, and the commands that read it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from perfsuite.cli.commands import compare
from perfsuite.cli.main import main
from perfsuite.record.store import read_run
from perfsuite.report.blocks import refresh

from .conftest import Suite
from .test_shards import CARD

TESTS = """
import os

def here(): return ("MET", 1.25) if "H200" in os.environ["CARD"] else ("MISSED", 0.75)

@TARGET
def test_both(perf): perf(Gemm(8, 8, 8), here)

@TARGET
def test_same(perf): perf(Gemm(16, 8, 8), met)

@pytest.mark.gpu(min_capability=(9, 0) if "H200" in os.environ["CARD"] else (10, 0))
@TARGET
def test_one(perf): perf(Gemm(24, 8, 8), met)
"""
DEVICES = """
def pytest_perfsuite_devices():
    return Devices((Device(0, os.environ["CARD"], "GPU-0", (9, 0), 2**33, "0"),), "600.00", None)
"""
CARDS = {"h200": "Fake H200", "h100": "Fake H100"}
TABLE = """\
| case | rival | target | Fake H100 | Fake H200 |
| --- | --- | --- | ---: | ---: |
| here 8x8x8 fp16 | cublas | 0.90 | MISSED 0.750 [0.740-0.760] | MET 1.250 [1.240-1.260] |
| met 16x8x8 fp16 | cublas | 0.90 | MET 1.250 [1.240-1.260] | MET 1.250 [1.240-1.260] |
| met 24x8x8 fp16 | cublas | 0.90 |  | MET 1.250 [1.240-1.260] |"""


@pytest.fixture
def cards(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with h200.jsonl and h100.jsonl, of one commit of the repository in it."""
    monkeypatch.chdir(suite.path)
    for words in ("init -q", "-c user.name=a -c user.email=a@b commit -q --allow-empty -m 1"):
        subprocess.run(["git", *words.split()], check=True)
    commit = subprocess.run(["git", "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    monkeypatch.setenv("PERFSUITE_COMMIT", commit)
    monkeypatch.setenv("COMMIT", commit)
    suite.add_hooks(CARD + DEVICES)
    suite.write(TESTS)
    for name, card in CARDS.items():
        monkeypatch.setenv("CARD", card)
        suite.run("--gpu", f"--perf-record={suite.path / name}.jsonl")
    return Path(suite.path)


def test_one_table_with_a_column_a_card(cards: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["merge", "h200.jsonl", "h100.jsonl", "--output", "both.jsonl"]) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[0].split() == ["case", "rival", "target", "Fake", "H100", "Fake", "H200"]
    assert said[1].startswith("here 8x8x8 fp16  cublas  0.90    MISSED 0.750 [0.740-0.760]  MET 1.250 [1.240-1.260]")
    assert "Fake H100: 1 met, 1 missed" in said
    assert "Fake H200: 3 met" in said
    assert said[-1] == "both.jsonl: 4 met, 1 missed, from 2 records; exit code 1"
    end = read_run(cards / "both.jsonl").end
    assert end is not None
    assert (end.exit, end.merged) == (1, {"Fake H100": 1, "Fake H200": 1})
    page = cards / "page.md"
    page.write_text("<!-- perfsuite:cards both.jsonl -->\n<!-- /perfsuite:cards -->\n")
    assert TABLE in refresh(page)
    assert main(["merge", "h200.jsonl", "h100.jsonl", "--output", "again.jsonl", "--json"]) == 1
    facts = json.loads(capsys.readouterr().out)
    assert facts["cards"] == {"Fake H100": "1 met, 1 missed", "Fake H200": "3 met"}
    assert main(["merge", "both.jsonl", "h200.jsonl", "--output", "third.jsonl"]) == 2
    assert "is a whole run on Fake H200" in capsys.readouterr().err


@pytest.mark.parametrize("large", [10**9, 0], ids=["read", "indexed"])
def test_compare_looks_at_each_card(
    cards: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, large: int
) -> None:
    monkeypatch.setattr(compare, "LARGE_BYTES", large)
    main(["merge", "h200.jsonl", "h100.jsonl", "--output", "both.jsonl"])
    lines = [json.loads(line) for line in (cards / "h100.jsonl").read_text().splitlines()]
    for line in lines:
        if "test_same" in line.get("case", "") + str(line.get("test")):
            line.update(speed=1.0, speed_low=0.99, speed_high=1.01, rival_seconds=1e-5)
    (cards / "h100.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    main(["merge", "h200.jsonl", "h100.jsonl", "--output", "later.jsonl"])
    capsys.readouterr()
    main(["compare", "both.jsonl", "later.jsonl"])
    said = capsys.readouterr().out
    assert "5 cases: 1 yardstick, 4 same" in said
    assert "(test_kernels.py::test_same, call 1, Fake H100): MET 1.250" in said
    assert main(["compare", "h200.jsonl", "both.jsonl"]) == 2
    assert "card is Fake H200 in the first, Fake H100 and Fake H200 in the second" in capsys.readouterr().err
    main(["compare", "h200.jsonl", "both.jsonl", "--allow-unlike"])
    assert "5 cases: 2 new, 3 same" in capsys.readouterr().out


def test_the_other_commands_read_it(cards: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["merge", "h200.jsonl", "h100.jsonl", "--output", "both.jsonl"])
    assert main(["verify", "both.jsonl"]) == 1
    assert "not green: the run ended with exit code 1" in capsys.readouterr().out
    assert main(["report", "both.jsonl"]) == 0
    said = capsys.readouterr().out
    assert "test       card       case" in said
    assert main(["report", "both.jsonl", "--markdown"]) == 0
    assert "here 8x8x8 fp16 / cublas on Fake H100" in capsys.readouterr().out
    for form in ("csv", "json", "markdown", "html"):
        assert main(["export", form, "both.jsonl", "--output", f"out.{form}"]) == 0
    # In a process of its own: pytester forgets the modules that asv loads.
    subprocess.run([sys.executable, "-m", "perfsuite", "export", "asv", "both.jsonl"], check=True)
    results = cards / "benchmarks_asv/results"
    assert {path.name for path in results.iterdir() if path.is_dir()} == {"fake-h100", "fake-h200"}


def test_a_green_whole_is_verified(cards: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["merge", "h200.jsonl", "--output", "one.jsonl"]) == 0
    assert main(["verify", "one.jsonl"]) == 0
    assert main(["merge", "h200.jsonl", "--output", str(cards)]) == 2
    assert "it is a folder" in capsys.readouterr().err
