"""Both sides of a portable case have one thread, and a busy machine is told of."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from perfsuite.clock import processor

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def three_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in processor.THREADS_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("device", "variable", "threads"), [("cpu", "", 1), ("cpu", "2", 3), ("cuda", "", 3)])
def test_both_sides_have_one_thread(monkeypatch: pytest.MonkeyPatch, device: str, variable: str, threads: int) -> None:
    if variable:
        monkeypatch.setenv("OMP_NUM_THREADS", variable)
    with processor.pinned_threads(device):
        assert torch.get_num_threads() == threads
    assert torch.get_num_threads() == 3


def test_a_case_runs_on_one_thread() -> None:
    from perfsuite import Gemm, Settings, compare

    seen = set()

    def candidate(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        seen.add(torch.get_num_threads())
        return a @ b

    settings = Settings(device="cpu", seconds=0.02, seed=1)
    compare(Gemm(8, 8, 8, dtype="float32"), candidate, against="cublas", settings=settings)
    assert seen == {1}


@pytest.mark.parametrize(("load", "told"), [(1.9, False), (8.0, True)])
def test_a_busy_machine_is_told_of(monkeypatch: pytest.MonkeyPatch, load: float, told: bool) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})
    assert (processor.busy() is not None) == told
    assert not told or "load 8.0 on 2 cores" in str(processor.busy())
