"""The clocks of an isolated calibration: both sides run in processes of their own, as with --perf-isolate."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from perfsuite.clock.base import Sides
from perfsuite.isolate.card_clock import IsolatedCardClock
from perfsuite.isolate.clock import IsolatedClock
from perfsuite.isolate.remote import Remote
from perfsuite.isolate.worker import SHARE_OF_MEMORY
from perfsuite.settings import DeviceKind, Settings

REQUEST_SECONDS = 60.0


class _Processes:
    """Before an isolated clock: starts the processes of both sides, and ends them when it closes."""

    def __init__(self, candidate: Callable[..., Any], sides: Sides, device: DeviceKind, seed: int) -> None:
        room = int(SHARE_OF_MEMORY * os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGESIZE"))
        limits: dict[str, Any] = {"device": device, "seconds": REQUEST_SECONDS, "room": room}
        made = [Remote(candidate, **limits), Remote(sides.rival, trusted=True, **limits)]
        self._processes = made
        both, settings = Sides(made[0], sides.rival, sides.make_inputs), Settings(device, seed=seed)
        super().__init__(both, made[0], settings, made[1])  # type: ignore[call-arg]

    def renew(self) -> None:
        """Forget what earlier set-ups have measured, but for what a run's gates share: the cost beyond an order."""

    def close(self) -> None:
        super().close()  # type: ignore[misc]
        for one in self._processes:
            one.close()


class IsolatedCalibrationClock(_Processes, IsolatedClock):
    """On processors."""


class CardCalibrationClock(_Processes, IsolatedCardClock):
    """On a card, by events."""

    def renew(self) -> None:
        self.launches = 0
        self._least_read = None
        self._workers["rival"].remote.order_costs.clear()
