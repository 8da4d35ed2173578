"""Hooks for a conftest or another plugin. With `firstresult` the first answer that is not None counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from perfsuite.case.ask import Ask
    from perfsuite.case.comparison import Comparison
    from perfsuite.device.cards import Devices
    from perfsuite.problems.base import Problem
    from perfsuite.settings import Settings


@pytest.hookspec(firstresult=True)
def pytest_perfsuite_devices(config: pytest.Config) -> Devices | None:
    """The cards that this run may use, or the reason why it has no card. Called once, when a test first needs one."""


@pytest.hookspec(firstresult=True)
def pytest_perfsuite_device_check(config: pytest.Config) -> str | None:
    """A sentence why the code under test cannot use a GPU, such as an extension built without CUDA; else None.

    Under `--gpu` every gated test fails with this sentence.
    """


@pytest.hookspec(firstresult=True)
def pytest_perfsuite_compare(config: pytest.Config, ask: Ask) -> Comparison | None:
    """Measure and judge one case; the default is `run_case(ask)`."""


@pytest.hookspec(firstresult=True)
def pytest_perfsuite_device_times(
    config: pytest.Config,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    samples: int,
    settings: Settings,
) -> list[float] | None:
    """Device seconds of calls of one function, for pytest-benchmark."""


@pytest.hookspec(firstresult=True)
def pytest_perfsuite_resource(
    config: pytest.Config, resource: str, problem: Problem, candidate: Callable[..., Any], settings: Settings
) -> float | None:
    """A resource of one call; `perfsuite.analyze.resources.RESOURCES` lists them."""


@pytest.hookspec(firstresult=True)
def pytest_perfsuite_side_by_side(
    config: pytest.Config, problems: tuple[Problem, Problem], candidate: Callable[..., Any], settings: Settings
) -> tuple[float, float] | None:
    """Device seconds of a call on each of two problems, timed in turn."""


@pytest.hookspec
def pytest_perfsuite_fingerprint(config: pytest.Config, fingerprint: dict[str, Any]) -> None:
    """Add facts of the environment to every case's record: put plain values into `fingerprint`."""
