"""A function named on the command line as `module:function`."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from importlib import import_module
from typing import Any

from perfsuite.cli.errors import UsageError


def load_callable(text: str) -> Callable[..., Any]:
    """The function that `module:function` names, looked for in the current folder too, as `python -m` would."""
    module_name, separator, path = text.partition(":")
    if not (separator and module_name and path):
        raise UsageError(f"{text!r} names no function; write module:function, such as torch.nn.functional:gelu")
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        found: Any = import_module(module_name)
    except ImportError as error:
        raise UsageError(f"{text}: module {module_name} cannot be imported: {error}") from None
    except (Exception, SystemExit) as error:  # whatever the user's module does while it is imported
        last = traceback.extract_tb(error.__traceback__)[-1]
        why = f"{type(error).__name__}: {error} ({last.filename}, line {last.lineno})"
        raise UsageError(f"{text}: module {module_name} cannot be imported: {why}") from None
    for name in path.split("."):
        if not hasattr(found, name):
            raise UsageError(f"{text}: {module_name} has no {path}")
        found = getattr(found, name)
    if not callable(found):
        raise UsageError(f"{text} is of type {type(found).__name__}; it must be a function")
    return found
