"""Outputs of commands in documents: shown as the file holds them, and refused where the file is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfsuite.cli.main import main
from perfsuite.record.schema import RecordError
from perfsuite.report.outputs import output

ROOT = Path(__file__).resolve().parents[2]
TEXT = "# one NVIDIA H200, torch 2.11.0, commit abcdef0\n$ perfsuite hierarchy\nL2  7 TB/s\n"
PAGE = "before\n<!-- perfsuite:output out/hierarchy.txt -->\n<!-- /perfsuite:output -->\nafter\n"


def test_a_page_takes_the_output_with_its_origin(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "hierarchy.txt").write_text(TEXT)
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    assert main(["table", str(page), "--check"]) == 1
    assert main(["table", str(page)]) == 0
    shown = page.read_text()
    assert (
        "```\n$ perfsuite hierarchy\nL2  7 TB/s\n```\n\nMeasured on one NVIDIA H200, torch 2.11.0, commit abcdef0.\n"
        in shown
    )
    assert shown.startswith("before\n")
    assert shown.endswith("after\n")
    assert main(["table", str(page), "--check"]) == 0, "a page that was made is up to date"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("$ perfsuite hierarchy\n", "must begin with '# where' and '\\$ command'"),
        ("# one card\nL2\n", "must begin with"),
        (TEXT + "```\n", "holds a fence of its own"),
    ],
)
def test_what_is_no_output_is_refused(text: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    path.write_text(text)
    with pytest.raises(RecordError, match=why):
        output(path, {})


def test_a_missing_file_and_a_filter_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="cannot be read"):
        output(tmp_path / "none.txt", {})
    with pytest.raises(RecordError, match="takes no family="):
        output(tmp_path / "none.txt", {"family": "gemm"})


def test_every_committed_output_is_of_a_command_that_the_script_knows() -> None:
    import runpy

    commands = runpy.run_path(str(ROOT / "records" / "outputs.py"), run_name="outputs")["COMMANDS"]
    files = sorted((ROOT / "records" / "h200" / "mission").glob("*.txt"))
    assert files
    for file in files:
        second = file.read_text(encoding="utf-8").splitlines()[1]
        assert second == f"$ {commands[file.stem.removesuffix('-two')]}", file.name
