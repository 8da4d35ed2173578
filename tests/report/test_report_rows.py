"""The table of a file of results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perfsuite.record.schema import RecordError
from perfsuite.report.rows import rows_table

ROWS = [{"key": "a", "fault": "SIGKILL", "lost": "nothing"}, {"key": "b", "fault": "<b>|full", "lost": "a case"}]


def file(folder: Path, **values: Any) -> Path:
    path = folder / "results.json"
    path.write_text(json.dumps({"environment": {"commit": "c0ffee" * 6, "date": "2026-11-23"}, "rows": ROWS} | values))
    return path


def test_each_row_is_a_row_and_markup_is_escaped(tmp_path: Path) -> None:
    table = rows_table(file(tmp_path), {})
    assert table.splitlines()[0] == "| fault | lost |"
    assert "| SIGKILL | nothing |" in table
    assert "| &lt;b>\\|full | a case |" in table
    assert table.endswith("Measured with commit c0ffeec0ff, date 2026-11-23.")


def test_a_filter_keeps_its_rows_and_leaves_its_column_out(tmp_path: Path) -> None:
    assert rows_table(file(tmp_path), {"fault": "SIG*"}).splitlines()[2:3] == ["| nothing |"]
    with pytest.raises(RecordError, match="no row fits fault=none"):
        rows_table(file(tmp_path), {"fault": "none"})


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"environment": 3}, "there is no environment"),
        ({"rows": []}, "at least one object"),
        ({"rows": [{"a": 1}, {"b": 1}]}, "the same fields"),
    ],
)
def test_other_files_are_refused(values: dict[str, Any], told: str, tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=told):
        rows_table(file(tmp_path, **values), {})
