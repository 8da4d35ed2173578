"""pytest-xdist: which card a worker takes, how many workers there are, and what travels to the controller."""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping
from typing import Any

import pytest


def worker_index(environ: Mapping[str, str]) -> int | None:
    """This process's number among the workers; None in the controller and without xdist."""
    name = environ.get("PYTEST_XDIST_WORKER", "")
    return int(name[2:]) if name.startswith("gw") and name[2:].isdecimal() else None


def is_controller(config: pytest.Config) -> bool:
    """Whether this process collects the results of workers instead of running tests."""
    distributed = getattr(config.option, "dist", "no") != "no" and getattr(config.option, "tx", None)
    return bool(distributed) and not hasattr(config, "workerinput")


def auto_workers(config: pytest.Config) -> int | None:
    """What `-n auto` means under --gpu: one worker a card. None leaves it to xdist."""
    if not config.getoption("gpu"):
        return None
    return len(config.hook.pytest_perfsuite_devices(config=config).cards)


def take_card(index: int, environ: MutableMapping[str, str], selectors: list[str]) -> None:
    """Leave worker `index` one card, by CUDA_VISIBLE_DEVICES; where workers outnumber the cards, they take turns.

    `selectors` are entries of an outer CUDA_VISIBLE_DEVICES where there is one: the worker indexes into them. Must
    run before anything makes a CUDA context.
    """
    if selectors:
        environ["CUDA_VISIBLE_DEVICES"] = selectors[index % len(selectors)]


def pin_order(environ: MutableMapping[str, str]) -> None:
    """Make CUDA number the cards as NVML does, so that the selectors that NVML gave mean the same to CUDA."""
    environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")


def workers_in(config: pytest.Config) -> int:
    """How many workers measure in this run; 1 without xdist."""
    return int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) if hasattr(config, "workerinput") else 1


def send(config: pytest.Config, key: str, value: Any) -> None:
    """Hand a plain value from a worker to the controller's `pytest_testnodedown`."""
    output = getattr(config, "workeroutput", None)
    if output is not None:
        output[key] = value
