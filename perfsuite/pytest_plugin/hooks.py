"""The hooks of a run that measures, or that has a test which concerns perfsuite; `perfsuite.plugin` registers them.

Hooks import functions, not modules: pytester forgets modules between runs in one process, and `from package import
module` would find the forgotten one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

from perfsuite.pytest_plugin import concerns
from perfsuite.pytest_plugin.run import RUN, start

if TYPE_CHECKING:
    from perfsuite.case.ask import Ask
    from perfsuite.case.comparison import Comparison
    from perfsuite.device.cards import Devices
    from perfsuite.problems.base import Problem
    from perfsuite.settings import Settings


def pytest_configure(config: pytest.Config) -> None:
    run = start(config)
    if run.options.gating or run.targets is not None:
        config.pluginmanager.register(run, "perfsuite.run")
    if run.options.ray is not None and not run.collects_only:
        from perfsuite.pytest_plugin.ray_run import RayRun

        config.pluginmanager.register(RayRun(run), "perfsuite.ray")


def pytest_unconfigure(config: pytest.Config) -> None:
    if RUN in config.stash:
        config.stash[RUN].held.close()


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    run = session.config.stash[RUN]
    if not run.options.gating or run.worker or run.collects_only:
        return
    from perfsuite.pytest_plugin.record_place import open_journal

    open_journal(run)
    if run.options.gpu and not run.fresh and run.options.ray is None:  # over Ray each worker holds its own card
        from perfsuite.pytest_plugin.card_locks import hold_for_run

        hold_for_run(run)


# Collection.
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None]:
    run = config.stash[RUN]
    if run.targets is not None:
        run.targets.check_use(run, items)
    yield
    # After -k, -m and other plugins, so that the error rate is divided by what runs in all parts.
    if run.options.shard is not None:
        from perfsuite.pytest_plugin.shards import take_part

        take_part(run, items)


def pytest_collection_finish(session: pytest.Session) -> None:
    run = session.config.stash[RUN]
    if run.options.gating:
        from perfsuite.pytest_plugin.marks import planned_cases

        run.tests = len(session.items)
        if run.part is None:  # else the error rate is divided by the cases of all parts
            run.planned = planned_cases(session.items)


# One test.
@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    try:
        return (yield)
    finally:
        if concerns(item):
            from perfsuite.pytest_plugin.card_locks import release

            release(item)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if concerns(item):
        from perfsuite.pytest_plugin.admit import require_device

        require_device(item)
        if "benchmark" in getattr(item, "fixturenames", ()):
            from perfsuite.pytest_plugin.benchmark_bridge import prepare

            prepare(item)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, Any, Any]:
    if "benchmark" not in pyfuncitem.fixturenames or not concerns(pyfuncitem):
        return (yield)
    from perfsuite.pytest_plugin.benchmark_bridge import device_time

    with device_time(pyfuncitem):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    if not concerns(item):
        return (yield)
    from perfsuite.pytest_plugin.outcome import begin, decide

    begin(item)
    result = yield
    decide(item)
    return result


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    if not concerns(item):
        return (yield)
    from perfsuite.pytest_plugin.misuse import shorten
    from perfsuite.pytest_plugin.outcome import annotate

    shorten(item, call)
    report = yield
    annotate(item, call, report)
    return report


# Measuring, unless another plugin or a conftest answers first.
@pytest.hookimpl(trylast=True)
def pytest_perfsuite_devices(config: pytest.Config) -> Devices:
    from perfsuite.device.cards import find_devices, usable_devices
    from perfsuite.pytest_plugin.xdist import is_controller

    # A process that leaves the measuring to others does not import torch.
    elsewhere = is_controller(config) or config.stash[RUN].options.ray is not None
    return (find_devices if elsewhere else usable_devices)(os.environ)


@pytest.hookimpl(trylast=True)
def pytest_perfsuite_compare(config: pytest.Config, ask: Ask) -> Comparison:
    from perfsuite.pytest_plugin.measure import compare

    return compare(config.stash[RUN], ask)


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
    from perfsuite.analyze.resources import RESOURCES

    return float(RESOURCES[resource](problem, candidate, seed=settings.seed))


@pytest.hookimpl(trylast=True)
def pytest_perfsuite_side_by_side(
    problems: tuple[Problem, Problem], candidate: Callable[..., Any], settings: Settings
) -> tuple[float, float]:
    from perfsuite.analyze.resources import side_by_side

    return side_by_side(*problems, candidate, seed=settings.seed)


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_update_machine_info(config: pytest.Config, machine_info: dict[str, Any]) -> None:
    run = config.stash[RUN]
    if run.options.gpu and not run.cannot_measure:
        machine_info["perfsuite"] = run.fingerprint


# Several processes, with pytest-xdist.
@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    if RUN not in node.config.stash:
        return  # a config that was parsed and never configured, as in the tests of pytest-xdist
    from perfsuite.pytest_plugin.xdist import brief_worker

    brief_worker(node.config.stash[RUN], node.workerinput)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    if RUN not in node.config.stash:
        return
    from perfsuite.pytest_plugin.xdist import debrief_worker

    debrief_worker(node.config.stash[RUN], getattr(node, "workeroutput", None))


# Output and exit code.
def pytest_report_header(config: pytest.Config) -> list[str]:
    run = config.stash[RUN]
    if not run.options.gating:
        return []
    from perfsuite.pytest_plugin.present import header

    return header(run)


@pytest.hookimpl(tryfirst=True)
def pytest_report_teststatus(report: pytest.TestReport) -> Any:
    if report.when != "call" or report.outcome == "rerun" or not getattr(report, "perfsuite_cases", None):
        return None
    from perfsuite.pytest_plugin.present import status_word

    return status_word(report)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    run = config.stash[RUN]
    if not run.worker and (run.options.gating or run.complaints):
        from perfsuite.pytest_plugin.present import write_summary

        write_summary(run, terminalreporter)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    run = session.config.stash[RUN]
    if not run.options.gating and not run.complaints:
        return
    if run.worker:
        from perfsuite.pytest_plugin.xdist import report_to_controller

        report_to_controller(run)
        return
    from perfsuite.pytest_plugin.exit_code import exit_code
    from perfsuite.pytest_plugin.record_place import close, how_ended

    if not run.collects_only:
        close(run, how_ended(session, exitstatus), exit=exit_code(run, int(exitstatus)))
    session.exitstatus = exit_code(run, int(exitstatus))
