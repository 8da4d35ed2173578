"""A function with planted work, which can be sent to another process."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

LEAST_LAUNCHES = 8.0
"""Planted work that is due is enqueued once it takes this many times what its launch takes on the device."""


@dataclass
class Slowed:
    """The function, followed by work that lasts `share` of its duration: a wait on a CPU, a spin kernel on a card."""

    function: Callable[..., Any]
    share: float
    call_seconds: float | None = None
    """Seconds of a call on a card; None on a CPU, where each call is timed."""
    launch: float = 0.0
    """Seconds that a spin kernel takes besides its cycles."""
    a_cycle: float = 1.0
    """Seconds of a cycle of that kernel."""
    due: float = 0.0
    """Seconds of planted work that has not been enqueued yet: too little for a kernel of its own."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        output = self.function(*args, **kwargs)
        if self.call_seconds is None:
            end = time.perf_counter()
            end += self.share * (end - start)
            while time.perf_counter() < end:
                pass
            return output
        self.due += self.share * self.call_seconds
        if self.due >= LEAST_LAUNCHES * self.launch:
            import torch

            torch.cuda._sleep(max(1, round((self.due - self.launch) / self.a_cycle)))
            self.due = 0.0
        return output
