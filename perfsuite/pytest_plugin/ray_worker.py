"""A worker of --perf-ray: a pytest that collects all tests once, and runs those that its parent names.

It takes pytest-xdist's mark of a worker, so that plugins that write one file for a whole run leave it to the parent.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from perfsuite.history.run_pytest import import_plugins
from perfsuite.outcome import one_line
from perfsuite.pytest_plugin.environ import found_variables
from perfsuite.pytest_plugin.run import RUN
from perfsuite.workers.child import serve

_PLACED = {"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "OMP_NUM_THREADS", "PYTHONHASHSEED"}
"""Variables that belong to the machine, not to the run."""


class Served:
    """A plugin of pytest that runs the tests which the parent names, and answers with their reports."""

    def __init__(self, requests: Iterator[str], first: str, answer: Callable[[str], None], planned: int) -> None:
        self._requests, self._next, self._answer, self._planned = requests, first, answer, planned
        self._reports: list[dict[str, Any]] = []
        self._warnings: list[tuple[Any, ...]] = []
        self.failed: list[str] = []
        """Files and tests that could not be collected, each with the reason."""
        self.began = False
        """True once a test was asked for."""

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Keep what could not be collected."""
        if report.failed:
            self.failed.append(f"{report.nodeid}: {str(report.longrepr).strip().rpartition(chr(10))[2]}")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep a report for the answer."""
        hook = self._config.hook
        self._reports.append(hook.pytest_report_to_serializable(config=self._config, report=report))

    def pytest_warning_recorded(self, warning_message: Any, when: str, nodeid: str, location: Any) -> None:
        """Keep a warning of a test; the parent has those of the collection."""
        if when == "runtest":
            one = warning_message
            said = (one.category.__name__, str(one.message), one.filename, one.lineno, when, nodeid, location)
            self._warnings.append(said)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run one test a request, until the parent sends the last one."""
        self.began, self._config = True, session.config
        items = {item.nodeid: item for item in session.items}
        session.config.stash[RUN].planned = self._planned
        while not (request := json.loads(self._next)).get("end"):
            self._answer(json.dumps(self._reply(items, request), default=str))
            self._next = next(self._requests)
        return True

    def _reply(self, items: dict[str, pytest.Item], request: dict[str, Any]) -> dict[str, Any]:
        test, following = request["test"], request["next"]
        if test not in items:
            why = self.failed[0] if self.failed else "is the repository the same there?"
            return {"refused": one_line(f"the worker on {os.uname().nodename} does not collect {test}: {why}")}
        self._reports, self._warnings = [], []
        reply: dict[str, Any] = {}
        try:
            self._config.hook.pytest_runtest_protocol(item=items[test], nextitem=items.get(following))
        except (pytest.exit.Exception, KeyboardInterrupt) as stop:
            reply["exit"] = str(stop) or type(stop).__name__
        return reply | {"reports": self._reports, "warnings": self._warnings}


def main() -> None:
    """Answer until the parent sends the last request, or ends."""
    requests, answer = serve()
    first = next(requests)
    given = pickle.loads(base64.b64decode(json.loads(first)["start"]))
    if json.loads(first).get("end"):  # it would collect for nothing
        answer("{}")
        return
    os.chdir(given["folder"])
    sys.path[:0] = [one for one in given["path"] if one not in sys.path]
    for name in [name for name in os.environ if name.startswith("PYTEST_XDIST_")]:
        del os.environ[name]  # Ray may have been started in a worker of xdist
    for name in {*found_variables(os.environ), *given["variables"]} - _PLACED:
        os.environ.pop(name, None)
        if name in given["variables"]:
            os.environ[name] = given["variables"][name]
    served = Served(requests, first, answer, given["planned"])
    try:
        words = ["-p", "no:terminal", "-p", "perfsuite.plugin", *given["args"]]
        import_plugins(words)
        config = pytest.Config.fromdictargs(given["options"], words)
        config.workerinput = {"workerid": f"ray{os.getpid()}"}  # type: ignore[attr-defined]
        config.workeroutput = {}  # type: ignore[attr-defined]
        if given["randomly_seed"] is not None:
            config.workerinput["randomly_seed"] = given["randomly_seed"]  # type: ignore[attr-defined]
        # pytest-rerunfailures would look for a server of xdist's controller.
        config.pluginmanager.unregister(name="xdist")
        config.pluginmanager.register(served)
        config.hook.pytest_cmdline_main(config=config)
        said = "; ".join(served.failed) or "pytest ended before the first test"
    except Exception as error:  # a conftest raised
        said = f"{type(error).__name__}: {error}"
    if served.began:
        answer(json.dumps(config.workeroutput))  # type: ignore[attr-defined]
    else:
        answer(json.dumps({"refused": one_line(f"the worker on {os.uname().nodename} cannot collect: {said}")}))


if __name__ == "__main__":
    main()
