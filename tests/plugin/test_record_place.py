"""Where the record and the summary can be written, and what becomes of a run where they cannot."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys

import pytest

from perfsuite.record.journal import Journal
from perfsuite.record.run_lines import Ended
from perfsuite.record.store import read_record, read_run

from .conftest import ROOT, Suite

GATE = "@TARGET\ndef test_it(perf): perf(Gemm(8, 8, 8), met)\n"
FULL_DISK = """
def pytest_sessionstart(session):
    from perfsuite.record.journal import Journal
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
    assert (suite.path / "kept.jsonl").read_text().count("\n") == 3


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


@pytest.mark.parametrize(
    ("end", "arguments", "ended"),
    [
        ("pytest.exit('enough')", (), Ended.INTERRUPTED),
        ("assert False", ("-x",), Ended.STOPPED),
    ],
)
def test_a_run_that_does_not_finish_leaves_the_older_record(
    suite: Suite, end: str, arguments: tuple[str, ...], ended: Ended
) -> None:
    suite.write(GATE + "@TARGET\ndef test_b(perf): perf(Gemm(8, 8, 8), met)\n")
    record = suite.path / "kept.jsonl"
    assert suite.run("--gpu", f"--perf-record={record}").code == 0
    suite.write(GATE + f"def test_end(): {end}\n@TARGET\ndef test_b(perf): perf(Gemm(8, 8, 8), met)\n")
    outcome = suite.run("--gpu", f"--perf-record={record}", *arguments)
    assert len(read_record(record)) == 2
    assert outcome.code in (1, 2)
    outcome.has("record: kept.partial.jsonl (the run did not finish; kept.jsonl is as it was)")
    partial = read_run(suite.path / "kept.partial.jsonl")
    assert (len(partial.cases), partial.end and partial.end.end) == (1, ended)


def test_the_report_names_what_a_killed_run_left(suite: Suite) -> None:
    suite.write(GATE + "import os, signal\ndef test_end(): os.kill(os.getpid(), signal.SIGKILL)\n")
    assert suite.pytester.runpytest_subprocess("-p", "perfsuite.plugin", "--gpu").ret == -signal.SIGKILL
    (left,) = (suite.path / ".perfsuite" / "runs").glob("*partial*")
    line = [sys.executable, "-m", "perfsuite", "report"]
    done = subprocess.run(line, cwd=suite.path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"{left.name} holds its cases" in done.stderr


def test_a_second_run_on_the_same_record_measures_nothing(suite: Suite) -> None:
    suite.write(GATE)
    first = Journal(suite.path / "kept.jsonl")
    first.open()
    outcome = suite.run("--gpu", "--perf-record=kept.jsonl")
    assert outcome.code == 4
    outcome.has(f"kept.jsonl is being written by process {os.getpid()}; wait for it, or name another record")
    assert "MET" not in outcome.out
    first.discard()
    assert suite.run("--gpu", "--perf-record=kept.jsonl").code == 0


def test_the_environment_is_that_of_the_start(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFSUITE_COMMIT", "c0ffee")
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    suite.write(
        "import os\ndef test_a(perf): os.environ.update(PERFSUITE_COMMIT='d00d', OMP_NUM_THREADS='64')\n"
        "@TARGET\ndef test_b(perf): perf(Gemm(8, 8, 8), met)\n"
        "def test_c(perf): assert os.environ['PERFSUITE_COMMIT'] == 'c0ffee'\n"
    )
    outcome = suite.run("--gpu", "--perf-record=kept.jsonl")
    assert [one.commit for one in read_record(suite.path / "kept.jsonl")] == ["c0ffee"]
    assert outcome.code == 0
    found = read_run(suite.path / "kept.jsonl")
    assert found.begin is not None
    assert found.begin.variables["OMP_NUM_THREADS"] == "2"
    assert found.begin.variables["PERFSUITE_COMMIT"] == "c0ffee"


def test_a_name_that_is_not_utf_8_passes_through_record_and_reports(suite: Suite) -> None:
    suite.write(f"met.__name__ = __name__\n{GATE}")
    (suite.path / "test_kernels.py").rename(suite.path / os.fsdecode(b"test_\xff.py"))
    # pytest itself does not write such a name to its cache and its JUnit file.
    line = ["-p", "perfsuite.plugin", "-p", "no:cacheprovider", "--gpu", "--perf-markdown=summary.md"]
    result = suite.pytester.runpytest_inprocess(*line, "--perf-record=kept.jsonl")
    assert "UnicodeEncodeError" not in result.stderr.str()
    assert result.ret == 0
    assert "1 of 1 gate met" in (suite.path / "summary.md").read_text()
    (case,) = read_record(suite.path / "kept.jsonl")
    assert case.test == "test_\\udcff.py::test_it"
    record = os.fsdecode(b"k\xffpt.jsonl")
    (suite.path / "kept.jsonl").rename(suite.path / record)
    environ = os.environ | {"PYTHONIOENCODING": "utf-8:strict", "PYTHONPATH": str(ROOT)}
    for form in ([], ["--markdown"], ["--json"], ["--html", "page.html"]):
        line = [sys.executable, "-m", "perfsuite", "report", record, *form]
        done = subprocess.run(line, cwd=suite.path, env=environ, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
