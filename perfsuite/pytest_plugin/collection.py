"""Which collected tests concern perfsuite, and how many timed cases their markers announce.

Every suite that has the plugin loads this module.
"""

from __future__ import annotations

import pytest

from perfsuite.pytest_plugin import marks

DEVICE_FIXTURES = frozenset({"perf", "gpu", "gpu_memory", "gpu_rng", "gpus"})
CONCERNED = pytest.StashKey[bool]()


def concerns(item: pytest.Item) -> bool:
    """True if a test has one of our markers or asks for one of our fixtures."""
    if CONCERNED not in item.stash:
        asked = not DEVICE_FIXTURES.isdisjoint(getattr(item, "fixturenames", ()))
        item.stash[CONCERNED] = asked or any(mark.name in marks.names() for mark in item.iter_markers())
    return item.stash[CONCERNED]


def needs_device(item: pytest.Item) -> bool:
    """True if the test has the `gpu` marker or asks for a fixture that works on a device."""
    asked = getattr(item, "fixturenames", ())
    return item.get_closest_marker("gpu") is not None or not DEVICE_FIXTURES.isdisjoint(asked)


def gates_on(item: pytest.Item) -> list[str]:
    """The markers of a test that ask for a measurement."""
    return [name for name in marks.on(item) if marks.kind(name).gates]


def is_gated(item: pytest.Item) -> bool:
    """True if the test has a marker that asks for a measurement, or asks for `perf`."""
    return "perf" in getattr(item, "fixturenames", ()) or bool(gates_on(item))


def check_markers(item: pytest.Item) -> None:
    """Fail the collection of a test whose markers have unknown arguments or bad values."""
    from perfsuite.pytest_plugin.marker import MarkerError

    try:
        marks.parse_all(item)
    except MarkerError as error:
        raise pytest.Collector.CollectError(f"{item.nodeid}: {error}") from None


def planned_cases(items: list[pytest.Item]) -> int:
    """Timed cases that these tests announce by their markers."""
    from perfsuite.pytest_plugin.marker import MarkerError

    count = 0
    for item in items:
        if concerns(item):
            try:
                count += len(marks.values_of(item, "perf_target"))
            except MarkerError:
                continue  # the test's setup reports it
    return count
