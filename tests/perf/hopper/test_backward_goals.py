"""The gates of attention's backward have problems enough for every goal, and the committed page can fill each row."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from perfsuite.record.case import Case
from perfsuite.record.store import read_record, write_record
from perfsuite.report.blocks import refresh
from perfsuite.report.goals import read_goals

pytest.importorskip("torch", reason="the gates need torch")
ROOT = Path(__file__).resolve().parents[3]
GOALS = ROOT / "records" / "h200" / "goals-backward.toml"
FILES = ("tests/perf/hopper/test_backward.py", "tests/perf/hopper/test_backward_flash.py")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> list[Case]:
    """The timed cases of the gates, under their own names, with made-up times."""
    record = tmp_path_factory.mktemp("listed") / "cases.jsonl"
    slow = ("cacheprovider", "hypothesispytest", "xdist", "benchmark", "anyio")
    plugins = ["-p", "perfsuite.pytest_plugin.listing", "--assert=plain", *(f"-pno:{one}" for one in slow)]
    line = [sys.executable, "-m", "pytest", "-q", *plugins, "--gpu", f"--perf-record={record}", *FILES]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    times = {"speed": 9.0, "speed_low": 9.0, "speed_high": 9.0, "candidate_seconds": 1e-6, "rival_seconds": 9e-6}
    return [one.changed(**times) for one in read_record(record) if one.target is not None and not one.aspect]


def test_every_goal_has_problems(measured: list[Case], tmp_path: Path) -> None:
    for goal in read_goals(GOALS):
        fewest = 1 if goal.measure == "tflops" else 4
        assert len(goal.values(measured)) >= fewest, goal.what
    write_record(tmp_path / "gates-backward.jsonl", measured)
    (tmp_path / GOALS.name).write_bytes(GOALS.read_bytes())
    page = tmp_path / "page.md"
    asked = f"gates-backward.jsonl goals={GOALS.name}"
    page.write_text(f"<!-- perfsuite:goals {asked} -->\n<!-- /perfsuite:goals -->\n")
    assert refresh(page).count("| met |") == len(read_goals(GOALS))
    assert f"perfsuite:goals ../records/h200/{asked} -->" in (ROOT / "docs" / "ladder-backward.md").read_text()


def test_sixty_problems_have_sdpa_and_flashattention_4_as_rivals(measured: list[Case]) -> None:
    rivals = defaultdict(set)
    for case in measured:
        if case.params.get("backward") == "only":
            rivals[case.name].add(case.rival)
    assert sum("flash-attn" in found and bool(found & {"sdpa", "sdpa:flash"}) for found in rivals.values()) >= 60
    assert sum({"flash-attn", "sdpa"} <= found for found in rivals.values()) >= 60
