"""The second context of a card: a made-up driver counts what is pushed and popped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from perfsuite.clock import other_context
from perfsuite.clock.other_context import change_contexts


class Driver:
    """Its calls succeed, but for those in `failing`. `depth`: contexts on the thread's stack."""

    def __init__(self, *failing: str, older: bool = False) -> None:
        self.failing, self.called, self.depth = failing, list[str](), 0
        self.older = older

    def __getattr__(self, name: str) -> Callable[..., int]:
        if not name.startswith("cu") or (self.older and name == "cuCtxCreate_v4"):
            raise AttributeError(name)

        def call(*arguments: Any) -> int:
            self.called.append(name)
            if name in self.failing:
                return 2
            if name.startswith("cuCtxCreate"):
                arguments[0]._obj.value = 1
            self.depth += name.startswith(("cuCtxCreate", "cuCtxPush"))
            self.depth -= name.startswith(("cuCtxDestroy", "cuCtxPop"))
            return 0

        return call


@pytest.fixture(autouse=True)
def nothing_made_before() -> Iterator[None]:
    other_context._made.cache_clear()
    yield
    other_context._made.cache_clear()


def changed(monkeypatch: pytest.MonkeyPatch, driver: Driver) -> str | None:
    monkeypatch.setattr(other_context, "_driver", lambda: driver)
    return change_contexts(0)


@pytest.mark.parametrize("older", [False, True])
def test_torchs_context_is_the_current_one_again(monkeypatch: pytest.MonkeyPatch, older: bool) -> None:
    driver = Driver(older=older)
    for _ in range(3):
        assert changed(monkeypatch, driver) is None
        assert driver.depth == 0
    assert driver.called.count("cuCtxSynchronize") == 3
    assert sum(name.startswith("cuCtxCreate") for name in driver.called) == 1


@pytest.mark.parametrize("failing", ["cuCtxCreate_v4", "cuModuleLoadData", "cuLaunchKernel", "cuCtxSynchronize"])
def test_a_failure_is_named_and_leaves_torchs_context(monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    driver = Driver(failing)
    for _ in range(2):
        assert changed(monkeypatch, driver) == f"{failing} failed with error 2 of the driver"
        assert driver.depth == 0
    assert sum(name.startswith("cuCtxCreate") for name in driver.called) == 1  # half a second if tried each time


def test_a_machine_without_a_driver_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(other_context, "LIBRARY", "libnone.so.1")
    assert "libnone.so.1" in str(change_contexts(0))
