"""Judges candidates on the machines of a Ray cluster: a pool for each card model that is asked for."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from perfsuite.judge.engine import Terms
from perfsuite.judge.jobs import Job
from perfsuite.judge.pool import WORKER, Pool
from perfsuite.judge.promise import Stream
from perfsuite.workers.ray_cluster import Cluster


@contextlib.contextmanager
def ray_pools(
    cluster: Cluster,
    terms: Terms,
    *,
    models: Sequence[str] = (),
    most: int | None = None,
    beside: int = 1,
    trusted: bool = False,
    files: Sequence[Path] = (),
) -> Iterator[dict[str | None, Pool]]:
    """A pool for each card model, by Ray's name; the key is None if any card, or a processor, will do.

    most: cards of each pool, or workers on processors (default: all cards, or one a node). beside: workers on each
    card, which take turns to time. trusted: source text may run on
    machines without a sandbox. files: those that the problem reads; they must be equal on all machines.
    UserError if no machine has such a card, or if one lacks what this machine has.
    """
    cards, stream = terms.device == "cuda", Stream(terms.one_in)
    terms = replace(terms, sandboxed=not trusted)
    made: dict[str | None, Pool] = {}
    with contextlib.ExitStack() as opened:
        for model in models or (None,):
            workers = cluster.workers(("-m", WORKER), model, cards=cards, most=most, on_a_card=beside)
            cluster.check(cluster.usable(model, cards=cards), files, sandboxed=not trusted)
            made[model] = opened.enter_context(Pool(terms, children=workers, stream=stream))
        yield made


def answers(pools: Mapping[str | None, Pool], jobs: Sequence[Job]) -> Iterator[tuple[str | None, dict[str, Any]]]:
    """(model, answer) of each job from each pool, in the order in which they are ready."""
    found: queue.SimpleQueue[tuple[str | None, dict[str, Any]]] = queue.SimpleQueue()

    def follow(model: str | None, pool: Pool) -> None:
        for answer in pool.answers(jobs):
            found.put((model, {**answer, "card": answer.get("card") or model}))

    for pair in pools.items():
        threading.Thread(target=follow, args=pair, daemon=True).start()
    for _ in range(len(pools) * len({job.id for job in jobs})):
        yield found.get()
