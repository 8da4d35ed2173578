"""Registers this machine with asv, which keys its results by machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from perfsuite.history.commits import HistoryError

if TYPE_CHECKING:
    from perfsuite.history.machines import Machine


def this_machine(*, portable: bool, name: str | None) -> Machine:
    """Register this machine with asv and return it; HistoryError without torch, which identifies it."""
    from perfsuite.history.asv_files import asv_itself
    from perfsuite.history.machines import machine_of, named
    from perfsuite.record.fingerprint import environment

    try:
        import torch
    except ImportError as error:
        raise HistoryError(f"{error}: torch is needed to identify this machine") from None
    device = "cuda" if torch.cuda.is_available() and not portable else "cpu"
    machine = named(machine_of(environment(Path.cwd(), device=device)), name)
    asv_itself().machine.MachineCollection.save(machine["machine"], machine)
    return machine
