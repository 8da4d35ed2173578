"""Finds functions, methods, classes and constants that a candidate replaced, by their identity at a case's start.

All names of builtins, of the parts of Python and torch that the judgement rests on, and of perfsuite are compared with
what stood there. A name that reaches a function's code or defaults through the function itself is compared as well.
This module calls builtins by name, so `perfsuite.guards.ground` looks at those first.
"""

from __future__ import annotations

import builtins
import operator
import os
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from perfsuite.guards import unchanged
from perfsuite.guards.judging_names import OWN, judging_modules, judging_owners, lasting
from perfsuite.guards.unchanged import Layout, Seal, Thing, of_function, of_names, of_table, seal

_FUNCTION = types.FunctionType
_is = operator.is_
_drawn = os.urandom
_code = operator.attrgetter("__code__")
_defaults = operator.attrgetter("__defaults__")


@dataclass(frozen=True)
class Replaced:
    """A name that stands for something else than at the start."""

    name: str
    put_back: Callable[[], None]


class _Names(NamedTuple):
    """The names of one module or class, and what stood under them. Nobody can change this object."""

    name: str
    owner: Any
    kind: type
    there: Mapping[str, Any]
    keys: tuple[str, ...]
    values: tuple[Any, ...]
    size: int
    closed: bool
    """True if new names are looked at as well."""

    @staticmethod
    def of(
        name: str, owner: Any, there: Mapping[str, Any], counts: Callable[[str, Any], bool], *, closed: bool = True
    ) -> _Names:
        """there: the names of the owner. counts: True for a name and a value that are compared."""
        pairs = [(key, value) for key, value in there.items() if counts(key, value)]
        keys, values = tuple(key for key, _ in pairs), tuple(value for _, value in pairs)
        return _Names(name, owner, type(owner), there, keys, values, len(there), closed)

    @staticmethod
    def called_by(function: Any) -> _Names:
        """The functions and classes that a function names."""
        names = frozenset(function.__code__.co_names)

        def counts(key: str, value: Any) -> bool:
            return key in names and callable(value)

        return _Names.of(str(function.__module__), None, function.__globals__, counts, closed=False)

    def replaced(self) -> Iterator[Replaced]:
        there, owner, kind = self.there, self.owner, self.kind
        if type(owner) is not kind:
            yield Replaced(f"{self.name}.__class__", lambda: setattr(owner, "__class__", kind))
        whole = len(self.keys) == self.size == len(there)
        standing = there.values() if whole else map(there.get, self.keys)
        if not all(map(_is, standing, self.values)):
            for key, value in zip(self.keys, self.values, strict=True):
                if there.get(key) is not value and not _wrapped_by_the_compiler(value, there.get(key)):
                    yield Replaced(f"{self.name}.{key}", self._putting_back(key, value))
        if self.closed and len(there) != self.size:
            for key in there.keys() - set(self.keys):
                if self._shadows(key, there[key]):
                    yield Replaced(f"{self.name}.{key}", self._taking_away(key))

    def _shadows(self, key: str, value: Any) -> bool:
        """True if a new name changes what others mean: a name of builtins in a module, a hook in a class."""
        if isinstance(self.owner, type):
            return callable(value) or hasattr(type(value), "__get__")
        return self.name.startswith(OWN) and (key in vars(builtins) or key == "__getattr__")

    def _putting_back(self, key: str, value: Any) -> Callable[[], None]:
        there = self.there
        if isinstance(there, dict):
            return lambda: there.__setitem__(key, value)
        return lambda: setattr(self.owner, key, value)

    def _taking_away(self, key: str) -> Callable[[], None]:
        return lambda: delattr(self.owner, key)


Content = tuple[Any, ...]
"""The items of a table or of a list, which nobody can change."""


class Standing(NamedTuple):
    """Names that the judgement rests on, and what stands under them at one moment. Nobody can change this object."""

    names: tuple[_Names, ...]
    modules: tuple[tuple[str, types.ModuleType], ...]
    functions: tuple[types.FunctionType, ...]
    codes: tuple[Any, ...]
    defaults: tuple[Any, ...]
    keywords: tuple[Content, ...]
    containers: tuple[tuple[str, Any, Content], ...]
    loaded: dict[str, types.ModuleType]
    """The table of modules."""
    seal: Seal | None
    """Of the names, the functions, the table of modules and the containers that are tables, by their numbers in this
    order; None on some Pythons."""

    @staticmethod
    def of(
        names: Iterable[_Names],
        functions: Iterable[Any] = (),
        modules: Mapping[str, types.ModuleType] | None = None,
        containers: Iterable[tuple[str, Any, Content]] = (),
        *,
        sealed: bool = False,
    ) -> Standing:
        """All that stands under these names now, with the functions among them."""
        names, containers = tuple(names), tuple(containers)
        found = {id(one): one for each in names for one in map(plain, each.values) if type(one) is _FUNCTION}
        found |= {id(one): one for one in functions}
        known = tuple(found.values())

        def things(layout: Layout) -> Iterator[Thing]:
            yield from (of_names(one.owner, one.there, layout) for one in names)
            yield from (of_function(one, layout) for one in known)
            yield of_table(sys.modules, layout)
            yield from (of_table(one, layout) for _, one, _ in containers if isinstance(one, dict))

        made = Standing(
            names,
            tuple((modules or {}).items()),
            known,
            tuple(map(_code, known)),
            tuple(map(_defaults, known)),
            tuple(_content(one.__kwdefaults__ or {}) for one in known),
            # Tables first, which the seal covers.
            tuple(sorted(containers, key=lambda one: not isinstance(one[1], dict))),
            sys.modules,
            seal(things) if sealed else None,
        )
        if sealed:
            made.replaced()  # the first look compares all: names may have changed while they were noted
        return made

    @staticmethod
    def of_modules() -> Standing:
        """All names of builtins, of the parts of Python and torch that the judgement rests on, and of perfsuite.

        The same object as before, as long as all is as it was then.
        """
        if _before and not _before[0].replaced() and not _before[0].outgrown():
            return _before[0]
        modules = judging_modules()
        filled = tuple(one for module in modules.values() if (one := vars(module).get("default_generators")))
        known = bool(_before) and dict(_before[0].modules).keys() == modules.keys() and _filled == [filled]
        if known and not _before[0].replaced():
            _before[0].take_for_whole()
        else:
            _filled[:] = [filled]
            names = (_Names.of(name, owner, vars(owner), counts) for name, owner, counts in judging_owners(modules))
            _before[:] = [Standing.of(names, modules=modules, containers=_containers(modules), sealed=True)]
        return _before[0]

    @staticmethod
    def of_case(*objects: Any) -> Standing:
        """The names of one case: of its problem's classes, of its rival and of what that calls."""
        functions = [one for one in map(plain, objects) if type(one) is _FUNCTION]
        classes = {id(cls): cls for one in objects if one not in functions for cls in _foreign(one)}
        names = [_Names.of(f"{cls.__module__}.{cls.__qualname__}", cls, vars(cls), lasting) for cls in classes.values()]
        names += [_Names.called_by(one) for one in functions]
        return Standing.of(names, functions, containers=(found for one in objects for found in _hooks_of(one)))

    def outgrown(self) -> bool:
        """True if there may be more to compare than these names: modules since loaded, or generators filled in."""
        if self.seal is None:
            return True
        last = len(self.names) + len(self.functions)
        names = [self.names[one] for one in self.seal.renewed if one < len(self.names)]
        loads = any(one.name.startswith(OWN) or "default_generators" in one.there for one in names)
        return loads or last in self.seal.renewed

    def take_for_whole(self) -> None:
        """Note that there is no more to compare than these names."""
        if self.seal is not None:
            self.seal.renewed.clear()

    def replaced(self) -> list[Replaced]:
        """The names that stand for something else now."""
        if self.seal is None:
            return self._among(self.names, None, self.modules) + self._others(self.containers)
        now = self.seal.read()
        differing = self.seal.differing(now)
        if _drawn(1)[0] < unchanged.WHOLE_LOOKS:
            found = self._among(self.names, None, self.modules) + self._others(self.containers)
        else:
            last = len(self.names) + len(self.functions)
            names = [self.names[one] for one in differing if one < len(self.names)]
            functions = [one - len(self.names) for one in differing if len(self.names) <= one < last]
            found = self._among(names, functions, self.modules if last in differing else ())
            others = (
                one
                for place, one in enumerate(self.containers, last + 1)
                if place in differing or not isinstance(one[1], dict)
            )
            found += self._others(others)
        if differing and not found:
            self.seal.renew(now, differing)
        return found

    def _among(
        self,
        names: Iterable[_Names],
        places: list[int] | None,
        modules: Iterable[tuple[str, types.ModuleType]],
    ) -> list[Replaced]:
        """The replaced ones among these. places: of the functions; None for all."""
        found = [one for each in names for one in each.replaced()]
        for name, module in modules:
            if self.loaded.get(name) is not module:
                found.append(Replaced(f"sys.modules[{name!r}]", _setting(self.loaded, name, module)))
        for what, before in (("__code__", self.codes), ("__defaults__", self.defaults)):
            for place in self._exchanged(what, before) if places is None else places:
                function, value = self.functions[place], before[place]
                if getattr(function, what) is not value:
                    found.append(Replaced(f"{_full(function)}.{what}", _attribute(function, what, value)))
        for place in range(len(self.functions)) if places is None else places:
            function, keywords = self.functions[place], self.keywords[place]
            now = function.__kwdefaults__
            if (now or keywords) and not _same(now or {}, keywords):
                put_back = _attribute(function, "__kwdefaults__", dict(keywords) or None)
                found.append(Replaced(f"{_full(function)}.__kwdefaults__", put_back))
        return found

    def _exchanged(self, what: str, before: Content) -> list[int]:
        """The places of the functions of which this attribute is another."""
        now = tuple(map(operator.attrgetter(what), self.functions))
        if all(map(_is, now, before)):
            return []
        return [place for place, value in enumerate(before) if now[place] is not value]

    def _others(self, containers: Iterable[tuple[str, Any, Content]]) -> list[Replaced]:
        """Those of these containers that hold something else, and the table of modules if it is another."""
        found = [
            Replaced(name, _refill(container, content))
            for name, container, content in containers
            if not _same(container, content)
        ]
        other_table = bool(self.modules) and sys.modules is not self.loaded
        return [*found, Replaced("sys.modules", _attribute(sys, "modules", self.loaded))] if other_table else found


_before: list[Standing] = []
"""The names at the start of the last case."""
_filled: list[Content] = []
"""The tuples of generators then, which torch fills in when CUDA starts."""


def plain(value: Any) -> Any:
    """The function under a property, a class method or a static method."""
    if isinstance(value, property):
        return value.fget
    return value.__func__ if isinstance(value, classmethod | staticmethod) else value


def _wrapped_by_the_compiler(old: Any, new: Any) -> bool:
    """True if torch's compiler stands before a function of torch, as it does from its first use on."""
    if not (type(old) is type(new) is _FUNCTION) or not new.__closure__:
        return False
    home = sys.modules.get(str(new.__globals__.get("__name__")))
    ours = home is not None and vars(home) is new.__globals__ and new.__code__.co_filename == home.__file__
    named = home is not None and home.__name__.startswith(("torch._dynamo.", "torch._compile"))
    return ours and named and any(cell.cell_contents is old for cell in new.__closure__)


def _foreign(value: Any) -> Iterator[type]:
    """The classes of a value's methods, but for perfsuite's and Python's; of a module, those of its parts as well."""
    parts = value.modules() if callable(getattr(type(value), "named_modules", None)) else [value]
    for part in parts:
        for cls in (part if isinstance(part, type) else type(part)).__mro__:
            if cls.__module__.partition(".")[0] not in _KNOWN and cls.__qualname__ != "Module":
                yield cls


_KNOWN = ("perfsuite", "builtins", "abc", "typing", "functools", "types")


def _hooks_of(value: Any) -> Iterator[tuple[str, Any, Any]]:
    """The hooks of a module and of its parts."""
    if callable(getattr(type(value), "named_modules", None)):
        for name, part in value.named_modules():
            for key, hooks in vars(part).items():
                if key.endswith("hooks") and isinstance(hooks, dict):
                    yield f"the rival's {'.'.join(filter(None, (name, key)))}", hooks, _content(hooks)


def _containers(modules: Mapping[str, types.ModuleType]) -> Iterator[tuple[str, Any, Any]]:
    """The tables of perfsuite's modules that are never changed: named in capitals, without a leading underscore."""
    for name, module in modules.items():
        if name.startswith(OWN):
            for key, value in vars(module).items():
                if key.isupper() and not key.startswith("_") and type(value) in (dict, list, set):
                    yield f"{name}.{key}", value, _content(value)


def _content(container: Any) -> Content:
    """The items of a table; the elements of a list or of a set."""
    return tuple(container.items()) if isinstance(container, dict) else tuple(container)


def _same(container: Any, content: Content) -> bool:
    if len(container) != len(content):
        return False
    if isinstance(container, set):
        return container == set(content)
    if isinstance(container, dict):
        return all(key in container and container[key] is value for key, value in content)
    return all(map(_is, container, content))


def _refill(container: Any, content: Content) -> Callable[[], None]:
    def put_back() -> None:
        container.clear()
        container.extend(content) if isinstance(container, list) else container.update(content)

    return put_back


def _setting(there: dict[str, Any], key: str, value: Any) -> Callable[[], None]:
    return lambda: there.__setitem__(key, value)


def _attribute(owner: Any, name: str, value: Any) -> Callable[[], None]:
    return lambda: setattr(owner, name, value)


def _full(function: Any) -> str:
    return f"{function.__module__}.{function.__qualname__}"
