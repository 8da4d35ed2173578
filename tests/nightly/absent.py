"""A plugin of pytest under which the tests of this tree can be imported beside an older `perfsuite`.

A name that the older tree lacks stands for itself until a test uses it; then that test fails with Absent.
"""

from __future__ import annotations

import builtins
import importlib
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

PACKAGE = "perfsuite"


class Absent(BaseException):
    """A test uses a name that the older tree lacks."""


class Name:
    """A name that the older tree lacks."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Name:
        if name.startswith("__"):
            raise AttributeError(name)
        return Name(f"{self._name}.{name}")

    def __call__(self, *_: object, **__: object) -> None:
        raise Absent(f"{self._name} is not there yet")

    def __iter__(self) -> Any:
        return iter(())


class Modules(MetaPathFinder, Loader):
    """Finds, after all others, any module of the package, and makes it empty."""

    def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:
        return ModuleSpec(name, self, is_package=True) if name.partition(".")[0] == PACKAGE else None

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        return None


def importing(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
    """`__import__` that puts Names in place of what a module lacks, for importers outside the package."""
    importer = str((globals or {}).get("__name__", "")).partition(".")[0]
    if fromlist and not level and name.partition(".")[0] == PACKAGE != importer:
        module = importlib.import_module(name)
        for one in fromlist:
            if not hasattr(module, one) and not _submodule(f"{name}.{one}"):
                setattr(module, one, Name(f"{name}.{one}"))
    return _really(name, globals, locals, fromlist, level)


def _submodule(name: str) -> bool:
    """True if the older tree has such a module."""
    try:
        return not isinstance(importlib.import_module(name).__loader__, Modules)
    except ModuleNotFoundError:  # its parent is no package
        return False


_really = builtins.__import__
sys.meta_path.append(Modules())
builtins.__import__ = importing
