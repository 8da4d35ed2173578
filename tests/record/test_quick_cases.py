"""Cases that msgspec reads are those of `Case.of_json`; the others are left to it."""

from __future__ import annotations

import builtins
import json
import random
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from perfsuite.record.case import SCHEMA, Case
from perfsuite.record.quick_cases import quick_reader
from perfsuite.record.schema import RecordError
from perfsuite.record.store import numbered_cases, read_run
from tests.record.test_record import RECORDS, line, odd_lines

pytest.importorskip("msgspec", reason="msgspec is not installed")

LEFT_OUT = ("samples", "discarded_samples", "line")
SHORT = {name: value for name, value in line().items() if name not in LEFT_OUT}


def plain(case: Any) -> dict[str, str]:
    """Field -> its value and type, as text."""
    names = [field.name for field in fields(Case) if field.name not in LEFT_OUT]
    telemetry = case.telemetry and {name: getattr(case.telemetry, name) for name in fields_of_telemetry()}
    return {name: repr(getattr(case, name)) for name in names if name != "telemetry"} | {"telemetry": repr(telemetry)}


def fields_of_telemetry() -> list[str]:
    from perfsuite.device.telemetry import Telemetry

    return [field.name for field in fields(Telemetry)]


def agrees(text: bytes) -> bool:
    """True if msgspec reads the line. Its case must then be that of the ordinary reader."""
    read = quick_reader()
    assert read is not None
    if (found := read(text)) is None:
        return False
    assert plain(found) == plain(Case.of_json(json.loads(text), "here")), text
    return True


def test_every_case_of_the_committed_records_is_read_quickly_and_the_same() -> None:
    for record in RECORDS:
        slow = read_run(record).cases
        quick = [case for _, _, case in numbered_cases(record)]
        assert [plain(case) for case in quick] == [plain(case) for case in slow]
        if record == RECORDS[-1]:
            assert not any(isinstance(case, Case) for case in quick), "all were left to the ordinary reader"


def test_odd_lines_are_read_the_same_or_left() -> None:
    # One part of a right line is of another kind; hypothesis draws more of them in tests/fuzz.
    read = sum(agrees(text.encode()) for text in odd_lines())
    short = random.Random(0).sample([json.loads(text) for text in odd_lines() if _is_json(text)], 400)
    read += sum(
        agrees(json.dumps({name: value for name, value in one.items() if name not in LEFT_OUT}).encode())
        for one in short
        if isinstance(one, dict)
    )
    assert read > 20


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize(
    "changes",
    [
        {"schema": SCHEMA + 1},
        {"launches": 1.0},
        {"seed": 10**30},
        {"speed": 0.0},
        {"speed": 1e200},
        {"measured": {"x": True}},
        {"params": {"x": [1]}},
        {"params": {"x": 10**20}},
        {"telemetry": {"power_watts": "hot"}},
        {"telemetry": {"unheard": 1}},
        {"a_field_of_a_later_version": 1},
        {"verdict": "FINE"},
        {"case": None},
    ],
    ids=str,
)
def test_what_may_be_wrong_or_new_is_left(changes: dict[str, Any]) -> None:
    assert not agrees(json.dumps({**SHORT, **changes}).encode())


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"case":"\\ud800"}', b'"\xff"', b"\xef\xbb\xbf{}", b"NaN"])
def test_foreign_bytes_are_left(text: bytes) -> None:
    assert not agrees(text)
    assert not agrees(json.dumps(SHORT).encode()[:-1] + b',"label":' + text + b"}")


def test_whole_numbers_and_defaults_are_as_in_a_case() -> None:
    changed = {**SHORT, "speed": 1, "measured": {"launches": 2}, "params": {"n": 8, "scale": 1.0, "causal": True}}
    del changed["warnings"]
    assert agrees(json.dumps(changed).encode())


def test_without_msgspec_the_answer_is_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    record = RECORDS[-1]
    with_it = [(start, length, plain(case)) for start, length, case in numbered_cases(record)]
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name == "msgspec":
            raise ModuleNotFoundError("No module named 'msgspec'", name="msgspec")
        return real(name, *rest, **more)

    quick_reader.cache_clear()
    monkeypatch.setattr(builtins, "__import__", without)
    try:
        assert quick_reader() is None
        assert [(start, length, plain(case)) for start, length, case in numbered_cases(record)] == with_it
    finally:
        quick_reader.cache_clear()


def test_a_broken_line_among_right_ones_is_named(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in (SHORT, {**SHORT, "speed": -1.0}, SHORT)))
    said = []
    for read in (lambda: list(numbered_cases(path)), lambda: read_run(path)):
        with pytest.raises(RecordError) as caught:
            read()
        said.append(str(caught.value))
    assert said[0] == said[1]
    assert "record.jsonl:2: speed is -1.0; it must be a number" in said[0]
