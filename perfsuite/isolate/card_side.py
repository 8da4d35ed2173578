"""The parent's side of the card's protocol: a worker's queue, which begins at a word and ends with one."""

from __future__ import annotations

import contextlib
import mmap
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, cast

from perfsuite.clock.memory import Span
from perfsuite.clock.rounds import Side
from perfsuite.isolate.card_memory import CardMemory
from perfsuite.isolate.card_words import END, START, WORDS_BYTES, wait, write
from perfsuite.isolate.errors import CandidateError, FormError
from perfsuite.isolate.memory import Arena, Repeated, Rows, sealed
from perfsuite.isolate.receipt import Described, addresses_in, tensors_of
from perfsuite.isolate.remote import Remote
from perfsuite.isolate.results import landed
from perfsuite.outcome import Reason
from perfsuite.problems.base import Inputs
from perfsuite.problems.tensors import leaves_in, map_tensors, tensors_in

PATIENCE_SECONDS = 0.1
"""After this time the worker is asked if its queue has failed."""
GRACE_SECONDS = 2.0
"""Longest time from the end of a worker's queue to its last word."""
POLL_SECONDS = 2e-5
BLOCKED_SECONDS = 0.5
"""A process that enqueues for longer waits for room in its stream, which there is only when `start` has come."""


class BlockedError(RuntimeError):
    """Graphs cannot be enqueued ahead; nothing of them is left on the card."""


class Pool:
    """Memory of a card for a side's words and results, which its process maps as well."""

    def __init__(self, size: int, device: int) -> None:
        """size: bytes for results. Raises CardMemoryError and torch.OutOfMemoryError."""
        import torch

        self.memory = CardMemory(WORDS_BYTES + size, device)
        self.memory.tensor(0, torch.uint8, (WORDS_BYTES,), (1,)).zero_()
        self._host = sealed(mmap.PAGESIZE)

    @property
    def descriptors(self) -> list[int]:
        """Those that the other process needs."""
        assert self.memory.descriptor is not None
        return [self._host, self.memory.descriptor]

    @property
    def card(self) -> tuple[int, int]:
        """Bytes and number of the card's memory."""
        return self.memory.size, self.memory.device

    def close(self) -> None:
        """Free it, once the last tensor in it has gone."""
        os.close(self._host)


class CardSide:
    """A process whose calls are timed on the card. Raises what `Remote.ask` raises."""

    def __init__(self, remote: Remote, release: Any) -> None:
        """release: a stream on which nothing waits."""
        self.remote = remote
        self._release = release
        self._value = 0
        self._pool: Pool | None = None
        self._arena: Arena | None = None
        self._keys = 0
        self._ahead: int | None = None
        """Graphs for which a stream has room before the first of them runs; None as long as all had room."""

    def hand(self, sets: list[Inputs]) -> list[Inputs]:
        """Copies of the sets in memory that this side's process alone shares."""
        import torch

        if self._arena is not None:
            self._arena.close()
        operands = list(zip(*(tensors_in(inputs) for inputs in sets), strict=True))
        self._arena = arena = self.remote.arena(sets, stacks=len(operands))
        there: dict[int, Any] = {}
        rows: dict[int, Rows] = {}
        placed_rows: dict[int, list[Any]] = {}
        # The rows of an operand lie behind one another, as in-process. Where the operands of a set do, calls of 4 us
        # take 7 % less.
        for operand in operands:
            if id(operand[0]) in there:
                continue
            arena.begin_stack()
            if (found := arena.place_rows(operand)) is not None:
                rows[id(operand[0])], copies = found
                placed_rows[id(found[0])] = copies
                there |= {id(tensor): copy for tensor, copy in zip(operand, copies, strict=True)}
            else:
                there |= {id(tensor): arena.place(tensor) for tensor in operand if id(tensor) not in there}
        told: Any
        # All sets lie alike: the places of one will do.
        if all(id(tensor) in rows for tensor in tensors_in(sets[0])) and len({_but_tensors(one) for one in sets}) == 1:
            nest = sets[0].args, dict(sets[0].kwargs)
            told = Repeated(map_tensors(nest, lambda tensor: cast(Any, rows[id(tensor)])), len(sets))
            placed = [Inputs(*one) for one in told.each(lambda one: placed_rows[id(one)])]
        else:
            placed = [map_tensors(inputs, lambda tensor: there[id(tensor)]) for inputs in sets]
            told = arena.describe([(inputs.args, dict(inputs.kwargs)) for inputs in placed])
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
        self.remote.ask({"do": "sets", "sets": told, "buffers": []}, arena)
        return placed

    def open(self, size: int, device: int, pools: int) -> None:
        """Give the process memory for results of so many bytes, in place of what it had."""
        import torch

        self.close_pool()
        self._pool = Pool(size, device)
        torch.cuda.synchronize()
        self.remote.ask({"do": "pool", "pools": pools, "costs": self.remote.trusted}, self._pool)
        self._value = 0

    def capture(self, pool: int, pieces: Sequence[Sequence[int]], form: Any) -> tuple[list[int], Any, list[list[Span]]]:
        """(keys of the graphs of calls on the sets of each piece, a result's form, where the graphs leave all results).

        No result of a piece lies where one of an earlier piece does. The receipt of one is read while the next are
        captured.
        """
        first = self._keys + 1
        self._keys += len(pieces)
        keys = list(range(first, self._keys + 1))
        orders: list[dict[str, Any]] = [
            {"do": "capture", "key": key, "pool": pool, "sets": list(sets)}
            for key, sets in zip(keys, pieces, strict=True)
        ]
        receipts = self.remote.ask_each([*orders, {"do": "drop", "forget": []}])
        hollow, memory = None, []
        with contextlib.closing(receipts):
            for sets, said in zip(pieces, receipts, strict=False):
                hollow, there = self.remote.told(partial(self._results, calls=len(sets), form=form), said)
                memory += there
            for _ in receipts:
                continue
        return keys, hollow, memory

    def _results(self, said: dict[str, Any], calls: int, form: Any) -> tuple[Any, list[list[Span]]]:
        """(a result's form without memory, the memory of each call's tensors). Nothing else of the receipt is used."""
        import torch

        assert self._pool is not None
        told, used, memory = tensors_of(said, "cuda"), list[Described](), self._pool.memory
        at = addresses_in(said, calls, len(told))

        def hollow(one: Described, _: int) -> torch.Tensor:
            used.append(one)
            return torch.empty(0)

        found = landed(form, told, [0] * len(told), hollow)
        device, spans = torch.device("cuda", memory.device), [one.span for one in used]
        for places in at:
            for span, place in zip(spans, places, strict=False):
                if span and not WORDS_BYTES <= place <= memory.size - span:
                    raise FormError(Reason.TAMPERED, "a result does not lie in the memory for results")
        return found, [
            [
                Span(memory.address + place, one.shape, one.stride, one.dtype, device, keeps=memory, turns=one.turns)
                for one, place in zip(used, places, strict=False)
            ]
            for places in at
        ]

    def queue(self, keys: Sequence[int], *, tried: bool = True) -> None:
        """Let the process enqueue these graphs; they wait for `start`.

        Where a stream has no room for all of them, the process enqueues the others while the card works on the first.
        tried: as much was enqueued before. Else this raises BlockedError if there is no room for one graph.
        """
        while not self._enqueued(keys, ahead := min(self._ahead or len(keys), len(keys)), tried=tried):
            if ahead == 1:
                raise BlockedError("a sample has more kernels than a stream takes before the first of them runs")
            self._ahead = ahead // 2

    def _enqueued(self, keys: Sequence[int], ahead: int, *, tried: bool) -> bool:
        """False if the process waited for room; nothing of the graphs is left on the card then."""
        self._value += 1
        blocked = False

        def let_go() -> None:
            nonlocal blocked
            blocked = True
            assert self._pool is not None
            write(self._release, self._pool.memory.address + START, self._value)
            self._release.synchronize()

        order = {"do": "queue", "keys": list(keys), "value": self._value, "ahead": ahead}
        self.remote.ask(order, late=None if tried else (BLOCKED_SECONDS, let_go))
        if blocked:
            self.remote.ask({"do": "wait"})
        return not blocked

    def touch(self, keys: Sequence[int]) -> None:
        """Let the process run these graphs once, and wait for that; what they read must be there."""
        self.remote.ask({"do": "touch", "keys": list(keys)})

    def start(self, stream: Any) -> None:
        """On the stream: let the queue begin, and wait for its last word."""
        assert self._pool is not None
        write(stream, self._pool.memory.address + START, self._value)
        wait(stream, self._pool.memory.address + END, self._value)

    def await_end(self, event: Any) -> None:
        """Wait until the event behind `start` has come. If the process fails, let the stream go on, and raise."""
        begin = time.monotonic()
        while not event.query():
            if time.monotonic() - begin > PATIENCE_SECONDS:
                try:
                    self.remote.ask({"do": "wait"})
                    self._within(event, GRACE_SECONDS)
                    return
                except RuntimeError:
                    self.give_up()
                    event.synchronize()
                    raise
            time.sleep(POLL_SECONDS if time.monotonic() - begin > 1e-3 else 0)

    def _within(self, event: Any, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not event.query():
            if time.monotonic() > deadline:
                raise CandidateError("its queue on the card has ended, but did not write its last word")
            time.sleep(POLL_SECONDS)

    def give_up(self) -> None:
        """Write the last word in the process's stead, so that nothing waits for it any more."""
        if self._pool is not None:
            write(self._release, self._pool.memory.address + END, self._value)
            self._release.synchronize()

    def drop(self, forget: Sequence[int] = ()) -> None:
        """Let the process use the memory of the results so far for others, and free these graphs."""
        if self.remote.running and self._keys:
            self.remote.ask({"do": "drop", "forget": list(forget)})

    def close_pool(self) -> None:
        """Free the memory for results on this side."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def close(self) -> None:
        """Free all memory on this side."""
        self.close_pool()
        if self._arena is not None:
            self._arena.close()
            self._arena = None


class Runs(Protocol):
    """A clock that runs graphs of its sides' processes."""

    def run(self, side: Side, keys: Sequence[int]) -> float: ...
    def side(self, side: Side) -> CardSide: ...


@dataclass(frozen=True)
class RemoteGraph:
    """A graph in a worker."""

    clock: Runs
    side: Side
    key: int

    def replay(self) -> None:
        """Run it, and wait for its end."""
        self.clock.run(self.side, [self.key])

    def reset(self) -> None:
        """Free it."""
        self.clock.side(self.side).drop([self.key])


def _but_tensors(inputs: Inputs) -> tuple[tuple[str, str], ...]:
    """The places of all leaves, with the values of those that are no tensors."""
    import torch

    if not inputs.kwargs and all(type(one) is torch.Tensor for one in inputs.args):
        return (("", str(len(inputs.args))),)
    nest = inputs.args, dict(inputs.kwargs)
    return tuple((path, "" if isinstance(leaf, torch.Tensor) else repr(leaf)) for path, leaf in leaves_in(nest))
