"""The static site: a page a card, data beside it, no folder written over."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perfsuite.cli.main import main

from .test_page import HISTORY


def record(path: Path, gpu: str) -> str:
    path.write_text("".join(json.dumps(one.changed(gpu=gpu).as_json()) + "\n" for one in HISTORY[2].cases))
    return str(path)


def test_each_card_is_a_page_and_knows_the_others(tmp_path: Path) -> None:
    records = [record(tmp_path / "a.jsonl", "NVIDIA H200"), record(tmp_path / "b.jsonl", "../../x <H100>")]
    site, asv = tmp_path / "site", tmp_path / "html"
    asv.mkdir()
    (asv / "index.html").write_text("asv")
    for _ in range(2):  # a second time in the same place
        assert main(["site", str(site), *records, "--asv", str(asv), "--repository", "https://code.example/o/r"]) == 0
    found = {path.relative_to(site).as_posix() for path in site.rglob("*") if path.is_file()}
    assert {"index.html", "x-h100/index.html", "data/nvidia-h200.json", "data/x-h100.json", "asv/index.html"} <= found
    data = json.loads((site / "data" / "nvidia-h200.json").read_text())
    assert [run["card"] for run in data["runs"]] == ["../../x <H100>", "NVIDIA H200"]
    assert data["cases"][0]["elsewhere"][0]["run"] == 0
    page = (site / "x-h100" / "index.html").read_text()
    assert 'data-source="../data/x-h100.json"' in page
    assert '<a href="../">NVIDIA H200</a> <strong>../../x &lt;H100&gt;</strong> <a href="../asv/">asv</a>' in page
    assert "<H100>" not in page


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = record(tmp_path / "a.jsonl", "NVIDIA H200")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "index.html").write_text("mine")
    assert main(["site", str(tmp_path / "mine"), given]) == 2
    assert "is no site of perfsuite" in capsys.readouterr().err
    assert (tmp_path / "mine" / "index.html").read_text() == "mine"
    assert main(["site", str(tmp_path / "new"), given, "--asv", str(tmp_path)]) == 2
    assert "no page that asv published" in capsys.readouterr().err


def test_two_records_of_one_card_have_pages_of_their_own(tmp_path: Path) -> None:
    records = [record(tmp_path / f"{name}.jsonl", "NVIDIA H200") for name in "ab"]
    assert main(["site", str(tmp_path / "site"), *records]) == 0
    assert (tmp_path / "site" / "nvidia-h200-2" / "index.html").is_file()
    assert len(json.loads((tmp_path / "site" / "data" / "nvidia-h200.json").read_text())["runs"]) == 1
