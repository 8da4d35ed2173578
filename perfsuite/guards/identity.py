"""Finds functions, methods, classes and constants that a candidate replaced, by their identity at a case's start.

All names of builtins, of the parts of Python and torch that the judgement rests on, and of perfsuite are compared with
what stood there. A name that reaches a function's code or defaults through the function itself is compared as well.
"""

from __future__ import annotations

import builtins
import itertools
import operator
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

PYTHON = (
    "builtins",
    "math",
    "time",
    "statistics",
    "random",
    "functools",
    "operator",
    "itertools",
    "dataclasses",
    "json",
)
LIBRARIES = (
    *("torch", "torch.nn.functional", "torch.linalg", "torch.cuda", "torch.cuda.graphs", "torch.cuda.streams"),
    *("torch.backends.cuda", "torch.backends.cudnn", "torch.autograd", "torch.autograd.grad_mode", "torch.random"),
    *("torch._tensor", "torch._ops", "torch.overrides", "torch.utils._python_dispatch", "torch.utils._pytree"),
    *("torch.library", "torch.nn.modules.module", "numpy", "numpy.linalg"),
)
CLASSES = {
    "torch": ("Tensor", "Generator"),
    "torch.cuda": ("Event", "Stream", "CUDAGraph"),
    "torch.autograd.grad_mode": ("no_grad", "enable_grad", "inference_mode"),
    "torch.nn.modules.module": ("Module",),
    "random": ("Random", "SystemRandom"),
}
"""Module -> its classes whose methods are compared. Of perfsuite's modules all are."""
OWN = "perfsuite."
_FUNCTION = types.FunctionType
_REBOUND = (bool, type(None), types.ModuleType)
"""Kinds of values that libraries bind anew as they go."""
_is = operator.is_
_code = operator.attrgetter("__code__")
_defaults = operator.attrgetter("__defaults__")


@dataclass(frozen=True)
class Replaced:
    """A name that stands for something else than at the start."""

    name: str
    put_back: Callable[[], None]


class _Names:
    """The names of one module or class, and what stood under them."""

    __slots__ = ("_closed", "_keys", "_kind", "_name", "_owner", "_size", "_there", "_values", "_whole")

    def __init__(self, name: str, owner: Any, there: Mapping[str, Any], only: frozenset[str] | None = None) -> None:
        """there: the names of the owner. only: the names that count; None for all."""
        self._name, self._owner, self._there, self._kind = name, owner, there, type(owner)
        own = name.startswith(OWN)
        pairs = [(key, value) for key, value in there.items() if own or not isinstance(value, _REBOUND)]
        if only is not None:
            pairs = [(key, value) for key, value in pairs if key in only and callable(value)]
        self._keys, self._values = [key for key, _ in pairs], [value for _, value in pairs]
        self._size = len(there)
        self._whole = len(pairs) == self._size
        self._closed = only is None

    @staticmethod
    def called_by(function: Any) -> _Names:
        """The functions and classes that a function names."""
        names = frozenset(function.__code__.co_names)
        return _Names(str(function.__module__), None, function.__globals__, names)

    @property
    def values(self) -> list[Any]:
        return self._values

    def replaced(self) -> Iterator[Replaced]:
        there, owner, kind = self._there, self._owner, self._kind
        if type(owner) is not kind:
            yield Replaced(f"{self._name}.__class__", lambda: setattr(owner, "__class__", kind))
        standing = there.values() if self._whole and len(there) == self._size else map(there.get, self._keys)
        if not all(map(_is, standing, self._values)):
            for key, value in zip(self._keys, self._values, strict=True):
                if there.get(key) is not value and not _wrapped_by_the_compiler(value, there.get(key)):
                    yield Replaced(f"{self._name}.{key}", self._putting_back(key, value))
        if self._closed and len(there) != self._size:
            for key in there.keys() - set(self._keys):
                if self._shadows(key, there[key]):
                    yield Replaced(f"{self._name}.{key}", self._taking_away(key))

    def _shadows(self, key: str, value: Any) -> bool:
        """True if a new name changes what others mean: a name of builtins in a module, a hook in a class."""
        if isinstance(self._owner, type):
            return callable(value) or hasattr(type(value), "__get__")
        return self._name.startswith(OWN) and (key in vars(builtins) or key == "__getattr__")

    def _putting_back(self, key: str, value: Any) -> Callable[[], None]:
        there = self._there
        if isinstance(there, dict):
            return lambda: there.__setitem__(key, value)
        return lambda: setattr(self._owner, key, value)

    def _taking_away(self, key: str) -> Callable[[], None]:
        return lambda: delattr(self._owner, key)


class Standing:
    """Names that the judgement rests on, and what stands under them at one moment."""

    def __init__(
        self,
        names: Iterable[_Names],
        functions: Iterable[Any] = (),
        modules: Mapping[str, types.ModuleType] | None = None,
    ) -> None:
        self._names, self._modules = list(names), dict(modules or {})
        found = {id(one): one for each in self._names for one in map(plain, each.values) if type(one) is _FUNCTION}
        found |= {id(one): one for one in functions}
        self._functions = list(found.values())
        self._codes = [one.__code__ for one in self._functions]
        self._defaults = [one.__defaults__ for one in self._functions]
        self._keywords = [(one, dict(one.__kwdefaults__)) for one in self._functions if one.__kwdefaults__]
        self._containers = list(_containers(self._modules))

    @staticmethod
    def of_modules() -> Standing:
        """All names of builtins, of the parts of Python and torch that the judgement rests on, and of perfsuite.

        The same object as before, as long as all is as it was then.
        """
        modules = {name: sys.modules[name] for name in _modules()}
        if not _before or _before[0]._modules.keys() != modules.keys() or _before[0].replaced():
            _before[:] = [Standing(itertools.starmap(_Names, _owners(modules)), modules=modules)]
        return _before[0]

    @staticmethod
    def of_case(*objects: Any) -> Standing:
        """The names of one case: of its problem's classes, of its rival and of what that calls."""
        functions = [one for one in map(plain, objects) if type(one) is _FUNCTION]
        classes = {id(cls): cls for one in objects if one not in functions for cls in _foreign(one)}
        names = [_Names(f"{cls.__module__}.{cls.__qualname__}", cls, vars(cls)) for cls in classes.values()]
        standing = Standing(names, functions)
        standing._names += [_Names.called_by(one) for one in functions]
        for one in objects:
            standing._containers += _hooks_of(one)
        return standing

    def replaced(self) -> list[Replaced]:
        """The names that stand for something else now."""
        found = [one for names in self._names for one in names.replaced()]
        for name, module in self._modules.items():
            if sys.modules.get(name) is not module:
                found.append(Replaced(f"sys.modules[{name!r}]", _setting(sys.modules, name, module)))
        functions = self._functions
        if not all(map(_is, map(_code, functions), self._codes)):
            found += self._exchanged("__code__", self._codes)
        if not all(map(_is, map(_defaults, functions), self._defaults)):
            found += self._exchanged("__defaults__", self._defaults)
        for function, keywords in self._keywords:
            if not _same(function.__kwdefaults__ or {}, keywords):
                found.append(Replaced(f"{_full(function)}.__kwdefaults__", _attribute(
                    function, "__kwdefaults__", keywords
                )))  # fmt: skip
        for name, container, content in self._containers:
            if not _same(container, content):
                found.append(Replaced(name, _refill(container, content)))
        return found

    def _exchanged(self, what: str, before: list[Any]) -> list[Replaced]:
        return [
            Replaced(_full(one), _attribute(one, what, value))
            for one, value in zip(self._functions, before, strict=True)
            if getattr(one, what) is not value
        ]


_before: list[Standing] = []
"""The names at the start of the last case."""


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


def _modules() -> list[str]:
    own = [name for name in list(sys.modules) if name.startswith(OWN)]
    return [name for name in (*PYTHON, *LIBRARIES, *own) if isinstance(sys.modules.get(name), types.ModuleType)]


def _owners(modules: Mapping[str, types.ModuleType]) -> Iterator[tuple[str, Any, Mapping[str, Any]]]:
    for name, module in modules.items():
        yield name, module, vars(module)
        if name.startswith(OWN):
            classes = [one for one in vars(module).values() if isinstance(one, type) and one.__module__ == name]
        else:
            classes = [getattr(module, one) for one in CLASSES.get(name, ()) if hasattr(module, one)]
        for cls in classes:
            yield f"{name}.{cls.__name__}", cls, vars(cls)


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
                    yield f"the rival's {'.'.join(filter(None, (name, key)))}", hooks, dict(hooks)


def _containers(modules: Mapping[str, types.ModuleType]) -> Iterator[tuple[str, Any, Any]]:
    """The tables of perfsuite's modules that are never changed: named in capitals, without a leading underscore."""
    for name, module in modules.items():
        if name.startswith(OWN):
            for key, value in vars(module).items():
                if key.isupper() and not key.startswith("_") and type(value) in (dict, list, set):
                    yield f"{name}.{key}", value, value.copy()


def _same(one: Any, other: Any) -> bool:
    if len(one) != len(other):
        return False
    if isinstance(one, set):
        return bool(one == other)
    if isinstance(one, dict):
        return all(map(_is, one.keys(), other.keys())) and all(map(_is, one.values(), other.values()))
    return all(map(_is, one, other))


def _refill(container: Any, content: Any) -> Callable[[], None]:
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
