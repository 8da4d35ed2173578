"""The clock of an isolated candidate: the parent measures from the order to the receipt."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from perfsuite.clock.base import SideFailedError, Sides, TimedCall
from perfsuite.clock.cache import l2_bytes
from perfsuite.clock.deck import ranges
from perfsuite.clock.host import HostClock
from perfsuite.clock.rounds import Round, Side
from perfsuite.guards.poison import poison
from perfsuite.isolate.memory import Arena, copy_values
from perfsuite.isolate.remote import CandidateError, FormError, Remote
from perfsuite.outcome import Reason, UnjudgeableError
from perfsuite.problems.base import Inputs
from perfsuite.problems.tensors import copy_in_place, map_tensors, tensors_in
from perfsuite.settings import Settings
from perfsuite.verdict.sentence import time_text

NOTE = "isolated: timed by the host, between order and receipt; launches count"
MOST_SLOTS, SLOT_BYTES = 65, 1 << 23
"""Results of a sample that are handed over, at most, and the memory for them. To make so many of them after the receipt
takes a good part of the sample's time. Two if the rival has no process, whose hand-over would be the measure."""
FEWEST_HANDED, LATE_SHARE = 16, 0.85
"""Samples by which the hand-over is judged, and the share of them in which the candidate's must take longer."""
TIMES_CLAIMED, LEAST_LATE_SECONDS = 2.0, 2e-5
APART = "the rival runs in a process of its own as well"
HERE = "the rival runs in this process"


class IsolatedClock(HostClock):
    """The host clock, but the calls of the candidate, and those of the rival where it can be sent, run in processes.

    A side's time is less that of an empty order. While one side is timed, the other's process is stopped: two pools of
    threads would spin against each other. On a GPU a launch time that exceeds the device time counts.
    """

    def __init__(self, sides: Sides, remote: Remote | None, settings: Settings, rival: Remote | None = None) -> None:
        """remote: the candidate's process; that of a second rival, to time the rival against itself; or None."""
        note = f"{NOTE}; {APART if rival is not None else HERE}"
        note += "" if remote is None else f"; {remote.sandbox}"
        # Nothing that the candidate does is done in this process.
        super().__init__(replace(sides, watch=None), cache=settings.cache, seed=settings.seed, note=note)
        self._remotes: dict[Side, Remote | None] = {"candidate": remote, "rival": rival}
        self._device = settings.device
        self._results: dict[Side, list[Any]] = {}
        self._said_reused = False
        self._handed_over: dict[Side, list[float]] = {"candidate": [], "rival": []}
        """Seconds from the order to hand over the results of a whole sample until it is done."""
        self._claimed: list[float] = []
        """Seconds of the candidate's whole samples."""
        self._mirror: list[Inputs] = []
        """The rival's copies of the sets, in memory that the candidate does not share."""
        self._arenas: list[Arena] = []

    def setup(self) -> None:
        import torch

        threads = torch.get_num_threads()
        try:
            super().setup()
        finally:
            torch.set_num_threads(threads)
        self._copy_to_rival([(0, len(self._sets))])

    def rounds(self, count: int) -> list[Round]:
        import torch

        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # threads that move inputs would spin while a side is timed
        try:
            return super().rounds(count)
        finally:
            torch.set_num_threads(threads)

    def close(self) -> None:
        super().close()
        self._results, self._mirror = {}, []
        self._free()
        for remote in self._remotes.values():
            if remote is not None:
                remote.resume()

    def _free(self) -> None:
        """Close the arenas. Memory that a tensor still uses stays until that tensor goes."""
        while self._arenas:
            self._arenas.pop().close()

    def _cache_bytes(self) -> int:
        if self._device == "cpu":
            return super()._cache_bytes()
        import torch

        return l2_bytes(torch.cuda.current_device())

    def _made(self, sets: list[Inputs]) -> list[Inputs]:
        """The sets, and room for some results, in memory that the candidate's process shares, and no other."""
        import torch

        result, other = (inputs.call(self.sides.rival) for inputs in (sets[0], sets[-1]))
        if [one.shape for one in tensors_in(result)] != [one.shape for one in tensors_in(other)]:
            raise UnjudgeableError("the result's size depends on data; run without --perf-isolate")
        size = sum(one.numel() * one.element_size() for one in tensors_in(result))
        count = 2 if self._remotes["rival"] is None else max(2, min(MOST_SLOTS, SLOT_BYTES // max(1, size)))
        slots = [map_tensors(result, copy_in_place) for _ in range(count)]
        self._free()
        placed = self._handed("candidate", sets, slots)
        if self._remotes["rival"] is not None:
            self._mirror = self._handed("rival", sets, slots)
        torch.set_num_threads(1)
        return placed

    def _handed(self, side: Side, sets: list[Inputs], slots: list[Any]) -> list[Inputs]:
        """The sets in an arena that this side's process alone shares."""
        remote = self._remotes[side]
        try:
            arena = Arena([sets, slots], on_card=False) if remote is None else remote.arena([sets, slots])
        except CandidateError as error:
            raise SideFailedError(side, error) from error
        self._arenas.append(arena)
        placed = [map_tensors(inputs, arena.place) for inputs in sets]
        self._results[side] = [map_tensors(slot, arena.place) for slot in slots]
        arguments = [(inputs.args, dict(inputs.kwargs)) for inputs in placed]
        if remote is None:
            return placed
        where = arena.describe([arguments, self._results[side]])
        try:
            remote.ask({"do": "sets", "sets": where[0], "buffers": where[1]}, arena)
        except RuntimeError as error:
            raise SideFailedError(side, error) from error
        return placed

    def _round(self, *, keeper: bool, hard: str | None = None) -> Round:
        start = self._next
        one = super()._round(keeper=keeper, hard=hard)
        self._copy_to_rival(ranges(start, self.launches, len(self._sets)))
        return one

    def _copy_to_rival(self, parts: list[tuple[int, int]]) -> None:
        for start, end in parts if self._mirror else ():
            for mine, theirs in zip(self._sets[start:end], self._mirror[start:end], strict=True):
                for one, other in zip(tensors_in(mine), tensors_in(theirs), strict=True):
                    copy_values(one, other)

    def _run(self, side: Side, start: int, calls: int, chosen: int) -> tuple[float, Any, Any]:
        mine, theirs = self._remotes[side], self._remotes["rival" if side == "candidate" else "candidate"]
        if theirs is not None:
            theirs.stop()
        if mine is None:
            return self._run_here(start, calls, chosen)
        results = self._results[side]
        if side == "candidate":
            poison(results)
        elif self.sides.written is not None:
            self._copy_to_rival(ranges(start, calls, len(self._sets)))
        # Which results are asked for is drawn where the worker cannot see it; it does not know which of them is judged.
        asked = self._secret.sample([call for call in range(calls) if call != chosen], min(calls, len(results) - 1) - 1)
        asked.insert(place := self._secret.randint(0, len(asked)), chosen)
        # The worker does not wait for this process's stream: inputs and poison must be there.
        self._wait()
        try:
            mine.resume()
            seconds = mine.timed({"do": "run", "start": start, "calls": calls})
            begin = time.perf_counter()
            reused = mine.ask({"do": "hand", "chosen": asked}).get("reused")
            if calls == self.launches:
                self._handed_over[side].append(time.perf_counter() - begin)
                self._claimed += [seconds] if side == "candidate" else []
        except RuntimeError as error:
            raise SideFailedError(side, error) from error
        self._said_reused = isinstance(reused, list) and len(reused) == len(asked) and reused[place] is True
        self._held[side] = results[:1]
        return seconds, results[place], results[len(asked)]

    def _later_wrote(self, chosen: int, inputs: Inputs) -> bool:
        """As the worker says. A false word is of no use: then the last calls of samples of drawn length are judged."""
        return self._said_reused

    def timed_calls(self, count: int) -> list[TimedCall]:
        """See `Clock`. SideFailedError if the candidate's results came after the receipt that ended the time."""
        found = super().timed_calls(count)
        claimed = statistics.median(self._claimed) if self._claimed else 0.0
        late = seconds_late(self._handed_over["candidate"], self._handed_over["rival"], claimed)
        if self._remotes["rival"] is not None and late is not None:
            said = (
                f"the candidate's results came after the receipt that ended their time, by {time_text(late)} for a "
                f"sample that took {time_text(claimed)}"
            )
            raise SideFailedError("candidate", FormError(Reason.TAMPERED, said))
        return found

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


def seconds_late(mine: Sequence[float], rivals: Sequence[float], claimed: float) -> float | None:
    """The seconds by which a candidate's results came after the receipt of their sample; None if they did not.

    mine, rivals: seconds from the order to hand over the results of a sample to its end, by sample.
    claimed: seconds of the candidate's sample. Results that were not there when it ended take most of its true time.
    """
    later = sorted(one - other for one, other in zip(mine, rivals, strict=False))
    if len(later) < FEWEST_HANDED:
        return None
    nearly_all = later[int((1.0 - LATE_SHARE) * len(later))]
    return statistics.median(later) if nearly_all > max(TIMES_CLAIMED * claimed, LEAST_LATE_SECONDS) else None
