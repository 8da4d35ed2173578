"""Where the record and the summary can be written, and what becomes of a run where they cannot."""

from __future__ import annotations

import os
import stat

import pytest

from .conftest import Suite

GATE = "@TARGET\ndef test_it(perf): perf(Gemm(8, 8, 8), met)\n"
FULL_DISK = """
def pytest_sessionstart(session):
    from perfsuite.record.store import Journal
    def add(self, case): raise OSError(28, "No space left on device")
    Journal.add = add
"""


def test_a_pipe_is_not_replaced_by_the_record(suite: Suite) -> None:
    suite.write(GATE)
    os.mkfifo(suite.path / "pipe")
    outcome = suite.run("--gpu", "--perf-record=pipe")
    assert outcome.code == 4
    outcome.has("--perf-record is '", "pipe', which cannot be written: it is a device or a pipe, not a file")
    assert stat.S_ISFIFO((suite.path / "pipe").stat().st_mode)


def test_a_link_to_a_record_stays_a_link(suite: Suite) -> None:
    suite.write(GATE)
    (suite.path / "newest.jsonl").symlink_to(suite.path / "kept.jsonl")
    assert suite.run("--gpu", "--perf-record=newest.jsonl").code == 0
    assert (suite.path / "newest.jsonl").is_symlink()
    assert (suite.path / "kept.jsonl").read_text().count("\n") == 1


@pytest.mark.parametrize("place", [".perfsuite", ".perfsuite/runs"])
def test_a_default_folder_that_cannot_be_made_is_told_before_anything_is_measured(suite: Suite, place: str) -> None:
    suite.write(GATE)
    (suite.path / place).parent.mkdir(exist_ok=True)
    (suite.path / place).touch()
    result = suite.pytester.runpytest_inprocess("-p", "perfsuite.plugin", "--gpu")
    assert result.ret == 4
    result.stderr.fnmatch_lines(
        ["ERROR: the record cannot be written: *.perfsuite*; name another place with --perf-record"]
    )
    result.stdout.no_fnmatch_line("*MET*")


def test_a_run_whose_record_the_disk_does_not_take_ends_with_its_verdicts_and_not_well(suite: Suite) -> None:
    suite.write(GATE)
    suite.add_hooks(FULL_DISK)
    (suite.path / "out").mkdir()
    outcome = suite.run("--gpu", subprocess=True)
    assert outcome.code == 4
    outcome.has("1 passed", "1 met", "the record cannot be written: [Errno 28] No space left on device")
    assert "INTERNALERROR" not in outcome.out
    assert list((suite.path / "out").iterdir()) == []


def test_a_summary_that_cannot_be_written_is_told(suite: Suite) -> None:
    suite.write(GATE)
    suite.add_hooks("\ndef pytest_collection_finish():\n    import os\n    os.mkdir('summary.md')\n")
    outcome = suite.run("--gpu", "--perf-markdown=summary.md")
    assert outcome.code == 4
    outcome.has("1 passed", "--perf-markdown cannot be written: [Errno 21] Is a directory")
