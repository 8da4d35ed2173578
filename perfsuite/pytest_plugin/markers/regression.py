"""The marker `regression`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from perfsuite.outcome import Reason
from perfsuite.pytest_plugin.marker import Finding, Marker, MarkerError, Subject, is_positive

ASPECT = "regression"


@dataclass(frozen=True, kw_only=True)
class Regression(Marker):
    """A timed case must not be slower than the stored history of its card, by a step or by a drift."""

    each_rival = True
    needs_gpu = False
    slower: float = 0.01
    drift: float = 0.02
    history: str = "benchmarks_asv/results"

    def __post_init__(self) -> None:
        for name, value in (("slower", self.slower), ("drift", self.drift)):
            if not is_positive(value) or value >= 1.0:
                raise MarkerError(f"{name} is {value!r}; it must be a share between 0 and 1 (0.01: one per cent)")
        if not isinstance(self.history, str):
            raise MarkerError(f"history is {self.history!r}; it must be a folder of asv's results, below the root")

    def judge(self, subject: Subject) -> Iterator[Finding]:
        """Compare the case with the history below the root directory.

        The limit holds if the case was not timed (its own verdict reports that) or has no history yet, of which the run
        warns. A history that cannot be read breaks the limit: a gate that compares with nothing must not pass. The case
        is UNDECIDED if neither a slow-down nor its absence can be shown.
        """
        from perfsuite.history.commits import HistoryError
        from perfsuite.history.steps_and_drift import Kind, Rule
        from perfsuite.history.stored_results import findings_of
        from perfsuite.record.index_db import open_index
        from perfsuite.verdict.noise import noise_for

        case, settings, root = subject.case, subject.settings, subject.root
        if not case.candidate_seconds:
            yield Finding(ASPECT, None, "not timed, so there is nothing to compare with the history", {})
            return
        noise, _ = noise_for(settings.device, case.candidate_seconds, file=settings.calibration, gpu=case.gpu)
        rule = Rule(step=self.slower, drift=self.drift)
        try:
            findings, idle = findings_of(case, root / self.history, root, noise=noise, rule=rule)
        except HistoryError as error:
            yield Finding(ASPECT, Reason.REGRESSED, f"the history cannot be read: {error}", {})
            return
        if len(findings) < 2:
            said = "the history holds no result of this case on this card yet"
            yield Finding(ASPECT, None, said, {}, warning=f"{ASPECT} compared nothing: {said}")
            return
        newest, trouble = findings[-1], open_index(root).trouble
        sentence = "; ".join([f"{newest.sentence}, {len(findings) - 1} commits stored", *idle])
        measured = {"change": newest.change, "at_least": newest.low, "at_most": newest.high}
        if newest.bad:
            yield Finding(ASPECT, Reason.REGRESSED, sentence, measured, warning=trouble)
        elif newest.kind in (Kind.SAME, Kind.IMPROVED) and newest.high > self.slower:
            change = f"{newest.change:+.1%}, at most {newest.high:+.1%}"
            said = f"it cannot be told if the case got slower by {self.slower:.1%}: {change}"
            said = "; ".join([said, f"{len(findings) - 1} commits stored", *idle])
            yield Finding(ASPECT, None, said, measured, unsure=Reason.TOO_NOISY, warning=trouble)
        else:
            yield Finding(ASPECT, None, sentence, measured, warning=trouble)
