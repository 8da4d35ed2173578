"""Processes that start before they are needed: whole, alone in their sandbox, and gone when nobody takes them."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

import isolated_kernels as kernels

from perfsuite.clock.graph import GraphClock
from perfsuite.device.telemetry import Watch
from perfsuite.isolate import ahead, nursery, sandbox
from perfsuite.isolate.errors import CandidateError
from perfsuite.isolate.process import Process
from perfsuite.isolate.remote import Remote

KIND = {"trusted": False, "device": "cpu"}
needs_bubblewrap = pytest.mark.skipif(sandbox.why_not() is not None, reason=f"no sandbox: {sandbox.why_not()}")


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nurseries of this test alone."""
    monkeypatch.setattr(nursery, "_started", started := {})
    yield
    ahead.close()
    for one in (made for kind in started.values() for made in kind):
        one.close()


def spares() -> list[Process]:
    ahead.settle()
    return [one.made for one in ahead._spares.get((False, "cpu"), []) if one.made is not None]


@needs_bubblewrap
def test_each_stands_in_a_sandbox_of_its_own_and_the_next_start_when_one_is_taken() -> None:
    ahead.keep(2, **KIND)
    one, two = spares()
    assert one.nursery is not two.nursery
    taken = ahead.take(**KIND)
    assert taken is one
    assert two in spares()
    assert len({id(each.nursery) for each in (taken, *spares())}) == 3
    assert ahead.ready("cpu") == 2
    assert ahead.ready("cuda") == 0
    taken.close()
    ahead.settle()
    assert one.nursery.alive
    assert not one.nursery.workers


class ReadsProcesses(Watch):
    """NVML's count of other processes, on a machine without a card."""

    def sample_slow(self) -> None:
        pass


@pytest.mark.parametrize(("seen", "ready", "others"), [(None, 1, None), (0, 1, 0), (1, 1, 0), (3, 1, 2), (2, 0, 2)])
def test_a_case_in_process_takes_none_for_another_user_of_the_card(
    monkeypatch: pytest.MonkeyPatch, seen: int | None, ready: int, others: int | None
) -> None:
    monkeypatch.setattr(ahead, "ready", {"cuda": ready, "cpu": 9}.__getitem__)
    clock = object.__new__(GraphClock)
    clock._watch, clock._l2_reset, clock._settled = ReadsProcesses(uuid=None), None, True
    clock._watch.most_others = seen
    assert clock.telemetry().other_processes == others


@needs_bubblewrap
def test_a_candidate_runs_in_one_that_was_ready() -> None:
    ahead.keep(1, **KIND)
    (ready,) = spares()
    remote = Remote(kernels.product, device="cpu", seconds=30.0, room=1 << 32)
    values = torch.randn(8, 8), torch.randn(8, 8)
    assert torch.allclose(remote(*values), values[0] @ values[1], atol=1e-5)
    assert remote._process is ready
    remote.close()
    assert ready.closed


@needs_bubblewrap
def test_one_that_has_other_surroundings_or_has_died_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead.keep(1, **KIND)
    (before,) = spares()
    monkeypatch.setenv("TEST_OF_SURROUNDINGS", "1")
    other = ahead.take(**KIND)
    assert other is not before
    assert before.closed
    (before,) = spares()
    monkeypatch.chdir(tmp_path)
    ahead.take(**KIND).close()
    assert before.closed
    (before,) = spares()
    signal.pidfd_send_signal(before.descriptors[1], signal.SIGKILL)
    deadline = time.monotonic() + 60.0
    while before.alive and time.monotonic() < deadline:
        time.sleep(0.01)
    last = ahead.take(**KIND)
    assert last is not before
    assert last.alive
    for one in (other, last):
        one.close()


def test_without_a_sandbox_none_waits_where_a_candidate_could_trace_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "PROGRAM", "a program that there is not")
    sandbox.why_not.cache_clear()
    ahead.keep(2, **KIND)
    monkeypatch.undo()
    sandbox.why_not.cache_clear()
    assert not ahead._spares.get((False, "cpu"))


@needs_bubblewrap
def test_none_is_left_when_all_are_closed() -> None:
    ahead.keep(2, **KIND)
    there = spares()
    descriptors = len(os.listdir("/proc/self/fd"))
    ahead.close()
    assert all(one.closed for one in there)
    assert len(os.listdir("/proc/self/fd")) < descriptors
    assert not any(made.workers for kind in nursery._started.values() for made in kind)


@needs_bubblewrap
def test_a_verdict_does_not_wait_for_the_end_of_a_process_and_timing_does() -> None:
    remote = Remote(kernels.product, device="cpu", seconds=30.0, room=1 << 32)
    remote(torch.ones(2, 2), torch.ones(2, 2))
    process = remote._process
    assert process is not None
    ended = os.dup(process.descriptors[1])
    remote.close()
    assert process.nursery.settling
    ahead.settle()
    assert not process.nursery.settling
    with pytest.raises(ProcessLookupError):
        signal.pidfd_send_signal(ended, 0)
    os.close(ended)


RIVAL = {"device": "cpu", "seconds": 30.0, "room": 1 << 32, "trusted": True}


def test_the_process_of_a_rival_serves_the_next_one_and_keeps_nothing_of_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ahead, "USED_AGAIN", ("cpu",))
    values = torch.randn(8, 8), torch.randn(8, 8)
    one = Remote(kernels.product, **RIVAL)
    assert torch.allclose(one(*values), values[0] @ values[1], atol=1e-5)
    process = one._process
    one.order_costs.append((3e-4, 2e-6))
    one.close()
    assert process is not None
    assert not process.closed
    # Limits are those of its own candidate: the first one's were narrower.
    two = Remote(torch.add, **RIVAL | {"room": 1 << 33})
    assert torch.equal(two(*values), values[0] + values[1])
    assert two._process is process
    assert two.order_costs == [(3e-4, 2e-6)]
    two.close()
    monkeypatch.setattr(ahead, "MOST_USES", 2)
    three = Remote(torch.add, **RIVAL)
    assert torch.equal(three(*values), values[0] + values[1])
    three.close()
    assert process.closed


def test_a_rival_whose_process_cannot_forget_it_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "USED_AGAIN", ("cpu",))
    one = Remote(kernels.product, **RIVAL)
    one(torch.ones(2, 2), torch.ones(2, 2))
    process = one._process
    assert process is not None

    def fails(request: Any, *_: Any) -> Any:
        raise CandidateError("its context is broken")

    monkeypatch.setattr(process, "ask", fails)
    one.close()
    ahead.settle()
    assert process.closed
    assert torch.equal(Remote(torch.add, **RIVAL)(torch.ones(2), torch.ones(2)), torch.full((2,), 2.0))


@needs_bubblewrap
def test_the_process_of_a_candidate_serves_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "USED_AGAIN", ("cpu",))
    remote = Remote(kernels.product, **RIVAL | {"trusted": False})
    remote(torch.ones(2, 2), torch.ones(2, 2))
    process = remote._process
    remote.close()
    assert process is not None
    assert process.closed
    assert not ahead.give_back(process)


def test_a_rival_whose_module_comes_from_another_file_gets_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "USED_AGAIN", ("cpu",))
    one = Remote(kernels.product, **RIVAL)
    one(torch.ones(2, 2), torch.ones(2, 2))
    process = one._process
    one.close()
    assert process is not None
    process.modules["isolated_kernels"] = "/somewhere/else/isolated_kernels.py"
    two = Remote(kernels.product, **RIVAL)
    two(torch.ones(2, 2), torch.ones(2, 2))
    assert two._process is not process
    assert process.closed
    two.close()


def test_a_rival_that_has_failed_in_its_process_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "USED_AGAIN", ("cpu",))
    one = Remote(kernels.segfaults, **RIVAL)
    with pytest.raises(RuntimeError):
        one(torch.ones(2, 2), torch.ones(2, 2))
    process = one._process
    one.close()
    assert process is None or process.closed
    assert not ahead._spares.get((True, "cpu"))
