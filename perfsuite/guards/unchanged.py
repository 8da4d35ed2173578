"""Tells in microseconds that dictionaries, objects and functions are as they were, by fields of theirs in memory.

To compare ten thousand names takes 2 ms behind work that has filled the caches, and a case does so several times.
CPython up to 3.12 gives a dictionary a new version number with each change (PEP 509). What a function runs lies in
three fields of it, and an object's class in one. A seal gathers all of these at once, from a view of the process's
memory. Where no field differs, no name stands for anything else. Where one does, the caller compares its owner.

Where the fields are not found, as from Python 3.13 on, or without numpy, there is no seal: all names are compared each
time. Whoever writes into the memory of a dictionary by address gives it no new version. So some looks, drawn in secret,
compare all names nevertheless.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from perfsuite.problems.host_memory import FIRST, host_memory

WORD = ctypes.sizeof(ctypes.c_void_p)
WHOLE_LOOKS = 8
"""Of 256 looks, those that compare everything."""


class Layout(NamedTuple):
    """The places of fields in an object, in bytes from its beginning."""

    version: int
    kind: int
    code: int
    defaults: int
    keywords: int


class Thing(NamedTuple):
    """An object that is compared as a whole: its fields, and the objects that must live while they are read."""

    versions: tuple[int, ...]
    """Addresses of version numbers: another one says that something may have changed."""
    pointers: tuple[int, ...]
    """Addresses of pointers: another one says that something has changed."""
    held: tuple[Any, ...]


@lru_cache(maxsize=1)
def layout() -> Layout | None:
    """The layout of this Python's objects, found by looking at some; None if it is not as expected."""
    if sys.implementation.name != "cpython" or WORD != 8:
        return None

    def probe(a: Any = (1, 2), *, b: Any = (3, 4)) -> None: ...

    table: dict[str, Any] = {"a": 1, "b": 2}
    changes: list[Callable[[], Any]] = [lambda: table.update(a=3), lambda: table.pop("b"), lambda: table.update(b=2)]
    seen = [_words(table, dict.__basicsize__)]
    for change in changes:
        change()
        seen.append(_words(table, dict.__basicsize__))
    versions = [place for place in range(2, len(seen[0])) if len({words[place] for words in seen}) == len(seen)]
    words = _words(probe, types.FunctionType.__basicsize__)
    wanted = [id(type(probe)), id(probe.__code__), id(probe.__defaults__), id(probe.__kwdefaults__)]
    if len(versions) != 1 or any(words.count(one) != 1 for one in wanted):
        return None
    return Layout(versions[0] * WORD, *(words.index(one) * WORD for one in wanted))


def _words(value: Any, size: int) -> list[int]:
    return list((ctypes.c_uint64 * (size // WORD)).from_address(id(value)))


def of_table(table: Mapping[str, Any], known: Layout) -> Thing:
    """A dictionary, or that of a class, whose `vars` are a view of it."""
    place = table if isinstance(table, dict) else next(one for one in gc.get_referents(table) if isinstance(one, dict))
    return Thing((id(place) + known.version,), (), (place,))


def of_names(owner: Any, table: Mapping[str, Any], known: Layout) -> Thing:
    """The names of a module or a class, and its own class."""
    return of_table(table, known)._replace(pointers=(id(owner) + known.kind,), held=(owner, table))


def of_function(function: types.FunctionType, known: Layout) -> Thing:
    """A function's code and defaults."""
    keywords = function.__kwdefaults__
    versions = (id(keywords) + known.version,) if keywords else ()
    pointers = tuple(id(function) + place for place in (known.code, known.defaults, known.keywords))
    return Thing(versions, pointers, (function, keywords))


class Seal:
    """The fields of things at one moment."""

    def __init__(self, things: Sequence[Thing]) -> None:
        """ImportError without numpy."""
        import numpy

        pairs = sorted((address, number, version) for number, thing in enumerate(things)
                       for version, addresses in ((True, thing.versions), (False, thing.pointers))
                       for address in addresses)  # fmt: skip
        addresses, owners, versions = zip(*pairs, strict=True) if pairs else ((), (), ())
        self.renewed: set[int] = set()
        """The numbers of the things whose versions were renewed."""
        self._held = [thing.held for thing in things]
        self._places = (numpy.array(addresses, dtype=numpy.int64) - FIRST) // WORD
        self._owners = numpy.array(owners, dtype=numpy.int64)
        self._versions = numpy.array(versions, dtype=bool)
        self._memory = _memory()
        # No field of memory: whoever noted the names before compares them once more, since they may have changed since.
        self._before = numpy.zeros_like(self._places)
        self._bytes, self._fresh = b"", True

    def read(self) -> Any:
        """The fields now."""
        return self._memory.take(self._places)

    def differing(self, now: Any) -> list[int]:
        """The numbers of the things of which a field differs, in order."""
        if now.tobytes() == self._bytes:
            return []
        return sorted(set(self._owners[now != self._before].tolist()))

    def renew(self, now: Any, differing: Iterable[int]) -> None:
        """Take these versions for the right ones: whoever calls this has compared the things that they belong to."""
        if self._fresh:
            self._before, self._fresh = now.copy(), False
        else:
            self.renewed.update(differing)
            self._before[self._versions] = now[self._versions]
        self._bytes = self._before.tobytes()

    def same(self) -> Callable[[], bool]:
        """A function that tells whether all fields are as they are now, and calls nothing under a name."""
        take, places, before, held = self._memory.take, self._places, self.read().tobytes(), self._held

        def same() -> bool:
            return held is not None and take(places).tobytes() == before

        return same


def seal(things: Callable[[Layout], Iterable[Thing]]) -> Seal | None:
    """A seal on these things; None if this Python allows none."""
    if (known := layout()) is None:
        return None
    try:
        return Seal(list(things(known)))
    except ImportError:
        return None


@lru_cache(maxsize=1)
def _memory() -> Any:
    """The memory of this process as numbers."""
    import numpy

    found = numpy.frombuffer(host_memory(), dtype=numpy.int64)
    found.flags.writeable = False
    return found
