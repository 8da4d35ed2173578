"""The gates of attention's backward have problems enough for every goal, and the committed page can fill each row."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from perfsuite import Attention
from perfsuite.record.case import Case
from perfsuite.record.store import write_record
from perfsuite.report.blocks import refresh
from perfsuite.report.goals import read_goals
from tests.perf.hopper import test_backward, test_backward_flash

from .conftest import case

ROOT = Path(__file__).resolve().parents[2]
GOALS = ROOT / "records" / "h200" / "goals-backward.toml"
PACKED = "test_packed_sequences"


class Operators(ModuleType):
    """In place of the operators, for their names."""

    @staticmethod
    def flash_attention() -> None: ...


def words_of(test: Callable[..., None]) -> Iterator[dict[str, Any]]:
    """The parametrized arguments of each item of a test."""
    choices = []
    for mark in (one for one in test.pytestmark if one.name == "parametrize"):  # type: ignore[attr-defined]
        names = mark.args[0].split(",") if isinstance(mark.args[0], str) else list(mark.args[0])
        choices.append([dict(zip(names, one if len(names) > 1 else [one], strict=True)) for one in mark.args[1]])
    for chosen in product(*choices):
        yield {name: value for one in chosen for name, value in one.items()}


def timed(module: ModuleType) -> Iterator[Case]:
    """The timed cases of a module of gates, as a record has them, with made-up times."""
    times = {"speed": 9.0, "speed_low": 9.0, "speed_high": 9.0, "candidate_seconds": 1e-6}
    for name, test in inspect.getmembers(module, inspect.isfunction):
        if not name.startswith("test_"):
            continue
        rivals = [one.kwargs.get("against") for one in test.pytestmark if one.name == "perf_target"]
        for number, words in enumerate(words_of(test)):
            given: list[Any] = []
            if name == PACKED:  # a function of its own, not a problem
                found: dict[str, Any] = {"name": "packed", "family": "custom", "params": {"label": "packed"}}
            else:
                test(**words, perf=lambda *one: given.append(one[0]), ops=Operators("ops"))  # noqa: B023
                (problem,) = given
                found = {"name": problem.name, "family": problem.family, "params": problem.params}
            told = f"tests/perf/hopper/{Path(str(module.__file__)).name}::{name}[{number}]"
            for rival in rivals:
                yield case(**found, **times, rival=rival or "flash", test=told)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return [*timed(test_backward), *timed(test_backward_flash)]


def test_every_goal_has_problems(cases: list[Case], tmp_path: Path) -> None:
    for goal in read_goals(GOALS):
        fewest = 1 if goal.measure == "tflops" else 4
        assert len(goal.values(cases)) >= fewest, goal.what
    write_record(tmp_path / "gates-backward.jsonl", cases)
    (tmp_path / GOALS.name).write_bytes(GOALS.read_bytes())
    page = tmp_path / "page.md"
    asked = f"gates-backward.jsonl goals={GOALS.name}"
    page.write_text(f"<!-- perfsuite:goals {asked} -->\n<!-- /perfsuite:goals -->\n")
    assert refresh(page).count("| met |") == len(read_goals(GOALS))
    assert f"perfsuite:goals ../records/h200/{asked} -->" in (ROOT / "docs" / "ladder-backward.md").read_text()


def test_a_goal_without_gates_is_told(cases: list[Case]) -> None:
    short = [one for one in cases if "test_wide" not in str(one.test)]
    without = [goal.what for goal in read_goals(GOALS) if not goal.values(short)]
    assert without == [f"head_dim 256, {of}: TFLOPS" for of in ("16k, full", "16k, causal", "8k, full", "8k, causal")]


def test_sixty_problems_have_sdpa_and_flashattention_4_as_rivals(cases: list[Case]) -> None:
    rivals = defaultdict(set)
    for one in cases:
        if one.params.get("backward") == "only":
            rivals[one.name].add(one.rival)
    assert sum({"flash-attn", "sdpa"} <= found for found in rivals.values()) >= 60


def test_each_of_them_is_exported_for_flashattention_4(cases: list[Case]) -> None:
    from tests.perf.hopper.flash_problems import PROBLEMS

    wanted = {one.name for one in cases if one.rival == "flash-attn"}
    assert wanted <= {problem.name for problem in PROBLEMS if isinstance(problem, Attention)}
