"""The plugin as pytest loads it into every suite: options, markers, fixtures, and the look for tests that concern it.

Loading imports little and no test costs much. When a run measures, or a test concerns perfsuite, the hooks that do the
work are registered. Functions are imported, not modules: pytester forgets modules between runs in one process, and
`from package import module` would find the forgotten one. PYTEST_DONT_REWRITE: nothing here asserts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from perfsuite.pytest_plugin import add_options, concerns, marker_names, uses_options

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable
    from contextlib import AbstractContextManager

    import torch

    from perfsuite.pytest_plugin.facts import Gpu, MemoryUse
    from perfsuite.pytest_plugin.perf import Perf


# Hooks, options, markers.
def pytest_addoption(parser: pytest.Parser) -> None:
    add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    lines: Iterable[str] = marker_names()
    if config.option.markers:  # only then import every marker's file, for its help
        from perfsuite.pytest_plugin.marks import help_lines

        lines = help_lines()
    for line in lines:
        config.addinivalue_line("markers", line)
    if uses_options(config):
        register_hooks(config.pluginmanager)


def add_hooks(manager: pytest.PytestPluginManager) -> None:
    """Declare the hooks that a conftest or another plugin may implement, unless that is done."""
    if not manager.has_plugin("perfsuite.hookspec"):
        from perfsuite.pytest_plugin import hookspec

        manager.add_hookspecs(hookspec)
        manager.register(object(), "perfsuite.hookspec")


def register_hooks(manager: pytest.PytestPluginManager) -> None:
    """Register the hooks of a run that measures or has a test of ours, unless that is done."""
    if not manager.has_plugin("perfsuite.hooks"):
        from perfsuite.pytest_plugin import hooks

        add_hooks(manager)
        manager.register(hooks, "perfsuite.hooks")


# pytest refuses an unknown hook when it begins to collect. A suite where nobody implements ours does without them.
@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    manager = session.config.pluginmanager
    if any(name.startswith("pytest_perfsuite_") for name in vars(manager.hook)):
        add_hooks(manager)


# Markers are checked while a module is collected, so that a bad one is a collection error in every mode.
@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem(collector: pytest.Collector) -> Generator[None, Any, Any]:
    made = yield
    for node in made if isinstance(made, list) else [made]:
        if isinstance(node, pytest.Item) and concerns(node):
            from perfsuite.pytest_plugin.marks import check_markers

            register_hooks(collector.config.pluginmanager)
            check_markers(node)
    return made


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.definition.get_closest_marker("perf_sizes") is not None:
        from perfsuite.pytest_plugin.sizes import parametrize

        parametrize(metafunc)


# pytest-xdist asks before pytest is configured.
@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    if not config.option.gpu:
        return None
    register_hooks(config.pluginmanager)
    from perfsuite.pytest_plugin.xdist import auto_workers

    return auto_workers(config)


# Fixtures. Each imports what it needs when a test asks for it.
@pytest.fixture
def perf(request: pytest.FixtureRequest) -> Perf:
    """Checks a candidate kernel and times it against its rival: perf(problem, candidate)."""
    from perfsuite.pytest_plugin.fixtures import make_perf

    return make_perf(request)


@pytest.fixture
def gpu(request: pytest.FixtureRequest) -> Gpu:
    """The facts of the device: name, capability, sizes in bytes, and its measured ceilings."""
    from perfsuite.pytest_plugin.fixtures import make_gpu

    return make_gpu(request)


@pytest.fixture
def gpus(request: pytest.FixtureRequest) -> tuple[Gpu, ...]:
    """The facts of every device that the run may use; with fewer than two the test is skipped."""
    from perfsuite.pytest_plugin.fixtures import make_gpus

    return make_gpus(request)


@pytest.fixture
def gpu_rng(request: pytest.FixtureRequest) -> torch.Generator:
    """A torch.Generator on the device. Its seed follows from --perf-seed and the test's id alone."""
    from perfsuite.pytest_plugin.fixtures import make_gpu_rng

    return make_gpu_rng(request)


@pytest.fixture
def gpu_memory(request: pytest.FixtureRequest) -> Callable[[], AbstractContextManager[MemoryUse]]:
    """Measures device memory: `with gpu_memory() as use: ...`, then `use.peak_bytes` and `use.leaked_bytes`."""
    from perfsuite.pytest_plugin.fixtures import make_gpu_memory

    return make_gpu_memory(request)
