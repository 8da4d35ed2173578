"""Finds functions that were replaced before the case began, by the file that their code comes from.

`perfsuite.guards.identity` compares all that is replaced later. Code can lie about its file, so this sees less.
"""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from perfsuite.guards.identity import plain


def strangers(known: Collection[str] = (), ours: Iterable[str] | None = None) -> list[str]:
    """The full names of functions from elsewhere, among those that clocks, oracle and rivals rest on.

    known: modules that are left out, since their names are compared in another way. ours: what `late(known)` gives.
    """
    import random  # noqa: F401  (loaded for _present)
    import statistics  # noqa: F401
    import time  # noqa: F401

    import torch

    torch_home = os.path.dirname(str(torch.__file__))
    gone = [name for name in _BUILT_INS if name.partition(":")[0] not in known and not _is_built_in(name)]
    for name in [name for name in _IN_PYTHON if name.partition(":")[0] not in known]:
        home = torch_home if name.startswith("torch") else _PYTHON
        if not _comes_from(_present(name), (home,)):
            gone.append(name)
    gone = [name.replace(":", ".") for name in gone]
    for name in late(known) if ours is None else ours:
        if (module := sys.modules.get(name)) is not None:
            places = [place for place in _places(name, module) if not place.as_it_was()]
            gone += [place.name for place in places if not place.comes_from((_PACKAGE, _PYTHON))]
    return gone


def late(known: Collection[str]) -> list[str]:
    """The loaded modules of perfsuite that measure, judge or decide, but for the known ones."""
    return [name for name in list(sys.modules) if name.startswith(_OURS) and name not in known]


class _Place:
    """The name under which a function of perfsuite stands, and the function when it was last found right.

    This is fast: there are some six hundred such places, and each case looks at them three times.
    """

    __slots__ = ("_code", "_function", "_key", "_there", "_value", "name")

    def __init__(self, name: str, there: Mapping[str, Any], key: str) -> None:
        self.name, self._there, self._key = name, there, key
        self._value: Any = None
        self._function: Any = None
        self._code: types.CodeType | None = None

    def as_it_was(self) -> bool:
        """True if the same function with the same code stands there: code can be replaced within a function."""
        value = self._value
        return value is not None and self._there.get(self._key) is value and self._function.__code__ is self._code

    def comes_from(self, homes: tuple[str, ...]) -> bool:
        """True if a function from a file in one of the folders stands there now; it is then the right one."""
        value = self._there.get(self._key)
        function = plain(value)
        if isinstance(function, _BUILT_IN) or not _comes_from(function, homes):
            return False
        self._value, self._function, self._code = value, function, function.__code__
        return True


_PACKAGE, _PYTHON = os.path.dirname(os.path.dirname(__file__)), os.path.dirname(os.__file__)
# Functions of Python and torch that the judgement rests on, as module:name.
_BUILT_INS = (
    *("time:perf_counter", "time:perf_counter_ns", "time:monotonic"),
    *("torch:mm", "torch:bmm", "torch:equal", "torch:stack", "torch:cat"),
    "torch.nn.functional:scaled_dot_product_attention",
)
_IN_PYTHON = (
    *("statistics:median", "random:SystemRandom.random", "torch.cuda:synchronize"),
    *("torch.cuda:Event.record", "torch.cuda:Event.elapsed_time", "torch.cuda:Event.synchronize"),
    *("torch.cuda:CUDAGraph.replay", "torch.cuda:CUDAGraph.capture_begin", "torch.cuda:CUDAGraph.capture_end"),
)
# Modules whose functions and methods measure, judge and decide.
_OURS = tuple(
    f"perfsuite.{name}" for name in ("oracle.", "guards.", "clock.", "verdict.", "problems.", "case.", "outcome")
)
# Name -> the module of that name, and the places of its functions at first sight. A function that is added later
# replaces none: torch.compile adds some to the modules that it traces.
_PLACES: dict[str, tuple[types.ModuleType, list[_Place]]] = {}


def _places(name: str, module: types.ModuleType) -> list[_Place]:
    """The places of a module's functions, and of the methods of its classes, at first sight.

    Methods with names like __this__ are left out: dataclasses generate theirs.
    """
    known, places = _PLACES.get(name, (None, []))
    if known is not module:
        there = vars(module)
        places = [_Place(f"{name}.{key}", there, key) for key, value in there.items() if _is_function(value)]
        for cls in [value for value in there.values() if isinstance(value, type) and value.__module__ == name]:
            names = [key for key, value in vars(cls).items() if _is_function(value) and not key.startswith("__")]
            places += [_Place(f"{name}.{cls.__name__}.{key}", vars(cls), key) for key in names]
        _PLACES[name] = module, places
    return places


def _is_function(value: Any) -> bool:
    return isinstance(plain(value), types.FunctionType)


def _present(name: str) -> Any:
    """The function that stands under a name of _BUILT_INS or _IN_PYTHON now.

    pkgutil.resolve_name does the same, but a candidate could replace its code unseen; this module is itself guarded.
    """
    module, _, path = name.partition(":")
    value: Any = sys.modules.get(module)
    for part in path.split("."):
        value = getattr(value, part, None)
    return value


def _is_built_in(name: str) -> bool:
    """True if the built-in function of that name stands there; its own name cannot be changed."""
    value = _present(name)
    return _comes_from(value, ()) and value.__name__ == name.rpartition(":")[2]


def _comes_from(value: Any, homes: tuple[str, ...]) -> bool:
    """True if a function is built in, or its code is from a file in one of the folders."""
    code = getattr(value, "__code__", None)
    if code is None:
        return isinstance(value, _BUILT_IN)
    return str(code.co_filename).startswith(homes)


_BUILT_IN = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)
