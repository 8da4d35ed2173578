"""The exit code of a gated run."""

from __future__ import annotations

import pytest

from perfsuite.outcome import EXIT_MET, EXIT_MISSED, EXIT_NOTHING_MEASURED, EXIT_UNDECIDED, Reason
from perfsuite.pytest_plugin.run import Run

_REPLACED = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)


def exit_code(run: Run, given: int) -> int:
    """The exit code of a run for which pytest would return `given`; pytest's codes for its own faults stay."""
    if given not in _REPLACED or run.collects_only:
        return given
    if run.failures or run.verdicts & {"MISSED", "WRONG"}:
        return given or EXIT_MISSED
    if run.complaints:
        return int(pytest.ExitCode.USAGE_ERROR)
    if not run.options.gating:
        return given
    if "UNDECIDED" in run.verdicts:
        return EXIT_MISSED if run.unmeasured else EXIT_UNDECIDED
    if not run.cases and not run.on_device:
        return EXIT_MET if may_be_empty(run) else EXIT_NOTHING_MEASURED
    return given


def may_be_empty(run: Run) -> bool:
    """True if a run needs no case: it is a part of a suite that has tests, and nothing kept its own from running."""
    return run.part is not None and run.part.tests > 0 and not run.unmeasured


def why_nothing(run: Run) -> str:
    """The sentence, with its reason code, for a gated run without a case."""
    flag = "--gpu" if run.options.gpu else "--perf-portable"
    skipped = f"all gated tests ({run.skipped}) were skipped"
    found = skipped if run.skipped else "no test that calls perf() was run"
    nothing = (Reason.NOTHING_COLLECTED.value, f"{flag} asks for gates, but {found}")
    code, sentence = run.unmeasured[0] if run.unmeasured else nothing
    return f"nothing was measured ({code}): {sentence}"
