"""Compares what the guards themselves call, by a function that calls nothing under a name.

The guards look up `all`, `map` or `len` as any code does. Whoever replaces these, or a guard's own method, would be the
one who answers. So this comes first, and once more behind a case: it puts back what was replaced, and names it. All
that its function calls lies in the cells of a closure, where no module and no class holds it.
"""

from __future__ import annotations

import builtins
import operator
import os
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

from perfsuite.guards.judging_names import MEANT_TO_BE_REPLACED
from perfsuite.guards.unchanged import WHOLE_LOOKS, Layout, Thing, of_function, of_names, of_table, seal

OURS = ("perfsuite.guards.", "perfsuite.case.", "perfsuite.outcome")
CALLED = ("builtins", "contextlib", "dataclasses", "functools", "itertools", "operator", "sys", "time", "types")
"""Modules of which the guards call something on their way to all other names."""
Look = Callable[[], list[str]]


def _looker() -> Callable[[], Look]:
    last: list[tuple[Callable[[], bool], Look]] = []

    def looker() -> Look:
        """A function that puts back what stands for something else than now, and returns the full names of it.

        The same function as before, as long as all is as it was then.
        """
        if not (last and last[0][0]()):
            last[:] = [_made()]
        return last[0][1]

    return looker


looker = _looker()


def _made() -> tuple[Callable[[], bool], Look]:
    """(a function that is true as long as the other need not be made anew, the function that looks)."""
    every, each, pairs, same, size, kind = all, map, zip, operator.is_, len, type
    put, take, called, has, table, code_of = setattr, delattr, callable, hasattr, dict, operator.attrgetter("__code__")
    places = tuple(_places())
    functions = tuple({id(one): one for *_, values, _ in places for one in _functions(values)}.values())
    codes = tuple(one.__code__ for one in functions)
    defaults = tuple((one, one.__defaults__, tuple((one.__kwdefaults__ or {}).items())) for one in functions)
    draw, whole_looks = os.urandom, WHOLE_LOOKS
    hidden = frozenset(vars(builtins)) | {"__getattr__"}

    # Whoever captures output binds names of sys again and again, so it is looked at each time.
    rebound = tuple(place for place in places if place[1] is sys)

    def things(layout: Layout) -> Iterator[Thing]:
        yield from (of_names(owner, there, layout) for _, owner, _, there, *_ in places if owner is not sys)
        yield from (of_function(one, layout) for one in functions)

    sealed, of_loaded = seal(things), seal(lambda layout: [of_table(sys.modules, layout)])
    unchanged = None if sealed is None else sealed.same()
    none_loaded = None if of_loaded is None else of_loaded.same()

    def lasts() -> bool:
        if unchanged is None or none_loaded is None or not (unchanged() and none_loaded()):
            return False
        return every(each(same, each(rebound[0][3].get, rebound[0][4]), rebound[0][5]))

    def look() -> list[str]:
        found: list[str] = []
        whole = unchanged is None or draw(1)[0] < whole_looks or not unchanged()
        for name, owner, before, there, keys, values, closed in places if whole else rebound:
            if kind(owner) is not before:
                put(owner, "__class__", before)
                found += [f"{name}.__class__"]
            if not every(each(same, each(there.get, keys), values)):
                for key, value in pairs(keys, values):
                    if there.get(key) is not value:
                        put(owner, key, value)
                        found += [f"{name}.{key}"]
            if closed and size(there) != size(keys):
                for key in [*there]:
                    if key in keys:
                        continue
                    a_hook = before is not types_of_modules and (called(there[key]) or has(kind(there[key]), "__get__"))
                    if a_hook or (before is types_of_modules and key in hidden):
                        take(owner, key)
                        found += [f"{name}.{key}"]
        if not whole:
            return found
        if not every(each(same, each(code_of, functions), codes)):
            for function, code in pairs(functions, codes):
                if function.__code__ is not code:
                    function.__code__ = code
                    found += [f"{function.__module__}.{function.__qualname__}.__code__"]
        for function, positional, keywords in defaults:
            if function.__defaults__ is not positional:
                function.__defaults__ = positional
                found += [f"{function.__module__}.{function.__qualname__}.__defaults__"]
            for key, value in keywords:
                now = function.__kwdefaults__
                if now is None or now.get(key) is not value:
                    function.__kwdefaults__ = table(keywords)
                    found += [f"{function.__module__}.{function.__qualname__}.__kwdefaults__"]
        return found

    types_of_modules = types.ModuleType
    return lasts, look


def _places() -> Iterator[tuple[str, Any, type, Any, tuple[str, ...], tuple[Any, ...], bool]]:
    """(full name, module or class, its type, its names, those that count, what stands under them, True if all do)."""
    for name, module in list(sys.modules.items()):
        ours = name.startswith(OURS)
        if not isinstance(module, types.ModuleType) or not (ours or name in CALLED):
            continue
        owners: list[tuple[str, Any]] = [(name, module)]
        if ours:
            classes = [one for one in vars(module).values() if isinstance(one, type) and one.__module__ == name]
            owners += [(f"{name}.{cls.__name__}", cls) for cls in classes]
        for full, owner in owners:
            there = vars(owner)
            keys = tuple(key for key, value in there.items() if ours or _is_called(key, value))
            yield full, owner, type(owner), there, keys, tuple(there[key] for key in keys), ours


def _is_called(name: str, value: Any) -> bool:
    return callable(value) and not name.endswith(MEANT_TO_BE_REPLACED)


def _functions(values: tuple[Any, ...]) -> Iterator[types.FunctionType]:
    for value in values:
        inner = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
        if isinstance(inner, types.FunctionType):
            yield inner
