"""How jobs are divided into commands, resumed and joined; and that the commands of the table exist."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from perfsuite.outcome import UserError
from records.make import findings, needs, outcomes
from records.make.__main__ import listed, main
from records.make.job import At, Job
from records.make.jobs import JOBS, named
from records.make.kinds import STARTS, Calibration, Exploits, Gates, Parts, Sections, Survey
from records.make.run import ROOT

NONE: frozenset[str] = frozenset()
BY_NAME = {job.name: job for job in JOBS}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "record").mkdir()
    return tmp_path


def at(job: Job, place: Path, *, card: str = "h200", cards: int = 1) -> At:
    return At(job, place, card, cards)


def test_parts_that_are_whole_are_not_made_again(place: Path) -> None:
    here = at(BY_NAME["random-backward"], place)
    assert isinstance(here.job.kind, Parts)
    pieces = here.job.kind.pieces(here, frozenset({"part-0", "part-2"}))
    assert [piece.name for piece in pieces] == ["part-1", *(f"part-{number}" for number in range(3, 8))]
    words = list(pieces[0].words)
    assert words[words.index("--part") :][:3] == ["--part", "1", "8"]
    assert not pieces[0].whole(), "there is no file"
    (place / "part-1.json").write_text('{"environment": {"backward cut at": "7 of 250 calls"}}')
    assert not pieces[0].whole()
    (place / "part-1.json").write_text('{"environment": {}}')
    assert pieces[0].whole()
    joined = here.job.kind.join(here)
    assert joined is not None
    assert joined[joined.index("--join") :] == ["--join", str(place / "part-1.json"), "--out", str(here.record)]


def outcome(place: Path, name: str, *lines: Mapping[str, object]) -> None:
    (place / f"{name}.outcomes").write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def test_gates_are_shared_by_cards_and_continued(place: Path) -> None:
    job = BY_NAME["gates-backward"]
    assert isinstance(job.kind, Gates)
    assert len(job.kind.pieces(at(job, place), NONE)) == 1
    shares = [piece.environment[outcomes.SHARE] for piece in job.kind.pieces(at(job, place, cards=3), NONE)]
    assert shares == ["0/2", "1/2"]
    passed = [{"test": name, "outcome": "passed"} for name in "abc"]
    outcome(place, "run-0", {"every": list("abcd")}, *passed)
    (piece,) = job.kind.pieces(at(job, place), NONE)
    assert piece.name == "run-1"
    assert piece.seconds == pytest.approx(15 + job.seconds / 4)
    assert not piece.whole()
    (place / "run-4.partial.jsonl").touch()
    (later,) = job.kind.pieces(at(job, place), NONE)
    assert later.name == "run-5", "a record of a run that was cut before its first test is not overwritten"
    outcome(place, "run-1", {"test": "d", "outcome": "failed"})
    assert piece.whole()
    assert job.kind.pieces(at(job, place), NONE) == []


def test_one_whole_record_of_gates_is_copied_and_several_are_joined(place: Path) -> None:
    here = at(BY_NAME["gates-fp8"], place)
    kind = here.job.kind
    assert kind.join(here) is None
    assert not here.record.exists()
    (place / "run-0.jsonl").write_text('{"schema":1,"case":"one"}\n')
    (place / "run-1.partial.jsonl").write_text('{"schema":1,"begin":"now"}\n')
    assert kind.join(here) is None, "a run without a case counts for nothing"
    assert here.record.read_bytes() == (place / "run-0.jsonl").read_bytes()
    (place / "run-1.partial.jsonl").write_text('{"schema":1,"case":"two"}\n')
    joined = kind.join(here)
    assert joined is not None
    assert list(joined[2:5]) == ["partial", "--join", str(here.record)]
    assert [Path(one).name for one in joined[5:]] == ["run-0.jsonl", "run-1.partial.jsonl"]
    assert not here.record.exists(), "perfsuite partial writes new files only"


def test_attacks_share_no_card_and_are_shared_by_cards(place: Path) -> None:
    job = BY_NAME["exploits"]
    assert isinstance(job.kind, Exploits)
    assert job.beside == 1, "each attack is timed, and so is its twin"
    for cards, lanes in ((1, 1), (2, 2), (8, 3)):
        *runs, alone = job.kind.pieces(at(job, place, cards=cards), NONE)
        shares = [piece.environment[outcomes.SHARE] for piece in runs]
        assert shares == [f"{lane}/{lanes}" for lane in range(lanes)]
        assert sum(piece.seconds for piece in runs) == pytest.approx(job.seconds + lanes * STARTS)
        assert (alone.name, alone.turn) == ("alone", 1)


def test_attacks_that_failed_are_tried_once_more(place: Path) -> None:
    here = at(BY_NAME["exploits"], place)
    kind = here.job.kind
    assert isinstance(kind, Exploits)
    first = kind.pieces(here, NONE)
    assert [(piece.name, piece.turn) for piece in first] == [("run-0", 0), ("alone", 1)]
    assert outcomes.AGAIN in first[-1].environment
    outcome(
        place, "run-0", {"every": ["a", "b"]}, {"test": "a", "outcome": "passed"}, {"test": "b", "outcome": "failed"}
    )
    assert [piece.name for piece in kind.pieces(here, NONE)] == ["alone"]
    assert kind.pieces(here, frozenset({"alone"})) == []
    outcome(place, "alone", {"test": "b", "outcome": "passed"})
    assert kind.pieces(here, NONE) == []


def test_a_calibration_continues_after_the_parts_that_have_gates(place: Path) -> None:
    here = at(BY_NAME["calibration"], place)
    kind = here.job.kind
    assert isinstance(kind, Calibration)
    (place / "part-0.jsonl").write_text('{"form": "x"}\n{"kind": "noise"}\n')
    (place / "part-1.jsonl").write_text('{"form": "x"}\n{"kind": "gate"}\n')
    (piece,) = kind.pieces(here, NONE)
    words = list(piece.words)
    assert words[words.index("--part") :] == [
        "--part", str(place / "part-2.jsonl"), "--after", str(place / "part-1.jsonl"),
    ]  # fmt: skip
    here.record.write_text('{"complete": true}')
    assert kind.pieces(here, NONE) == []


def test_the_survey_has_the_folder_of_the_card_as_its_own(place: Path) -> None:
    here = at(BY_NAME["survey"], place)
    assert isinstance(here.job.kind, Survey)
    pieces = here.job.kind.pieces(here, frozenset({"part-1"}))
    assert [piece.name for piece in pieces] == ["part-2"]
    records = Path(pieces[0].words[list(pieces[0].words).index("--records") + 1])
    assert (records / "h200").resolve() == here.record.parent.resolve()


def test_objects_of_a_record_are_put_together(place: Path) -> None:
    job = BY_NAME["judge-speeds"]
    assert isinstance(job.kind, Sections)
    here = at(job, place, cards=2)
    first, second, *_ = job.kind.pieces(here, NONE)
    (place / "in-process.json").write_text('{"in-process": {"cases": 4}}')
    (place / "isolated,cards.json").write_text('{"isolated": {"jobs": 4}}')
    assert first.whole()
    assert not second.whole()
    job.kind.join(here)
    assert job.kind.found(here) == (False, "in-process, isolated; 0 faults; left: cards, triton, cuda")


def test_a_section_that_goes_on_or_was_cut_is_not_whole(tmp_path: Path) -> None:
    file, ended, cut = tmp_path / "judge.json", {"exit": 20}, {"exit": None}
    suites = {"perf-ray": {"plain": ended, "ray": cut}, "perf": {"plain": ended, "auto": ended}}
    file.write_text(json.dumps({"http": {"whole": False}, "ray": {"whole": True}, **suites}))
    assert findings.lacking(file, ["http", "ray", "perf-ray", "perf", "cards"]) == ["http", "perf-ray", "cards"]


def test_the_outcomes_of_tests_are_written_and_left_out(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(
        test_it="""
        import subprocess, sys
        import pytest
        @pytest.fixture
        def bad():
            raise RuntimeError("no card")
        def test_a():
            # A pytest that a test starts with the same plugins, as to measure a suspect again, runs what it is told.
            line = [sys.executable, "-m", "pytest", "-q", "-p", "records.make.outcomes", "test_it.py::test_d", "-rs"]
            done = subprocess.run(line, capture_output=True, text=True)
            assert "1 skipped" in done.stdout, done.stdout + done.stderr
        def test_b(): assert False
        def test_c(bad): pass
        def test_d(): pytest.skip("no")
        """
    )
    monkeypatch.setenv(outcomes.FOLDER, str(pytester.path))
    monkeypatch.setenv(outcomes.PART, "run-0")
    monkeypatch.setenv(outcomes.SHARE, "0/1")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.runpytest_subprocess("-p", "records.make.outcomes", "--deselect", "test_it.py::test_d")
    every, known = outcomes.read(pytester.path)
    assert [one.split("::")[1] for one in every] == ["test_a", "test_b", "test_c"]
    assert known == {"test_it.py::test_a": "passed", "test_it.py::test_b": "failed"}, "an error is no outcome"
    monkeypatch.setenv(outcomes.PART, "run-1")
    monkeypatch.setenv(outcomes.AGAIN, "1")
    pytester.runpytest_subprocess("-p", "records.make.outcomes").assert_outcomes(
        failed=1, errors=1, skipped=1, deselected=1
    )
    every, known = outcomes.read(pytester.path)
    assert known["test_it.py::test_d"] == "skipped"
    assert outcomes.chosen(every, known, "0/2") == ["test_it.py::test_c"]
    assert outcomes.chosen(every, known, "1/2") == []
    (pytester.path / "run-2.outcomes").write_text('{"test": "test_it.py::test_c", "outcome": "pa')
    assert "test_it.py::test_c" not in outcomes.read(pytester.path)[1]


def test_unknown_names_are_refused_with_what_is_allowed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError, match="--only has gates-fp9; allowed are sanitizers, gates-fp8"):
        named(["gates-fp8", "gates-fp9"])
    assert main(["--list", "--only", "gates-fp8,sanitizers"]) == 0
    said = capsys.readouterr().out
    assert said.index("sanitizers") < said.index("gates-fp8"), "the order is the table's"
    assert main(["--output", "nowhere", "--seconds", "9", "--only", "fp8"]) == 2
    assert main(["--output", "nowhere", "--seconds", "0"]) == 2
    assert "--seconds is 0.0; it must be above 0" in capsys.readouterr().err


def test_the_list_has_every_job_with_its_seconds() -> None:
    lines = listed(JOBS)
    assert len(lines) == len(JOBS) + 2
    for job, line in zip(JOBS, lines[1:], strict=False):
        assert re.match(rf"{job.name} +{job.seconds:.0f} ", line), line


def test_an_older_sanitizer_is_refused(tmp_path: Path) -> None:
    program = tmp_path / "compute-sanitizer"
    for version, refused in (("2025.3.1.0", True), ("2026.1.0.0", False)):
        program.write_text(f"#!/bin/sh\necho 'Version {version}'\n")
        program.chmod(0o755)
        assert bool(needs.lacking(["sanitizer"], str(program))) is refused


def commands_of(job: Job, place: Path) -> list[list[str]]:
    """The words of a job's commands, for a card and without one."""
    every = job.kind.pieces(at(job, place, cards=job.cards), NONE)
    if job.small is not None:
        every += job.kind.pieces(at(job, place, card="cpu", cards=job.cards), NONE)
    return [list(piece.words) for piece in every]


def text_of(words: list[str]) -> str:
    """The sources in which the options of a command are declared."""
    if words[:3] == ["-m", "perfsuite", "calibrate"]:
        return (ROOT / "perfsuite/cli/commands/calibrate.py").read_text()
    if words[:2] == ["-m", "tests.judge.thousand"]:
        return (ROOT / f"tests/judge/thousand_{words[2].removeprefix('--')}.py").read_text() + f'"{words[2]}"'
    if words[0] != "-m":
        return (ROOT / words[0]).read_text()
    module = ROOT.joinpath(*words[1].split("."))
    module = ROOT / "ext" / module.relative_to(ROOT) if words[1].startswith("cuda_llm_ops") else module
    files = [module.with_suffix(".py"), module / "__main__.py"]
    return next(file for file in files if file.exists()).read_text()


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_the_programs_of_a_job_exist_and_know_its_options(job: Job, place: Path) -> None:
    for words in commands_of(job, place):
        suite = [word.partition("=")[0] for word in words if word.startswith("--perf-")]
        known = (ROOT / "docs/reference/options.md").read_text()
        assert all(f"`{option}" in known for option in suite), suite
        files = [word for word in words if word.startswith("tests/")]
        assert all((ROOT / file).exists() for file in files), files
        if words[:2] == ["-m", "pytest"]:
            assert files
            continue
        declared = text_of(words)
        for option in [word for word in words if word.startswith("--") and word.partition("=")[0] not in suite]:
            assert f'"{option}"' in declared, f"{' '.join(words)}: {option}"


def test_records_of_jobs_have_names_of_their_own() -> None:
    alone = [job.record for job in JOBS if not job.sections]
    assert len(set(alone)) == len(alone)
    assert len(BY_NAME) == len(JOBS)
    assert all(job.needs == tuple(name for name in job.needs if name in needs.NEEDS) for job in JOBS)
