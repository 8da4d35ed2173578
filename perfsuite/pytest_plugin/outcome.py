"""The outcome of one gated test: from the verdicts of its cases to pytest's report."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from perfsuite.outcome import Verdict
from perfsuite.pytest_plugin import needs_device
from perfsuite.pytest_plugin.environ import restore_own
from perfsuite.pytest_plugin.marks import gates_on, is_gated
from perfsuite.pytest_plugin.run import RUN

if TYPE_CHECKING:
    from perfsuite.record.case import Case

CASES: pytest.StashKey[list[Case]] = pytest.StashKey()
"""The cases that a test has measured so far."""
FAILED: pytest.StashKey[GateFailure] = pytest.StashKey()
"""The failure of an attempt of the test that was WRONG or MISSED; plugins may run a failed test again."""
CAUSE: pytest.StashKey[BaseException] = pytest.StashKey()
"""The exception of the last candidate that raised, kept under --pdb alone."""
_WORST_FIRST = (Verdict.WRONG, Verdict.MISSED, Verdict.UNDECIDED)
_OWN_PROPERTY = "perf_"
"""The start of the names of a case's values among the test's properties."""


class GateFailure(pytest.fail.Exception):  # type: ignore[name-defined]  # mypy sees no class there
    """A case of the test did not meet what its markers ask."""

    __module__ = "builtins"  # as pytest's own outcomes: summaries then show the bare name

    def __init__(self, sentence: str, verdict: Verdict) -> None:
        super().__init__(sentence, pytrace=False)
        self.verdict = verdict


class Unmeasured(pytest.fail.Exception):  # type: ignore[name-defined]
    """The test needs a GPU that --gpu asks for and that cannot be used."""

    __module__ = "builtins"

    def __init__(self, code: str, sentence: str) -> None:
        # A plain string: it travels to the controller, which takes no subclass.
        self.code, self.sentence = str(code), sentence
        super().__init__(f"nothing measured ({self.code}): {sentence}", pytrace=False)


def begin(item: pytest.Item) -> None:
    """Begin an attempt of a test, without what an earlier attempt measured.

    Raises the failure of an attempt that was WRONG or MISSED: another attempt must not turn it green.
    """
    if FAILED in item.stash:
        raise item.stash[FAILED]
    restore_own(os.environ, item.config.stash[RUN].variables)
    item.stash[CASES] = []
    item.user_properties = [one for one in item.user_properties if not one[0].startswith(_OWN_PROPERTY)]


def decide(item: pytest.Item) -> None:
    """Fail a test that passed by itself but has a case that is not MET, or none at all."""
    options = item.config.stash[RUN].options
    if not options.gating:
        return
    cases = item.stash.get(CASES, None)
    if not cases:
        asked = gates_on(item)
        if asked and (options.gpu or needs_device(item)):
            names = " and ".join(asked)
            pytest.fail(f"the test has {names} but never called perf(): nothing was measured", pytrace=False)
        return
    if failure := _failure(cases):
        cause = item.stash.get(CAUSE, None)
        raise failure if cause is None else failure.with_traceback(cause.__traceback__)


def _failure(cases: list[Case]) -> GateFailure | None:
    """The failure of a test with these cases; None if all are MET."""
    bad = [case for case in cases if case.verdict is not Verdict.MET]
    if not bad:
        return None
    verdict = min((case.verdict for case in bad), key=_WORST_FIRST.index)
    lines = [line for case in bad for line in (case.sentence, *(f"  {frame}" for frame in case.frames[:-1]))]
    return GateFailure("\n".join(lines), verdict)


def annotate(item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport) -> None:
    """Attach the results to the report, as plain values: it may travel to another process."""
    error = call.excinfo.value if call.excinfo else None
    if report.when != "teardown" and item.config.stash[RUN].options.gating:
        error = _keep_decided(item, error, report)
    if report.when == "call":
        if report.outcome != "skipped" and item.config.stash[RUN].options.gpu and needs_device(item):
            report.perfsuite_on_device = True  # type: ignore[attr-defined]
        cases = item.stash.get(CASES, [])
        if cases:
            report.perfsuite_cases = [case.as_json() for case in cases]  # type: ignore[attr-defined]
    if isinstance(error, GateFailure) and report.failed:
        report.perfsuite_verdict = error.verdict.value  # type: ignore[attr-defined]
    if report.skipped and is_gated(item):
        report.perfsuite_skipped = True  # type: ignore[attr-defined]
    if isinstance(error, Unmeasured) and report.failed:
        report.perfsuite_unmeasured = [error.code, error.sentence]  # type: ignore[attr-defined]


def _keep_decided(item: pytest.Item, error: BaseException | None, report: pytest.TestReport) -> BaseException | None:
    """The error that counts. A gate that failed decides, whatever the test does afterwards.

    A later attempt raises the same failure, and a skipped test fails for the case that it had decided.
    """
    failure = item.stash.get(FAILED, None) or _failure(item.stash.get(CASES, []))
    if failure is None:
        return error
    if failure.verdict is not Verdict.UNDECIDED:
        item.stash[FAILED] = failure
    if report.skipped and not hasattr(report, "wasxfail"):
        report.outcome, report.longrepr = "failed", f"{failure}\n(the test was skipped after this)"
        return failure
    return error
