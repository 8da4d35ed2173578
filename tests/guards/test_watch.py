"""A change of what both sides share is put back, told of a rival, and held against a candidate."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from perfsuite.guards.watch import LOOKS_AT_LIBRARY, Watch


@pytest.fixture(autouse=True)
def anomalies() -> Iterator[None]:
    yield
    torch.autograd.set_detect_anomaly(False)


def watch_of(*, library: bool) -> Watch:
    """A watch behind the first call of either side."""
    watch = Watch(list, library=library)
    for side in ("rival", "candidate"):
        watch.after(side)
    return watch


def test_a_users_rival_may_change_what_both_share_in_any_call() -> None:
    watch = watch_of(library=False)
    for _ in range(2 * LOOKS_AT_LIBRARY):
        torch.autograd.set_detect_anomaly(True)
        watch.after("rival")
        assert not torch.is_anomaly_enabled()
        watch.after("candidate")
    assert watch.changed == []
    assert len(watch.told) == 2 * LOOKS_AT_LIBRARY


def test_a_library_may_change_it_in_its_first_calls_and_a_later_change_is_the_candidates() -> None:
    watch = watch_of(library=True)
    torch.autograd.set_detect_anomaly(True)
    watch.after("rival")
    assert not torch.is_anomaly_enabled()
    assert watch.changed == []
    assert len(watch.told) == 1
    for _ in range(LOOKS_AT_LIBRARY):
        watch.after("rival")
        watch.after("candidate")
    torch.autograd.set_detect_anomaly(True)
    watch.after("rival")  # a thread of the candidate made it, while the rival ran
    assert watch.changed == []
    watch.after("candidate")
    assert not torch.is_anomaly_enabled()
    assert watch.changed == ["anomaly detection from False to True"]
