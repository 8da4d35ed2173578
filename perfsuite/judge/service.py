"""The judge as a service: a durable queue, a pool that works on it, and those who wait for answers."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from perfsuite.judge.jobs import Turn
from perfsuite.judge.pool import Pool
from perfsuite.judge.queue_store import Queue
from perfsuite.judge.stored import ENDED, State, Stored

PRUNE_SECONDS = 60.0
"""The time between two removals of old jobs."""
END_SECONDS = 0.01
"""The wait before the process of a cancelled job is ended again: it may not have the job yet."""


class Service:
    """Between HTTP and the judge. It is the pool's source: it hands on the queue's turns, and knows which are out."""

    def __init__(self, queue: Queue, pool: Pool) -> None:
        self.queue, self.pool = queue, pool
        self.fault: str | None = None
        """The fault that no repetition mends, in one sentence."""
        self.stopping = False
        self._lock = threading.Lock()
        self._out: set[str] = set()
        self._waiting: defaultdict[tuple[str, str], set[Callable[[], object]]] = defaultdict(set)
        self._end = threading.Event()
        self._threads = [threading.Thread(target=one, daemon=True) for one in (self._work, self._prune)]
        queue.listen(self._ended)

    def start(self) -> None:
        """Begin to judge."""
        for thread in self._threads:
            thread.start()

    def stop_waiting(self) -> None:
        """Hand out no more jobs, and answer everyone who waits at once, with the job as it is."""
        self.stopping = True
        self.queue.close_for_takers()
        with self._lock:
            waiting = [wake for each in self._waiting.values() for wake in each]
        for wake in waiting:
            wake()

    def close(self, seconds: float) -> None:
        """Give running jobs these seconds to end. Those that still run are queued again, for the next service."""
        self.stop_waiting()
        self._end.set()
        work, _ = self._threads
        if work.is_alive():
            work.join(seconds)
            self.pool.close()
            work.join(10.0)
        self.queue.close()

    async def ended(self, client: str, ids: Sequence[str], seconds: float) -> list[Stored]:
        """The client's jobs of these identifiers, as soon as one of them has ended, or after these seconds."""
        loop, event = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(event.set)

        keys = {(client, id) for id in ids}
        with self._lock:
            for key in keys:
                self._waiting[key].add(wake)
        try:
            found = await asyncio.to_thread(self.queue.find, client, ids)
            if self.stopping or not found or any(one.state in ENDED for one in found):
                return found
            with suppress(TimeoutError):
                await asyncio.wait_for(event.wait(), seconds)
            return await asyncio.to_thread(self.queue.find, client, ids)
        finally:
            with self._lock:
                for key in keys:
                    self._waiting[key].discard(wake)
                    if not self._waiting[key]:
                        del self._waiting[key]

    def cancel(self, client: str, id: str) -> Stored | None:
        """Cancel a job; None if there is no such job. The process that judges it is ended."""
        if (found := self.queue.cancel(client, id)) is None:
            return None
        stored, key = found
        while key is not None and self._is_out(key) and not self.pool.end(key):
            time.sleep(END_SECONDS)
        return stored

    def take(self) -> Turn | None:
        """The queue's next turn."""
        turn = self._watched(self.queue.take)
        if turn is not None:
            with self._lock:
                self._out.add(turn.key)
        return turn

    def answered(self, turn: Turn, answer: Mapping[str, Any]) -> None:
        """Keep the answer."""
        self._back(turn)
        self._watched(lambda: self.queue.answered(turn, answer))

    def died(self, turn: Turn, said: str) -> None:
        """Note the death of the judging process."""
        self._back(turn)
        self._watched(lambda: self.queue.died(turn, said))

    def _back(self, turn: Turn) -> None:
        with self._lock:
            self._out.discard(turn.key)

    def _is_out(self, key: str) -> bool:
        with self._lock:
            return key in self._out

    def _watched(self, call: Callable[[], Any]) -> Any:
        """Call, and remember a fault of the store: the thread ends, and `health` reports it."""
        try:
            return call()
        except sqlite3.Error as error:
            self.fault = f"the store failed: {error}"
            raise

    def _ended(self, client: str, stored: Stored) -> None:
        with self._lock:
            waiting = list(self._waiting.get((client, stored.id), ()))
        for wake in waiting:
            wake()

    def _work(self) -> None:
        self.pool.work(self)
        if not self.stopping:
            self.fault = self.fault or "the pool has ended; the log says why"

    def _prune(self) -> None:
        while not self._end.wait(PRUNE_SECONDS):
            with suppress(sqlite3.Error):
                self.queue.prune()

    def depth(self) -> dict[str, int]:
        """Jobs that wait and that run, processes, those that judge now, and starts after a process's end."""
        counts, slots = self.queue.counts(), self.pool.state
        return {
            "queued": counts[State.QUEUED],
            "running": counts[State.RUNNING],
            "workers": len(slots),
            "busy": sum(slot.busy for slot in slots),
            "restarts": sum(max(0, slot.starts - 1) for slot in slots),
        }
