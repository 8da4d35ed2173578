"""Candidates that another process can import: honest ones, and some that take their process with them."""

from __future__ import annotations

import dataclasses
import os
import signal
import time
from typing import Any

import torch

from perfsuite.oracle import Judgement

HOARD: list[torch.Tensor] = []


def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Honest."""
    return a @ b


def half_right(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The lower half is left as zeros."""
    out = a @ b
    out[a.shape[0] // 2 :] = 0
    return out


def segfaults(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """As an access outside its memory would."""
    os.kill(os.getpid(), signal.SIGSEGV)
    return a @ b


def hangs(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Never returns."""
    while True:
        time.sleep(1)


def eats_memory(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Keeps all that it can get."""
    while True:
        HOARD.append(torch.empty(1 << 28))


def leaves(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Ends its process as if all were well."""
    os._exit(0)


def raises(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Fails by name."""
    raise NotImplementedError("m is odd")


def zeroes_its_inputs(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """So that zeros would be right."""
    b.zero_()
    return a @ b


class Lazy(torch.Tensor):
    """No plain tensor."""


def lazy(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Returns one."""
    return (a @ b).as_subclass(Lazy)


def stops_the_clock(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Replaces, in its own process, the timer and the judge; and takes its time."""
    import sys

    time.perf_counter_ns = lambda: 0  # type: ignore[assignment]
    sys.modules["perfsuite.oracle.form"].check_kind = lambda *args: None  # type: ignore[attr-defined]
    for module in list(sys.modules.values()):
        if hasattr(module, "judge"):
            module.judge = lambda *args: Judgement(True, None, "right")  # type: ignore[attr-defined]
    time.sleep(2e-3)
    return a @ b


@dataclasses.dataclass
class Parts:
    """A result, and an argument, in parts."""

    product: Any
    rest: Any


def in_parts(both: Parts) -> Parts:
    """Honest."""
    return Parts(both.product @ both.rest["b"], {"sum": both.product.sum(), "count": 3, "view": both.rest["b"].t()})


def in_wrong_parts(both: Parts) -> Parts:
    """One key is another."""
    found = in_parts(both)
    found.rest["total"] = found.rest.pop("sum")
    return found


def above_zero(a: torch.Tensor) -> torch.Tensor:
    """Of a size that depends on data."""
    return a[a > 0]


def fails_inside(a: torch.Tensor) -> torch.Tensor:
    """Raises in a line of its code."""
    return a.view(7, 9)
