"""The clock of an isolated candidate: the parent measures from the order to the receipt."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from perfsuite.clock.base import SideFailedError, Sides
from perfsuite.clock.cache import l2_bytes
from perfsuite.clock.deck import Deck, ranges
from perfsuite.clock.host import HELD_BYTES, SAMPLE_SECONDS, HostClock
from perfsuite.clock.rotation import bytes_in, overlap
from perfsuite.clock.rounds import Round, Side
from perfsuite.device import turns
from perfsuite.guards.poison import poison
from perfsuite.isolate.errors import CandidateError, NotStartedError
from perfsuite.isolate.late import Late
from perfsuite.isolate.memory import Arena, copy_values
from perfsuite.isolate.receipt import Described, addresses_in, base_in, tensors_of
from perfsuite.isolate.remote import Remote
from perfsuite.isolate.sizes import result_of_one_size
from perfsuite.problems.base import Inputs
from perfsuite.problems.tensors import copy_in_place, map_tensors, tensors_in
from perfsuite.problems.written import RESULT
from perfsuite.settings import Settings

NOTE = "isolated: timed by the host, between order and receipt; launches count"
LATE = "inputs get their values right before the order, and may lie in a cache"
APART = "the rival runs in a process of its own as well"
HERE = "the rival runs in this process"


class IsolatedClock(HostClock):
    """The host clock, but the calls of the candidate, and those of the rival where it can be sent, run in processes.

    A side's time is less that of an empty order. A process runs while it is timed, and is stopped else: two pools of
    threads would spin against each other, and what comes before the order or behind the receipt would not be timed.
    On a processor the inputs get their values while both processes are stopped, right before the orders of a round. So
    no work on them can be done in the time of another sample. The candidate's results are read in its stopped process.
    On a GPU it is asked to hand over two of them behind the receipt; a launch time that exceeds the device time counts.
    """

    def __init__(self, sides: Sides, remote: Remote | None, settings: Settings, rival: Remote | None = None) -> None:
        """remote: the candidate's process; that of a second rival, to time the rival against itself; or None."""
        note = f"{NOTE}; {LATE}; " if settings.device == "cpu" else f"{NOTE}; "
        note += APART if rival is not None else HERE
        note += "" if remote is None else f"; {remote.sandbox}"
        # Nothing that the candidate does is done in this process.
        super().__init__(replace(sides, watch=None), cache=settings.cache, seed=settings.seed, note=note)
        self._remotes: dict[Side, Remote | None] = {"candidate": remote, "rival": rival}
        self._device = settings.device
        self._form: Any = None
        """A result of the rival. A timed call must return such a one."""
        self._slots: list[Any] = []
        """Memory of a card that the candidate shares, for results that it hands over."""
        self._said_reused = False
        self._shared = (0, 0)
        """Where the candidate's process says that the inputs lie in its memory."""
        self._mirror: list[Inputs] = []
        """The rival's copies of the sets, in memory that the candidate does not share."""
        self._arenas: list[Arena] = []
        self._late: Late | None = None
        """Gives the sets their values right before the orders; None on a card, and where values never change."""

    def setup(self) -> None:
        import torch

        threads = torch.get_num_threads()
        if self._device == "cuda":
            turns.alone(self._rest)
        self._share_overhead()
        try:
            super().setup()
        finally:
            torch.set_num_threads(threads)
        if self._late is None:
            self._copy_to_rival([(0, len(self._sets))])

    def _rest(self) -> None:
        for remote in self._remotes.values():
            if remote is not None:
                remote.stop()

    def _share_overhead(self) -> None:
        """Let an empty order cost both sides the same: the least that was seen."""
        remote, rival = self._remotes["candidate"], self._remotes["rival"]
        if remote is None or rival is None:
            return
        side: Side = "rival"
        try:
            least = rival.measured_overhead()
            side = "candidate"
            rival.measured_overhead(least=remote.measured_overhead(least=least))
        except (CandidateError, NotStartedError) as error:
            raise SideFailedError(side, error) from error

    def _call_seconds(self, side: Side) -> float:
        """By as many calls as a sample needs: the first one behind a pause takes several times as long as others."""
        calls, most = 1, min(len(self._sets), HELD_BYTES // max(1, 2 * bytes_in(self._form)))
        while (seconds := self._sample(side, 0, calls)) < SAMPLE_SECONDS and 2 * calls <= most:
            calls *= 2
        return min(seconds, self._sample(side, 0, calls)) / calls

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
        self._form, self._slots, self._mirror, self._late = None, [], [], None
        self._free()
        for remote in self._remotes.values():
            if remote is not None:
                remote.resume()
        if self._device == "cuda":
            turns.beside()

    def _free(self) -> None:
        """Close the arenas. Memory that a tensor still uses stays until that tensor goes."""
        while self._arenas:
            self._arenas.pop().close()

    def _cache_bytes(self) -> int:
        if self._device == "cpu":
            return super()._cache_bytes()
        import torch

        return l2_bytes(torch.cuda.current_device())

    def _placed(self, deck: Deck) -> list[Inputs]:
        """The sets, and room for some results, in memory that the candidate's process shares, and no other."""
        import torch

        sets, self._late = deck.sets, None
        result, written = result_of_one_size(sets, self.sides.rival), self.sides.written
        if written is not None:
            if RESULT not in written.answer(result, sets[0]):
                result = None  # nothing but the written arguments, which are judged where they lie
            deck.restore(only=written.places)
        self._form = map_tensors(result, copy_in_place)
        slots = 2 if self._device == "cuda" and result is not None else 0
        self._slots = [map_tensors(result, copy_in_place) for _ in range(slots)]
        self._free()
        placed = self._handed("candidate", sets)
        if self._remotes["rival"] is not None:
            self._mirror = self._handed("rival", sets)
        torch.set_num_threads(1)
        if self._device == "cpu" and self._remotes["candidate"] is not None and deck.moves:
            given: dict[Side, list[Inputs]] = {"candidate": placed}
            self._late = Late(deck, given | ({"rival": self._mirror} if self._mirror else {}))
        else:
            deck.adopt(placed)
        return placed

    def _handed(self, side: Side, sets: list[Inputs]) -> list[Inputs]:
        """The sets in an arena that this side's process alone shares."""
        remote = self._remotes[side]
        slots = self._slots if side == "candidate" else []
        try:
            arena = Arena([sets, slots], on_card=False) if remote is None else remote.arena([sets, slots])
        except (CandidateError, NotStartedError) as error:
            raise SideFailedError(side, error) from error
        self._arenas.append(arena)
        placed = [map_tensors(inputs, arena.place) for inputs in sets]
        slots[:] = [map_tensors(slot, arena.place) for slot in slots]
        arguments = [(inputs.args, dict(inputs.kwargs)) for inputs in placed]
        if remote is None:
            return placed
        where = arena.describe([arguments, slots])
        try:
            base = remote.told(base_in, remote.ask({"do": "sets", "sets": where[0], "buffers": where[1]}, arena))
            self._shared = (base, base + arena.size) if side == "candidate" else self._shared
        except RuntimeError as error:
            raise SideFailedError(side, error) from error
        return placed

    def _warm_up(self) -> None:
        if self._late is not None:
            self._hand_out([(0, len(self._sets))])
        super()._warm_up()
        if self._late is not None:
            self._deck.deal()  # the processes have seen what there was

    def _round(self, *, keeper: bool, hard: str | None = None) -> Round:
        start = self._next
        one = super()._round(keeper=keeper, hard=hard)
        if self._late is None:
            self._copy_to_rival(ranges(start, self.launches, len(self._sets)))
        return one

    def _hand_out(self, places: list[tuple[int, int]]) -> None:
        if self._late is not None:
            self._stop()
            self._late.hand_out(places)

    def _restore(self, side: Side, places: list[tuple[int, int]]) -> None:
        if self._late is None:
            super()._restore(side, places)
            if side == "rival":
                self._copy_to_rival(places)
        else:
            self._stop()
            self._late.copy(side if self._mirror else "candidate", places, self._written_places)

    def _stop(self) -> None:
        """Stop both processes."""
        for remote in self._remotes.values():
            if remote is not None:
                remote.stop()

    def _copy_to_rival(self, parts: list[tuple[int, int]]) -> None:
        for first, count in parts if self._mirror else ():
            places = slice(first, first + count)
            for mine, theirs in zip(self._sets[places], self._mirror[places], strict=True):
                for one, other in zip(tensors_in(mine), tensors_in(theirs), strict=True):
                    copy_values(one, other)

    def _run(self, side: Side, start: int, calls: int, chosen: int | None) -> tuple[float, Any, Any]:
        mine, theirs = self._remotes[side], self._remotes["rival" if side == "candidate" else "candidate"]
        if theirs is not None:
            theirs.stop()
        if mine is None:
            return self._run_here(start, calls, chosen)
        poison(self._slots)
        # The worker does not wait for this process's stream: inputs and poison must be there.
        self._wait()
        try:
            seconds, said = mine.timed({"do": "run", "start": start, "calls": calls})
            self._held[side] = [self._form] if side == "candidate" else []
            if chosen is None or side == "rival" or self._form is None:
                return seconds, None, None
            told, at = mine.told(lambda said: _results_in(said, calls, self._device), said)
            self._said_reused = _reused(told, at, chosen, self._shared)
            if self._slots:
                mine.ask({"do": "hand", "chosen": [chosen]})
                return seconds, *self._slots
            return seconds, *(mine.result(self._form, told, at[call]) for call in (chosen, -1))
        except RuntimeError as error:
            raise SideFailedError(side, error) from error

    def _later_wrote(self, chosen: int, inputs: Inputs) -> bool:
        return self._said_reused

    def _run_here(self, start: int, calls: int, chosen: int | None) -> tuple[float, Any, Any]:
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


def _results_in(said: dict[str, Any], calls: int, device: str) -> tuple[list[Described], list[tuple[int, ...]]]:
    """(the tensors of the last result, the addresses of each call's)."""
    told = tensors_of(said, device)
    return told, addresses_in(said, calls, len(told))


def _reused(told: list[Described], at: list[tuple[int, ...]], chosen: int, inputs: tuple[int, int]) -> bool:
    """True if a call after the chosen one wrote to its result, which is none of the inputs, as the process says.

    A false word is of no use: then the last calls of samples of drawn length are judged.
    """
    reach = [[(start, start + one.span) for start, one in zip(call, told, strict=True) if one.span] for call in at]
    later = [one for call in reach[chosen + 1 :] for one in call]
    return overlap(reach[chosen], later) and not overlap(reach[chosen], [inputs])
