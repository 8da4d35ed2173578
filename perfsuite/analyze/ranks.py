"""One process a GPU, joined by NCCL: runs a function on every rank and gathers what each returns."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

JOIN_SECONDS = 120.0


class RanksError(Exception):
    """A rank failed, or could not be started; the text is its last line."""


def run(world: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """`function(rank, *arguments)` in `world` processes, each with its own GPU as the current device.

    The function must be importable (no lambda), its arguments and what it returns must survive pickling. Raises
    RanksError where a rank fails.
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

    told = torch.tensor([calls], device="cuda")
    torch.distributed.broadcast(told, 0)
    return int(told.item())


def _rank(rank: int, world: int, folder: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    from datetime import timedelta

    import torch

    os.environ.setdefault("LOCAL_RANK", str(rank))
    torch.cuda.set_device(rank)
    torch.distributed.init_process_group(
        "nccl",
        init_method=f"file://{folder}/meeting",
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=JOIN_SECONDS),
        device_id=torch.device("cuda", rank),
    )
    try:
        torch.save(function(rank, *arguments), Path(folder) / f"{rank}.pt")
    finally:
        torch.distributed.destroy_process_group()
