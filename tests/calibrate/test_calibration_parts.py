"""Parts of a calibration: what is joined, what is refused, what is still missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perfsuite.calibrate.parts import head, join, missing, read_part
from perfsuite.calibrate.summary import noise_cases, summarise
from perfsuite.outcome import UserError
from perfsuite.settings import HARNESS
from perfsuite.verdict.noise import Calibration

FACTS = {"gpu": "NVIDIA H200", "harness": HARNESS, "isolated": False, "cards": 1, "driver": "580", "commit": "a" * 40}
ASKED = {0.0: 40, 0.01: 10}
SPREAD = [(shift, 1e-4, 20) for shift in (-2e-3, -1e-3, 0.0, 1e-3, 2e-3)]


def rows(gates: int, *, first: int = 3, alarms: int = 0, planted: int = 0) -> list[dict[str, Any]]:
    row = {"kind": "gate", "case": "a", "seconds": 4e-6, "gpu_seconds": 0.03, "wall_seconds": 0.1, "speed": 1.0}
    same = [
        row
        | {
            "process": first + number % 2,
            "slowdown": 0.0,
            "alarm": number < alarms,
            "setups": [(1e-4 * (number % 5), 1e-4, 20)],
        }
        for number in range(gates)
    ]
    slower = [row | {"process": first, "slowdown": 0.01, "alarm": True, "setups": []} for _ in range(planted)]
    return same + slower


def noise_rows() -> list[dict[str, Any]]:
    row = {"kind": "noise", "case": "a", "slowdown": 0.0, "seconds": 4e-6, "setups": SPREAD}
    return [row | {"process": process} for process in range(3)]


def part(path: Path, run: int, measured: list[dict[str, Any]], *, noise: Any = None, **facts: Any) -> Path:
    lines = [json.dumps(one) + "\n" for one in measured]
    path.write_text(head(run, FACTS | facts, ASKED, noise) + "".join(lines))
    return path


def two(tmp_path: Path, **second: Any) -> list[Path]:
    one = part(tmp_path / "1.jsonl", 1, noise_rows() + rows(30, alarms=1, planted=4))
    noise = second.pop("noise", read_part(one).noise)
    run = second.pop("run", 2)
    return [one, part(tmp_path / "2.jsonl", run, rows(10, planted=6), noise=noise, **second)]


def test_joined_parts_are_what_one_run_would_have_found(tmp_path: Path) -> None:
    found = join([read_part(path) for path in two(tmp_path, driver="590", commit="b" * 40)])
    whole = summarise(noise_rows() + rows(30, alarms=1, planted=4) + rows(10, first=5, planted=6), FACTS)
    for key in ("aa", "planted", "cases", "processes", "process_noise_seen", "smallest_found"):
        assert found[key] == whole[key], key
    assert (found["aa"]["gates"], found["aa"]["false_alarms"], found["processes"]) == (40, 1, 4)
    assert found["complete"] is True
    assert (found["gpu"], found["harness"]) == ("NVIDIA H200", HARNESS)
    # What differs is told by part only.
    assert (found["driver"], found["commit"]) == (None, None)
    assert [(one["driver"], one["commit"], one["gates"], one["planted"]) for one in found["parts"]] == [
        ("580", "a" * 40, 30, 4),
        ("590", "b" * 40, 10, 6),
    ]
    file = tmp_path / "calibration.json"
    file.write_text(json.dumps(found))
    assert Calibration.load(file).cases[0].setup_noise == noise_cases(noise_rows())[0]["setup_noise"]


def test_a_joined_file_with_fewer_gates_than_asked_says_so(tmp_path: Path) -> None:
    first = two(tmp_path)[0]
    assert join([read_part(first)])["complete"] is False


@pytest.mark.parametrize(
    ("second", "said"),
    [
        ({"harness": "0"}, f"2.jsonl is of harness 0, .*1.jsonl is of harness {HARNESS}"),
        ({"gpu": "NVIDIA H100"}, "2.jsonl is of NVIDIA H100, .*1.jsonl is of NVIDIA H200"),
        ({"isolated": True}, "2.jsonl is of isolated gates, .*1.jsonl is of gates in one process"),
        ({"run": 1}, "2.jsonl and .*1.jsonl are of the same run"),
        ({"noise": [{"case": "a", "seconds": 4e-6, "setup_noise": 0.01, "process_noise": 0.01}]}, "assume other noise"),
    ],
)
def test_what_does_not_belong_together_is_refused(second: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=said):
        join([read_part(path) for path in two(tmp_path, **second)])


def test_a_part_that_was_cut_while_it_wrote_counts_without_its_last_line(tmp_path: Path) -> None:
    first = two(tmp_path)[0]
    first.write_text(first.read_text()[:-20])
    assert len(read_part(first).gates) == 33


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is no part of a calibration"),
        ('{"gpu": "NVIDIA H200", "cases": []}\n', "is no part of a calibration"),
        ("[]\n", "cannot be read"),
        ("{\n", "cannot be read"),
        (head(1, FACTS, ASKED, None), "holds no gate"),
        (head(1, FACTS, ASKED, None).replace('"facts"', '"other"') + "{}\n", "cannot be read: KeyError"),
    ],
)
def test_a_file_that_is_no_part_is_named(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "part.jsonl"
    path.write_text(text)
    with pytest.raises(UserError, match=f"part.jsonl.*{said}"):
        read_part(path)
    with pytest.raises(UserError, match=r"none.jsonl cannot be read: No such file"):
        read_part(tmp_path / "none.jsonl")


def test_only_what_is_missing_is_measured_next(tmp_path: Path) -> None:
    parts = [read_part(path) for path in two(tmp_path)]
    wanted = {("a", 0.0): 60, ("a", 0.01): 10, ("b", 0.0): 60}
    assert missing(parts, wanted) == {("a", 0.0): 20, ("a", 0.01): 0, ("b", 0.0): 60}
