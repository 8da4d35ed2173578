"""The outcome of one gated test: from the verdicts of its cases to pytest's report."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from perfsuite.outcome import Verdict
from perfsuite.pytest_plugin.collection import needs_device
from perfsuite.pytest_plugin.marks import gates_on, is_gated
from perfsuite.pytest_plugin.run import RUN

if TYPE_CHECKING:
    from perfsuite.record.case import Case

CASES: pytest.StashKey[list[Case]] = pytest.StashKey()
"""The cases that a test has measured so far."""
_WORST_FIRST = (Verdict.WRONG, Verdict.MISSED, Verdict.UNDECIDED)


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
    bad = [case for case in cases if case.verdict is not Verdict.MET]
    if bad:
        verdict = min((case.verdict for case in bad), key=_WORST_FIRST.index)
        raise GateFailure("\n".join(case.sentence for case in bad), verdict)


def annotate(item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport) -> None:
    """Attach the results to the report, as plain values: it may travel to another process."""
    error = call.excinfo.value if call.excinfo else None
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
