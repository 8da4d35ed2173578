"""perf_targets.toml: a marker's numbers overridden per GPU model, by a glob over test ids.

    ["NVIDIA H200"]
    "tests/perf/test_gemm.py::test_gemm[512*]" = { perf_target = { at_least = 0.92 } }

    [portable]
    "tests/perf/test_attention.py::*" = { perf_target = [
        { against = "sdpa", at_least = 0.05 },
    ] }

In a glob `*` stands for any run of characters and `?` for one; brackets are taken as they are, since test ids hold
them. Where several globs fit, the last one in the file wins.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from perfsuite.pytest_plugin.markers import (
    MARKERS,
    Alignment,
    Launches,
    MarkerError,
    MemoryTarget,
    NoSync,
    PerfTarget,
    RooflineTarget,
    announced,
)
from perfsuite.pytest_plugin.options import PORTABLE
from perfsuite.pytest_plugin.run import Run

Marked = TypeVar("Marked", PerfTarget, MemoryTarget, Launches, NoSync, RooflineTarget, Alignment)

OVERRIDABLE = {
    "perf_target": ("at_least",),
    "memory_target": ("peak_bytes",),
    "launches": ("at_most",),
    "roofline_target": ("at_least",),
    "alignment": ("max_drop",),
}
"""The numbers of each marker that a file may override."""
_NEEDED = {"alignment": {"dim": 1}}
"""What a marker must be given besides its number, for the number to be looked at."""
SELECTOR = "against"
"""Restricts an override of perf_target to the marker of one rival."""


@dataclass(frozen=True)
class Override:
    """One number of a marker, for the tests that a glob names, on one model of card."""

    model: str
    glob: str
    marker: str
    against: str | None
    number: str
    value: Any

    def fits(self, nodeid: str) -> bool:
        """Whether the glob names this test."""
        return _pattern(self.glob).fullmatch(nodeid) is not None

    def concerns(self, item: pytest.Item) -> bool:
        """Whether this test has the marker whose number is overridden."""
        if self.marker == "perf_target":
            return any(self.against in (None, target.rival_name) for target in announced(item))
        return item.get_closest_marker(self.marker) is not None

    def __str__(self) -> str:
        return f"{self.marker}(against={self.against!r})" if self.against else self.marker


@dataclass(frozen=True)
class Targets:
    """Every override of a file."""

    overrides: tuple[Override, ...]
    path: Path

    def apply(self, marker: str, value: Marked, *, nodeid: str, model: str) -> Marked:
        """A marker's value for a test on that model of card ("portable" for the CPU backend)."""
        for one in self.overrides:
            if one.marker == marker and one.model == model and one.fits(nodeid):
                rival = value.rival_name if isinstance(value, PerfTarget) else None
                if one.against in (None, rival):
                    value = value._replace(**{one.number: one.value})
        return value

    def check_use(self, run: Run, items: Sequence[pytest.Item]) -> None:
        """Complain of what overrides nothing, where all tests were collected (else it may name one elsewhere)."""
        if not _whole_tree(run.config):
            return
        unused: dict[str, None] = {}
        for one in self.overrides:
            named = [item for item in items if one.fits(item.nodeid)]
            if not named:
                unused.setdefault(one.glob)
            elif not any(map(one.concerns, named)):
                run.complaints.append(f"{self.path.name}: no test that {one.glob!r} names has {one}")
        if unused:
            run.complaints.append(f"{self.path.name}: no test is named by {', '.join(map(repr, unused))}")


def load_targets(path: Path) -> Targets:
    """Read and check a file; UsageError names what is wrong in it and what is allowed."""
    import tomllib

    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise pytest.UsageError(f"{path}: not readable as TOML: {error}") from None
    overrides: list[Override] = []
    for model, tests in document.items():
        if not isinstance(tests, dict):
            raise pytest.UsageError(
                f"{path}: {model!r} must be a table of a GPU model (or [{PORTABLE}]), not {tests!r}"
            )
        for glob, markers in tests.items():
            where = f"{path}: [{model!r}] {glob!r}"
            if not isinstance(markers, dict) or not markers:
                raise pytest.UsageError(f"{where} must be a table of markers, not {markers!r}")
            for marker, entries in markers.items():
                if marker not in OVERRIDABLE:
                    allowed = ", ".join(OVERRIDABLE)
                    raise pytest.UsageError(f"{where}: marker {marker!r} cannot be overridden; allowed: {allowed}")
                listed = entries if isinstance(entries, list) else [entries]
                for entry in listed:
                    overrides += _override(model, glob, entry, marker, f"{where}: {marker}")
    return Targets(tuple(overrides), path)


def _override(model: str, glob: str, entry: Any, marker: str, where: str) -> Iterator[Override]:
    numbers = OVERRIDABLE[marker]
    allowed = (*numbers, SELECTOR) if marker == "perf_target" else numbers
    if not isinstance(entry, dict):
        raise pytest.UsageError(f"{where} must be a table with {', '.join(allowed)}, not {entry!r}")
    if unknown := [key for key in entry if key not in allowed]:
        raise pytest.UsageError(f"{where} has no {', '.join(map(repr, unknown))}; known are {', '.join(allowed)}")
    against = entry.get(SELECTOR)
    if against is not None and not isinstance(against, str):
        raise pytest.UsageError(f"{where}: {SELECTOR} is {against!r}; it must be the name of a rival")
    for number in numbers:
        value = entry.get(number)
        try:
            MARKERS[marker](**_NEEDED.get(marker, {}), **{number: value})
        except MarkerError as error:
            raise pytest.UsageError(f"{where}: {error}") from None
        yield Override(model, glob, marker, against, number, value)


def _pattern(glob: str) -> re.Pattern[str]:
    parts = (".*" if char == "*" else "." if char == "?" else re.escape(char) for char in glob)
    return re.compile("".join(parts), re.DOTALL)


def _whole_tree(config: pytest.Config) -> bool:
    narrowed = any(
        config.getoption(name, None) for name in ("ignore", "ignore_glob", "deselect", "lf", "stepwise", "last_failed")
    )
    places = {Path(place).resolve() for place in config.args}
    whole = {config.rootpath.resolve()}, {(config.rootpath / place).resolve() for place in config.getini("testpaths")}
    return not narrowed and places in whole
