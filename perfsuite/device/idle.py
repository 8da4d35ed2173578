"""Waits until nothing of this process runs on a card, whatever stream it is on; finds work that does not end."""

from __future__ import annotations

import threading
import time

MOST_SECONDS = 10.0
"""Longest wait. All that was enqueued by the caller has ended before."""


class _Wait(threading.Thread):
    """Waits for a card; CUDA has no such wait with an end."""

    def __init__(self, device: int) -> None:
        super().__init__(name="perfsuite waits for a card", daemon=True)
        self.device = device
        self.seconds = 0.0
        self.error: Exception | None = None

    def run(self) -> None:
        """Wait, and keep the time that it took, or the card's error."""
        import torch

        begun = time.perf_counter()
        try:
            torch.cuda.synchronize(self.device)
        except Exception as error:  # raised where somebody waits for this thread
            self.error = error
        self.seconds = time.perf_counter() - begun


_endless: dict[int, _Wait] = {}
"""By card: a wait that had not ended when its caller gave up. More of them would tell no more."""


def seconds_until_idle(device: int, most: float | None = None) -> float | None:
    """Seconds that all streams of that card took to end their work; None if some have not after `most`.

    most: by default MOST_SECONDS. Raises the error that the card has met.
    """
    end = time.monotonic() + (MOST_SECONDS if most is None else most)
    spent = 0.0
    for one in filter(None, (_endless.pop(device, None), _Wait(device))):
        if one.ident is None:
            one.start()
        one.join(max(0.0, end - time.monotonic()))
        if one.is_alive():
            _endless[device] = one
            return None
        if one.error is not None:
            raise one.error
        spent += one.seconds
    return spent
