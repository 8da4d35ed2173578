"""The pytest hooks of perfsuite, and nothing else.

Loading this module imports neither torch nor numpy, and takes under 3 ms. Hooks that run for every test of every suite
ask first whether the test `concerns` perfsuite, and only then import what deals with it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

from perfsuite.pytest_plugin import hookspec, options, workers
from perfsuite.pytest_plugin import run as runs
from perfsuite.pytest_plugin.fixtures import gpu, gpu_memory, gpu_rng, gpus, perf
from perfsuite.pytest_plugin.run import RUN, Run, concerns

if TYPE_CHECKING:
    from perfsuite.case.ask import Ask
    from perfsuite.case.comparison import Comparison
    from perfsuite.device.cards import Devices
    from perfsuite.problems.base import Problem
    from perfsuite.settings import Settings

__all__ = ["gpu", "gpu_memory", "gpu_rng", "gpus", "perf"]


# What the user can say.
def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.add_hookspecs(hookspec)


def pytest_addoption(parser: pytest.Parser) -> None:
    options.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    from perfsuite.pytest_plugin import markers

    for line in markers.help_lines():
        config.addinivalue_line("markers", line)
    run = runs.start(config)
    config.pluginmanager.register(Results(run), "perfsuite.results")


def pytest_unconfigure(config: pytest.Config) -> None:
    if RUN in config.stash:
        config.stash[RUN].held.close()


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    run = session.config.stash[RUN]
    runs.open_journal(run)
    runs.lock_cards(run)


# Collection: markers are checked while a module is collected, so that a bad one is a collection error in every mode.
@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem() -> Generator[None, Any, Any]:
    made = yield
    for node in made if isinstance(made, list) else [made]:
        if isinstance(node, pytest.Item) and concerns(node):
            from perfsuite.pytest_plugin import gate

            gate.check_markers(node)
    return made


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    run = config.stash[RUN]
    if run.targets is not None:
        run.targets.check_use(run, items)


def pytest_collection_finish(session: pytest.Session) -> None:
    run = session.config.stash[RUN]
    if run.options.gating:
        from perfsuite.pytest_plugin import gate

        run.planned = gate.planned_cases(session.items)


# One test.
@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    try:
        return (yield)
    finally:
        runs.release(item)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if concerns(item):
        from perfsuite.pytest_plugin import gate

        gate.require_device(item)
        if "benchmark" in getattr(item, "fixturenames", ()):
            from perfsuite.pytest_plugin import benchmark_bridge

            benchmark_bridge.prepare(item)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, Any, Any]:
    if "benchmark" not in pyfuncitem.fixturenames or not concerns(pyfuncitem):
        return (yield)
    from perfsuite.pytest_plugin import benchmark_bridge

    with benchmark_bridge.device_time(pyfuncitem):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    result = yield
    if concerns(item):
        from perfsuite.pytest_plugin import gate

        gate.decide(item)
    return result


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    if call.excinfo is not None and concerns(item):
        from perfsuite.pytest_plugin import misuse

        misuse.shorten(item, call)
    report = yield
    if concerns(item):
        from perfsuite.pytest_plugin import gate

        gate.annotate(item, call, report)
    return report


# Measuring, unless another plugin or a conftest answers first.
@pytest.hookimpl(trylast=True)
def pytest_perfsuite_devices(config: pytest.Config) -> Devices:
    from perfsuite.device.cards import find_devices, usable_devices

    # The controller never measures, so it is spared the import of torch.
    return (find_devices if workers.is_controller(config) else usable_devices)(os.environ)


@pytest.hookimpl(trylast=True)
def pytest_perfsuite_compare(config: pytest.Config, ask: Ask) -> Comparison:
    options = config.stash[RUN].options
    if options.isolate:
        from perfsuite.isolate import compare_isolated

        return compare_isolated(ask, options.isolate_seconds)

    from perfsuite.case.run import run_case

    return run_case(ask)


@pytest.hookimpl(trylast=True)
def pytest_perfsuite_device_times(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], samples: int, settings: Settings
) -> list[float]:
    from perfsuite.pytest_plugin.benchmark_bridge import device_times

    return device_times(function, args, kwargs, samples, settings)


@pytest.hookimpl(trylast=True)
def pytest_perfsuite_resource(
    resource: str, problem: Problem, candidate: Callable[..., Any], settings: Settings
) -> float:
    from perfsuite.analyze import resources

    measure = {
        "peak_bytes": resources.peak_bytes,
        "launches": resources.kernel_launches,
        "synchronises": resources.synchronises,
        "seconds": resources.seconds,
        "attainable_flops": resources.attainable_flops,
        "attainable_flops_reading": resources.attainable_flops_reading,
    }
    return float(measure[resource](problem, candidate, seed=settings.seed))


@pytest.hookimpl(trylast=True)
def pytest_perfsuite_side_by_side(
    problems: tuple[Problem, Problem], candidate: Callable[..., Any], settings: Settings
) -> tuple[float, float]:
    from perfsuite.analyze import resources

    return resources.side_by_side(*problems, candidate, seed=settings.seed)


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_update_machine_info(config: pytest.Config, machine_info: dict[str, Any]) -> None:
    run = config.stash[RUN]
    if run.options.gpu and not run.cannot_measure():
        machine_info["perfsuite"] = run.fingerprint()


# Several processes, with pytest-xdist.
@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    return workers.auto_workers(config)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    runs.brief_worker(node.config.stash[RUN], node.workerinput)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    runs.debrief_worker(node.config.stash[RUN], getattr(node, "workeroutput", None))


# What the user sees.
def pytest_report_header(config: pytest.Config) -> list[str]:
    run = config.stash[RUN]
    if not run.options.gating:
        return []
    from perfsuite.pytest_plugin import present

    return present.header(run)


@pytest.hookimpl(tryfirst=True)
def pytest_report_teststatus(report: pytest.TestReport) -> Any:
    if report.when != "call" or not getattr(report, "perfsuite_cases", None):
        return None
    from perfsuite.pytest_plugin import present

    return present.status_word(report)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    run = config.stash[RUN]
    if not run.worker and (run.options.gating or run.complaints):
        from perfsuite.pytest_plugin import present

        present.write_summary(run, terminalreporter)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    session.exitstatus = runs.finish(session.config.stash[RUN], int(exitstatus))


class Results:
    """Takes the reports of this run; an object of its own, since these hooks are not told the config."""

    def __init__(self, run: Run) -> None:
        self.run = run

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.run.take(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.run.failures += report.failed
