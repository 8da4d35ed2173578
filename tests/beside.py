"""Verdicts that rest on times, which other work on the machine may hide."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from perfsuite.case.comparison import Comparison
from perfsuite.clock import processor
from perfsuite.outcome import Reason


def company() -> str | None:
    """A sentence if other work may share the processors with this test."""
    return processor.busy() or ("tests run beside this one" if os.environ.get("PYTEST_XDIST_WORKER") else None)


def found_among(tries: int, once: Callable[[], Comparison]) -> Comparison:
    """The first comparison that finds tampering, or the last one. Skips if other work may have hidden the attack."""
    others = None
    for _ in range(tries):
        others = others or company()
        one = once()
        if one.reason is Reason.TAMPERED:
            return one
    if others := others or company():
        pytest.skip(f"the attack may be hidden: {others}")
    return one
