"""A hundred candidates as a model writes them, each with its expected answer on its first line.

`# softmax: WRONG inaccurate` names the problem, the verdict, and perhaps the reason and the stage. The folder is the
kind: right, slow, wrong (those that begin with hard_ are wrong on hard inputs only), cheating, broken. CI judges some
of each; PERFSUITE_WHOLE=1 judges all of them, as every night.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from beside import company

import perfsuite
from perfsuite.judge.answer import Answer

HERE = Path(__file__).parent
FILES = sorted(HERE.glob("candidates/*/*.*"))
KINDS = ("right", "slow", "wrong", "cheating", "broken")
SLOW_TARGET, LIMIT, LONGEST = 0.7, 4.0, 60.0
"""The limit of a call that is to be too long, and of any other."""
SECONDS = (0.3, 1.0, 4.0)
"""Time for a candidate; UNDECIDED on a busy machine gets the next."""
IN_CI = 3
"""Candidates of each kind that CI judges."""


def drawn() -> list[Path]:
    """All candidates, or some: always the same, since workers of one run that begin at midnight collect the same."""
    if os.environ.get("PERFSUITE_WHOLE"):
        return FILES
    draw = random.Random(0)
    return [file for kind in KINDS for file in draw.sample([one for one in FILES if one.parent.name == kind], IN_CI)]


def judged(file: Path) -> tuple[Answer, list[str]]:
    """The answer on a candidate, and the words that it should have."""
    problem, _, expected = file.read_text().partition("\n")[0].lstrip("#/ ").partition(": ")
    place = next(HERE.glob(f"problems/{problem}.*"))
    timed = file.parent.name in ("slow", "cheating")  # some cheat only when they are timed
    target = SLOW_TARGET if file.parent.name == "slow" else None
    limit = LIMIT if "timed-out" in expected else LONGEST
    for seconds in SECONDS:
        answer = perfsuite.judge(file, place, at_least=target, timed=timed, seconds=seconds, run_seconds=limit)
        if answer.verdict != "UNDECIDED":
            break
    return answer, expected.split()


def test_there_are_a_hundred_and_twenty_of_each_kind() -> None:
    counts = {kind: sum(file.parent.name == kind for file in FILES) for kind in KINDS}
    assert min(counts.values()) >= 20, counts
    assert len(FILES) >= 100
    hard = sum(file.name.startswith("hard_") for file in FILES)
    assert 3 * hard >= counts["wrong"]


@pytest.mark.parametrize("file", drawn(), ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_the_answer_is_the_expected_one(file: Path) -> None:
    answer, (verdict, *rest) = judged(file)
    # Isolated, both sides wait for a processor at every sample of a busy machine: one that is slower by little more
    # than the target then looks as fast.
    if file.parent.name == "slow" and answer.verdict in ("MET", "UNDECIDED") and (others := company()):
        pytest.skip(f"its time says nothing here, {others}: {answer.sentence}")
    assert answer.verdict == verdict, f"{answer.verdict} {answer.reason}: {answer.sentence}"
    if file.name.startswith("hard_"):
        assert "hard inputs" in answer.sentence
    assert [answer.reason, str(answer.stage)][: len(rest)] == rest, f"{answer.reason} {answer.stage}: {answer.sentence}"
