"""Version numbers and fields in memory tell of every change that a look at all names finds, and let no name be read."""

from __future__ import annotations

import gc
import math
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from perfsuite.guards import ground, identity, unchanged
from perfsuite.guards.identity import Standing
from perfsuite.guards.watch import Watch

sealed = pytest.mark.skipif(unchanged.layout() is None, reason="this Python gives dictionaries no version number")


def genuine(a: int = 1, *, b: int = 2) -> int:
    return a + b


def other(a: int = 3, *, b: int = 4) -> int:
    return a * b


class Base:
    """A class of a module."""

    limit = 1

    def method(self) -> int:
        return self.limit


class Sneaky(types.ModuleType):
    """Answers for a module."""


@pytest.fixture
def module() -> Any:
    """A module under a name of perfsuite, so that its every name counts."""
    made: Any = types.ModuleType("perfsuite.made_up")
    made.number, made.TABLE = 1, {"a": 1}
    made.Class = type("Class", (Base,), {"limit": 1, "method": Base.method})
    made.function = types.FunctionType(genuine.__code__, vars(made))
    made.function.__defaults__, made.function.__kwdefaults__ = (1,), {"b": 2}
    return made


def standing_of(module: Any, *, sealed: bool) -> Standing:
    """What stands under the names of a module and of its class."""
    every: Callable[[str, Any], bool] = lambda name, value: True  # noqa: E731
    owners = (("perfsuite.made_up", module), ("perfsuite.made_up.Class", module.Class))
    names = [identity._Names.of(name, owner, vars(owner), every) for name, owner in owners]
    return Standing.of(names, containers=[("perfsuite.made_up.TABLE", module.TABLE, (("a", 1),))], sealed=sealed)


def again_and_again(module: Any) -> None:
    """Stores by the instructions that the interpreter puts in place of those that run often."""
    for number in range(100):
        module.number = number
        module.Class.limit = number


def dictionary_of(cls: type) -> dict[str, Any]:
    return next(one for one in gc.get_referents(vars(cls)) if isinstance(one, dict))


CHANGES: dict[str, Callable[[Any], object]] = {
    "a value": lambda module: setattr(module, "number", 2),
    "a value by the dictionary": lambda module: vars(module).__setitem__("number", 2),
    "a value by update": lambda module: vars(module).update(number=2),
    "a value by an operator": lambda module: vars(module).__ior__({"number": 2}),
    "an equal value": lambda module: setattr(module, "TABLE", dict(module.TABLE)),
    "a value, often": again_and_again,
    "a name taken away": lambda module: delattr(module, "number"),
    "a name taken away and given again": lambda module: vars(module).update(number=vars(module).pop("number") + 1),
    "all names": lambda module: vars(module).clear(),
    "a name of builtins": lambda module: setattr(module, "max", min),
    "an attribute of a class": lambda module: setattr(module.Class, "limit", 2),
    "an attribute by the class's dictionary": lambda module: dictionary_of(module.Class).update(limit=2),
    "a method of a class": lambda module: setattr(module.Class, "method", other),
    "a new hook of a class": lambda module: setattr(module.Class, "__getattribute__", object.__getattribute__),
    "the class of a module": lambda module: setattr(module, "__class__", Sneaky),
    "code": lambda module: setattr(module.function, "__code__", other.__code__),
    "defaults": lambda module: setattr(module.function, "__defaults__", (9,)),
    "equal defaults": lambda module: setattr(module.function, "__defaults__", tuple(map(abs, (1,)))),
    "keyword defaults": lambda module: setattr(module.function, "__kwdefaults__", {"b": 9}),
    "keyword defaults in place": lambda module: module.function.__kwdefaults__.update(b=9),
    "code of a method": lambda module: setattr(Base.method, "__code__", other.__code__),
    "a table in place": lambda module: module.TABLE.update(a=2),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_seal_misses_nothing_that_a_look_at_all_names_finds(change: str, module: Any) -> None:
    code = Base.method.__code__
    quick, whole = standing_of(module, sealed=True), standing_of(module, sealed=False)
    try:
        assert quick.replaced() == whole.replaced() == []
        CHANGES[change](module)
        names = [one.name for one in quick.replaced()]
        assert names == [one.name for one in whole.replaced()]
        assert names
        assert [one.name for one in quick.replaced()] == names  # it is not taken for right when it was seen once
        for one in quick.replaced():
            one.put_back()
        assert quick.replaced() == whole.replaced() == []
        CHANGES[change](module)
        assert [one.name for one in quick.replaced()] == names
    finally:
        Base.method.__code__ = code


def test_names_that_do_not_count_may_change_and_later_ones_are_still_seen(module: Any) -> None:
    standing = standing_of(module, sealed=True)
    for number in range(3):
        module.new = number
        assert standing.replaced() == []
    module.function.__kwdefaults__ = dict(module.function.__kwdefaults__)  # equal, and another dictionary from now on
    assert standing.replaced() == []
    module.function.__kwdefaults__["b"] = 9
    assert [one.name.rpartition(".")[2] for one in standing.replaced()] == ["__kwdefaults__"]
    module.number = 2
    assert "perfsuite.made_up.number" in [one.name for one in standing.replaced()]


@pytest.mark.parametrize("seals", [True, False])
def test_another_table_of_modules_is_seen_and_so_are_other_modules_in_it(
    seals: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    genuine, stranger = sys.modules, types.ModuleType("statistics")
    standing = Standing.of([], modules={"math": math}, sealed=seals)
    monkeypatch.setattr(sys, "modules", {**genuine, "math": stranger})
    assert [one.name for one in standing.replaced()] == ["sys.modules"]
    for one in standing.replaced():
        one.put_back()
    assert sys.modules is genuine
    monkeypatch.setitem(genuine, "math", stranger)
    assert [one.name for one in standing.replaced()] == ["sys.modules['math']"]
    for one in standing.replaced():
        one.put_back()
    assert sys.modules["math"] is math


@sealed
def test_as_long_as_nothing_changes_no_name_is_read(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    whole = identity._Names.replaced

    def counted(self: identity._Names) -> Iterator[identity.Replaced]:
        read.append(self.name)
        return whole(self)

    monkeypatch.setattr(identity._Names, "replaced", counted)
    monkeypatch.setattr(unchanged, "WHOLE_LOOKS", 0)
    standing = standing_of(module, sealed=True)
    assert read == ["perfsuite.made_up", "perfsuite.made_up.Class"]  # they may have changed while they were noted
    read.clear()
    assert standing.replaced() == []
    assert read == []
    module.Class.other = 1
    assert standing.replaced() == []
    assert read == ["perfsuite.made_up.Class"]


@sealed
def test_some_looks_read_all_names_so_that_a_write_by_address_is_seen(
    module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "_drawn", iter([b"\xff", b"\xff", b"\0"]).__next__, raising=True)
    monkeypatch.setattr(identity, "_drawn", lambda count, draw=identity._drawn: draw())
    standing = standing_of(module, sealed=True)
    seal, before = standing.seal, module.number
    assert seal is not None
    now = seal.read()
    module.number = 2
    monkeypatch.setattr(seal, "read", lambda: now)  # as if its version were the same
    assert standing.replaced() == []
    assert [one.name for one in standing.replaced()] == ["perfsuite.made_up.number"]
    module.number = before


def test_all_names_are_compared_where_python_has_no_version_numbers(
    module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unchanged, "layout", lambda: None)
    standing = standing_of(module, sealed=True)
    assert standing.seal is None
    assert standing.outgrown()
    module.number, module.function.__defaults__ = 2, (9,)
    assert [one.name.rpartition(".")[2] for one in standing.replaced()] == ["number", "__defaults__"]


def test_a_python_without_version_numbers_has_no_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    found = unchanged._words
    monkeypatch.setattr(unchanged, "_words", lambda value, size: [0, 0, *found(value, size)[2:3], 7, 7, 7])
    assert unchanged.layout.__wrapped__() is None
    monkeypatch.setattr(sys.implementation, "name", "pypy")
    assert unchanged.layout.__wrapped__() is None


@pytest.mark.parametrize("seals", [True, False])
def test_the_guards_own_functions_are_looked_at_with_and_without_seals(
    seals: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not seals:
        monkeypatch.setattr(unchanged, "layout", lambda: None)
    looker = ground._looker()
    look = looker()
    assert look() == []
    assert looker()() == []
    genuine_batch, genuine_code = Watch.batch, Watch.end.__code__
    try:
        Watch.batch = Watch.after  # type: ignore[method-assign]
        Watch.end.__code__ = (lambda self: None).__code__
        assert look() == ["perfsuite.guards.watch.Watch.batch", "perfsuite.guards.watch.Watch.end.__code__"]
        assert Watch.batch is genuine_batch
        assert Watch.end.__code__ is genuine_code
    finally:
        Watch.batch, Watch.end.__code__ = genuine_batch, genuine_code  # type: ignore[method-assign]
    assert look() == looker()() == []


def test_a_new_case_takes_new_names_of_the_guards_for_right() -> None:
    looker = ground._looker()
    look = looker()
    sys.modules["perfsuite.guards.made_up"] = types.ModuleType("perfsuite.guards.made_up")
    try:
        made: Any = sys.modules["perfsuite.guards.made_up"]
        made.function = genuine
        later = looker()
        made.function = other
        assert look() == []  # it stood not there when this case began
        assert later() == ["perfsuite.guards.made_up.function"]
        assert made.function is genuine
    finally:
        del sys.modules["perfsuite.guards.made_up"]


@sealed
def test_a_change_while_names_are_noted_is_seen(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unchanged, "WHOLE_LOOKS", 0)
    whole = identity.of_names

    def late(owner: Any, table: Any, known: unchanged.Layout) -> unchanged.Thing:
        module.number, module.function.__code__ = 2, other.__code__
        return whole(owner, table, known)

    monkeypatch.setattr(identity, "of_names", late)
    standing = standing_of(module, sealed=True)
    for _ in range(2):
        names = [one.name for one in standing.replaced()]
        assert "perfsuite.made_up.number" in names
        assert any(name.endswith(".__code__") for name in names)


def test_a_module_that_is_loaded_is_weighed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unchanged, "WHOLE_LOOKS", 0)
    weighed = []
    standing = Standing.of_modules()
    assert Standing.of_modules() is standing
    modules = identity.judging_modules
    monkeypatch.setitem(sys.modules, "made_up_of_nobody", types.ModuleType("made_up_of_nobody"))
    with monkeypatch.context() as patched:
        patched.setattr(identity, "judging_modules", lambda: weighed.append(1) or modules())
        made = Standing.of_modules()  # a name of perfsuite is another, so it is made anew
        weighed.clear()
        monkeypatch.setitem(sys.modules, "made_up_as_well", types.ModuleType("made_up_as_well"))
        for _ in range(3):
            assert Standing.of_modules() is made
        assert len(weighed) == (1 if made.seal is not None else 3)
