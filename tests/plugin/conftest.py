"""A small suite inside a test: its cards are made up, and each candidate says itself what it comes to."""

from __future__ import annotations

import importlib
import json
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from perfsuite.record.case import Case

ROOT = Path(__file__).resolve().parents[2]

HOOKS = """
import os
import pytest
from perfsuite.case.comparison import Comparison
from perfsuite.device.cards import Device, Devices
from perfsuite.outcome import Reason, Verdict

REASONS = {"MET": "fast-enough", "MISSED": "too-slow", "WRONG": "inaccurate", "UNDECIDED": "budget-spent"}

def pytest_perfsuite_devices():
    count = int(os.environ.get("FAKE_CARDS", "1"))
    card = lambda i: Device(i, "Fake H200", f"GPU-{os.getppid()}-{i}", (9, 0), 8 * 2**30, str(i))
    missing = None if count else "this machine has none"
    return Devices(tuple(card(i) for i in range(count)), "600.00", missing)

def pytest_perfsuite_resource(resource, problem, candidate):
    return getattr(candidate, resource)(problem)

def pytest_perfsuite_side_by_side(problems, candidate):
    return tuple(candidate.seconds(problem) for problem in problems)

def pytest_perfsuite_compare(ask):
    problem, candidate, against, at_least = ask.problem, ask.candidate, ask.against, ask.at_least
    settings = ask.settings
    said = candidate()
    verdict, speed = said if isinstance(said, tuple) else (said, 1.0)
    timed = at_least is not None
    return Comparison(
        family=problem.family, name=problem.name, params=problem.params, candidate=f"kernels.{candidate.__name__}",
        rival=None if not timed else getattr(against, "__name__", against) or problem.default_rival,
        verdict=Verdict(verdict), reason=Reason(REASONS[verdict] if timed or verdict != "MET" else "checked"),
        sentence=f"{candidate.__name__} came to {verdict} (correctness {ask.correctness}, {settings.cases} cases)",
        target=at_least, speed=speed if timed else None, speed_low=speed - 0.01 if timed else None,
        speed_high=speed + 0.01 if timed else None, candidate_seconds=1e-5 if timed else None,
        rival_seconds=speed * 1e-5 if timed else None, clock="fake" if timed else "none",
        cache=settings.cache, seed=settings.seed, distribution=settings.distribution, gpu_seconds=0.1,
    )
"""

KERNELS = """
import pytest
from perfsuite import Gemm

def met(): return "MET", 1.25
def missed(): return "MISSED", 0.5
def wrong(): return "WRONG"
def undecided(): return "UNDECIDED", 0.9

TARGET = pytest.mark.perf_target(against="cublas", at_least=0.9)
"""


@dataclass
class Outcome:
    """What a run of the inner suite left."""

    code: int
    out: str
    junit: dict[str, str]
    """Test -> "passed", "failed", "error" or "skipped"."""
    properties: dict[str, dict[str, str]]
    cases: list[dict[str, Any]]

    @property
    def records(self) -> list[Case]:
        return [Case.of_json(case, "out") for case in self.cases]

    def has(self, *parts: str) -> None:
        for part in parts:
            assert part in self.out, f"{part!r} is not in\n{self.out}"


class Suite:
    """Writes the inner suite and runs it."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        self.path = pytester.path
        (self.path / "conftest.py").write_text(HOOKS)

    def write(self, tests: str, name: str = "test_kernels.py") -> None:
        (self.path / name).write_text(KERNELS + tests)

    def add_hooks(self, text: str) -> None:
        conftest = self.path / "conftest.py"
        conftest.write_text(conftest.read_text() + text)

    def cases_of(self, record: str) -> list[Case]:
        """The cases of a record's text, in its order."""
        lines = [json.loads(line) for line in record.splitlines()]
        return [Case.of_json(line, "out") for line in lines if "case" in line]

    def run(self, *arguments: str, subprocess: bool = False) -> Outcome:
        record, junit = self.path / "out" / "record.jsonl", self.path / "junit.xml"
        for old in (record, record.with_name("record.partial.jsonl"), junit):
            old.unlink(missing_ok=True)
        run = self.pytester.runpytest_subprocess if subprocess else self.pytester.runpytest_inprocess
        extra = [] if any("--perf-record" in argument for argument in arguments) else [f"--perf-record={record}"]
        result = run("-p", "perfsuite.plugin", f"--junitxml={junit}", *extra, *arguments)
        left = record if record.exists() else record.with_name("record.partial.jsonl")  # of a run that did not finish
        made = self.cases_of(left.read_text()) if left.exists() else []
        outcomes, properties = _read_junit(junit) if junit.exists() else ({}, {})
        cases = sorted((case.as_json() for case in made), key=lambda case: (case["test"], case["case"]))
        out = "\n".join(result.outlines + result.errlines)
        return Outcome(int(result.ret), out, outcomes, properties, cases)


def _read_junit(path: Path) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    outcomes, properties = {}, {}
    for case in ElementTree.parse(path).iter("testcase"):
        name = case.attrib.get("name", "")  # none of a test that was cut off
        kinds = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
        outcomes[name] = {"failure": "failed"}.get(kinds[0], kinds[0]) if kinds else "passed"
        properties[name] = {one.attrib["name"]: one.attrib["value"] for one in case.iter("property")}
    return outcomes, properties


@pytest.fixture(scope="session")
def torch() -> ModuleType:
    """Loaded before any pytester, which forgets the modules loaded after it: torch crashes if it is loaded twice."""
    return importlib.import_module("torch")


@pytest.fixture
def suite(torch: ModuleType, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Suite:
    """An empty inner suite that has a made-up card; other plugins stay out unless asked for with -p."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    # This very test may run in a worker: the inner run must not take itself for one.
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    return Suite(pytester)
