"""Finds the families in their folder; adding one takes only a file."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from functools import lru_cache
from importlib import import_module
from types import ModuleType

from perfsuite.problems.base import Problem

FAMILIES = "perfsuite.problems.families"


@lru_cache
def families() -> dict[str, type[Problem]]:
    """The class of each built-in family, by the family's name."""
    return {cls.family: cls for name in _files(FAMILIES) for cls in _defined_in(import_module(f"{FAMILIES}.{name}"))}


def family_class(name: str) -> type[Problem] | None:
    """The built-in family's class of that name, from the file named after it: RMSNorm from rmsnorm.py."""
    for file in _files(FAMILIES):
        if file.replace("_", "") == name.lower():
            return next((cls for cls in _defined_in(import_module(f"{FAMILIES}.{file}")) if cls.__name__ == name), None)
    return None


@lru_cache
def _files(package: str) -> tuple[str, ...]:
    return tuple(sorted(found.name for found in pkgutil.iter_modules(import_module(package).__path__)))


def _defined_in(module: ModuleType) -> Iterator[type[Problem]]:
    for value in vars(module).values():
        if isinstance(value, type) and issubclass(value, Problem) and value.__module__ == module.__name__:
            yield value
