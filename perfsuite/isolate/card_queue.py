"""The worker's side of the card's protocol: graphs of a candidate's calls, which wait for the parent's word.

Results lie in memory that the parent maps too. A pool of torch's allocator gets that memory from `Room`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from perfsuite.clock.base import SideFailedError
from perfsuite.clock.forwards import Pool, capture
from perfsuite.isolate.card_memory import CardMemory
from perfsuite.isolate.card_words import END, START, WORDS_BYTES, wait, write
from perfsuite.problems.base import Inputs

UNIT = 1 << 21
"""Bytes to which torch's allocator rounds the segments of large results."""
TINY, TINIES = -1, -2
"""The keys of graphs of one tiny kernel, and of TINY_KERNELS."""
TINY_KERNELS = 9
_ALLOCATE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
_FREE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
_kept: list[Any] = []
"""The functions that torch's allocator calls: it may do so until the process ends."""


class Room:
    """Hands out parts of a stretch of memory."""

    def __init__(self, address: int, size: int) -> None:
        self._next, self._end = -(-address // UNIT) * UNIT, address + size
        self._free: list[tuple[int, int]] = []
        """(size, address) of what was given back."""
        self._sizes: dict[int, int] = {}

    def take(self, size: int) -> int | None:
        """The address of so many bytes; None if there is no such room."""
        size = -(-size // UNIT) * UNIT
        found = min((one for one in self._free if one[0] >= size), default=None)
        if found is not None:
            self._free.remove(found)
            size, address = found
        else:
            address = self._next
            if address + size > self._end:
                return None
            self._next += size
        self._sizes[address] = size
        return address

    def give_back(self, address: int) -> None:
        """Take back what `take` gave."""
        size = self._sizes.pop(address, None)
        if size is not None:
            self._free.append((size, address))


def _functions_of(room: Room) -> tuple[int, int]:
    """Addresses of functions that take memory from the room and give it back, for torch's allocator.

    They stay until the process ends, so they must hold the room alone: what holds the memory would never be freed.
    """

    def take(size: int, device: int, stream: int | None) -> int | None:
        return room.take(size)

    def give_back(address: int, size: int, device: int, stream: int | None) -> None:
        room.give_back(address)

    made = _ALLOCATE(take), _FREE(give_back)
    _kept.append(made)
    first, second = (ctypes.cast(one, ctypes.c_void_p).value or 0 for one in made)
    return first, second


class CardQueue:
    """Captures calls, and replays them when the parent's word comes."""

    def __init__(self, memory: CardMemory, pools: int, *, costs: bool) -> None:
        """memory: shared with the parent; the words lie in it, then results. pools: places for results.

        costs: there are graphs of tiny kernels, by which the parent measures what an order costs.
        """
        import torch

        self._memory = memory
        self._room = Room(memory.address + WORDS_BYTES, memory.size - WORDS_BYTES)
        self.stream = torch.cuda.Stream(memory.device)
        self._graphs: dict[int, Any] = {}
        self._held: dict[int, list[Any]] = {}
        """The results of a capture, until `drop`: further captures of the pool must not use their memory."""
        self._called = False
        allocator = torch._C._cuda_customAllocator(*_functions_of(self._room))
        with torch.cuda.stream(self.stream):
            self._owners = [torch.cuda.MemPool(allocator) for _ in range(pools)]
            self._pools = [Pool(memory.device, one.id) for one in self._owners]
            self._number = torch.zeros(1, device="cuda")
            for key, kernels in ((TINY, 1), (TINIES, TINY_KERNELS)) if costs else ():
                self._capture(key, 0, partial(self._add, kernels))

    def _add(self, kernels: int) -> None:
        for _ in range(kernels):
            self._number.add_(1.0)

    def capture(self, key: int, pool: int, candidate: Callable[..., Any], sets: Sequence[Inputs]) -> list[Any]:
        """Capture calls on these sets as the graph `key`; their results, which lie in a pool. Raises CaptureError."""
        import torch

        results: list[Any] = []

        def call(inputs: Inputs) -> None:
            try:
                results.append(inputs.call(candidate))
            except Exception as error:
                raise SideFailedError("candidate", error) from error

        def calls() -> None:
            for inputs in sets:
                call(inputs)

        with torch.no_grad(), torch.cuda.stream(self.stream):
            if not self._called:  # libraries make handles and workspaces for a stream in their first call
                call(sets[0])
                results.clear()
                self._called = True
            self._capture(key, pool, calls)
            self.stream.synchronize()
        self._held[key] = results
        return results

    def _capture(self, key: int, pool: int, calls: Callable[[], Any]) -> None:
        import torch

        graph = torch.cuda.CUDAGraph()
        capture(graph, calls, "candidate", pool=self._pools[pool].handle, device=self._memory.device)
        self._graphs[key] = graph

    def offset(self, tensor: Any) -> int:
        """Where a tensor begins in the shared memory. Raises ValueError if it does not lie in it."""
        found = self._memory.offset(tensor) if tensor.numel() else 0
        if found is None:
            raise ValueError("a captured call returns memory that is not of its graph, such as a buffer that it keeps")
        return found

    def queue(self, keys: Sequence[int], value: int, ahead: int, told: Callable[[], object]) -> None:
        """Enqueue these graphs behind the parent's word, and the word for the parent behind them.

        told: called once the first `ahead` of them are there; the parent's word may come from then on.
        """
        import torch

        with torch.cuda.stream(self.stream):
            wait(self.stream, self._memory.address + START, value)
            for number, key in enumerate(keys):
                if number == ahead:
                    told()
                self._graphs[key].replay()
            write(self.stream, self._memory.address + END, value)
        if ahead >= len(keys):
            told()

    def touch(self, keys: Sequence[int]) -> None:
        """Run these graphs, and wait for their end."""
        import torch

        with torch.cuda.stream(self.stream):
            for key in keys:
                self._graphs[key].replay()
            self.stream.synchronize()

    def drop(self) -> None:
        """Let further captures use the memory of the results so far."""
        self._held.clear()

    def forget(self, keys: Sequence[int]) -> None:
        """Free these graphs."""
        for key in keys:
            self._held.pop(key, None)
            graph = self._graphs.pop(key, None)
            if graph is not None:
                graph.reset()

    def close(self) -> None:
        """Free all graphs and pools."""
        self.stream.synchronize()
        self._held.clear()
        self.forget(list(self._graphs))
        self._pools.clear()
        self._owners.clear()
