"""A function or a class named on the command line, as `module:name` or `path.py:name`."""

from __future__ import annotations

import importlib.util
import os
import sys
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from perfsuite.outcome import UserError


def load_callable(text: str) -> Callable[..., Any]:
    """The function that `module:function` or `path.py:function` names; modules may lie in the current folder."""
    place, separator, path = text.partition(":")
    if not (separator and place and path):
        raise UserError(f"{text!r} names no function; write module:function, such as torch.nn.functional:gelu")
    found: Any = load_module(place, text)
    for name in path.split("."):
        if not hasattr(found, name):
            raise UserError(f"{text}: {place} has no {path}")
        found = getattr(found, name)
    if not callable(found):
        raise UserError(f"{text} is of type {type(found).__name__}; it must be a function")
    return found


def load_module(place: str, text: str) -> ModuleType:
    """The module of that name, or in the file of that path; UserError begins with `text`, what the user wrote."""
    is_file = place.endswith(".py")
    file = Path(place).resolve()
    if is_file and not file.is_file():
        raise UserError(f"{text}: there is no file {place}")
    folder = str(file.parent) if is_file else os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    what = place if is_file else f"module {place}"
    try:
        return _load_file(file) if is_file else import_module(place)
    except ImportError as error:
        raise UserError(f"{text}: {what} cannot be imported: {error}") from None
    except (Exception, SystemExit) as error:  # the user's module may raise anything while it is imported
        last = traceback.extract_tb(error.__traceback__)[-1]
        why = f"{type(error).__name__}: {error} ({last.filename}, line {last.lineno})"
        raise UserError(f"{text}: {what} cannot be imported: {why}") from None


def _load_file(file: Path) -> ModuleType:
    """The module of a file, imported once, under the file's name: records name its functions by it."""
    name = file.stem
    known = sys.modules.get(name)
    if known is not None:
        if getattr(known, "__file__", None) and Path(str(known.__file__)).resolve() == file:
            return known
        raise ImportError(f"another module named {name} is imported already ({getattr(known, '__file__', 'built in')})")
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None  # every name that ends with .py has one
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up there
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
