"""What a record holds, and that it is whole or not there."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from perfsuite.case.comparison import Comparison
from perfsuite.clock.rounds import Round
from perfsuite.device.telemetry import Telemetry
from perfsuite.outcome import Reason, Verdict
from perfsuite.record import fingerprint as environment
from perfsuite.record.atomic_write import write_whole
from perfsuite.record.case import Case, Samples, case_record
from perfsuite.record.journal import Journal
from perfsuite.record.places import default_path, latest_path
from perfsuite.record.schema import RecordError, fields_of, plain
from perfsuite.record.store import read_record, read_run, write_record

FACTS = {"commit": "c0ffee", "dirty": True, "gpu": "NVIDIA H200", "torch": "2.13.0", "cuda": "13.0", "harness": "1"}
ISSUE_FIELDS = {
    *("case", "family", "params", "candidate", "rival", "speed", "speed_low", "speed_high", "target", "verdict"),
    *("reason", "candidate_seconds", "rival_seconds", "commit", "gpu", "torch", "cuda", "dirty"),
}


def comparison(**changes: Any) -> Comparison:
    values: dict[str, Any] = {
        "family": "gemm",
        "name": "8x8x8 float16",
        "params": {"m": 8, "dtype": "float16"},
        "candidate": "kernels.gemm",
        "rival": "cublas",
        "verdict": Verdict.MISSED,
        "reason": Reason.TOO_SLOW,
        "sentence": "0.800 of cublas",
        "target": 0.9,
        "speed": 0.8,
        "speed_low": 0.79,
        "speed_high": 0.81,
        "clock": "graph",
        "rounds": (Round(1e-5, 8e-6, "candidate", 0, 1.98e9), Round(1.1e-5, 8.5e-6, "rival", 1, 1.97e9)),
        "discarded": (Round(2e-5, 9e-6, "rival", 1, 1.2e9, "hw-thermal-slowdown"),),
        "telemetry": Telemetry(sm_clock_hz=1.98e9, reasons=("sw-power-cap",)),
    }
    return Comparison(**values | changes)


def case(**changes: Any) -> Case:
    made = case_record(comparison(), test="tests/test_it.py::test_it[8]", fingerprint=FACTS, workers=2)
    return made.changed(**changes)


def line(**changes: Any) -> dict[str, Any]:
    return {**case().as_json(), **changes}


def test_a_line_holds_every_field_that_was_promised() -> None:
    made = json.loads(json.dumps(line(), allow_nan=False))
    assert set(made) >= ISSUE_FIELDS
    assert {name for name, (_, needed) in fields_of(Case).items() if needed} <= set(made)
    assert made["case"] == "kernels.gemm gemm 8x8x8 float16 vs cublas"
    assert made["test"] == "tests/test_it.py::test_it[8]"
    assert made["workers"] == 2
    assert made["telemetry"]["reasons"] == ["sw-power-cap"]
    assert Case.of_json(made, "here").as_json() == made


def test_rounds_become_columns() -> None:
    made = line()
    assert made["samples"] == {
        "candidate_seconds": [1e-5, 1.1e-5],
        "rival_seconds": [8e-6, 8.5e-6],
        "first": ["candidate", "rival"],
        "setup": [0, 1],
        "sm_clock_hz": [1.98e9, 1.97e9],
    }
    assert made["discarded_samples"]["discarded"] == ["hw-thermal-slowdown"]
    assert "rounds" not in made
    assert tuple(case().samples.rounds()) == comparison().rounds
    assert tuple(case().discarded_samples.rounds()) == comparison().discarded
    assert Samples().rounds() == []


def test_attributes_are_typed() -> None:
    made = case(speed=1, newer_field={"kept": [1]})
    assert (type(made.speed), made.speed) == (float, 1.0)
    assert made.verdict is Verdict.MISSED
    assert made.telemetry == Telemetry(sm_clock_hz=1.98e9, reasons=("sw-power-cap",))
    assert made.changed(verdict="MET").verdict is Verdict.MET
    assert made.changed(verdict="MET").as_json() == {**made.as_json(), "verdict": "MET"}
    assert made.as_json()["newer_field"] == {"kept": [1]}


RECORDS = sorted((Path(__file__).resolve().parents[2] / "records").glob("*/*.jsonl"))
"""Records of runs, in a folder for each card; records/kernels.jsonl is of another kind."""


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.name)
def test_every_committed_line_is_read_and_written_as_it_is(path: Path) -> None:
    lines = [text for text in path.read_text().splitlines() if "case" in json.loads(text)]  # not the first and last
    assert [json.dumps(one.as_json(), separators=(",", ":")) for one in read_record(path)] == lines
    assert lines


def test_a_field_that_an_older_line_lacks_is_absent_again() -> None:
    lacking = ("wall_seconds", "check_seconds", "warnings", "test", "measured", "telemetry", "samples", "workers")
    old = {name: value for name, value in line().items() if name not in lacking}
    read = Case.of_json(old, "here")
    assert (read.wall_seconds, read.warnings, read.telemetry, read.workers) == (None, (), None, 1)
    assert read.as_json() == old


def test_numbers_are_plain_json() -> None:
    import numpy

    made = plain({"a": math.nan, "b": math.inf, "c": numpy.float64(0.5), "d": (1, True, None), 3: Verdict.MET})
    assert made == {"a": None, "b": None, "c": 0.5, "d": [1, True, None], "3": "MET"}
    assert [type(value) for value in (made["c"], made["d"][1], made["3"])] == [float, bool, str]


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ([], "a record holds one JSON object a line, this is list"),
        ({}, "not a perfsuite record: it has no harness, commit, dirty"),
        (line(schema=99), "schema 99 is newer than this perfsuite reads (1)"),
        (line(speed="fast"), "speed is 'fast'; it must be a number from 1e-100 to 1e+100 or null"),
        (line(speed=True), "speed is True; it must be a number from 1e-100 to 1e+100 or null"),
        (line(case=None), "case is None; it must be text"),
        (line(dirty="no"), "dirty is 'no'; it must be true or false or null"),
        (
            line(candidate_seconds=0.0),
            "candidate_seconds is 0.0; it must be a number from 1e-100 to 1e+100 or null",
        ),
        (line(speed_low=-0.1), "speed_low is -0.1; it must be a number from 1e-100 to 1e+100 or null"),
        (line(speed=math.inf), "speed is inf; it must be a number from 1e-100 to 1e+100 or null"),
        (line(speed=10**400), "it must be a number from 1e-100 to 1e+100 or null"),
        (line(telemetry=3), "telemetry is 3; it must be an object or null"),
        (line(telemetry={"reasons": "hot"}), "telemetry.reasons is 'hot'; it must be a list"),
        (line(measured={"launches": None}), "measured.launches is None; it must be a number from -1e+100 to 1e+100"),
        (line(warnings=["one", 2]), "warnings[1] is 2; it must be text"),
        (line(rival_error="low"), "rival_error is 'low'; it must be a number from 0 to 1e+100 or null"),
        (line(workers=1.5), "workers is 1.5; it must be a whole number"),
        (line(samples={"setup": [0, None]}), "samples.setup[1] is None; it must be a whole number"),
        (line(samples={"candidate_seconds": [1e-5]}), "it must be columns of one length"),
        (line(samples={"first": ["nobody"]}), "samples.first[0] is 'nobody'; it must be one of candidate, rival"),
        (line(name="x" * 1000, params=[]), "params is []; it must be an object"),
        (line(sentence=["x" * 1000]), "...; it must be text"),
        (line(verdict="FINE"), "verdict is 'FINE'; it must be one of MET, MISSED, WRONG, UNDECIDED"),
    ],
)
def test_a_foreign_line_is_refused(value: object, sentence: str) -> None:
    with pytest.raises(RecordError) as caught:
        Case.of_json(value, "file:3")
    assert str(caught.value).startswith("file:3: ")
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "holds no case"),
        ("\n\n", "holds no case"),
        (json.dumps(line())[:-40], ":1: not a line of JSON (cut off or foreign)"),
        (json.dumps(line()) + "\nhello\n", ":2: not a line of JSON"),
        (json.dumps(line(speed=math.nan)), "NaN is no JSON number"),
        ("[" * 100_000, ":1: not a line of JSON"),
    ],
)
def test_a_corrupt_file_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "record.jsonl"
    path.write_text(text)
    with pytest.raises(RecordError) as caught:
        read_record(path)
    assert str(caught.value).startswith(str(path))
    assert sentence in str(caught.value)


def test_a_missing_or_binary_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="No such file"):
        read_record(tmp_path / "none.jsonl")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RecordError, match="cannot be read as a record"):
        read_record(tmp_path / "binary")


def test_a_record_read_without_samples_is_the_same_else(tmp_path: Path) -> None:
    path, whole = tmp_path / "record.jsonl", case().as_json()
    first = {"samples": whole["samples"], "discarded_samples": whole["discarded_samples"]} | whole
    nested = whole | {"later": {"a": 1, "samples": {"b": {}}}}
    path.write_text("".join(json.dumps(one, separators=(",", ":")) + "\n" for one in (whole, first, nested)))
    for one, full in zip(read_run(path, samples=False).cases, read_record(path), strict=True):
        assert {**one.as_json(), **full.as_json()} == full.as_json()
        assert one.as_json(samples=False) == full.as_json(samples=False)
    assert read_run(path, samples=False).cases[0].samples == Samples()


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "record.jsonl"
    write_record(path, [case(), case(verdict="MET")])
    assert read_record(path) == [case(), case(verdict="MET")]
    assert os.listdir(path.parent) == ["record.jsonl"]


def test_an_older_record_stays_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    write_record(path, [case(verdict="MET")])
    journal = Journal(path)
    journal.add(case())
    assert [one.verdict for one in read_record(path)] == ["MET"]
    assert [one.verdict for one in read_record(journal.partial)] == ["MISSED"]
    journal.close()
    assert [one.verdict for one in read_record(path)] == ["MISSED"]
    assert not journal.partial.exists()


def test_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("file")
    write_whole(tmp_path / "link", "text")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "text"


def test_a_run_without_cases_leaves_an_older_record_alone(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    write_record(path, [case()])
    Journal(path).close()
    assert len(read_record(path)) == 1


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path) -> None:
    def cases() -> Iterator[Case]:
        yield case()
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        write_record(tmp_path / "record.jsonl", cases())
    assert os.listdir(tmp_path) == []


def test_a_disk_that_is_full_leaves_whole_lines_and_the_older_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, write = tmp_path / "record.jsonl", os.write
    write_record(path, [case(verdict="MET")])
    journal = Journal(path)
    journal.add(case())

    def full(descriptor: int, data: bytes) -> int:
        if len(data) < 50:
            raise OSError(28, "No space left on device")
        return write(descriptor, data[:-10])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space left"):
        journal.add(case())
    assert journal.abandon() == journal.partial
    assert len(read_record(journal.partial)) == 1
    assert [one.verdict for one in read_record(path)] == ["MET"]


@pytest.mark.parametrize("place", ["folder", "pipe", "file/below", "no/such/folder"])
def test_nothing_is_left_where_a_file_cannot_be_written(tmp_path: Path, place: str) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").touch()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(OSError, match=re.escape(f"{tmp_path / place} cannot be written: ")):
        write_whole(tmp_path / place, "text")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_killed_run_leaves_whole_lines(tmp_path: Path) -> None:
    (tmp_path / "case.json").write_text(json.dumps(line()))
    script = (
        "import json, os, pathlib\n"
        "from perfsuite.record.case import Case\n"
        "from perfsuite.record.journal import Journal\n"
        "journal = Journal(pathlib.Path('record.jsonl'))\n"
        "for _ in range(3): journal.add(Case.of_json(json.loads(open('case.json').read()), 'case.json'))\n"
        "os._exit(9)\n"
    )
    root = Path(__file__).resolve().parents[2]
    environ = os.environ | {"PYTHONPATH": str(root)}
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=environ, check=False)
    assert done.returncode == 9
    (partial,) = tmp_path.glob("record.partial.jsonl")
    assert len(read_record(partial)) == 3
    assert not (tmp_path / "record.jsonl").exists()


def test_a_record_named_below_the_own_folder_hides_it_too(tmp_path: Path) -> None:
    write_record(tmp_path / ".perfsuite" / "bench.jsonl", [case()])
    assert (tmp_path / ".perfsuite" / ".gitignore").read_text() == "*\n"
    write_record(tmp_path / "elsewhere" / "bench.jsonl", [case()])
    assert os.listdir(tmp_path / "elsewhere") == ["bench.jsonl"]


def test_the_default_folder_hides_itself_from_git_and_the_latest_is_found(tmp_path: Path) -> None:
    assert latest_path(tmp_path) is None
    path = default_path(tmp_path)
    write_record(path, [case()])
    assert (tmp_path / ".perfsuite" / ".gitignore").read_text() == "*\n"
    assert latest_path(tmp_path) == path


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", "-C", str(folder), *identity, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_commit_and_dirty_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(environment.COMMIT_VARIABLE, raising=False)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert environment.commit_of(tmp_path) == (None, None)
    git(tmp_path, "init", "-q")
    (tmp_path / "file").write_text("one")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "-qm", "one", "--no-verify")
    head = git(tmp_path, "rev-parse", "HEAD")
    assert environment.commit_of(tmp_path) == (head, False)
    (tmp_path / "file").write_text("two")
    assert environment.commit_of(tmp_path) == (head, True)
    monkeypatch.setenv(environment.COMMIT_VARIABLE, "abc-dirty")
    assert environment.commit_of(tmp_path) == ("abc", True)


def test_the_fingerprint_of_a_cpu_run_names_no_gpu(tmp_path: Path) -> None:
    import torch

    facts = environment.fingerprint(tmp_path, device="cpu")
    assert facts["gpu"] is None
    assert facts["torch"] == torch.__version__
    assert facts["cpu"]
    assert plain(facts) == facts
    assert environment.environment(tmp_path, device="cpu").torch == torch.__version__


@pytest.mark.parametrize(("number", "text"), [(91002, "9.10.2"), (8907, "8.9.7"), (91900, "9.19.0"), (None, None)])
def test_cudnn_version(number: int | None, text: str | None) -> None:
    assert environment._cudnn_version(number) == text


ODD = (
    None,
    True,
    -1,
    0,
    10**400,
    1e308,
    -0.0,
    "",
    "\ud800",
    "x",
    [],
    [None],
    [0.0],
    {},
    {"a": None},
    {"peak_bytes": -1.0},
)


def odd_lines() -> Iterator[str]:
    """Every field of two real lines in turn, with every odd value; and lines that are cut off at every 50th byte."""
    for whole in (line(), json.loads(RECORDS[-1].read_text().splitlines()[0])):
        for name in whole:
            yield from (json.dumps(whole | {name: value}) for value in ODD)
            for inner in whole[name] if isinstance(whole[name], dict) else ():
                yield from (json.dumps(whole | {name: whole[name] | {inner: value}}) for value in ODD)
        text = json.dumps(whole)
        yield from (text[:end] for end in range(0, len(text), 50))


def test_any_line_is_shown_or_refused_in_one_sentence(tmp_path: Path) -> None:
    from perfsuite.analyze.roofline_ceilings import from_data_sheet
    from perfsuite.analyze.roofline_points import points
    from perfsuite.exporters import html
    from perfsuite.history import series
    from perfsuite.history.processes import process_of
    from perfsuite.report import accuracy, markdown, step_summary, summary, terminal
    from perfsuite.report.difference import differences, lines, unlike

    path, good = tmp_path / "record.jsonl", case()
    ceilings = from_data_sheet("NVIDIA H200")
    assert ceilings is not None
    shown = refused = 0
    for number, text in enumerate(odd_lines()):
        path.write_text(text)
        cases = []
        with suppress(RecordError):
            cases = read_record(path)
        if not cases:
            with pytest.raises(RecordError, match=re.escape(str(path))) as caught:
                read_record(path)
            str(caught.value).encode()
            refused += 1
            continue
        shown += 1
        assert cases[0].as_json() == json.loads(text)
        step_summary.of_cases(cases, title="t", notes=[markdown.environment(cases[0])]).encode()
        terminal.table(cases), terminal.sentences(cases), summary.table(cases), accuracy.table(cases)
        unlike([good], cases), lines(differences([good], cases))
        series.values(cases), process_of(cases[0]), points(cases, ceilings)
        if number % 8 == 0:
            html.text(cases, title="t")
    assert shown > 100
    assert refused > 100
