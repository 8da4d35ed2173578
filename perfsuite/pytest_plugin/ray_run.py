"""--perf-ray: this process collects the tests and reports them; workers on a Ray cluster, one a card, run them.

Each worker is another pytest that collects the same tests, as `ray_worker` says. The repository must lie at the
same path on all machines. A test whose worker dies runs again on another one.
"""

from __future__ import annotations

import base64
import builtins
import json
import os
import pickle
import queue
import sys
import threading
import warnings
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest

from perfsuite.case.comparison import Comparison
from perfsuite.outcome import Reason, UserError, Verdict, one_line
from perfsuite.pytest_plugin import concerns
from perfsuite.pytest_plugin.marks import is_gated
from perfsuite.pytest_plugin.run import Run
from perfsuite.pytest_plugin.xdist import debrief_worker
from perfsuite.record.case import case_record
from perfsuite.workers.child import DiedError
from perfsuite.workers.ray_child import RayChild
from perfsuite.workers.ray_cluster import Cluster, connected

WORKER = "perfsuite.pytest_plugin.ray_worker"
MOST_DEATHS = 3
"""Deaths of its worker after which a test is UNDECIDED."""
PLUGINS = ("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "PYTEST_PLUGINS")
"""Variables that choose pytest's plugins."""
END_SECONDS = 60.0
"""Time for a worker's pytest to end."""
_OWN = {
    "perf_ray": "",
    "perf_card_model": "",
    "maxfail": 0,
    "lf": False,
    "failedfirst": False,
    "stepwise": False,
    "basetemp": None,
}
_OWN |= {"numprocesses": None, "dist": "no", "tx": [], "usepdb": False, "no_cov": True}
"""Options that a worker gets other than this run's: this run stops, chooses and writes."""


class Work:
    """The tests that wait, and the replies to those that ended. Several threads use it."""

    def __init__(self, tests: Sequence[str]) -> None:
        self._waiting, self._open = deque(tests), len(tests)
        self._deaths: Counter[str] = Counter()
        self._news = threading.Condition()
        self.replies: queue.SimpleQueue[tuple[str, dict[str, Any]]] = queue.SimpleQueue()

    def take(self) -> str | None:
        """The next test; waits, since a worker may die and leave one. None if all have ended."""
        with self._news:
            while self._open and not self._waiting:
                self._news.wait()
            return self._waiting.popleft() if self._waiting else None

    def following(self) -> str | None:
        """The test after the next one, if one waits now. The worker keeps the fixtures that both share."""
        with self._news:
            return self._waiting.popleft() if self._waiting else None

    def give_back(self, test: str | None) -> None:
        """Let another worker take a test."""
        if test is not None:
            with self._news:
                self._waiting.appendleft(test)
                self._news.notify_all()

    def ended(self, test: str, reply: dict[str, Any]) -> None:
        """Keep the reply to a test."""
        with self._news:
            self.replies.put((test, reply))
            self._open -= 1
            self._news.notify_all()

    def died(self, test: str, said: str) -> None:
        """Note that the worker of a test died: another one begins it again, or it is lost."""
        self._deaths[test] += 1
        if self._deaths[test] < MOST_DEATHS:
            self.give_back(test)
        else:
            self.ended(test, {"lost": f"its worker died {MOST_DEATHS} times: {said}"})


class RayRun:
    """A plugin of pytest that takes the place of its loop over the tests."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._opened = ExitStack()
        self._cluster: Cluster | None = None
        self._workers: list[RayChild] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Connect; UsageError if that fails, or if no machine has such a card."""
        options = self._run.options
        assert options.ray is not None
        try:
            self._cluster = self._opened.enter_context(connected(options.ray, open=options.ray_open))
            self._workers = self._cluster.workers(("-m", WORKER), options.card_model, cards=options.gpu)
        except UserError as error:
            self._opened.close()
            raise pytest.UsageError(str(error)) from None
        for worker in self._workers:
            self._opened.callback(worker.close)
        kind = f"on {options.card_model or 'any'} cards" if options.gpu else "on processors: portable backend"
        self._run.elsewhere = f"Ray at {self._cluster.address}, {len(self._workers)} workers {kind}"

    def pytest_unconfigure(self) -> None:
        """End the workers."""
        self._opened.close()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the tests that concern perfsuite on the workers, then the others in this process."""
        if session.testsfailed and not session.config.option.continue_on_collection_errors:
            raise session.Interrupted(f"{session.testsfailed} errors during collection")
        there = {item.nodeid: item for item in session.items if concerns(item)}
        here = [item for item in session.items if item.nodeid not in there]
        if there:
            self._measure(session, there)
        for item, following in zip_longest(here, here[1:]):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            _stop(session)
        return True

    def _measure(self, session: pytest.Session, items: dict[str, pytest.Item]) -> None:
        assert self._cluster is not None
        options = self._run.options
        files = sorted({item.path for item in items.values()})
        try:
            self._cluster.check(self._cluster.usable(options.card_model, cards=options.gpu), files)
        except UserError as error:
            raise pytest.UsageError(str(error)) from None
        work, start = Work(list(items)), _start(self._run)
        used = self._workers[: len(items)]
        threads = [threading.Thread(target=_serve, args=(one, work, start), daemon=True) for one in used]
        for thread in threads:
            thread.start()
        for _ in items:
            while True:
                try:
                    test, reply = work.replies.get(timeout=1.0)
                    break
                except queue.Empty:
                    if not any(thread.is_alive() for thread in threads) and work.replies.empty():
                        raise pytest.UsageError("no worker finds a place on the Ray cluster any more") from None
            self._report(session, items[test], reply)
        for worker, thread in zip(used, threads, strict=True):
            if worker.pid is None:  # it still looks for a place
                worker.close()
            thread.join()
        while not work.replies.empty():
            debrief_worker(self._run, work.replies.get()[1])

    def _report(self, session: pytest.Session, item: pytest.Item, reply: dict[str, Any]) -> None:
        """Report one test as pytest does; UsageError or Interrupted if its worker asks for it."""
        hook = session.config.hook
        if "refused" in reply:
            raise pytest.UsageError(reply["refused"])
        for kind, text, place, line, when, nodeid, location in reply.get("warnings", ()):
            category: Any = getattr(pytest, kind, None) or getattr(builtins, kind, UserWarning)
            message = warnings.WarningMessage(text, category, place, line)
            told = {"warning_message": message, "when": when, "nodeid": nodeid, "location": location}
            hook.pytest_warning_recorded.call_historic(kwargs=told)
        reports = []
        for data in reply.get("reports", ()):
            # JSON knows no tuples, and pytest asks for them in these two.
            given = {name: tuple(data[name]) for name in ("longrepr", "location") if isinstance(data.get(name), list)}
            reports.append(hook.pytest_report_from_serializable(config=session.config, data={**data, **given}))
        if "lost" in reply:
            reports.append(_lost(self._run, item, reply["lost"]))
        hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in reports:
            hook.pytest_runtest_logreport(report=report)
        hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        if "exit" in reply:
            session.shouldstop = reply["exit"]
        _stop(session)


def _stop(session: pytest.Session) -> None:
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)


def _serve(worker: RayChild, work: Work, start: str) -> None:
    """Run tests on one worker until all have ended, or it finds no place."""
    test: str | None = None
    while worker.prepare():
        test = test or work.take()
        if test is None:
            with suppress(DiedError):
                ended = json.loads(worker.ask(json.dumps({"start": start, "end": True}).encode(), END_SECONDS))
                work.replies.put(("", ended))
            return
        following = work.following()
        try:
            request = {"start": start, "test": test, "next": following}
            reply = json.loads(worker.ask(json.dumps(request).encode()))
        except DiedError as died:
            work.give_back(following)
            work.died(test, str(died))
            test = None
            continue
        work.ended(test, reply)
        test = following
    work.give_back(test)


def _start(run: Run) -> str:
    """All that a worker needs to collect the same tests, as text."""
    config, options = run.config, {}
    for name, value in {**vars(config.option), **_OWN}.items():
        with suppress(Exception):  # an option of another plugin that cannot travel
            options[name] = pickle.loads(pickle.dumps(value))
    folder = config.invocation_params.dir
    roots = (config.rootpath, folder)
    given = {
        "options": options,
        "args": [str(one) for one in config.args],
        "folder": str(folder),
        "path": [one for one in sys.path if one and any(Path(one).is_relative_to(root) for root in roots)],
        "planned": run.planned,
        "variables": {**run.variables, **{name: os.environ[name] for name in PLUGINS if name in os.environ}},
        "randomly_seed": config.getoption("randomly_seed", None),
    }
    return base64.b64encode(pickle.dumps(given)).decode()


def _lost(run: Run, item: pytest.Item, said: str) -> pytest.TestReport:
    """The report of a test whose workers died: UNDECIDED if it is gated, else failed."""
    sentence = one_line(said)
    report = pytest.TestReport(
        item.nodeid,
        item.location,
        dict.fromkeys(item.keywords, 1),
        "failed",
        f"{Reason.WORKER_LOST}: {sentence}",
        "call",
    )
    if is_gated(item):
        name = str(getattr(item, "originalname", None) or item.name)
        lost = Comparison("test", item.name, {}, name, None, Verdict.UNDECIDED, Reason.WORKER_LOST, sentence)
        case = case_record(lost, test=item.nodeid, fingerprint=run.fingerprint)
        report.perfsuite_cases = [case.as_json()]  # type: ignore[attr-defined]
        report.perfsuite_verdict = Verdict.UNDECIDED.value  # type: ignore[attr-defined]
    return report
