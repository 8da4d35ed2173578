"""The pools of `perfsuite judge`, on this machine or over Ray, and the table of answers by card model."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from perfsuite.cli.cards import held, tell
from perfsuite.device.cards import usable_devices
from perfsuite.judge.beside import on_each_card
from perfsuite.judge.engine import Terms
from perfsuite.judge.pool import Pool
from perfsuite.judge.sanitize import check_tool
from perfsuite.outcome import UserError
from perfsuite.report import figures
from perfsuite.settings import DeviceKind

Pools = Mapping[str | None, Pool]


@contextlib.contextmanager
def pools(arguments: argparse.Namespace, terms: Mapping[str, Any], files: Sequence[Path]) -> Iterator[Pools]:
    """A pool for each card model of --card-model; one of the key None without that option.

    terms: fields of Terms besides the device, which is chosen here. files: those that the problem reads.
    """
    models = _models(arguments)
    if arguments.ray is None:
        cards = usable_devices(os.environ).cards if arguments.device != "cpu" else ()
        if arguments.device == "cuda" and not cards:
            raise UserError(f"--device cuda, but {usable_devices(os.environ).missing}")
        jobs = 1 if arguments.jobs is None else arguments.jobs
        cards = tuple(cards[:jobs])
        given = _checked(terms, "cuda" if cards else "cpu")
        if given.sanitize:
            check_tool(given.device)
        beside = arguments.beside
        if beside is None:
            beside = on_each_card(cards, len(set(arguments.files)))
        local = Pool(given, jobs=jobs, cards=[card.selector for card in cards], beside=beside)
        with local, held(cards):
            yield {None: local}
        return
    from perfsuite.judge.ray_pool import ray_pools
    from perfsuite.workers.ray_cluster import connected

    with connected(arguments.ray, open=arguments.ray_open) as cluster:
        wanted = arguments.device == "cuda" or bool(models)
        on_cards = wanted or (arguments.device == "auto" and any(one.cards for one in cluster.machines))
        given = _checked(terms, "cuda" if on_cards else "cpu")
        own = {
            "most": arguments.jobs,
            "beside": 1 if arguments.beside is None else arguments.beside,
            "trusted": arguments.trust_candidates,
            "files": files,
        }
        with ray_pools(cluster, given, models=models, **own) as made:
            count = sum(len(pool.state) for pool in made.values())
            tell(f"Ray at {cluster.address}: {count} workers on {len(cluster.machines)} nodes")
            yield made


def _models(arguments: argparse.Namespace) -> list[str]:
    if arguments.card_model is None:
        return []
    if arguments.ray is None:
        raise UserError("--card-model needs --ray; without Ray the cards of this machine are used")
    models = [one.strip() for one in arguments.card_model.split(",")]
    if not all(models) or len(set(models)) < len(models):
        raise UserError(f"--card-model is {arguments.card_model!r}; it must be different names such as H100,H200")
    if arguments.device == "cpu":
        raise UserError("--card-model and --device cpu exclude each other")
    return models


def _checked(terms: Mapping[str, Any], device: DeviceKind) -> Terms:
    made = Terms(device=device, **terms)
    made.settings(1)
    return made


def table(found: Sequence[tuple[str | None, Mapping[str, Any]]], models: Sequence[str | None]) -> list[str]:
    """The lines of a table: a row for each candidate, and a column for each card model."""
    cells = {(answer["id"], model): _cell(answer) for model, answer in found}
    ids = sorted({id for id, _ in cells})
    rows = [["candidate", *map(str, models)], *([id, *(cells.get((id, one), "-") for one in models)] for id in ids)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _cell(answer: Mapping[str, Any]) -> str:
    """ "MET 0.95 (0.94 to 0.96)", or the reason of an answer without a speed."""
    if answer["speed"] is None:
        return f"{answer['verdict']} {answer['reason']}"
    ends = f"{figures.ratio(answer['speed_low'])} to {figures.ratio(answer['speed_high'])}"
    return f"{answer['verdict']} {figures.ratio(answer['speed'])} ({ends})"
