"""More workers than cards: they work on a card side by side, and one at a time times."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perfsuite.device import turns
from perfsuite.pytest_plugin import card_locks, xdist

from .conftest import Suite

TOGETHER = """
import json, time
from perfsuite.device import turns

def write(**row):
    with open("rows", "a") as rows:
        rows.write(json.dumps(row) + "\\n")

def together(count):
    open(f"{os.getpid()}.there", "w").close()
    until = time.monotonic() + 300
    while len([one for one in os.listdir(".") if one.endswith(".there")]) < count:
        assert time.monotonic() < until, "the others wait for this test to end"
        time.sleep(0.01)

def timed():
    together(3)
    for _ in range(3):
        turns.alone()
        write(begun=time.monotonic())
        time.sleep(0.02)
        write(ended=time.monotonic())
        turns.beside()
    return "MET", 1.25
"""


def rows_of(suite: Suite) -> list[dict[str, float]]:
    return [json.loads(line) for line in (suite.path / "rows").read_text().splitlines()]


def test_they_work_side_by_side_and_time_in_turns(
    suite: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    suite.write(
        "import os\n" + TOGETHER + "@TARGET\n"
        "@pytest.mark.parametrize('n', range(3))\n"
        "def test_it(n, perf):\n"
        "    perf(Gemm(n + 1, 8, 8), timed)\n"
    )
    outcome = suite.run("--gpu", "-p", "xdist", "-n", "3", subprocess=True)
    assert outcome.code == 0, outcome.out
    assert [case["workers"] for case in outcome.cases] == [3] * 3
    kinds = [next(iter(row)) for row in rows_of(suite)]
    assert kinds == ["begun", "ended"] * 9  # nobody begins before the one before has ended
    left = {one.name.split(".", 1)[1] for one in tmp_path.glob("perfsuite-*/*")}
    assert left == {"run.lock", "turns.lock", "turns.lock.waiting"}


def test_a_test_that_measures_by_itself_has_the_card_for_itself(suite: Suite) -> None:
    suite.write(
        "import os\n" + TOGETHER + "def alone():\n"
        "    assert turns.is_alone()\n"
        "    for _ in range(3):\n"
        "        write(begun=time.monotonic())\n"
        "        time.sleep(0.02)\n"
        "        write(ended=time.monotonic())\n"
        "@pytest.mark.gpu\n"
        "@pytest.mark.parametrize('n', range(3))\n"
        "def test_without_perf(n): alone()\n"
        "@pytest.mark.gpu\n"
        "@pytest.mark.parametrize('n', range(3))\n"
        "def test_of_several_cards(n, perf, gpus): alone()\n"
        "@pytest.mark.gpu\n"
        "def test_with_perf(perf): assert not turns.is_alone()\n"
    )
    suite.add_hooks("\n@pytest.fixture\ndef gpus(): pass\n")
    outcome = suite.run("--gpu", "-p", "xdist", "-n", "3", subprocess=True)
    assert set(outcome.junit.values()) == {"passed"}, outcome.out
    assert [next(iter(row)) for row in rows_of(suite)] == ["begun", "ended"] * 18


def test_a_fresh_process_of_such_a_worker_takes_turns_too(suite: Suite) -> None:
    """The worker gives its turn up meanwhile: else that process, which is alone while it times, would wait for it."""
    suite.add_hooks("""
import dataclasses
from perfsuite.clock.rounds import Round
from perfsuite.device import turns
fake = pytest_perfsuite_compare

def pytest_perfsuite_compare(ask):
    made = fake(ask)
    mine = turns.shared()
    assert (mine.processes, mine.in_process) == (2, True)
    turns.alone()
    if "PERFSUITE_FRESH" in os.environ:
        return dataclasses.replace(made, rounds=(Round(1e-5, 2e-5, "rival", 0, None),))
    rounds = tuple(ask.remeasure())
    assert not turns.is_alone()
    turns.alone()  # and works again
    assert turns.is_alone()
    return dataclasses.replace(made, rounds=rounds, retries=1)
""")
    suite.write(
        "@TARGET\n@pytest.mark.parametrize('n', range(2))\ndef test_it(n, perf): perf(Gemm(n + 1, 8, 8), met)\n"
    )
    outcome = suite.run("--gpu", "-p", "xdist", "-n2", subprocess=True)
    assert outcome.code == 0, outcome.out
    assert [case["samples"]["rival_seconds"] for case in outcome.cases] == [[2e-5]] * 2


def test_the_variable_of_a_fresh_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert card_locks.turns_for_others() == {}
    for in_process in (False, True):
        monkeypatch.setattr(turns, "_mine", turns.Turns(tmp_path / "turns", 4, lambda: 1, in_process=in_process))
        found = {card_locks.TURNS_VARIABLE: f"4:{tmp_path / 'turns'}"} if in_process else {}
        assert card_locks.turns_for_others() == found
        turns.leave()


@pytest.mark.parametrize(("workers", "cards", "most"), [(1, 1, 1), (3, 1, 3), (4, 4, 1), (5, 4, 2), (8, 4, 2)])
def test_the_workers_of_a_card(monkeypatch: pytest.MonkeyPatch, workers: int, cards: int, most: int) -> None:
    config: Any = SimpleNamespace(workerinput={"perfsuite_selectors": list(map(str, range(cards)))})
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", str(workers))
    assert xdist.workers_of_a_card(config) == most
