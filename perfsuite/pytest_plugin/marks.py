"""Loads the class of a marker when a test uses it, and makes its values from the marks of the test."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import Any

import pytest

from perfsuite.pytest_plugin import concerns, marker_names
from perfsuite.pytest_plugin.marker import Marker, MarkerError


@cache
def kind(name: str) -> type[Marker]:
    """The class of a marker, from its file."""
    module = import_module(f"perfsuite.pytest_plugin.markers.{name}")
    own = [one for one in vars(module).values() if isinstance(one, type) and one.__module__ == module.__name__]
    found = [one for one in own if issubclass(one, Marker)]
    if len(found) != 1:
        raise TypeError(f"{module.__file__} defines {len(found)} subclasses of Marker; it must define one")
    return found[0]


@cache
def _parameters(name: str) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(kind(name)).parameters


def help_lines() -> Iterator[str]:
    """The line of each marker in `pytest --markers`: its arguments with their defaults, and its docstring."""
    for name in marker_names():
        parameters = _parameters(name).values()
        arguments = ", ".join(
            one.name if one.default is one.empty else f"{one.name}={one.default!r}" for one in parameters
        )
        yield f"{name}({arguments}): {' '.join((inspect.getdoc(kind(name)) or '').split())}"


def parse(mark: pytest.Mark) -> Any:
    """The value of one of our marks; MarkerError if an argument is unknown, missing or bad."""
    made = kind(mark.name)
    parameters = _parameters(mark.name)
    known = ", ".join(parameters)
    if len(mark.args) > len(made.positional):
        most = (
            f"only {', '.join(made.positional)} as a positional argument"
            if made.positional
            else "no positional arguments"
        )
        raise MarkerError(f"@pytest.mark.{mark.name} takes {most} (was given {mark.args!r}); name them: {known}")
    placed = dict(zip(made.positional, mark.args, strict=False))
    if twice := placed.keys() & mark.kwargs.keys():
        raise MarkerError(f"@pytest.mark.{mark.name} got {min(twice)} twice, with its name and without")
    if unknown := [name for name in mark.kwargs if name not in parameters]:
        shown = ", ".join(map(repr, unknown))
        raise MarkerError(f"@pytest.mark.{mark.name} has no argument {shown}; known are {known}")
    given = {**placed, **mark.kwargs}
    missing = [name for name, one in parameters.items() if one.default is one.empty and name not in given]
    if missing:
        raise MarkerError(f"@pytest.mark.{mark.name} needs {', '.join(missing)}")
    try:
        return made(**given)
    except MarkerError as error:
        raise MarkerError(f"@pytest.mark.{mark.name}: {error}") from None


def parse_all(node: pytest.Item) -> None:
    """Check the marks of a collected test; MarkerError for the first of ours that is wrong or misspelt."""
    for mark in node.iter_markers():
        if mark.name in marker_names():
            parse(mark)
        elif meant := _misspelt(mark.name, node.config):
            raise MarkerError(
                f"there is no @pytest.mark.{mark.name}; did you mean {meant}? (Or register it with pytest.)"
            )


def values_of(node: pytest.Item, name: str) -> list[Any]:
    """The values of one marker on a test, the nearest first: of a parameter, the function, the class, the module.

    Of several with the same selector (perf_target: the same rival) the nearest counts.
    """
    # pytest lists the marks of a parameter behind those of the function, as if they were further away.
    marks = [mark for mark in getattr(getattr(node, "callspec", None), "marks", ()) if mark.name == name]
    marks += [mark for mark in node.iter_markers(name) if not any(mark is own for own in marks)]
    selector = kind(name).selector
    nearest: dict[Any, Any] = {}
    for value in map(parse, marks):
        nearest.setdefault(selector and getattr(value, selector), value)
    return list(nearest.values())


def on(node: pytest.Item) -> list[str]:
    """The names of our markers that a test has."""
    marked = {mark.name for mark in node.iter_markers()}
    return [name for name in marker_names() if name in marked]


def gates_on(item: pytest.Item) -> list[str]:
    """The names of a test's markers that require a measurement."""
    return [name for name in on(item) if kind(name).gates]


def is_gated(item: pytest.Item) -> bool:
    """True if the test has a marker that requires a measurement, or the fixture `perf`."""
    return "perf" in getattr(item, "fixturenames", ()) or bool(gates_on(item))


def check_markers(item: pytest.Item) -> None:
    """Check the marks of a collected test; CollectError for a wrong one."""
    try:
        parse_all(item)
    except MarkerError as error:
        raise pytest.Collector.CollectError(f"{item.nodeid}: {error}") from None


def planned_cases(items: list[pytest.Item]) -> int:
    """The number of timed cases that the tests' markers announce."""
    count = 0
    for item in filter(concerns, items):
        with suppress(MarkerError):  # the test's setup reports it
            count += len(values_of(item, "perf_target"))
    return count


def _misspelt(name: str, config: pytest.Config) -> str | None:
    """Our marker that an unregistered one resembles. A typing error must not turn a gate off."""
    meant = _nearest(name)
    if meant is None or any(re.match(rf"{re.escape(name)}\b", line) for line in config.getini("markers")):
        return None
    return meant


@cache  # called for every marker of every test, and there are few names
def _nearest(name: str) -> str | None:
    from difflib import get_close_matches

    return next(iter(get_close_matches(name, marker_names(), n=1, cutoff=0.8)), None)
