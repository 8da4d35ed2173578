"""The picture of the levers is that of the committed record."""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "ext"))  # the package is not installed: it belongs to the tree, not to the wheel

from cost_models import pictures  # noqa: E402

ROWS = [
    {"stage": "decode", "sequences": 1, "tokens": 1, "lever": "16 bits", "microseconds": 100.0, "gain": 1.0},
    {"stage": "decode", "sequences": 1, "tokens": 1, "lever": "int4", "microseconds": 50.0, "gain": 2.0},
    {"stage": "prefill", "sequences": 1, "tokens": 9, "lever": "FP8 <rows>", "microseconds": 200.0, "gain": 0.5},
]
RECORD = {"environment": {"card": "A card", "torch": "3", "commit": "0123456789ab", "context": 64}, "rows": ROWS}


def test_the_committed_picture_is_that_of_the_committed_record() -> None:
    assert pictures.main(["levers", "--check"]) == 0


def test_bars_follow_the_record(tmp_path: Path) -> None:
    file, out = tmp_path / "levers.json", tmp_path / "levers.svg"
    file.write_text(json.dumps(RECORD))
    words = ["levers", "--record", str(file), "--picture", str(out)]
    assert pictures.main([*words, "--check"]) == 1
    assert not out.exists()
    assert pictures.main(words) == 0
    assert pictures.main([*words, "--check"]) == 0
    drawn = ElementTree.parse(out).getroot()
    widths = [float(one.attrib["width"]) for one in drawn if one.tag.endswith("rect")][1:]
    assert widths == [219.0, 438.0, 109.5]
    texts = [one.text for one in drawn if one.tag.endswith("text")]
    assert texts[0] == "decode, 1 sequence of 64 tokens"
    assert "2.00 (50.0 us a layer)" in texts
    assert "FP8 <rows>" in texts
    assert texts[-1] == "times as fast as in 16 bits; measured on one A card, torch 3, commit 0123456789"
    out.write_text(out.read_text().replace("2.00 (50.0", "3.00 (50.0"))
    assert pictures.main([*words, "--check"]) == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda found: found.pop("rows"), "is no record of levers: KeyError, 'rows'"),
        (lambda found: found["rows"].clear(), "is no record of levers: ValueError"),
        (lambda found: found["rows"][0].pop("gain"), "KeyError, 'gain'"),
    ],
)
def test_what_is_no_record_is_named(
    change: Callable[[Any], Any], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = json.loads(json.dumps(RECORD))
    change(found)
    file = tmp_path / "levers.json"
    file.write_text(json.dumps(found))
    assert pictures.main(["levers", "--record", str(file), "--picture", str(tmp_path / "x.svg")]) == 2
    assert said in capsys.readouterr().err
    assert pictures.main(["levers", "--record", str(tmp_path / "none.json")]) == 2
    assert "none.json cannot be read" in capsys.readouterr().err
