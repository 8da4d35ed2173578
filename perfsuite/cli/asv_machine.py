"""Identifies this machine for asv, which keys its results by machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from perfsuite.history.commits import HistoryError

if TYPE_CHECKING:
    from perfsuite.history.machines import Machine


def this_machine(*, portable: bool, name: str | None) -> Machine:
    """This machine as asv's key of results; HistoryError without torch, which identifies it."""
    from perfsuite.history.machines import machine_of, named
    from perfsuite.record.fingerprint import environment

    try:
        import torch
    except ImportError as error:
        raise HistoryError(f"{error}: torch is needed to identify this machine") from None
    device = "cuda" if torch.cuda.is_available() and not portable else "cpu"
    return named(machine_of(environment(Path.cwd(), device=device)), name)
