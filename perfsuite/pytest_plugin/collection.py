"""Finds the tests that concern perfsuite: those with one of its markers or fixtures.

Every suite that has the plugin loads this module. So it lists the folder of the markers without importing them.
"""

from __future__ import annotations

import os
from functools import cache

import pytest

DEVICE_FIXTURES = frozenset({"perf", "gpu", "gpu_memory", "gpu_rng", "gpus"})
CONCERNED = pytest.StashKey[bool]()


@cache
def marker_names() -> tuple[str, ...]:
    """The names of all markers, in alphabetical order."""
    files = os.listdir(os.path.join(os.path.dirname(__file__), "markers"))
    return tuple(sorted(file[:-3] for file in files if file.endswith(".py") and not file.startswith("_")))


def concerns(item: pytest.Item) -> bool:
    """True if a test has one of our markers or asks for one of our fixtures."""
    if CONCERNED not in item.stash:
        marked = any(mark.name in marker_names() for mark in item.iter_markers())
        item.stash[CONCERNED] = marked or needs_device(item)
    return item.stash[CONCERNED]


def needs_device(item: pytest.Item) -> bool:
    """True if the test has the `gpu` marker or asks for a fixture that works on a device."""
    asked = getattr(item, "fixturenames", ())
    return item.get_closest_marker("gpu") is not None or not DEVICE_FIXTURES.isdisjoint(asked)
