"""A test as a problem: the candidate takes the place of the kernel that the test gives to `perf`."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import pytest

from perfsuite.case.ask import Ask
from perfsuite.case.comparison import Comparison, unmeasured
from perfsuite.history.run_pytest import import_plugins
from perfsuite.judge.tasks import Task, Workload
from perfsuite.outcome import Reason, UserError, Verdict, one_line


class _Capture:
    """A plugin of pytest that keeps the test's requests and measures nothing."""

    def __init__(self) -> None:
        self.asks: list[Ask] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_perfsuite_compare(self, ask: Ask) -> Comparison:
        """Take the place of the measurement."""
        self.asks.append(ask)
        return unmeasured(ask, Verdict.MET, Reason.CHECKED, "captured")


def task_of_test(test: str, device: str) -> Task:
    """The task of a test's node ID; each call of `perf` with each rival is a workload. UserError if there is none.

    The test runs once in this process, up to its calls of `perf` and past them, without any measurement.
    """
    capture, said = _Capture(), io.StringIO()
    words = [test, "-q", "-p", "no:cacheprovider", "-p", "perfsuite.plugin"]
    words += ["--gpu" if device == "cuda" else "--perf-portable"]
    import_plugins(words)
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        pytest.main(words, plugins=[capture])
    if not capture.asks:
        lines = [line for line in said.getvalue().splitlines() if line.strip()]
        raise UserError(one_line(f"{test} calls perf nowhere; pytest said: {' | '.join(lines[-2:])}"))
    first = capture.asks[0]
    targets = {ask.at_least for ask in capture.asks}
    if len(targets) > 1:
        raise UserError(one_line(f"{test} has several targets ({targets}); judge each rival by a test with one target"))
    name = getattr(first.candidate, "__name__", "")
    workloads = tuple(_workload(ask) for ask in capture.asks)
    return Task(test.rpartition("::")[2], workloads, name if name.isidentifier() else "run", first.at_least)


def _workload(ask: Ask) -> Workload:
    against: Any = ask.against
    label = f"{ask.label} " if ask.label else ""
    return Workload(f"{label}{ask.problem.name}", ask.problem, against=against)
