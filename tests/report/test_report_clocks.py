"""The clocks and the power of a record's cases."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfsuite.report.blocks import BlockError, refresh
from perfsuite.report.clocks import table

from .conftest import case

HOT = {
    "sm_clock_low_hz": 1.35e9,
    "sm_clock_high_hz": 1.4e9,
    "power_watts": 698.7,
    "power_limit_watts": 700.0,
    "reasons": ["sw-power-cap"],
}
RECORDS = Path(__file__).parents[2] / "records"


def test_a_row_has_what_the_card_told() -> None:
    rows = table([case(telemetry=HOT, cycles_speed=0.97), case("9x9x9 float16")]).splitlines()
    assert rows[2:] == [
        "| gemm 8x8x8 fp16 | cublas | 0.950 | 0.970 | 1.35 to 1.40 | 699 | 700 | sw-power-cap |",
        "| gemm 9x9x9 fp16 | cublas | 0.950 | - | - | - | - | - |",
    ]


def test_a_share_of_a_ceiling_has_no_speed_in_cycles() -> None:
    share = case(aspect="roofline", rival=None, measured={"share": 0.8}, telemetry=HOT, cycles_speed=0.97)
    assert "| (roofline) | 0.800 | - | 1.35 to 1.40 |" in table([share])


def test_a_block_of_a_document(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    record = RECORDS / "h200" / "gates.jsonl"
    text = f"<!-- perfsuite:clocks {record} family=decode verdict={{}} -->\n<!-- /perfsuite:clocks -->\n"
    page.write_text(text.format("MISSED"))
    made = refresh(page)
    assert made.count("| flash_decode ") == 4
    assert "Measured on one NVIDIA H200" in made
    page.write_text(text.format("WRONG"))
    with pytest.raises(BlockError, match="no case fits"):
        refresh(page)
