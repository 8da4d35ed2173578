"""Verdicts that rest on times, which other work on the machine may hide, and a cluster that it keeps from starting."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from perfsuite.case.comparison import Comparison
from perfsuite.clock import processor
from perfsuite.outcome import Reason, Verdict


def company() -> str | None:
    """A sentence if other work may share the processors with this test."""
    return processor.busy() or ("tests run beside this one" if os.environ.get("PYTEST_XDIST_WORKER") else None)


def gains_nothing(one: Comparison, most: float = 3.0) -> None:
    """Fails if a candidate that is not WRONG is MET, or so many times as fast as the rival or more.

    Skips where other work may be the cause: isolated, an honest candidate was at 26 times the speed on a busy machine.
    """
    slow = one.verdict is not Verdict.MET and (one.speed is None or one.speed < most)
    if one.verdict is Verdict.WRONG or slow:
        return
    if others := company():
        pytest.skip(f"its speed says nothing here, {others}: {one.sentence}")
    pytest.fail(one.sentence)


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


@contextmanager
def cluster_starts() -> Iterator[None]:
    """The block starts a cluster of Ray. Skips where that takes longer than Ray itself allows: 30 s a node."""
    try:
        yield
    except Exception as error:
        if "timed out during startup" not in str(error):
            raise
        pytest.skip(f"Ray does not start on this machine: {error}")
