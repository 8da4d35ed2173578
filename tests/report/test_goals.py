"""Goals beside what was measured: met, missed, not measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from perfsuite.outcome import UserError
from perfsuite.record.store import write_record
from perfsuite.report.blocks import refresh
from perfsuite.report.goals import read_goals

from .conftest import case

GOALS = """
[[goal]]
what = "both sizes, the faster rival"
fit = { family = "gemm" }
rivals = ["cublas", "cublas:tuned"]
mean = 1.0
lowest = 0.9

[[goal]]
what = "rate of the large one"
fit = { name = "*1024*" }
measure = "tflops"
lowest = 600

[[goal]]
what = "decode"
fit = { family = "decode" }
measure = "share"
lowest = 0.95
"""


def product(size: int, rival: str, speed: float) -> object:
    params = {"m": size, "n": size, "k": size, "dtype": "float16"}
    name = f"{size}x{size}x{size} float16"
    flops = 2.0 * size**3
    return case(
        name,
        params=params,
        rival=rival,
        speed=speed,
        speed_low=speed,
        speed_high=speed,
        case=f"kernels.gemm gemm {name} vs {rival}",
        candidate_seconds=flops / 700e12,
    )


def test_each_goal_has_a_row(tmp_path: Path) -> None:
    record = tmp_path / "gates.jsonl"
    cases = [product(512, "cublas", 1.2), product(512, "cublas:tuned", 0.95), product(1024, "cublas", 1.25)]
    write_record(record, cases)
    (tmp_path / "large.toml").write_text(GOALS)
    page = tmp_path / "page.md"
    page.write_text("<!-- perfsuite:goals gates.jsonl goals=large.toml -->\n<!-- /perfsuite:goals -->\n")
    rows = refresh(page).splitlines()[3:6]
    assert rows == [
        "| both sizes, the faster rival | 2 | mean 1, lowest 0.9 | 1.090 | 0.950 | met |",
        "| rate of the large one | 1 | lowest 600 | 700 | 700 | met |",
        "| decode | 0 | lowest 0.95 | - | - | not measured |",
    ]
    (tmp_path / "large.toml").write_text(GOALS.replace("lowest = 0.9\n", "lowest = 0.96\n"))
    assert "| 1.090 | 0.950 | MISSED |" in refresh(page)


def test_sizes_of_a_tests_own_function_are_cases_each(tmp_path: Path) -> None:
    record = tmp_path / "gates.jsonl"
    write_record(
        record,
        [
            case("wide", family="custom", params={"label": "wide"}, speed=speed, test=f"test_wide[{number}]")
            for number, speed in enumerate((2.0, 0.5, 1.0))
        ],
    )
    (tmp_path / "own.toml").write_text(
        "[[goal]]\nwhat = 'some'\nfit = { test = ['*0?', '*2?'] }\nlowest = 1\n"
        "[[goal]]\nwhat = 'all'\nfit = { family = 'custom' }\nlowest = 1\n"
    )
    page = tmp_path / "page.md"
    page.write_text("<!-- perfsuite:goals gates.jsonl goals=own.toml -->\n<!-- /perfsuite:goals -->\n")
    rows = refresh(page).splitlines()[3:5]
    assert rows == ["| some | 2 | lowest 1 | 1.414 | 1.000 | met |", "| all | 3 | lowest 1 | 1.000 | 0.500 | MISSED |"]


def test_a_goal_may_ask_for_every_rival(tmp_path: Path) -> None:
    """Else the fastest rival could be one that was not there."""
    cases = [product(512, "cublas", 1.2), product(512, "cublas:tuned", 0.9), product(1024, "cublas", 1.3)]
    (tmp_path / "one.toml").write_text(
        "[[goal]]\nwhat = 'x'\nfit = {}\nrivals = ['cublas', 'cublas:tuned']\nevery = true\nlowest = 1\n"
    )
    (goal,) = read_goals(tmp_path / "one.toml")
    assert goal.values(cases) == [0.9]
    assert goal.values(cases[::2]) == []
    assert replace(goal, every=False).values(cases) == [0.9, 1.3]


def test_without_a_record_no_goal_is_measured(tmp_path: Path) -> None:
    (tmp_path / "large.toml").write_text(GOALS)
    page = tmp_path / "page.md"
    page.write_text("<!-- perfsuite:goals gates-new.jsonl goals=large.toml -->\n<!-- /perfsuite:goals -->\n")
    made = refresh(page)
    assert made.count("| 0 | ") == made.count("| not measured |") == 3
    assert "\n\nThere is no record gates-new.jsonl yet.\n<!--" in made
    write_record(tmp_path / "gates-new.jsonl", [product(512, "cublas", 1.2)])
    assert "There is no record" not in refresh(page)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no table"),
        ("[[goal]]\nwhat = 'x'\n", "goal 1 must have what and fit, and may have every"),
        ("[[goal]]\nwhat = 'x'\nfit = {}\n", "goal 1 asks for nothing"),
        ("[[goal]]\nwhat = 'x'\nfit = {}\nmeasure = 'y'\nlowest = 1\n", "measure is 'y'; it must be one of speed"),
    ],
)
def test_a_goal_that_is_none_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "goals.toml"
    path.write_text(text)
    with pytest.raises(UserError, match=message):
        read_goals(path)
