"""Finds the markers by listing the folder `markers`, and makes their values from the marks of a test.

Every suite that has the plugin loads this module, so it imports no marker before a test uses it.
"""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

    from perfsuite.pytest_plugin.marker import Marker


@cache
def names() -> tuple[str, ...]:
    """The name of every marker, in alphabetical order."""
    files = os.listdir(os.path.join(os.path.dirname(__file__), "markers"))
    return tuple(sorted(file[:-3] for file in files if file.endswith(".py") and not file.startswith("_")))


def kind(name: str) -> type[Marker]:
    """The class of a marker, from its file."""
    from importlib import import_module

    from perfsuite.pytest_plugin.marker import Marker

    module = import_module(f"perfsuite.pytest_plugin.markers.{name}")
    own = [one for one in vars(module).values() if isinstance(one, type) and one.__module__ == module.__name__]
    found = [one for one in own if issubclass(one, Marker)]
    if len(found) != 1:
        raise TypeError(f"{module.__file__} defines {len(found)} subclasses of Marker; it must define one")
    return found[0]


def help_lines() -> Iterator[str]:
    """The line of each marker in `pytest --markers`: its arguments with their defaults, and its docstring."""
    import inspect

    for name in names():
        parameters = inspect.signature(kind(name)).parameters.values()
        arguments = ", ".join(
            one.name if one.default is one.empty else f"{one.name}={one.default!r}" for one in parameters
        )
        yield f"{name}({arguments}): {' '.join((inspect.getdoc(kind(name)) or '').split())}"


def parse(mark: pytest.Mark) -> Any:
    """The value of one of our marks; MarkerError if an argument is unknown, missing or bad."""
    import inspect

    from perfsuite.pytest_plugin.marker import MarkerError

    made = kind(mark.name)
    parameters = inspect.signature(made).parameters
    known = ", ".join(parameters)
    if mark.args:
        raise MarkerError(
            f"@pytest.mark.{mark.name} takes no positional arguments (was given {mark.args!r}); name them: {known}"
        )
    if unknown := [name for name in mark.kwargs if name not in parameters]:
        given = ", ".join(map(repr, unknown))
        raise MarkerError(f"@pytest.mark.{mark.name} has no argument {given}; known are {known}")
    missing = [name for name, one in parameters.items() if one.default is one.empty and name not in mark.kwargs]
    if missing:
        raise MarkerError(f"@pytest.mark.{mark.name} needs {', '.join(missing)}")
    try:
        return made(**mark.kwargs)
    except MarkerError as error:
        raise MarkerError(f"@pytest.mark.{mark.name}: {error}") from None


def parse_all(node: pytest.Item) -> None:
    """Check every mark of a collected test; MarkerError for the first of ours that is wrong or misspelt."""
    for mark in node.iter_markers():
        if mark.name in names():
            parse(mark)
        elif meant := _misspelt(mark.name, node.config):
            from perfsuite.pytest_plugin.marker import MarkerError

            raise MarkerError(
                f"there is no @pytest.mark.{mark.name}; did you mean {meant}? (Or register it with pytest.)"
            )


def values_of(node: pytest.Item, name: str) -> list[Any]:
    """The values of one marker on a test, the nearest first: of a parameter, the function, the class, the module.

    Several marks differ by the marker's selector (perf_target: by rival). Of those that do not, the nearest counts.
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
    return [name for name in names() if name in marked]


def _misspelt(name: str, config: pytest.Config) -> str | None:
    """Our marker that an unregistered one resembles. A typing error must not make a gate that asks for nothing."""
    import re

    meant = _nearest(name)
    if meant is None or any(re.match(rf"{re.escape(name)}\b", line) for line in config.getini("markers")):
        return None
    return meant


@cache  # called for every marker of every test, and there are few names
def _nearest(name: str) -> str | None:
    from difflib import get_close_matches

    return next(iter(get_close_matches(name, names(), n=1, cutoff=0.8)), None)
