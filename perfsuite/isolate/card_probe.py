"""A trial that shows if a worker of a nursery opens memory of the card. Neither drivers nor sandboxes say so."""

from __future__ import annotations

import os
import socket
from typing import Protocol

from perfsuite.isolate.card_memory import CardMemoryError
from perfsuite.isolate.channel import Channel
from perfsuite.isolate.log import Log
from perfsuite.isolate.memory import Arena
from perfsuite.isolate.receipt import failure_in

SECONDS = 120.0
"""Longest wait for a CUDA context and one kernel on a busy machine."""
NUMBERS = 1024


class Forks(Protocol):
    """A nursery: it forks workers and ends them."""

    def worker(self, end: socket.socket, log: int) -> int: ...
    def leave(self, worker: int) -> None: ...


def why_not(nursery: Forks) -> str | None:
    """The reason that a worker of this nursery does not open the card's memory; None if it does."""
    import torch

    ours, theirs = socket.socketpair()
    log, worker, arena = Log(), None, None
    try:
        values = torch.arange(NUMBERS, dtype=torch.float32, device="cuda")
        arena = Arena([values], on_card=True)
        placed = arena.place(values)
        torch.cuda.synchronize()
        worker = nursery.worker(theirs, log.descriptor)
        theirs.close()
        channel = Channel(ours)
        ours.settimeout(SECONDS)
        for one in channel.introduced():
            os.close(one)
        channel.order({"do": "probe", "into": arena.describe(placed), "card": arena.card}, arena.descriptors)
        failed = failure_in(channel.receipt())
        if failed is not None:
            return f"a worker does not open the card's memory: {failed.error}: {failed.sentence}"[:200]
        arrived = torch.equal(placed, values + 1)
        return None if arrived else "what a worker writes into the card's memory does not arrive"
    except (CardMemoryError, EOFError, OSError, RuntimeError, ValueError) as error:
        told = log.summary() or str(error)
        return f"a worker does not open the card's memory: {type(error).__name__}: {told}"[:200]
    finally:
        if worker is not None:
            nursery.leave(worker)
        theirs.close()
        ours.close()
        log.close()
        if arena is not None:
            arena.close()
