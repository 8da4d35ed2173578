"""`perfsuite calibrate` as a whole, with workers that make up their rows."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from perfsuite.calibrate import running
from perfsuite.calibrate.parts import read_part, read_rows
from perfsuite.cli.commands import calibrate
from perfsuite.device.cards import Device, Devices
from perfsuite.outcome import UserError
from perfsuite.verdict.noise import Calibration

WORKER = """
import json, sys
plan = json.load(open(sys.stdin.readline().strip()))
row = {"process": plan["process"], "case": "gemm-64", "slowdown": 0.0, "seconds": 1e-5}
row["setups"] = [[1e-3 * place, 1e-3, 20] for place in range(4)]
gate = {"kind": "gate", "alarm": False, "undecided": False, "speed": 1.0, "gpu_seconds": 0.04, "wall_seconds": 0.1}
with open(plan["output"], "a") as rows:
    if plan["setups"]:
        print(json.dumps(row | {"kind": "noise"}), file=rows)
    for name, slowdown, count in plan["gates"]:
        for _ in range(count):
            print(json.dumps(row | gate | {"case": name, "slowdown": slowdown, "alarm": slowdown > 0.0}), file=rows)
assert not plan["peers_seconds"], "there are no replays on a processor"
sys.exit(3 if plan["gates"] and plan["process"] == 4 else 0)
"""


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def prepared(self: Any, selector: str | None) -> subprocess.Popen[str]:
        return subprocess.Popen([sys.executable, "-c", WORKER], stdin=subprocess.PIPE, text=True)

    monkeypatch.setattr(running.Calibration, "_prepared", prepared)


def arguments(output: Path, *more: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    calibrate.add_arguments(parser)
    line = [
        "--portable",
        "--output",
        str(output),
        "--processes",
        "2",
        "--aa",
        "30",
        "--planted",
        "12",
        "--sharp",
        "6",
        "--others",
        "6",
    ]
    return parser.parse_args([*line, *more])


def test_the_file_holds_what_there_is_at_any_time(
    made_up: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "new" / "calibration.json"
    seen: list[dict[str, Any]] = []
    tell = running.Calibration._tell

    def watched(self: Any, plan: Any) -> None:
        tell(self, plan)
        seen.append(json.loads(output.read_text()) if output.exists() else {})

    monkeypatch.setattr(running.Calibration, "_tell", watched)
    assert calibrate.run(arguments(output)) == 0
    found = json.loads(output.read_text())
    assert [one.get("complete") for one in seen] == [None] * 3 + [False] * 2
    assert found["complete"] is True
    assert 0 < seen[3]["aa"]["gates"] < found["aa"]["gates"] == 30
    assert [(one["slowdown"], one["trials"], one["caught"]) for one in found["planted"]] == [
        (0.005, 6, 6),
        (0.01, 12, 12),
        (0.02, 6, 6),
        (0.05, 6, 6),
    ]
    assert (found["processes"], found["wall_seconds_per_gate_median"]) == (2, 0.1)
    assert Calibration.load(output).cases[0].setup_noise == found["cases"][0]["setup_noise"]
    said = capsys.readouterr()
    assert "process 4 of the calibration ended with exit code 3" in said.err
    assert "30 gates of identical code, 0 false alarms, 30 planted" in said.out


def test_cards_are_calibrated_at_once(made_up: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cards = [Device(place, "a card", f"GPU-{place}", (9, 0), 2**30, str(place)) for place in range(3)]
    monkeypatch.setattr(calibrate, "usable_devices", lambda environ: Devices(tuple(cards)))
    used: list[str | None] = []
    process = running.Calibration._process

    def watched(self: Any, plan: Any, given: Any) -> None:
        used.append(given.selector)
        process(self, plan, given)

    monkeypatch.setattr(running.Calibration, "_process", watched)
    output = tmp_path / "calibration.json"
    assert calibrate.run(arguments_for_cards(output, 2)) == 0
    found = json.loads(output.read_text())
    assert (found["cards"], found["complete"], found["processes"]) == (2, True, 2)
    assert set(used) == {"0", "1"}
    with pytest.raises(UserError, match="--jobs is 4; 3 can be seen"):
        calibrate.run(arguments_for_cards(output, 4))


@pytest.mark.parametrize("isolated", [False, True])
def test_processes_take_turns_on_a_card(
    made_up: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, isolated: bool
) -> None:
    cards = [Device(place, "a card", f"GPU-{place}", (9, 0), 2**30, str(place)) for place in range(2)]
    monkeypatch.setattr(calibrate, "usable_devices", lambda environ: Devices(tuple(cards)))
    plans: list[tuple[str, int, str]] = []
    process = running.Calibration._process

    def watched(self: Any, plan: Any, given: Any) -> None:
        process(self, plan, given)
        values = json.loads((self.folder / f"plan-{plan.process}.json").read_text())
        plans.append((given.selector, values["beside"], values["lock"]))

    monkeypatch.setattr(running.Calibration, "_process", watched)
    given = arguments_for_cards(tmp_path / "calibration.json", 2)
    given.isolated, given.beside, given.processes = isolated, 2, 8
    assert calibrate.run(given) == 0
    locks = {selector: lock for selector, _, lock in plans}
    assert set(locks) == {"0", "1"}
    assert locks["0"] != locks["1"]
    assert all((beside, lock) == (2, locks[selector]) for selector, beside, lock in plans)
    found = json.loads((tmp_path / "calibration.json").read_text())
    assert (found["cards"], found["beside"], found["processes"]) == (2, 2, 8)
    if not isolated:
        given.peers_seconds = 20.0
        with pytest.raises(UserError, match="--beside is 2; the peers' timers know no turns"):
            calibrate.run(given)
    given.portable = True
    with pytest.raises(UserError, match="--beside is 2; only gates on a card have turns"):
        calibrate.run(given)


def arguments_for_cards(output: Path, count: int) -> argparse.Namespace:
    given = arguments(output, "--jobs", str(count), "--peers-seconds", "0")
    given.portable = False
    return given


def test_a_line_that_is_being_written_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"kind": "gate"}\n{"kind": "ga')
    assert read_rows(tmp_path / "rows.jsonl") == [{"kind": "gate"}]


def in_parts(tmp_path: Path, name: str, *more: str) -> argparse.Namespace:
    given = arguments(tmp_path / "unused.json", "--part", str(tmp_path / name), *more)
    given.output = None
    return given


def test_a_calibration_in_parts_is_joined_to_one_file(
    made_up: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert calibrate.run(in_parts(tmp_path, "1.jsonl", "--aa", "30")) == 0
    first = tmp_path / "1.jsonl"
    assert not (tmp_path / "unused.json").exists()
    assert calibrate.run(in_parts(tmp_path, "2.jsonl", "--aa", "54", "--after", str(first))) == 0
    one, other = (read_part(tmp_path / name) for name in ("1.jsonl", "2.jsonl"))
    assert sum(row["kind"] == "noise" for row in one.rows) == 3
    # The second takes the first one's noise, and measures only what the first lacks.
    assert not any(row["kind"] == "noise" for row in other.rows)
    assert other.noise == one.noise
    assert [sum(not row["slowdown"] for row in part.gates) for part in (one, other)] == [30, 24]
    assert not any(row["slowdown"] for row in other.gates)
    output = tmp_path / "joined" / "calibration.json"
    given = arguments(output, "--join", str(first), str(tmp_path / "2.jsonl"))
    assert calibrate.run(given) == 0
    found = json.loads(output.read_text())
    assert (found["aa"]["gates"], found["processes"], len(found["parts"]), found["complete"]) == (54, 4, 2, True)
    assert Calibration.load(output).cases
    assert f"written to {output}" in capsys.readouterr().out


def test_parts_with_all_gates_leave_nothing_to_measure(made_up: None, tmp_path: Path) -> None:
    assert calibrate.run(in_parts(tmp_path, "1.jsonl")) == 0
    with pytest.raises(UserError, match="have all gates that are asked for"):
        calibrate.run(in_parts(tmp_path, "2.jsonl", "--after", str(tmp_path / "1.jsonl")))
    assert not (tmp_path / "2.jsonl").exists()


def test_a_part_of_another_kind_is_not_carried_on(made_up: None, tmp_path: Path) -> None:
    assert calibrate.run(in_parts(tmp_path, "1.jsonl")) == 0
    with pytest.raises(UserError, match="this run is of isolated gates"):
        calibrate.run(in_parts(tmp_path, "2.jsonl", "--isolated", "--after", str(tmp_path / "1.jsonl")))


def test_options_of_parts_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    there = tmp_path / "1.jsonl"
    there.write_text("")
    for given, said in [
        (arguments(tmp_path / "c.json", "--part", str(tmp_path / "2.jsonl")), "--part writes a part and --output"),
        (arguments(tmp_path / "c.json", "--after", str(there)), "--after continues a calibration in parts"),
        (in_parts(tmp_path, "1.jsonl"), "which exists; each part is a new file"),
        (in_parts(tmp_path, "2.jsonl", "--join", str(there)), "--join measures nothing"),
    ]:
        with pytest.raises(UserError, match=said):
            calibrate.run(given)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *((option, "0") for option in ("--aa", "--planted", "--processes", "--seconds")),
        *((option, "-1") for option in ("--sharp", "--others", "--peers-seconds")),
        *((option, "nan") for option in ("--seconds", "--peers-seconds")),
    ],
)
def test_numbers_that_make_no_sense_are_refused(option: str, value: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"{option} is {value}"):
        calibrate.run(arguments(tmp_path / "calibration.json", option, value))
