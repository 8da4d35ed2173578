"""pytest-benchmark on a GPU: its `benchmark` fixture, in a test marked `gpu`, gets device times.

pytest-benchmark alone measures how long the launches take. Here perfsuite's clock times the function. A timer that
shows device seconds then replays the samples to pytest-benchmark, so its table, JSON, storage and comparison work.
Only its public interface is used (`benchmark.pedantic`, the marker's `timer`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from perfsuite.clock.base import Sides
from perfsuite.clock.choose import open_clock
from perfsuite.problems.base import Inputs
from perfsuite.pytest_plugin.run import RUN, Run
from perfsuite.settings import Settings

PLUGIN_NAMES = ("benchmark", "pytest_benchmark.plugin")
"""pytest-benchmark's names, as an installed plugin and loaded with `-p`."""
SAMPLES = 100
"""Samples of a benchmark that does not ask for a number, if the time budget allows them."""
ROUNDS_AT_ONCE = 10


class DeviceTimer:
    """A timer whose time passes only when `now` is changed."""

    now = 0.0

    def device_seconds(self) -> float:
        """The timer function for pytest-benchmark; its name appears in the JSON."""
        return self.now


TIMER = pytest.StashKey[DeviceTimer]()


def prepare(item: pytest.Item) -> None:
    """Give a GPU benchmark the device's timer before its fixtures are made, unless its own mark sets a timer."""
    if item.get_closest_marker("gpu") is None or not item.config.stash[RUN].options.gpu:
        return
    mark = item.get_closest_marker("benchmark")
    own = dict(mark.kwargs) if mark else {}
    if "timer" in own or not any(map(item.config.pluginmanager.hasplugin, PLUGIN_NAMES)):
        return
    timer = item.stash[TIMER] = DeviceTimer()
    item.add_marker(pytest.mark.benchmark(**own, timer=timer.device_seconds), append=False)


@contextmanager
def device_time(item: pytest.Function) -> Iterator[None]:
    """Replace `benchmark` while a prepared test runs; pytest-benchmark finds its own fixture afterwards."""
    if TIMER not in item.stash:
        yield
        return
    fixture = item.funcargs["benchmark"]
    item.funcargs["benchmark"] = DeviceBenchmark(fixture, item.stash[TIMER], item.config.stash[RUN])
    try:
        yield
    finally:
        item.funcargs["benchmark"] = fixture


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
        """Take `rounds` samples; the clock chooses the warm-up and the calls in a sample.

        `setup` is called once: it cannot run between the calls of a CUDA graph.
        """
        if setup is not None:
            args, kwargs = setup() or (args, kwargs)
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

    Every call gets the caller's arguments, so the cache is hot.
    """

    def call(*given: Any, **named: Any) -> None:
        # The result is dropped: a clock may overwrite a side's result, and this one may be a tensor of the caller.
        function(*given, **named)

    sides = Sides(call, call, lambda: Inputs(args, kwargs), moves="none")
    clock = open_clock(sides, replace(settings, cache="hot"))
    found: list[float] = []
    try:
        while not found or (len(found) < samples and clock.seconds_spent < settings.seconds):
            for one in clock.rounds(min(ROUNDS_AT_ONCE, -(-(samples - len(found)) // 2))):
                found += [one.candidate_seconds, one.rival_seconds]
    finally:
        clock.close()
    return found[:samples]
