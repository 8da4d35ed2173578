"""Comparing large records by the index gives the answer that reading all of both gives."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perfsuite.cli.commands import compare
from perfsuite.cli.main import main
from perfsuite.record import index_db
from perfsuite.record.case import Case
from perfsuite.record.index_db import open_index
from perfsuite.record.schema import RecordError
from perfsuite.record.store import write_record
from perfsuite.report import figures
from perfsuite.report.case_index import indexed
from perfsuite.report.worst import read_worst

from .conftest import case

Compare = Callable[..., tuple[int, str]]


@pytest.fixture
def compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Compare:
    """The command, with or without the index: exit code and all that it prints."""
    monkeypatch.chdir(tmp_path)
    index_db._opened.cache_clear()

    def run(*arguments: str, by_index: bool) -> tuple[int, str]:
        monkeypatch.setattr(compare, "LARGE_BYTES", 0 if by_index else 10**12)
        code = main(["compare", *arguments])
        printed = capsys.readouterr()
        return code, printed.out + printed.err

    return run


def drawn(draw: random.Random, count: int) -> list[Case]:
    """Cases of tests with one call or several alike, of every kind of quantity."""
    found = []
    for number in range(count):
        values: dict[str, Any] = {"test": f"tests/test_it.py::test_{number % 17}", "call": number % 3 or None}
        values["label"] = draw.choice([None, None, "a", "b"])
        values["verdict"] = draw.choice(["MET"] * 6 + ["MISSED", "WRONG", "UNDECIDED"])
        kind = draw.randrange(5)
        if kind == 0:
            share, ceiling = draw.choice([0.9, 0.91, 0.7]), draw.choice([4e12, 4.2e12])
            measured = {"share": share, "attainable_flops": ceiling, "seconds": draw.choice([1e-5, 1.2e-5])}
            values |= {"aspect": "roofline", "rival": None, "measured": measured, "speed": None}
        elif kind == 1:
            values |= {"aspect": "launches", "measured": {"launches": draw.choice([1.0, 2.0])}, "speed": None}
        elif kind == 2:
            values |= {"candidate_error": draw.choice([1e-4, 1.1e-4, 3e-4]), "rival_error": 1e-4}
        speed = draw.choice([0.95, 0.951, 0.96, 0.99, 0.5])
        if kind > 1:
            values |= {"speed": speed, "speed_low": speed * 0.99, "speed_high": speed * 1.01}
            values |= {"candidate_seconds": 1e-5 / speed, "clock": draw.choice(["graph"] * 30 + ["events"])}
        values |= {"torch": draw.choice(["2.13.0"] * 40 + ["2.14.0"]), "target": draw.choice([0.9, 0.9, 0.95])}
        found.append(case(f"{number % 5}x8x8", **values))
    return found


@pytest.mark.parametrize("seed", range(12))
def test_the_answer_is_that_of_the_lines(compared: Compare, tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    before = drawn(draw, 60)
    after = [one for one in before if draw.random() > 0.1] if seed % 2 else drawn(draw, 60)
    after = [one.changed(verdict="MISSED") if draw.random() > 0.9 else one for one in after]
    write_record(tmp_path / "a", before)
    write_record(tmp_path / "b", after)
    for arguments in (("a", "b", "--allow-unlike"), ("a", "b"), ("b", "a", "--allow-unlike", "--least", "0.1")):
        # The first time the index is filled, the second time it is only asked.
        answers = [compared(*arguments, by_index=by_index) for by_index in (False, True, True)]
        assert answers[0] == answers[1] == answers[2]


def test_a_record_that_changed_is_read_again_and_a_broken_one_refused(compared: Compare, tmp_path: Path) -> None:
    write_record(tmp_path / "a", [case()])
    write_record(tmp_path / "b", [case()])
    assert "1 same" in compared("a", "b", by_index=True)[1]
    os.utime(tmp_path / "b", (1, 1))
    assert "1 same" in compared("a", "b", by_index=True)[1]
    write_record(tmp_path / "b", [case(verdict="WRONG")])
    assert "1 worse verdict" in compared("a", "b", by_index=True)[1]
    (tmp_path / "b").write_text('{"schema":1}\n')
    assert compared("a", "b", by_index=True) == compared("a", "b", by_index=False)
    with pytest.raises(RecordError, match="cannot be read as a record"):
        indexed(open_index(tmp_path), tmp_path / "none")


def test_without_an_index_the_lines_are_read_and_that_is_said(compared: Compare, tmp_path: Path) -> None:
    write_record(tmp_path / "a", [case()])
    (tmp_path / ".perfsuite" / "index.db").mkdir(parents=True)
    code, said = compared("a", "a", by_index=True)
    assert code == 0
    assert "index.db cannot be used" in said
    assert ": the files are read instead" in said
    assert "1 cases: 1 same" in said


def test_a_report_prints_the_worst_and_says_how_many_more(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cases = [case(f"{number}x1x1", verdict="MISSED" if number == 1100 else "MET") for number in range(1200)]
    write_record(tmp_path / "a", cases)
    assert main(["report", str(tmp_path / "a")]) == 0
    out = capsys.readouterr().out.splitlines()
    assert "1100x1x1" in out[2]
    assert out[-2:] == ["and 200 more, none of them worse (--all shows them)", "1199 met, 1 missed"]
    assert main(["report", str(tmp_path / "a"), "--all"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1204


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"speed": -1.0}, "speed is -1.0; it must be a number from"),
        ({"candidate_seconds": "fast"}, "candidate_seconds is 'fast'; it must be a number from"),
        ({"params": {"m": 1e200}}, "params.m is 1e+200; it must be text, a number"),
        ({"telemetry": {"power_watts": "much"}}, "telemetry.power_watts is 'much'; it must be a number from"),
    ],
)
def test_a_report_checks_the_cases_that_it_does_not_show(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], wrong: dict[str, Any], said: str
) -> None:
    """The last of many lines of one shape is looked at as the first is."""
    lines = [case(f"{number}x1x1", speed=0.95, telemetry={"power_watts": 1.0}).as_json() for number in range(1100)]
    lines[-1] |= wrong
    (tmp_path / "a").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert main(["report", str(tmp_path / "a")]) == 2
    assert f"a:1100: {said}" in capsys.readouterr().err


def test_a_report_of_any_size_keeps_the_worst_cases_in_order(tmp_path: Path) -> None:
    """Those and no others, with the counts of all, as sorting the whole record gives."""
    cases = drawn(random.Random(7), 300)
    write_record(tmp_path / "a", cases)
    found = read_worst(tmp_path / "a", 40)
    assert [one.line for one in found.run.cases] == [one.line for one in figures.worst_first(cases)[:40]]
    assert figures.counted(found.counts) == figures.counts(cases)
    assert found.first.line == cases[0].line
    assert found.run.unfinished is None


def test_names_with_unusual_characters_count_as_the_same(compared: Compare, tmp_path: Path) -> None:
    """A NUL ends no name in the index."""
    names = ["8x8\x008", "8x8\x009", "'8'\"", "\u20ac"]
    before = [case(name, test=f"t::{place}") for name in names for place in range(3)]
    write_record(tmp_path / "a", before)
    write_record(tmp_path / "b", [one.changed(verdict="WRONG") if one.test == "t::1" else one for one in before])
    assert compared("a", "b", by_index=True) == compared("a", "b", by_index=False)
    assert "4 worse verdict, 8 same" in compared("a", "b", by_index=True)[1]
