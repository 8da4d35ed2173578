"""Records of any content: cases that every report can show, or one short sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from perfsuite.cli.main import main
from perfsuite.outcome import MOST_CHARACTERS
from perfsuite.record.schema import RecordError
from perfsuite.record.store import numbered_cases, read_run

from .fuzzing import fuzz, mutated, values

RECORD = Path(__file__).resolve().parents[2] / "records" / "h200" / "gates.jsonl"
SHOWN = (
    *(("report", "--all"), ("report", "--markdown"), ("report", "--json"), ("report", "--html", "page.html")),
    *(
        ("compare", "whole.jsonl"),
        ("verify", "--any-commit"),
        ("comment",),
        ("roofline",),
        ("partial", "--join", "j.jsonl"),
    ),
    *(("export", "csv"), ("export", "json"), ("compare", "--allow-unlike", "whole.jsonl")),
)
"""Commands that show a record; its name is their last word."""


def bases() -> list[Any]:
    """A line of each kind of case, with few samples, and the lines that begin and end a record."""
    lines: dict[Any, Any] = {}
    for line in map(json.loads, RECORD.read_text().splitlines()):
        for samples in ("samples", "discarded_samples"):
            line[samples] = {name: column[:3] for name, column in line.get(samples, {}).items()}
        lines.setdefault((line["family"], line.get("aspect"), line["verdict"]), line)
    begin = {"schema": 1, "begin": "2026-01-01T00:00:00Z", "process": 1, "perfsuite": "0", "variables": {"A": "b"}}
    return [*lines.values(), begin, {"schema": 1, "end": "finished", "cases": 1, "exit": 0, "tests": 1}]


def answer(read: Callable[[], object]) -> str:
    """What is wrong with a record, or nothing."""
    try:
        read()
    except RecordError as error:
        return str(error)
    return ""


def test_records_of_any_content(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    known = bases()
    Path("whole.jsonl").write_text("".join(json.dumps(line) + "\n" for line in known[:4]))
    path, shown = Path("some.jsonl"), 0

    def check(lines: list[Any], cut: tuple[int, bytes] | None, show: tuple[str, ...]) -> None:
        nonlocal shown
        text = b"\n".join(json.dumps(line).encode() for line in lines)
        if cut is not None:
            place = cut[0] % (len(text) + 1)
            text = text[:place] + cut[1] + text[place + len(cut[1]) :]
        path.write_bytes(text)
        try:
            read_run(path)
            said, readable = "", True
        except RecordError as error:
            said, readable = str(error), False
        assert len(said) <= MOST_CHARACTERS
        assert said.isprintable()
        # The index reads by another library, and refuses the same with the same words.
        answers = [answer(lambda: read_run(path, samples=False)), answer(lambda: list(numbered_cases(path)))]
        assert answers[0] == answers[1]
        Path("j.jsonl").unlink(missing_ok=True)
        code = main([*show, str(path)])
        said = capsys.readouterr().err
        assert readable or code == 2
        assert code in (0, 1, 2, 20)
        assert all(len(line) <= MOST_CHARACTERS + 50 for line in said.splitlines())
        shown += readable

    record = st.lists(st.one_of(mutated(known), st.sampled_from(known), values()), min_size=1, max_size=3)
    cuts = st.one_of(st.none(), st.none(), st.tuples(st.integers(0, 10**6), st.binary(max_size=6)))
    assert fuzz(check, lines=record, cut=cuts, show=st.sampled_from(SHOWN))
    assert shown
