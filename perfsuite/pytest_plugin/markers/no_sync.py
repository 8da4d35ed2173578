"""The marker `no_sync`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from perfsuite.outcome import Reason
from perfsuite.pytest_plugin.marker import Finding, Marker, Subject


@dataclass(frozen=True, kw_only=True)
class NoSync(Marker):
    """A call of the candidate must return without waiting for the device."""

    def judge(self, subject: Subject) -> Iterator[Finding]:
        """Make one call while the device is busy."""
        waits = subject.measure("synchronises", subject.problem)
        sentence = "the call waits for the device" if waits else "the call returns without waiting for the device"
        yield Finding("no_sync", Reason.SYNCHRONISES if waits else None, sentence, {"synchronises": float(waits)})
