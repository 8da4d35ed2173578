"""Names of callables, for records and tables."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

NAMELESS_RIVAL = "rival"
"""The name of a rival that is a lambda."""


def name_of_callable(function: Callable[..., Any]) -> str | None:
    """ "module.function", or "module.Class" of an object that is called; None for a lambda, which has no name.

    A `functools.partial`, a compiled function or module, and a Triton launcher have the name of what they call.
    """
    if isinstance(function, functools.partial):
        return name_of_callable(function.func)
    for attribute in ("_orig_mod", "__wrapped__", "fn"):  # torch.compile of a module, a wrapper, a launcher of Triton
        inner = getattr(function, attribute, None)
        if callable(inner) and not hasattr(function, "__qualname__"):
            return name_of_callable(inner)
    module = getattr(function, "__module__", None)
    if type(function).__module__ == "torch._ops":
        return f"torch.ops.{str(function).removesuffix('.default')}"
    name = getattr(function, "__qualname__", None) or getattr(function, "__name__", None)
    owner = getattr(function, "__self__", None)
    if isinstance(owner, type) and name is not None and str(name).split(".")[0] != owner.__name__:
        name, module = f"{owner.__qualname__}.{name.rpartition('.')[2]}", owner.__module__  # autograd.Function.apply
    if name is None:
        name, module = type(function).__qualname__, type(function).__module__
    if "<lambda>" in str(name).rpartition(".")[2]:
        return None
    return f"{module}.{name}" if module and module != "builtins" else str(name)


def short_name(function: Callable[..., Any]) -> str | None:
    """The last part of `name_of_callable`; None for a lambda."""
    name = name_of_callable(function)
    if name is None:
        return None
    first, _, last = name.rpartition(".")
    # "apply" and "forward" say nothing without their class.
    return f"{first.rpartition('.')[2]}.{last}" if last in ("apply", "forward", "__call__") and first else last
