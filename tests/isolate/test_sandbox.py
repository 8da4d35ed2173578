"""The sandbox around isolated candidates: what they try is refused, nothing of theirs is left running."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

import isolated_kernels as kernels

from perfsuite.case.ask import Ask
from perfsuite.case.comparison import Comparison
from perfsuite.device.locks import hold, lock_folder
from perfsuite.isolate import compare_isolated, sandbox
from perfsuite.isolate.nursery import nursery, settle
from perfsuite.isolate.remote import Remote
from perfsuite.outcome import Reason, Verdict
from perfsuite.problems import Custom, Gemm
from perfsuite.settings import Settings

needs_bubblewrap = pytest.mark.skipif(sandbox.why_not() is not None, reason=f"no sandbox: {sandbox.why_not()}")

LONGEST = 60.0


def isolated(candidate, **options) -> Comparison:
    problem = options.pop("problem", Gemm(32, 32, 32, "float32"))
    settings = Settings(device="cpu", seconds=0.05)
    return compare_isolated(Ask(problem, candidate, settings=settings, **options), seconds=60.0)


@needs_bubblewrap
def test_network_files_and_other_processes_are_out_of_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("TEST_OF_THE_SANDBOX", f"{os.getpid()}:{server.getsockname()[1]}")
        one = isolated(kernels.tries_to_get_out)
    assert one.verdict is Verdict.MET, one.sentence
    assert one.clock_note == "isolated; in a sandbox of bubblewrap"


@needs_bubblewrap
def test_a_child_that_a_candidate_leaves_is_ended_with_its_sandbox() -> None:
    assert isolated(kernels.product).verdict is Verdict.MET  # the sandbox has started whole
    before = _running()
    assert isolated(kernels.leaves_a_child).verdict is Verdict.MET
    assert _few(before)
    after = nursery(sandboxed=True)
    assert isolated(kernels.product).verdict is Verdict.MET
    assert after.alive


@needs_bubblewrap
def test_a_fork_bomb_is_ended_and_nothing_of_it_is_left() -> None:
    assert isolated(kernels.product).verdict is Verdict.MET  # the sandbox has started whole
    before = _running()
    one = isolated(kernels.forks_without_end)
    assert (one.verdict, one.reason) == (Verdict.WRONG, Reason.CANDIDATE_FAILED), one.sentence
    assert "its sandbox had more than 128 processes, and all of them were ended" in one.sentence
    settle()
    assert _few(before + 1)
    assert isolated(kernels.starts_some).verdict is Verdict.MET


def test_a_stopped_worker_ends_with_the_process_that_forked_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perfsuite.isolate.nursery._started", {})
    remote = Remote(kernels.product, device="cpu", seconds=30.0, room=1 << 32, trusted=True)
    before = _running()
    values = torch.randn(8, 8), torch.randn(8, 8)
    assert torch.allclose(remote(*values), values[0] @ values[1], atol=1e-5)
    process = remote._process
    assert process is not None
    worker = process._worker
    remote.stop()
    os.kill(process.nursery._process.pid, signal.SIGKILL)
    process.nursery._process.wait()
    deadline = time.monotonic() + LONGEST
    while Path(f"/proc/{worker}").exists() and _state(worker) != "Z" and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not Path(f"/proc/{worker}").exists() or _state(worker) == "Z"
    remote.close()
    assert _few(before)


def _state(process: int) -> str:
    try:
        return Path("/proc", str(process), "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def _few(most: int) -> bool:
    """True once at most so many run: what was killed is still to be collected, on a busy machine for some time."""
    deadline = time.monotonic() + LONGEST
    while (there := _running()) > most and time.monotonic() < deadline:
        time.sleep(0.05)
    return there <= most


def _running() -> int:
    """Processes that this test's process has started, with all that these have started."""
    parents = {}
    for name in os.listdir("/proc"):
        try:
            parents[int(name)] = int(Path("/proc", name, "stat").read_text().rpartition(")")[2].split()[1])
        except (ValueError, OSError):  # no process, or one that has ended
            continue
    found = {os.getpid()}
    while more := {one for one, parent in parents.items() if parent in found} - found:
        found |= more
    return len(found)


def test_without_bubblewrap_the_record_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "PROGRAM", "a program that there is not")
    sandbox.why_not.cache_clear()
    box, said = sandbox.box_for(True, "cpu")
    monkeypatch.undo()
    sandbox.why_not.cache_clear()
    assert (box.command, said) == ((), "no sandbox: bubblewrap (bwrap) is not installed")


def test_a_cards_driver_needs_the_numbers_of_processes(tmp_path: Path) -> None:
    for alone in (True, False):
        line = sandbox.command(tmp_path, alone=alone)
        assert ("--unshare-pid" in line) is alone
        assert {"--unshare-net", "--die-with-parent", "--cap-drop"} <= set(line)
        assert line[line.index("--ro-bind") + 1] == "/"


def test_the_sides_share_no_memory_and_no_time() -> None:
    one = isolated(kernels.product, against="cublas", at_least=1e-3)
    assert one.verdict is Verdict.MET, one.sentence
    assert "the rival runs in a process of its own as well" in (one.clock_note or "")
    values = torch.randn(32, 32), torch.randn(32, 32)
    here = Custom(values, against=lambda a, b: a @ b, label="closure")
    other = isolated(kernels.product, problem=here, at_least=1e-3)
    assert "the rival runs in this process" in (other.clock_note or "")


def test_attributes_of_a_candidate_replace_none_of_the_harness() -> None:
    one = isolated(kernels.shadows, against="cublas", at_least=1e-3)
    assert one.verdict is Verdict.MET, one.sentence


@needs_bubblewrap
def test_no_candidate_reaches_the_locks_of_cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that held a lock would keep everybody from the card."""
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    with hold(["GPU-x"], "run"):
        line = sandbox.command(tmp_path, alone=True)
    there = subprocess.run([*line, "ls", "-A", str(lock_folder())], capture_output=True, text=True, check=True)
    assert there.stdout == ""
    tried = subprocess.run([*line, "touch", str(lock_folder() / "x")], capture_output=True, text=True)
    assert tried.returncode != 0
