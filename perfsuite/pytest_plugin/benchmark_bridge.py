"""pytest-benchmark on a GPU: its `benchmark` fixture, in a test marked `gpu`, gets device times.

Alone it would measure how long the launches take. Here perfsuite's clock times the function. The samples are then
replayed to pytest-benchmark through a timer that shows device seconds, so that its table, JSON, storage and comparison
work as ever. Only its public interface is used (`benchmark.pedantic`, the marker's `timer`).
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
"""Samples a benchmark, if the time budget allows them."""
ROUNDS_AT_ONCE = 10


class DeviceTimer:
    """A timer whose time passes only when `now` is changed."""

    def __init__(self) -> None:
        self.now = 0.0

    def reader(self) -> Callable[[], float]:
        """The timer function for pytest-benchmark; its name appears in the JSON."""

        def device_seconds() -> float:
            return self.now

        return device_seconds


TIMER = pytest.StashKey[DeviceTimer]()


def prepare(item: pytest.Item) -> None:
    """Give pytest-benchmark the device's timer, before the fixtures of a GPU benchmark are made.

    The arguments of the test's own mark stay. A test that sets a timer of its own is left alone.
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
    """Replace `benchmark` while a prepared test runs; pytest-benchmark finds its own fixture afterwards."""
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
    """Replaces the `benchmark` fixture while the test runs; other attributes are those of the fixture."""

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
        """Time `function(*args, **kwargs)` on the device, and return its result."""
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
        """The same with a number of samples. The clock chooses the warm-up and the calls in a sample.

        `setup` is called once: it cannot run between the calls of a CUDA graph.
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
    """Device seconds a call: `samples` values, or as many (at least one) as the time budget allows.

    The arguments are the caller's own, the same at every call, so the cache is hot.
    """
    from dataclasses import replace

    from perfsuite.clock.base import Sides
    from perfsuite.clock.choose import open_clock
    from perfsuite.problems.base import Inputs

    def call(*given: Any, **named: Any) -> None:
        # The result is dropped: a clock may overwrite a side's result, and this one may be a tensor of the caller.
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
