"""A small repository whose gates are made up, with a user's worktree that is not mounted and a home folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from .written import ROOT

CONFTEST = """
import random
import pytest
from perfsuite.case.comparison import Comparison
from perfsuite.clock.rounds import Round
from perfsuite.outcome import Reason, Verdict

@pytest.hookimpl(tryfirst=True)
def pytest_perfsuite_compare(ask):
    draw, problem = random.Random(1), ask.problem
    one = lambda: 1e-5 * draw.gauss(1.0, 0.001)
    rounds = [Round(one(), one(), ("candidate", "rival")[number % 2], 0) for number in range(12)]
    return Comparison(
        family=problem.family, name=problem.name, params=problem.params, candidate="kernels.product", rival="library",
        verdict=Verdict.MET, reason=Reason.FAST_ENOUGH, sentence="made up", target=0.5, speed=1.0, speed_low=0.99,
        speed_high=1.01, candidate_seconds=1e-5, rival_seconds=1e-5, clock="host", cache="cold", seed=1,
        distribution="normal", gpu_seconds=0.1, rounds=rounds,
    )
"""
TEST = """
import time
import pytest
import kernels
from perfsuite import Gemm

@pytest.mark.perf_target(against="cublas", at_least=0.5)
@pytest.mark.parametrize("n", range(8, 8 + {cases}))
def test_it(perf, n):
    perf(Gemm(n, 8, 8), kernels.product)
    time.sleep(0.05)
"""
CASES = 12


class Project:
    """The repository, the user's home, and how a command runs there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path, self.home = folder / "project", folder / "home"
        self.mark = f"PERFSUITE_FAULT={folder}"
        self.path.mkdir(parents=True)
        self.home.mkdir()
        (self.home / ".asv-machine.json").write_text('{"version": 1}\n')
        self.git("init", "-q", "-b", "main")
        files = {
            "conftest.py": CONFTEST,
            "test_made_up.py": TEST.format(cases=CASES),
            ".gitignore": ".perfsuite/\n*.jsonl\n",
        }
        for name, text in files.items():
            (self.path / name).write_text(text)
        for number in range(3):
            (self.path / "kernels.py").write_text(f"def product(a, b):\n    return a @ b\n# {number}\n")
            self.git("add", "-A")
            self.git("commit", "-q", "-m", f"change {number}")
        # A worktree of the user's on a disk that is not mounted, and work that is not committed.
        away = folder / "away"
        self.git("worktree", "add", "-q", "-b", "side", str(away))
        shutil.move(away, folder / "unmounted")
        (self.path / "kernels.py").write_text("def product(a, b):\n    return a @ b  # not committed\n")

    def git(self, *words: str) -> str:
        who = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
        line = ["git", "-C", str(self.path), *who, *words]
        return subprocess.run(line, check=True, capture_output=True, text=True).stdout

    def environment(self, **more: str) -> dict[str, str]:
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "PERFSUITE", "NOX"))
        }
        own = {
            "PYTHONPATH": str(ROOT),
            "HOME": str(self.home),
            "OMP_NUM_THREADS": "1",
            "PERFSUITE_FAULT": str(self.folder),
        }
        return kept | own | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "TMPDIR": str(self.temporary())} | more

    def temporary(self) -> Path:
        place = self.folder / "tmp"
        place.mkdir(exist_ok=True)
        return place

    def start(self, line: list[str], **more: str) -> subprocess.Popen[str]:
        words = [sys.executable, "-m", *line]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            words, cwd=self.path, env=self.environment(**more), stdout=pipe, stderr=subprocess.STDOUT, text=True,
            errors="replace", stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def run(self, line: list[str], **more: str) -> tuple[int, str]:
        child = self.start(line, **more)
        out, _ = child.communicate(timeout=300)
        return child.returncode, out

    def belongings(self) -> dict[str, str]:
        """All of the user's that a command must leave as it is: git's state, files, the home folder."""
        found = {name: self.git(*words.split()) for name, words in _GIT.items()}
        for place in (self.path, self.home, self.path / ".git" / "worktrees"):
            for path in sorted(place.rglob("*")):
                parts = path.relative_to(place).parts
                if path.is_file() and not {".git", ".perfsuite", "__pycache__", "out"} & set(parts):
                    found[str(path)] = path.read_text(errors="replace")
        return found

    def left_running(self) -> list[int]:
        """Processes of commands that have ended."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    environment = (entry / "environ").read_bytes()
                except OSError:
                    continue
                if self.mark.encode() in environment.split(b"\0"):
                    found.append(int(entry.name))
        return found


_GIT = {"head": "rev-parse HEAD", "refs": "show-ref", "status": "status --porcelain", "stash": "stash list"}
_GIT |= {"branch": "symbolic-ref HEAD", "worktrees": "worktree list --porcelain", "config": "config --local --list"}
