"""A process on some machine of a Ray cluster that answers lines. Ray places it, and holds its card for it."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import Any

from perfsuite.device.cards import find_devices
from perfsuite.device.locks import hold, hold_together
from perfsuite.outcome import one_line
from perfsuite.workers.child import BESIDE, Child, DiedError

WAIT_SECONDS = 600.0
"""The longest wait for a place: machines may come back, and Ray's autoscaler may start others."""
GRACE_SECONDS = 60.0
"""A machine that answers so much later than its limit is lost."""
_POLL_SECONDS = 0.5


class RayChild(Child):
    """A `Child` that runs where Ray finds a place for it, and elsewhere when that place is lost."""

    def __init__(
        self,
        words: Sequence[str],
        model: str | None = None,
        *,
        cards: bool = False,
        beside: int = 1,
        on_a_card: int = 1,
    ) -> None:
        """words: as of `Child`. model: Ray's name of the card's model; None for any. cards: it gets a card.

        beside: workers that share the processors of one machine. on_a_card: those that share a card, in turns.
        """
        super().__init__(words, place="no place yet")
        self._model, self._cards, self._beside, self._on_a_card = model, cards, beside, on_a_card
        self._actor: Any = None
        self._where: Any = None
        self._pid: int | None = None
        self._closed = False

    @property
    def pid(self) -> int | None:
        """The number, on its machine, of the process that Ray started; None while there is none."""
        return self._pid

    def prepare(self) -> bool:
        import ray

        until = time.monotonic() + WAIT_SECONDS
        while not self._closed and time.monotonic() < until:
            if self._pid is not None:
                return True
            if self._actor is None:
                wanted: dict[str, Any] = {"num_cpus": 1, "scheduling_strategy": "SPREAD"}
                wanted |= {"num_gpus": 1 / self._on_a_card} if self._cards else {}
                wanted |= {"accelerator_type": self._model} if self._model else {}
                shares = self._beside, self._on_a_card
                self._actor = ray.remote(_Holder).options(**wanted).remote(self._words, self._cards, *shares)
                self._where = self._actor.where.remote()
            if not ray.wait([self._where], timeout=_POLL_SECONDS)[0]:
                continue
            try:
                self.place, self._pid = ray.get(self._where)
                self.starts += 1
            except ray.exceptions.RayError as error:
                self._drop()
                self.place = f"nowhere: {_brief(error)}"
                time.sleep(_POLL_SECONDS)
        return False

    def ask(self, request: bytes, seconds: float | None = None) -> bytes:
        import ray

        actor = self._actor
        if actor is None or self._pid is None:
            raise DiedError("it has no place")
        try:
            limit = None if seconds is None else seconds + GRACE_SECONDS
            answer, said = ray.get(actor.ask.remote(request, seconds), timeout=limit)
        except (ray.exceptions.RayError, ValueError) as error:  # ValueError: Ray was shut down
            where = self.place
            self._drop()
            raise DiedError(f"on {where}: {_brief(error)}") from None
        if answer is None:
            raise DiedError(f"on {self.place}: {said}")
        return bytes(answer)

    def end(self) -> None:
        """End the process; the thread that asks it gets a DiedError."""
        self._drop()

    def close(self) -> None:
        """End the process and look for no other place."""
        self._closed = True
        self._drop()

    def _drop(self) -> None:
        import ray

        actor, self._actor, self._pid = self._actor, None, None
        if actor is not None and ray.is_initialized():
            ray.kill(actor)


class _Holder:
    """Ray's actor: holds a card, and the process that uses it."""

    def __init__(self, words: Sequence[str], cards: bool, beside: int, on_a_card: int) -> None:
        self._held = ExitStack()
        if cards:
            lock = hold if on_a_card == 1 else hold_together
            self._held.enter_context(lock((card.uuid for card in find_devices(os.environ).cards), "run"))
        with suppress(PermissionError):  # Ray lets its workers wait for every other process
            os.setpriority(os.PRIO_PROCESS, 0, 0)
        # Ray allows one thread; a worker gets its share of the machine, as in a run without Ray.
        threads = max(len(os.sched_getaffinity(0)) // beside, 1)
        # Ray numbers the cards as NVML does.
        places = {"OMP_NUM_THREADS": str(threads), "CUDA_DEVICE_ORDER": "PCI_BUS_ID", BESIDE: str(on_a_card)}
        self._child = Child(words, environment=places)

    def where(self) -> tuple[str, int]:
        """The machine, with the card, and this process's number."""
        import ray

        card = os.environ.get("CUDA_VISIBLE_DEVICES")
        address = ray.util.get_node_ip_address()
        return (f"{address} card {card}" if card else address), os.getpid()

    def ask(self, request: bytes, seconds: float | None) -> tuple[bytes | None, str]:
        """The answer; or None, and the end of the output of the process that died."""
        try:
            return self._child.ask(request, seconds), ""
        except DiedError as died:
            return None, str(died)


def _brief(error: Exception) -> str:
    """Ray's words about a lost worker, without its advice."""
    return one_line(f"{type(error).__name__}: {error}".partition("Some common causes")[0])
