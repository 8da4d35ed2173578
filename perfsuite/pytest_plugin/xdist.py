"""pytest-xdist: the card of each worker, the number of workers, and what travels between worker and controller."""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

    from perfsuite.pytest_plugin.run import Run


def is_worker(config: pytest.Config) -> bool:
    """True in an xdist worker."""
    return hasattr(config, "workerinput")


def is_controller(config: pytest.Config) -> bool:
    """True in a process that collects the results of workers instead of running tests."""
    distributed = getattr(config.option, "dist", "no") != "no" and getattr(config.option, "tx", None)
    return bool(distributed) and not is_worker(config)


def worker_index(environ: Mapping[str, str]) -> int | None:
    """This process's number among the workers; None in the controller and without xdist."""
    name = environ.get("PYTEST_XDIST_WORKER", "")
    return int(name[2:]) if name.startswith("gw") and name[2:].isdecimal() else None


def workers_in(config: pytest.Config) -> int:
    """The number of workers that measure in this run; 1 without xdist."""
    return int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) if is_worker(config) else 1


def workers_of_a_card(config: pytest.Config) -> int:
    """The most workers that share a card; 1 in a process that is no worker."""
    cards = selectors(config)
    return -(-workers_in(config) // len(cards)) if cards else 1


def auto_workers(config: pytest.Config) -> int | None:
    """The number of workers for `-n auto`: under --gpu one for each card. None leaves it to xdist."""
    if not config.getoption("gpu"):
        return None
    return len(config.hook.pytest_perfsuite_devices(config=config).cards)


def choose_card(config: pytest.Config) -> None:
    """Choose this process's card before anything touches CUDA."""
    # CUDA then numbers the cards as NVML does, so NVML's selectors mean the same to CUDA.
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    index = worker_index(os.environ) if is_worker(config) else None
    if index is not None:
        take_card(index, os.environ, selectors(config) or [])


def take_card(index: int, environ: MutableMapping[str, str], selectors: list[str]) -> None:
    """Leave worker `index` one of the cards, by CUDA_VISIBLE_DEVICES; if workers outnumber the cards, they take turns.

    selectors: the host's cards, or the entries of an outer CUDA_VISIBLE_DEVICES.
    """
    if selectors:
        environ["CUDA_VISIBLE_DEVICES"] = selectors[index % len(selectors)]


def selectors(config: pytest.Config) -> list[str] | None:
    """The cards of the host, as the controller sent them to this worker; None outside a worker."""
    return getattr(config, "workerinput", {}).get("perfsuite_selectors")


def brief_worker(run: Run, workerinput: dict[str, Any]) -> None:
    """Send the host's cards to a worker, before it starts."""
    if run.options.gpu:
        workerinput["perfsuite_selectors"] = [card.selector for card in run.devices.cards]


def report_to_controller(run: Run) -> None:
    """Hand a worker's complaints, and the part of the suite that it collected, to the `pytest_testnodedown` there."""
    output = run.config.workeroutput  # type: ignore[attr-defined]
    output["perfsuite_complaints"] = run.complaints
    output["perfsuite_part"] = None if run.part is None else vars(run.part)


def debrief_worker(run: Run, output: dict[str, Any] | None) -> None:
    """Take over a worker's complaints and part. Every worker collects the same tests, so each is kept once."""
    output = output or {}
    run.complaints += [one for one in output.get("perfsuite_complaints", ()) if one not in run.complaints]
    if found := output.get("perfsuite_part"):
        from perfsuite.record.run_lines import Part

        run.part = Part(**found)
