"""What records say, in a few words, and whether they are whole."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from perfsuite.record.store import read_run

from .job import Found

JUDGED = {0, 1, 20}
"""Exit codes of a suite that judged all of its cases."""


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def cut(record: dict[str, Any]) -> list[str]:
    """Statements of a record about what the time was too short for."""
    return [f"{key} {value}" for key, value in record["environment"].items() if key.endswith("cut at")]


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{number} {name}" for name, number in sorted(counts.items())) or "nothing"


def _left(every: Sequence[str], known: dict[str, str]) -> tuple[bool, str]:
    """Whether all tests have ended, and what to say of those that have not, or were skipped."""
    left, skipped = len(set(every) - known.keys()), sum(known.get(one) == "skipped" for one in every)
    said = (f"; {left} of {len(every)} tests left" if left else "") + (f"; {skipped} skipped" if skipped else "")
    return bool(every) and not left, said


def gates(path: Path, every: Sequence[str], known: dict[str, str]) -> Found:
    """Verdicts of a record of gates."""
    whole, said = _left(every, known)
    return Found(whole, _listed(Counter(str(case.verdict) for case in read_run(path, samples=False).cases)) + said)


def exploits(path: Path, every: Sequence[str], known: dict[str, str]) -> Found:
    """Attacks that were not caught, honest candidates that were accused."""
    whole, said = _left(every, known)
    record = _read(path)
    missed = [one for one in record["exploits"] if not (one["caught"] and one["twin_passed"])]
    missed += [one for one in record["downgrades"] if one["caught"] < one["seeds"] or one["honest_accused"]]
    accused = sum(one["accused"] for one in record["honest"])
    tried = f"{len(record['exploits'])} attacks, {len(record['downgrades'])} downgrades, {len(missed)} missed"
    return Found(whole, f"{tried}; {accused} of {len(record['honest'])} honest accused{said}")


def gates_of(calibration: dict[str, Any]) -> int:
    """How many gates a calibration has."""
    planted = sum(one["trials"] for one in calibration.get("planted", ()))
    return int(calibration.get("aa", {}).get("gates", 0)) + planted


def calibration(path: Path) -> Found:
    """False alarms, and planted slow-downs that were caught."""
    record = _read(path)
    alarms = f"{record['aa']['false_alarms']} alarms in {record['aa']['gates']} gates"
    caught = [f"{one['caught']} of {one['trials']} of {one['slowdown']:.1%} caught" for one in record["planted"]]
    return Found(bool(record["complete"]), "; ".join([alarms, *caught]))


def sanitizers(path: Path) -> Found:
    """Findings by tool; whole if no tool was out of time and every instance was launched."""
    record = _read(path)
    launched = all(row["built"] == row["launched"] > 0 for row in record["rows"])
    whole = all(one["complete"] for one in record["tools"].values()) and launched
    said = [f"{tool} {one['findings']} in {one['calls']} calls" for tool, one in record["tools"].items()]
    return Found(whole, "; ".join(said) + ("" if launched else "; not all instances were launched"))


def random_calls(path: Path) -> Found:
    """Wrong answers among random calls."""
    record = _read(path)
    calls, wrong, above = (sum(row[name] for row in record["rows"]) for name in ("calls", "wrong", "above 1.2"))
    short = cut(record)
    return Found(not short, "; ".join([f"{calls} calls, {wrong} wrong, {above} above 1.2", *short]))


def repeated(path: Path) -> Found:
    """Launches with other bits."""
    record = _read(path)
    other, cases = (sum(row[name] for row in record["rows"]) for name in ("with other bits", "cases"))
    return Found(not cut(record), "; ".join([f"{cases} cases, {other} launches with other bits", *cut(record)]))


def rows(path: Path) -> Found:
    """A record that its program writes only as a whole."""
    lists = {name: value for name, value in _read(path).items() if isinstance(value, list)}
    return Found(True, ", ".join(f"{len(value)} {name}" for name, value in lists.items()))


def counters(path: Path) -> Found:
    """Calls whose counters were read."""
    record = _read(path)
    return Found(not cut(record), "; ".join([f"{len(record['rows'])} calls", *cut(record)]))


def survey(path: Path) -> Found:
    """Cases of a survey."""
    first, *cases = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    asked, failed = sum(first["counts"].values()), sum("failed" in one for one in cases)
    return Found(len(cases) >= asked, f"{len(cases)} of {asked} cases, {failed} failed")


def lacking(path: Path, names: Sequence[str]) -> list[str]:
    """Objects that a record of sections lacks, or that it has in part."""
    record = _read(path) if path.exists() else {}
    return [name for name in names if name not in record or not _ended(record[name])]


def _ended(section: dict[str, Any]) -> bool:
    """False for a section of a run that goes on, or of a suite that did not end by itself."""
    suites = [one["exit"] for one in section.values() if isinstance(one, dict) and "exit" in one]
    return bool(section.get("whole", True)) and set(suites) <= JUDGED


def sections(path: Path, names: Sequence[str]) -> Found:
    """A record of sections, and the faults that they name."""
    record, left = _read(path), lacking(path, names)
    faults = sum(len(one.get("faults", one.get("different", ()))) for one in record.values())
    said = f"{', '.join(name for name in names if name not in left)}; {faults} faults"
    return Found(not left, said + (f"; left: {', '.join(left)}" if left else ""))


def commits(value: Any) -> Iterator[str]:
    """Every commit that a value of JSON names, as git writes it, with "-dirty" if the tree had changes."""
    if isinstance(value, dict):
        if isinstance(value.get("commit"), str):
            yield value["commit"] + ("-dirty" if value.get("dirty") else "")
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from commits(one)
