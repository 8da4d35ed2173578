"""The clock of an isolated candidate: the parent measures from the order to the receipt."""

from __future__ import annotations

import time
from typing import Any

from perfsuite.clock.base import SideFailedError, Sides
from perfsuite.clock.cache import l2_bytes
from perfsuite.clock.host import HostClock
from perfsuite.clock.rounds import Side
from perfsuite.guards.poison import poison
from perfsuite.isolate.memory import Arena
from perfsuite.isolate.remote import Remote
from perfsuite.outcome import UnjudgeableError
from perfsuite.problems.base import Inputs
from perfsuite.problems.tensors import copy_in_place, map_tensors, tensors_in
from perfsuite.settings import Settings

NOTE = "isolated: timed by the host, between order and receipt; launches count"


class IsolatedClock(HostClock):
    """The host clock, but the candidate's calls run in its process, many calls for each order.

    The rival runs in the parent. The candidate's time is less that of an empty order. On a GPU the clock waits for both
    sides, so a launch time that exceeds the device time counts.
    """

    def __init__(self, sides: Sides, remote: Remote, settings: Settings) -> None:
        super().__init__(sides, cache=settings.cache, seed=settings.seed, note=NOTE)
        self._remote, self._device = remote, settings.device
        self._arena: Arena | None = None
        self._results: list[Any] = []

    def close(self) -> None:
        super().close()
        self._results = []

    def _cache_bytes(self) -> int:
        if self._device == "cpu":
            return super()._cache_bytes()
        import torch

        return l2_bytes(torch.cuda.current_device())

    def _made(self, sets: list[Inputs]) -> list[Inputs]:
        """The sets, and room for two results, in memory that the worker shares."""
        result, other = (inputs.call(self.sides.rival) for inputs in (sets[0], sets[-1]))
        if [one.shape for one in tensors_in(result)] != [one.shape for one in tensors_in(other)]:
            raise UnjudgeableError("the result's size depends on data; run without --perf-isolate")
        slots = [map_tensors(result, copy_in_place) for _ in range(2)]
        self._arena = Arena(Arena.room([sets, slots]))
        placed = [map_tensors(inputs, self._arena.place) for inputs in sets]
        self._results = [map_tensors(slot, self._arena.place) for slot in slots]
        arguments = [(inputs.args, dict(inputs.kwargs)) for inputs in placed]
        where = self._arena.describe([arguments, self._results])
        try:
            self._remote.ask({"do": "sets", "sets": where[0], "buffers": where[1]}, self._arena.descriptor)
        except RuntimeError as error:
            raise SideFailedError("candidate", error) from error
        return placed

    def _run(self, side: Side, start: int, calls: int, chosen: int) -> tuple[float, Any, Any]:
        if side == "rival":
            return self._run_here(start, calls, chosen)
        poison(self._results)
        # The worker does not wait for this process's stream: inputs and poison must be there.
        self._wait()
        try:
            seconds = self._remote.timed({"do": "run", "start": start, "calls": calls, "chosen": chosen})
            self._remote.rest()
        except RuntimeError as error:
            raise SideFailedError("candidate", error) from error
        return seconds, self._results[0], self._results[1]

    def _run_here(self, start: int, calls: int, chosen: int) -> tuple[float, Any, Any]:
        import torch

        output, kept = None, None
        self._wait()
        begin = time.perf_counter_ns()
        try:
            with torch.no_grad():
                for call in range(calls):
                    output = self._sets[(start + call) % len(self._sets)].call(self.sides.rival)
                    if call == chosen:
                        kept = output
            self._wait()
        except Exception as error:
            raise SideFailedError("rival", error) from error
        return (time.perf_counter_ns() - begin) / 1e9, kept, output

    def _wait(self) -> None:
        if self._device == "cuda":
            import torch

            torch.cuda.synchronize()
