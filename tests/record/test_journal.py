"""A run that does not finish loses nothing: its cases stay beside the older record, and nobody takes them for whole."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from perfsuite.cli.main import main
from perfsuite.record.journal import Journal, RecordBusy
from perfsuite.record.places import KEPT_DAYS, latest_path, partials_of, remove_old_partials
from perfsuite.record.run_lines import Ended
from perfsuite.record.schema import RecordError
from perfsuite.record.store import read_record, read_run, write_record
from tests.history.conftest import make_repository
from tests.record.test_record import case

ROOT = Path(__file__).resolve().parents[2]
Command = Callable[..., tuple[int, str]]


@pytest.fixture
def perfsuite(capsys: pytest.CaptureFixture[str]) -> Command:
    def call(*arguments: object) -> tuple[int, str]:
        capsys.readouterr()
        code = main([str(one) for one in arguments])
        printed = capsys.readouterr()
        return code, printed.out + printed.err

    return call


def journal(path: Path, *verdicts: str) -> Journal:
    made = Journal(path, variables={"OMP_NUM_THREADS": "2"})
    made.open()
    for number, verdict in enumerate(verdicts):
        made.add(case(verdict=verdict, test=f"tests/test_it.py::test_{number}"))
    return made


def test_a_record_begins_and_ends(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    journal(path, "MET", "MET").close(exit=0, tests=5)
    found = read_run(path)
    assert found.begin is not None
    assert found.begin.process == os.getpid()
    assert found.begin.variables == {"OMP_NUM_THREADS": "2"}
    assert found.end is not None
    assert (found.end.end, found.end.cases, found.end.exit, found.end.tests) == (Ended.FINISHED, 2, 0, 5)
    assert found.unfinished is None


@pytest.mark.parametrize("ended", [Ended.INTERRUPTED, Ended.STOPPED, Ended.CRASHED])
def test_a_run_that_does_not_finish_leaves_the_older_record_and_its_own_cases(tmp_path: Path, ended: Ended) -> None:
    path = tmp_path / "record.jsonl"
    write_record(path, [case(verdict="WRONG")])
    journal(path, "MET", "MET").close(ended, exit=2)
    assert [one.verdict for one in read_record(path)] == ["WRONG"]
    found = read_run(tmp_path / "record.partial.jsonl")
    assert len(found.cases) == 2
    assert found.unfinished == f"its run was {ended} after 2 cases"


def test_what_a_killed_run_left_is_kept_by_the_next(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    for verdict in ("MET", "MISSED"):
        killed = journal(path, verdict)
        os.close(killed._descriptor or 0)  # the kernel does so when the process ends
    journal(path, "WRONG").close(exit=1)
    names = ["record.2.partial.jsonl", "record.3.partial.jsonl"]
    assert [found.name for found in partials_of(path)] == names
    assert [read_record(tmp_path / name)[0].verdict for name in names] == ["MET", "MISSED"]
    assert read_run(tmp_path / names[0]).unfinished == "its run did not close it: it was killed, or it still runs"


def test_a_second_run_is_refused_and_learns_the_firsts_process(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    first = journal(path, "MET")
    with pytest.raises(RecordBusy, match=f"is being written by process {os.getpid()}; wait"):
        Journal(path).open()
    first.add(case())
    first.close()
    assert len(read_record(path)) == 2
    journal(path, "MET").close()
    assert len(read_record(path)) == 1


def test_a_file_system_without_locks_is_written_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", none)
    journal(tmp_path / "record.jsonl", "MET").close()
    assert len(read_record(tmp_path / "record.jsonl")) == 1


def test_a_forked_child_leaves_the_record_to_its_parent(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    made = journal(path, "MET")
    if (child := os.fork()) == 0:
        made.add(case())
        made.close()
        os._exit(0)
    os.waitpid(child, 0)
    assert not path.exists()
    made.close()
    assert len(read_record(path)) == 1


def test_lines_that_are_lost_or_added_are_noticed(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    journal(path, "MET", "MISSED").close(exit=1)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([lines[0], lines[1], lines[3]]))
    with pytest.raises(RecordError, match="holds 1 cases, and its last line counts 2: lines are lost"):
        read_record(path)
    path.write_text("".join([*lines, lines[1]]))
    with pytest.raises(RecordError, match="a line after the one that ends the record"):
        read_record(path)


def test_partial_files_are_no_latest_record_and_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, perfsuite: Command
) -> None:
    monkeypatch.chdir(tmp_path)
    runs = tmp_path / ".perfsuite" / "runs"
    journal(runs / "one.jsonl", "MET").close(Ended.INTERRUPTED)
    assert latest_path(tmp_path) is None
    code, said = perfsuite("report")
    assert code == 2
    assert "there is no whole record under .perfsuite/runs here; the newest run did not finish: " in said
    assert "one.partial.jsonl holds its cases" in said
    code, said = perfsuite("report", runs / "one.partial.jsonl")
    assert code == 0
    assert "not whole: its run was interrupted after 1 cases" in said
    code, said = perfsuite("partial")
    assert "1 met; its run was interrupted after 1 cases; 0.0 hours old\n1 partial files" in said


def test_parts_are_joined_and_the_newest_of_a_test_counts(tmp_path: Path, perfsuite: Command) -> None:
    parts = [tmp_path / "a.partial.jsonl", tmp_path / "b.partial.jsonl"]
    journal(tmp_path / "a.jsonl", "MET", "MISSED").close(Ended.INTERRUPTED)
    journal(tmp_path / "b.jsonl", "WRONG").close(Ended.INTERRUPTED)
    os.utime(parts[0], (1, 1))
    whole = tmp_path / "whole.jsonl"
    code, said = perfsuite("partial", "--join", whole, *parts)
    assert (code, said) == (0, f"{whole}: 1 missed, 1 wrong, joined from 2 files\n")
    assert [one.verdict for one in read_record(whole)] == ["MISSED", "WRONG"]
    assert perfsuite("verify", whole, "--any-commit")[0] == 1
    assert perfsuite("partial", "--join", whole, *parts) == (
        2,
        f"perfsuite partial: --join is {str(whole)!r}, which exists; name a new file\n",
    )
    write_record(tmp_path / "other.jsonl", [case(commit="d00d")])
    code, said = perfsuite("partial", "--join", tmp_path / "new.jsonl", parts[0], tmp_path / "other.jsonl")
    assert (code, "do not belong together: they are of different commits" in said) == (2, True)


def test_old_partial_files_are_removed_and_young_ones_stay(tmp_path: Path, perfsuite: Command) -> None:
    old, young = tmp_path / "old.partial.jsonl", tmp_path / "young.partial.jsonl"
    for path in (old, young, tmp_path / "whole.jsonl"):
        path.write_text("{}")
        os.utime(path, (time.time() - KEPT_DAYS * 86400 - 60,) * 2)
    os.utime(young)
    assert remove_old_partials(tmp_path) == [old]
    assert young.exists()
    assert perfsuite("partial", tmp_path, "--clean", 0)[1].endswith("1 partial files removed\n")
    assert os.listdir(tmp_path) == ["whole.jsonl"]
    assert perfsuite("partial", tmp_path, "--clean", -1)[0] == 2


def test_verify(tmp_path: Path, perfsuite: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = make_repository(tmp_path, 2)
    monkeypatch.chdir(tmp_path)
    path, here = tmp_path / "record.jsonl", {"commit": repository.commits[-1], "dirty": False}

    def made(ended: Ended | None = Ended.FINISHED, exit: int = 0, **changes: object) -> tuple[int, str]:
        path.unlink(missing_ok=True)
        written = Journal(path)
        written.open()
        written.add(case(**{"verdict": "MET"} | here | changes))
        if ended:
            written.close(ended, exit=exit)
        return perfsuite("verify", path if path.exists() else written.partial)

    assert made() == (0, f"{path}: whole, closed, of {here['commit'][:12]}, green: 1 met\n")  # type: ignore[index]
    for bad, sentence in (
        (made(exit=1, verdict="MISSED"), "not green: the run ended with exit code 1: 1 missed"),
        (made(commit=repository.commits[0]), f"not of this commit: it is of {repository.commits[0][:12]}"),
        (made(dirty=True), "not of this commit: the tree had uncommitted changes"),
        (made(Ended.INTERRUPTED, 2), "not closed: its run was interrupted after 1 cases"),
    ):
        assert bad[0] == 1
        assert sentence in bad[1]
    write_record(tmp_path / "old.jsonl", [case(**here)])
    code, said = perfsuite("verify", tmp_path / "old.jsonl")
    assert (code, "not green: the record holds no exit code" in said) == (1, True)
    made()
    code, said = perfsuite("verify", path, "--commit", "HEAD~1")
    assert (code, "(HEAD~1)" in said) == (1, True)
    assert perfsuite("verify", path, "--any-commit")[0] == 0
    time.sleep(0.02)
    journal(path, "MET")
    code, said = perfsuite("verify", path)
    assert (code, "not the newest: a later run left record.partial.jsonl" in said) == (1, True)


def test_the_share_of_checks_in_the_wall_time_can_be_bounded(tmp_path: Path, perfsuite: Command) -> None:
    path = tmp_path / "record.jsonl"
    written = Journal(path)
    written.open()
    for checks, wall in ((1.0, 3.0), (0.5, 2.0), (None, 9.0)):
        written.add(case(verdict="MET", check_seconds=checks, wall_seconds=wall))
    written.close(exit=0)
    verify = "verify", path, "--any-commit", "--checks-at-most"
    assert perfsuite(*verify, "0.3") == (
        0, f"{path}: whole, closed, green: 3 met; checks took 30.0% of the wall time\n",
    )  # fmt: skip
    code, said = perfsuite(*verify, "0.29")
    assert (code, "too much checking: checks took 30.0% of the wall time, at most 29% asked" in said) == (1, True)
    assert json.loads(perfsuite("verify", path, "--any-commit", "--json")[1])["checks_share"] == 0.3
    for bad in ("1.5", "nan", "most"):
        with pytest.raises(SystemExit):
            main(["verify", "--checks-at-most", bad])
    write_record(tmp_path / "old.jsonl", [case(check_seconds=None)])
    code, said = perfsuite("verify", tmp_path / "old.jsonl", "--any-commit", "--checks-at-most", "1")
    assert (code, "no case says how long its checks took" in said) == (1, True)


def test_a_candidate_that_ends_the_process_leaves_no_green_record(tmp_path: Path) -> None:
    """os._exit(0) gives exit code 0; the record shows that the run was not closed."""
    (tmp_path / "test_it.py").write_text(
        "import os\nfrom perfsuite import Gemm\ndef gone(a, b): os._exit(0)\n"
        "def test_met(perf): perf(Gemm(8, 8, 8), lambda a, b: a @ b)\n"
        "def test_it(perf): perf(Gemm(8, 8, 8), gone)\n"
    )
    line = [sys.executable, "-m", "pytest", "-q", "-p", "perfsuite.plugin", "-p", "no:cacheprovider", "--perf-portable"]
    environ = os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    line += ["--perf-seconds=0.02", "--perf-record=record.jsonl"]
    done = subprocess.run(line, cwd=tmp_path, env=environ, capture_output=True, check=False)
    assert done.returncode == 0
    (partial,) = tmp_path.glob("record.*partial*")
    assert main(["verify", str(partial), "--any-commit"]) == 1
    assert not (tmp_path / "record.jsonl").exists()
    assert len(read_record(partial)) == 1
    assert json.loads(partial.read_text().splitlines()[0])["process"] > 0


@pytest.mark.parametrize("before", [0, 2])
def test_an_interrupt_right_behind_the_writing_of_a_case_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    made = journal(tmp_path / "record.jsonl", *["MET"] * before)
    write = os.write

    def interrupted(to: int, line: bytes) -> int:
        write(to, line)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            made.add(case(test="tests/test_it.py::test_last"))
    made.close(Ended.INTERRUPTED)
    found = read_run(made.partial)
    assert found.end is not None
    assert (found.end.cases, len(found.cases)) == (before + 1, before + 1)
    assert found.cases[-1].test == "tests/test_it.py::test_last"
