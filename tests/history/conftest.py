"""A small repository and records of its commits, made up."""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from perfsuite.record.case import Case
from perfsuite.settings import HARNESS

FIRST_SECONDS = 1_700_000_000


@dataclass
class Repository:
    """A git repository whose commits are made by calling `commit`."""

    path: Path
    commits: list[str] = field(default_factory=list)

    def git(self, *arguments: str, seconds: int = 0) -> str:
        stamp = f"{FIRST_SECONDS + seconds} +0000"
        who = {"NAME": "A", "EMAIL": "a@example.org", "DATE": stamp}
        names = {f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in who.items()}
        done = subprocess.run(
            ["git", "-C", str(self.path), "-c", "commit.gpgsign=false", *arguments],
            env=os.environ | names,
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout.strip()

    def commit(self, message: str = "a change", **files: str) -> str:
        for name, text in files.items():
            (self.path / name).write_text(text)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message, seconds=3600 * len(self.commits))
        self.commits.append(self.git("rev-parse", "HEAD"))
        return self.commits[-1]


def make_repository(path: Path, count: int = 0) -> Repository:
    path.mkdir(parents=True, exist_ok=True)
    made = Repository(path)
    made.git("init", "-q", "-b", "main")
    for number in range(count):
        made.commit(f"change {number}")
    return made


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return make_repository(tmp_path / "repository", 3)


def case(
    name: str = "gemm 64", *, commit: str, ratio: float = 1.25, verdict: str = "MET", seed: object = 0, **changes: Any
) -> Case:
    """A timed case as a record keeps it: candidate 10 us times `ratio`, rival 10 us, twelve rounds with 0.1 % noise."""
    draw = random.Random(f"{name}{commit}{changes.get('gpu')}{seed}")
    mine = [1e-5 * ratio * draw.gauss(1.0, 0.001) for _ in range(12)]
    rivals = [1e-5 * draw.gauss(1.0, 0.001) for _ in range(12)]
    columns = {"candidate_seconds": mine, "rival_seconds": rivals, "first": ["candidate"] * 12, "setup": [0] * 12}
    values: dict[str, Any] = {
        "schema": 1,
        "case": f"kernels.{name} vs library",
        "test": f"tests/perf/test_kernels.py::test_it[{name}]",
        "aspect": None,
        "measured": None,
        "family": "gemm",
        "name": name,
        "params": {},
        "candidate": "kernels.candidate",
        "rival": "library",
        "speed": 1 / ratio,
        "speed_low": 0.99 / ratio,
        "speed_high": 1.01 / ratio,
        "target": 0.5,
        "verdict": verdict,
        "reason": "fast-enough",
        "sentence": "as asked",
        "candidate_seconds": 1e-5 * ratio,
        "rival_seconds": 1e-5,
        "candidate_error": 2e-4,
        "rival_error": 1e-4,
        "commit": commit,
        "dirty": False,
        "gpu": "NVIDIA H200",
        "cpu": "Some CPU",
        "torch": "2.13.0",
        "cuda": "13.0",
        "driver": "600.1",
        "python": "3.11.2",
        "harness": HARNESS,
        "clock": "graph",
        "cache": "cold",
        "samples": columns,
        "discarded_samples": {},
    }
    return Case.of_json(values | changes, name)


def write(path: Path, cases: Sequence[Case | dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(one if isinstance(one, dict) else one.as_json()) + "\n" for one in cases))
    return path


@pytest.fixture
def perfsuite(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """The command in this process: exit code, standard output, standard error."""
    from perfsuite.cli.main import main

    def call(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call
