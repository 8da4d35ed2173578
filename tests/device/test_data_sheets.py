"""Peak rates: those of the data sheets agree with operations a clock, multiprocessors and the boost clock."""

from __future__ import annotations

import pytest

from perfsuite.device.data_sheets import data_sheet_of, operations_of


@pytest.mark.parametrize(
    ("card", "capability", "multiprocessors", "hertz"),
    [
        ("NVIDIA H100 80GB HBM3", (9, 0), 132, 1.83e9),
        ("NVIDIA A100-SXM4-80GB", (8, 0), 108, 1.41e9),
        ("NVIDIA A10", (8, 6), 72, 1.695e9),
        ("NVIDIA L4", (8, 9), 58, 2.04e9),
    ],
)
def test_both_tables_give_the_same_peak(
    card: str, capability: tuple[int, int], multiprocessors: int, hertz: float
) -> None:
    sheet = data_sheet_of(card)
    assert sheet is not None
    assert operations_of(capability)["half"] * multiprocessors * hertz == pytest.approx(sheet.half, rel=2e-3)


def test_unknown_cards_have_no_peak() -> None:
    assert data_sheet_of("NVIDIA A1000") is None
    assert operations_of((6, 1)) == {}
