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

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from perfsuite.markers import PerfTarget
from perfsuite.options import PORTABLE
from perfsuite.run import Run

OVERRIDABLE = {"perf_target": ("at_least",)}
"""The numbers of each marker that a file may override."""
SELECTOR = "against"
"""Restricts an override to the markers of one rival."""


@dataclass(frozen=True)
class Override:
    """One number for the tests that a glob names, on one model of card."""

    model: str
    glob: str
    against: str | None
    at_least: float

    def fits(self, nodeid: str) -> bool:
        """Whether the glob names this test."""
        return _pattern(self.glob).fullmatch(nodeid) is not None


@dataclass(frozen=True)
class Targets:
    """Every override of a file."""

    overrides: tuple[Override, ...]
    path: Path

    def apply(self, targets: Iterable[PerfTarget], *, nodeid: str, model: str) -> list[PerfTarget]:
        """The targets of a test on that model of card ("portable" for the CPU backend)."""
        applied = list(targets)
        for override in self.overrides:
            if override.model == model and override.fits(nodeid):
                applied = [
                    target._replace(at_least=override.at_least)
                    if override.against in (None, target.rival_name)
                    else target
                    for target in applied
                ]
        return applied

    def unused(self, nodeids: Iterable[str]) -> list[str]:
        """The globs that name none of these tests, in the file's order."""
        known = list(nodeids)
        globs = dict.fromkeys(override.glob for override in self.overrides)
        return [glob for glob in globs if not any(_pattern(glob).fullmatch(nodeid) for nodeid in known)]

    def check_use(self, run: Run, items: Iterable[pytest.Item]) -> None:
        """Complain of globs that name no test, where all tests were collected (else they may name one elsewhere)."""
        if _whole_tree(run.config) and (unused := self.unused(item.nodeid for item in items)):
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
                overrides += [_override(model, glob, entry, marker, f"{where}: {marker}") for entry in listed]
    return Targets(tuple(overrides), path)


def _override(model: str, glob: str, entry: Any, marker: str, where: str) -> Override:
    numbers = OVERRIDABLE[marker]
    allowed = (*numbers, SELECTOR)
    if not isinstance(entry, dict):
        raise pytest.UsageError(f"{where} must be a table with {', '.join(allowed)}, not {entry!r}")
    if unknown := [key for key in entry if key not in allowed]:
        raise pytest.UsageError(f"{where} has no {', '.join(map(repr, unknown))}; known are {', '.join(allowed)}")
    at_least, against = entry.get("at_least"), entry.get(SELECTOR)
    if isinstance(at_least, bool) or not isinstance(at_least, int | float) or not 0 < at_least < math.inf:
        raise pytest.UsageError(f"{where}: at_least is {at_least!r}; it must be a number over 0")
    if against is not None and not isinstance(against, str):
        raise pytest.UsageError(f"{where}: {SELECTOR} is {against!r}; it must be the name of a rival")
    return Override(model, glob, against, float(at_least))


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
