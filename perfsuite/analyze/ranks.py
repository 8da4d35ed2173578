"""Runs a function in one process a GPU, joined by NCCL, and gathers the results."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

JOIN_TIMEOUT = timedelta(minutes=2)


class RanksError(Exception):
    """A rank failed, or did not start; the text is the last line of its output."""


def run(world: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """`function(rank, *arguments)` in `world` processes, each with its own GPU as the current device.

    The function must be importable (no lambda). Its arguments and its result must survive pickling. Raises RanksError.
    """
    import torch

    with tempfile.TemporaryDirectory(prefix="perfsuite-ranks-") as folder:
        try:
            torch.multiprocessing.spawn(_rank, (world, folder, function, arguments), nprocs=world)
        except (torch.multiprocessing.ProcessRaisedException, torch.multiprocessing.ProcessExitedException) as error:
            raise RanksError(str(error).strip().splitlines()[-1]) from None
        return [torch.load(Path(folder) / f"{rank}.pt", weights_only=False) for rank in range(world)]


def agree(calls: int) -> int:
    """The first rank's number, on every rank."""
    import torch

    agreed = torch.tensor([calls], device="cuda")
    torch.distributed.broadcast(agreed, 0)
    return int(agreed.item())


def _rank(rank: int, world: int, folder: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    import torch

    os.environ.setdefault("LOCAL_RANK", str(rank))
    torch.cuda.set_device(rank)
    card, meeting = torch.device("cuda", rank), f"file://{folder}/meeting"
    torch.distributed.init_process_group(
        "nccl", init_method=meeting, rank=rank, world_size=world, timeout=JOIN_TIMEOUT, device_id=card
    )
    try:
        torch.save(function(rank, *arguments), Path(folder) / f"{rank}.pt")
    finally:
        torch.distributed.destroy_process_group()
