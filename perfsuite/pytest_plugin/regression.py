"""The `regression` marker: a timed case against the stored history of the same card."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfsuite.outcome import Reason
from perfsuite.pytest_plugin.limits import Limit
from perfsuite.pytest_plugin.markers import Regression

if TYPE_CHECKING:
    from perfsuite.settings import Settings

ASPECT = "regression"


def against_history(asked: Regression, case: Mapping[str, Any], *, root: Path, settings: Settings) -> Limit:
    """What a record's case comes to against the history below `root`.

    Met where nothing of the case is stored yet, or where it was not timed: another verdict tells of that. A history
    that cannot be read fails, with the file's name: a gate that looks at nothing must not be green.
    """
    from perfsuite.history.commits import HistoryError
    from perfsuite.history.looking_back import Rule
    from perfsuite.history.stored import findings_of
    from perfsuite.verdict.noise import noise_for

    seconds = case.get("candidate_seconds")
    if not seconds:
        return Limit(ASPECT, True, Reason.CHECKED, "not timed, so there is nothing to look back from", {})
    noise, _ = noise_for(settings.device, seconds, file=settings.calibration, gpu=case.get("gpu"))
    rule = Rule(step=asked.slower, drift=asked.drift)
    try:
        findings, idle = findings_of(case, root / asked.history, root, noise=noise, rule=rule)
    except HistoryError as error:
        return Limit(ASPECT, False, Reason.REGRESSED, f"the history cannot be read: {error}", {})
    if len(findings) < 2:
        return Limit(ASPECT, True, Reason.CHECKED, "nothing of this case is stored for this card yet", {})
    newest = findings[-1]
    sentence = "; ".join([f"{newest.sentence}, {len(findings) - 1} commits stored", *idle])
    measured = {"change": newest.change, "at_least": newest.low}
    return Limit(ASPECT, not newest.bad, Reason.REGRESSED if newest.bad else Reason.CHECKED, sentence, measured)
