"""Programs end with the process that started them, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from perfsuite.history import children

from .conftest import Repository

ROOT = Path(__file__).resolve().parents[2]
LONGEST = 120.0
"""Seconds in which a program of these tests begins or ends, also on a busy machine."""
SLEEPER = "import os, pathlib, sys, time; pathlib.Path(sys.argv[1]).write_text(str(os.getpid())); time.sleep(600)"
PARENT = """
import signal, sys
from perfsuite.history import children
signal.signal(signal.SIGINT, signal.default_int_handler)  # a program in the background may begin without it
signal.signal(signal.SIGHUP, signal.SIG_DFL)
with children.signals_as_interrupts():
    children.run([sys.executable, "-c", {sleeper!r}, sys.argv[1]])
"""


def ends(number: int) -> bool:
    """True once the process is gone."""
    end = time.monotonic() + LONGEST
    while time.monotonic() < end:
        try:
            state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


def written(file: Path) -> int:
    end = time.monotonic() + LONGEST
    while time.monotonic() < end:
        if file.is_file() and file.read_text():
            return int(file.read_text())
        time.sleep(0.02)
    raise AssertionError("the program did not start")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_child_ends_with_its_parent(number: signal.Signals, tmp_path: Path) -> None:
    file = tmp_path / "pid"
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT.format(sleeper=SLEEPER), str(file)], stderr=subprocess.DEVNULL
    )
    child = written(file)
    os.kill(parent.pid, number)
    parent.wait(LONGEST)
    assert ends(child)


def test_output_and_exit_code_come_back() -> None:
    done = children.run([sys.executable, "-c", "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"])
    assert (done.returncode, done.stdout, done.stderr) == (3, "out\n", "err\n")
    missing = children.run(["no-such-program"])
    assert missing.returncode == 127
    assert "no-such-program cannot be run" in missing.stderr


def test_a_context_that_is_left_ends_the_program(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    with children.started([sys.executable, "-c", SLEEPER, str(file)]):
        child = written(file)
    assert ends(child)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_command_that_is_ended_while_it_builds_leaves_nothing(
    number: signal.Signals, tmp_path: Path, repository: Repository
) -> None:
    """pip went on, and the tree of the build stayed among the user's worktrees."""
    file, before = tmp_path / "pid", repository.git("worktree", "list")
    repository.commit("slow to build", **{"setup.py": f"import sys\nsys.argv[1:] = [{str(file)!r}]\n{SLEEPER}\n"})
    line = [sys.executable, "-m", "perfsuite", "history", "HEAD", "--portable"]
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    # Under nohup these tests ignore SIGHUP, and so would the command.
    heeds = partial(signal.signal, number, signal.SIG_DFL)
    running = subprocess.Popen(line, cwd=repository.path, env=environ, stdout=subprocess.DEVNULL, preexec_fn=heeds)
    child = written(file)
    running.send_signal(number)
    running.wait(LONGEST)
    assert ends(child)
    assert repository.git("worktree", "list").split()[0] == before.split()[0]
    assert len(repository.git("worktree", "list").splitlines()) == 1
    assert list((repository.path / ".perfsuite").rglob(".build-*")) == []
