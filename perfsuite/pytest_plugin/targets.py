"""perf_targets.toml overrides a marker's numbers per GPU model, by a glob over test ids.

    ["NVIDIA H200"]
    "tests/perf/test_gemm.py::test_gemm[512*]" = { perf_target = { at_least = 0.92 } }

    [portable]
    "tests/perf/test_attention.py::*" = { perf_target = [
        { against = "sdpa", at_least = 0.05 },
    ] }

In a glob `*` stands for any run of characters and `?` for one; brackets stand for themselves, since test ids hold them.
If several globs fit, the last in the file counts.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from perfsuite.pytest_plugin import marker_names, marks
from perfsuite.pytest_plugin.marker import Marker, MarkerError
from perfsuite.pytest_plugin.options import PORTABLE, bad_option

if TYPE_CHECKING:
    from perfsuite.pytest_plugin.run import Run

Marked = TypeVar("Marked", bound=Marker)


def fits(glob: str, text: str) -> bool:
    """True if the glob is the text: `*` for any run of characters, `?` for one.

    Each part between two stars is taken at its first place. So the time grows with the product of both lengths; a
    regular expression may try every combination of places.
    """
    first, *rest = glob.split("*")
    if not rest:
        return len(text) == len(glob) and _at(text, glob, 0)
    last = rest.pop()
    if len(text) < len(first) + len(last) or not _at(text, first, 0) or not _at(text, last, len(text) - len(last)):
        return False
    place, end = len(first), len(text) - len(last)
    for part in rest:
        found = next((at for at in range(place, end - len(part) + 1) if _at(text, part, at)), None)
        if found is None:
            return False
        place = found + len(part)
    return place <= end


def _at(text: str, part: str, place: int) -> bool:
    """True if `part`, in which `?` is any character, stands at that place of the text."""
    return all(one in ("?", text[place + index]) for index, one in enumerate(part))


@dataclass(frozen=True)
class Override:
    """One number of a marker, for the tests that a glob names, on one model of card."""

    model: str
    glob: str
    marker: str
    selected: str | None
    """The selector's value for which the override is meant (perf_target: the rival's name); None: for any."""
    number: str
    value: Any

    def fits(self, nodeid: str) -> bool:
        """True if the glob names this test."""
        return fits(self.glob, nodeid)

    def concerns(self, item: pytest.Item) -> bool:
        """True if this test has the marker whose number is overridden."""
        try:
            return any(self.selected in (None, value.selected()) for value in marks.values_of(item, self.marker))
        except MarkerError:
            return True  # the test's setup reports it

    def __str__(self) -> str:
        return f"{self.marker}({marks.kind(self.marker).selector}={self.selected!r})" if self.selected else self.marker


@dataclass(frozen=True)
class Targets:
    """All overrides of a file."""

    overrides: tuple[Override, ...]
    path: Path

    def apply(self, marker: str, value: Marked, *, nodeid: str, model: str) -> Marked:
        """A marker's value for a test on a model of card ("portable": the CPU backend)."""
        for one in self.overrides:
            if (one.marker, one.model) == (marker, model) and one.fits(nodeid):
                meant = one.selected in (None, value.selected())
                value = replace(value, **{one.number: one.value}) if meant else value  # type: ignore[type-var]
        return value

    def check_use(self, run: Run, items: Sequence[pytest.Item]) -> None:
        """Complain about overrides that change nothing, if the run collects every test of the suite."""
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
    """Read and check a file; UsageError names the fault and what is allowed."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise bad_option(f"{path}: not readable as TOML: {error}") from None
    overrides: list[Override] = []
    for model, tests in document.items():
        if not isinstance(tests, dict):
            raise bad_option(f"{path}: {model!r} must be a table of a GPU model (or [{PORTABLE}]), not {tests!r}")
        for glob, markers in tests.items():
            where = f"{path}: [{model!r}] {glob!r}"
            if not isinstance(markers, dict) or not markers:
                raise bad_option(f"{where} must be a table of markers, not {markers!r}")
            for marker, entries in markers.items():
                if marker not in marker_names() or not marks.kind(marker).overridable:
                    allowed = ", ".join(name for name in marker_names() if marks.kind(name).overridable)
                    raise bad_option(f"{where}: marker {marker!r} cannot be overridden; allowed: {allowed}")
                listed = entries if isinstance(entries, list) else [entries]
                for entry in listed:
                    overrides += _override(model, glob, entry, marker, f"{where}: {marker}")
    return Targets(tuple(overrides), path)


def _override(model: str, glob: str, entry: Any, marker: str, where: str) -> Iterator[Override]:
    kind = marks.kind(marker)
    allowed = (*kind.overridable, *([kind.selector] if kind.selector else []))
    if not isinstance(entry, dict):
        raise bad_option(f"{where} must be a table with {', '.join(allowed)}, not {entry!r}")
    if unknown := [key for key in entry if key not in allowed]:
        raise bad_option(f"{where} has no {', '.join(map(repr, unknown))}; known are {', '.join(allowed)}")
    selected = entry.get(kind.selector)
    if selected is not None and not isinstance(selected, str):
        raise bad_option(f"{where}: {kind.selector} is {selected!r}; it must be a name")
    for number in kind.overridable:
        value = entry.get(number)
        try:
            kind(**kind.example, **{number: value})
        except MarkerError as error:
            raise bad_option(f"{where}: {error}") from None
        yield Override(model, glob, marker, selected, number, value)


def _whole_tree(config: pytest.Config) -> bool:
    narrowed = any(
        config.getoption(name, None) for name in ("ignore", "ignore_glob", "deselect", "lf", "stepwise", "last_failed")
    )
    places = {Path(place).resolve() for place in config.args}
    whole = {config.rootpath.resolve()}, {(config.rootpath / place).resolve() for place in config.getini("testpaths")}
    return not narrowed and places in whole
