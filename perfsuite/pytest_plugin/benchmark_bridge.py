"""pytest-benchmark on a GPU: its `benchmark` fixture, in a test marked `gpu`, gets times of the device.

By itself it would time how long the launches take. Here the function is timed by perfsuite's clock, and the samples
are then replayed to pytest-benchmark through a timer that shows device seconds: its table, its JSON, its storage and
its comparison stay what they are. Only its public interface is used (`benchmark.pedantic`, the marker's `timer`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from perfsuite.pytest_plugin.run import RUN, Run

if TYPE_CHECKING:
    from perfsuite.settings import Settings

FIXTURE = "benchmark"
PLUGIN_NAMES = ("benchmark", "pytest_benchmark.plugin")
"""pytest-benchmark's names, as an installed plugin and loaded with `-p`."""
SAMPLES = 100
"""Samples a benchmark, where the time budget holds them."""
ROUNDS_AT_ONCE = 10


class DeviceTimer:
    """Shows a time that only passes when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def reader(self) -> Callable[[], float]:
        """The function that pytest-benchmark takes as its timer; its name stands in the JSON."""

        def device_seconds() -> float:
            return self.now

        return device_seconds


TIMER = pytest.StashKey[DeviceTimer]()


def prepare(item: pytest.Item) -> None:
    """Before a GPU benchmark's fixtures are made: give pytest-benchmark the device's timer.

    What the test's own mark says stays; a test that brings a timer of its own is left alone.
    """
    if item.get_closest_marker("gpu") is None or not item.config.stash[RUN].options.gpu:
        return
    mark = item.get_closest_marker(FIXTURE)
    own = dict(mark.kwargs) if mark else {}
    if "timer" in own or not any(map(item.config.pluginmanager.hasplugin, PLUGIN_NAMES)):
        return
    timer = DeviceTimer()
    item.stash[TIMER] = timer
    item.add_marker(pytest.mark.benchmark(**own, timer=timer.reader()), append=False)


@contextmanager
def device_time(item: pytest.Function) -> Iterator[None]:
    """Run a test that was prepared with a stand-in for its `benchmark`; pytest-benchmark finds its own afterwards."""
    if TIMER not in item.stash:
        yield
        return
    fixture = item.funcargs[FIXTURE]
    item.funcargs[FIXTURE] = DeviceBenchmark(fixture, item.stash[TIMER], item.config.stash[RUN])
    try:
        yield
    finally:
        item.funcargs[FIXTURE] = fixture


class DeviceBenchmark:
    """Stands in for the `benchmark` fixture while the test runs; what it does not define is the fixture's own."""

    def __init__(self, fixture: Any, timer: DeviceTimer, run: Run) -> None:
        self._fixture, self._timer, self._run = fixture, timer, run

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fixture, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            object.__setattr__(self, name, value)
        else:
            setattr(self._fixture, name, value)

    def __call__(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Time `function(*args, **kwargs)` on the device; returns what it returns."""
        return self.pedantic(function, args=args, kwargs=kwargs, rounds=None)

    def pedantic(
        self,
        target: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        setup: Callable[[], Any] | None = None,
        rounds: int | None = 1,
        **_: Any,
    ) -> Any:
        """The same with a number of samples. Warm-up and calls a sample are the clock's affair.

        `setup` is called once: calls inside a CUDA graph have no place for it in between.
        """
        if setup is not None:
            made = setup()
            args, kwargs = made if made is not None else (args, kwargs)
        kwargs = dict(kwargs or {})
        if self._fixture.disabled:
            return self._fixture(target, *args, **kwargs)
        samples = self._run.config.hook.pytest_perfsuite_device_times(
            config=self._run.config,
            function=target,
            args=tuple(args),
            kwargs=kwargs,
            samples=rounds or SAMPLES,
            settings=self._run.settings(),
        )
        self._fixture.extra_info["perfsuite"] = {"time": "device", "cache": "hot", "samples": len(samples)}
        self._replay(samples)
        return target(*args, **kwargs)

    def weave(self, *_: Any, **__: Any) -> None:
        """Not offered on the device."""
        raise NotImplementedError("benchmark.weave has no device time: call benchmark(function) on the kernel itself")

    patch = weave

    def _replay(self, samples: Sequence[float]) -> None:
        left = iter(samples)

        def advance() -> None:
            self._timer.now += next(left)

        self._fixture.pedantic(advance, rounds=len(samples), iterations=1)


def device_times(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], samples: int, settings: Settings
) -> list[float]:
    """Device seconds a call: `samples` of them, or as many (at least one) as the time budget holds.

    The arguments are the caller's own, the same at every call, so the cache is hot.
    """
    from dataclasses import replace

    from perfsuite.clock.base import Sides
    from perfsuite.clock.choose import open_clock
    from perfsuite.problems.base import Inputs

    def call(*given: Any, **named: Any) -> None:
        # The result is dropped: a clock may overwrite what a side gives it, and this may be a tensor of the caller's.
        function(*given, **named)

    sides = Sides(call, call, lambda: Inputs(args, kwargs))
    clock = open_clock(sides, replace(settings, cache="hot"))
    found: list[float] = []
    try:
        while not found or (len(found) < samples and clock.seconds_spent < settings.seconds):
            for one in clock.rounds(min(ROUNDS_AT_ONCE, -(-(samples - len(found)) // 2))):
                found += [one.candidate_seconds, one.rival_seconds]
    finally:
        clock.close()
    return found[:samples]
