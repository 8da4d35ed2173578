"""A worker process from outside: its start, its orders and its end."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from perfsuite.case.failures import MOST_FRAMES
from perfsuite.device import turns
from perfsuite.isolate import receipt
from perfsuite.isolate.channel import Channel
from perfsuite.isolate.errors import CandidateError, FormError, LateError, NotStartedError, signal_name
from perfsuite.isolate.forks import END_SECONDS, MOST_PROCESSES
from perfsuite.isolate.log import Log
from perfsuite.isolate.nursery import Nursery, NurseryError, free_nursery
from perfsuite.outcome import Reason

Found = TypeVar("Found")
Late = tuple[float, Callable[[], None]]
START_SECONDS = 120.0
"""Longest start of Python, torch and a CUDA context on a busy machine."""
OVERHEAD_REQUESTS = 21
MOST_AHEAD = 8
"""Requests that a process has been sent and not answered. All fit into the socket, so neither side waits to send."""
NOTHING = {"do": "run", "start": 0, "calls": 0}
"""An order to make no call."""


class Shared(Protocol):
    """Memory that an order hands to the process."""

    @property
    def descriptors(self) -> list[int]: ...
    @property
    def card(self) -> tuple[int, int] | None: ...


class Process:
    """A worker without a candidate yet, or with one. It is closed once it has failed."""

    def __init__(self, *, trusted: bool, device: str) -> None:
        """Start it, with its context on the card. trusted: no sandbox. Raises NotStartedError."""
        self.device, self.trusted = device, trusted
        self.closed = self._stopped = self._ended = False
        self._others = 0
        """Processes beside it in its sandbox, when it was last stopped."""
        self.overhead = 0.0
        """The least seconds that an empty request takes, measured before the candidate is loaded."""
        self.seconds = START_SECONDS
        """The longest time of one request."""
        self.modules: dict[str, str] = {}
        """Name -> file of the modules that the candidates here came from."""
        self.order_costs: list[tuple[float, float]] = []
        """The last measurements of an order's cost on a card; see `card_offset`."""
        self.uses = 0
        """Candidates that were here before, all of them trusted."""
        self.descriptors: list[int] = []
        """Of the process's memory, and of the process."""
        ours, theirs = socket.socketpair()
        self._channel, self._log, self._worker = Channel(ours), Log(), 0
        self.nursery: Nursery = free_nursery(sandboxed=not trusted, device=device)
        self._begin(ours, theirs)

    def _begin(self, ours: socket.socket, theirs: socket.socket) -> None:
        try:
            self._worker = self.nursery.worker(theirs, self._log.descriptor)
            theirs.close()
            ours.settimeout(self.seconds)
            self.nursery.reserved = False
            with self.failures("its process did not start"):
                self.descriptors += self._channel.introduced()
            if self.device == "cuda":
                self.ask({"do": "driver"})  # most of a start, and no work on the card: others may time meanwhile
            with turns.working() if self.device == "cuda" else contextlib.nullcontext():
                self.ask({"do": "begin", "device": self.device})
                self.measure()  # here, so that whoever is alone finds no context of a process that is not known yet
        except (RuntimeError, OSError) as error:  # nothing of a candidate is in it yet
            theirs.close()
            self.nursery.reserved = False
            self.close()
            raise NotStartedError(f"a process of its own did not start: {error}") from error

    def measure(self) -> None:
        """Measure `overhead`. Another thread that runs meanwhile would make it too long."""
        self.overhead = 0.0
        spent = [self.timed(NOTHING)[0] for _ in range(OVERHEAD_REQUESTS)]
        self.overhead = min(spent[1:])  # more would be taken off the time of short samples

    @property
    def alive(self) -> bool:
        """True if it has not ended."""
        return not self.closed and not select.select([self.descriptors[1]], [], [], 0)[0]

    def ask(self, request: dict[str, Any], memory: Shared | None = None, *, late: Late | None = None) -> dict[str, Any]:
        """Send one request and return its receipt; CandidateError or torch.OutOfMemoryError if it fails.

        late: seconds without a receipt after which the function is called, once.
        """
        self.resume()
        with self.failures(f"did not return within {self.seconds:g} s, and was ended"):
            self._channel.socket.settimeout(self.seconds)
            if memory is None:
                self._channel.order(request)
            else:
                self._channel.order({**request, "card": memory.card}, memory.descriptors)
            if late is not None and not select.select([self._channel.socket], [], [], late[0])[0]:
                late[1]()
            return self._checked(self._channel.receipt())

    def ask_each(self, requests: Sequence[dict[str, Any]]) -> Generator[dict[str, Any]]:
        """The receipts of several requests, in order. The next requests are there before the process is done with one.

        A failure is raised as in `ask`, when the process has answered all that it was sent. So do all who stop earlier.
        """
        self.resume()
        sent = read = 0
        try:
            while read < len(requests):
                with self.failures(f"did not return within {self.seconds:g} s, and was ended"):
                    self._channel.socket.settimeout(self.seconds)
                    while sent < min(len(requests), read + MOST_AHEAD):
                        self._channel.order(requests[sent])
                        sent += 1
                    said, read = self._channel.receipt(), read + 1
                    found = self._checked(said)
                yield found
        finally:
            while not self.closed and read < sent:
                with contextlib.suppress(CandidateError), self.failures():
                    self._channel.receipt()
                read += 1

    def timed(self, request: dict[str, Any]) -> tuple[float, dict[str, Any]]:
        """(seconds in which the process ran for this order, less those of an empty one; its receipt).

        The process is stopped before and behind it. The order lies ready when it goes on, and it is stopped when its
        receipt is there. So it computes nothing outside of this time. Its memory then stays as it is until `resume`.
        """
        self.stop()
        now = time.perf_counter_ns
        with self.failures(f"did not return within {self.seconds:g} s, and was ended"):
            self._channel.socket.settimeout(self.seconds)
            self._channel.order(request)
            begin = now()
            self._go_on()
            body = self._channel.receipt_bytes()
            self._signal(signal.SIGSTOP)
            end = now()
            self.stop()
            # Further processes in its sandbox ran until now, and may share memory with it.
            end = now() if self._others else end
            return max((end - begin) / 1e9 - self.overhead, 1e-9), self._checked(receipt.parsed(body))

    def told(self, read: Callable[[dict[str, Any]], Found], said: dict[str, Any]) -> Found:
        """The finding of `read` in a receipt; CandidateError if it finds a fault in it."""
        with self.failures():
            return read(said)

    def stop(self) -> None:
        """Stop the process, with all that it has started, until `resume`; return when it has stopped."""
        if not self.closed and not self._stopped:
            self._others = self.nursery.signal(self._worker, signal.SIGSTOP)
            self._stopped = True

    def resume(self) -> None:
        """Let the process go on."""
        if not self.closed and self._stopped:
            self._go_on()

    def _go_on(self) -> None:
        if self._others:
            self.nursery.signal(self._worker, signal.SIGCONT)
        else:
            self._signal(signal.SIGCONT)
        self._stopped = False

    def _signal(self, number: int) -> None:
        """Signal the process at once. In a sandbox in which it sees no others, those that it has started go on."""
        if self.nursery.alone:
            signal.pidfd_send_signal(self.descriptors[1], number)
        else:
            os.killpg(self._worker, number)

    @contextlib.contextmanager
    def failures(self, late: str = "") -> Iterator[None]:
        """Turn the failures of a request into a CandidateError; `late` is its message after a time-out."""
        try:
            yield
        except TimeoutError:
            self.close()
            raise LateError(late) from None
        except (EOFError, ConnectionError, ProcessLookupError):
            raise CandidateError(self._epitaph()) from None
        except ValueError as error:
            self.close()
            raise CandidateError(f"its process sent no valid receipt: {error}") from None

    def close(self) -> None:
        """End the process, whatever it is doing, without waiting for its end."""
        if self.closed:
            return
        self.closed = True
        self._channel.socket.close()
        while self.descriptors:
            os.close(self.descriptors.pop())
        if self._worker:
            self.nursery.leave(self._worker, ended=self._ended)
            if self.device == "cuda":
                turns.until_gone(self.nursery.settle)
        self._log.close()

    def _checked(self, said: dict[str, Any]) -> dict[str, Any]:
        if (fault := receipt.fault_in(said)) is not None:
            raise FormError(Reason(fault[0]), fault[1])
        failed = receipt.failure_in(said)
        if failed is None:
            return said
        if failed.memory:
            from torch import OutOfMemoryError

            raise OutOfMemoryError(failed.sentence)
        if failed.reason is not None:
            failure: CandidateError = FormError(failed.reason, failed.sentence)
        else:
            failure = CandidateError(f"raised {failed.error}: {failed.sentence}")
        failure.frames = failed.frames[:MOST_FRAMES]
        raise failure

    def _epitaph(self) -> str:
        """A sentence about the end of the process, with the first line that it wrote."""
        code, crowded = None, False
        with contextlib.suppress(NurseryError):
            code = self.nursery.ended(self._worker, END_SECONDS)
            crowded = self.nursery.crowded
        self._ended = code is not None
        told = self._log.summary()
        self.close()
        if crowded:
            return f"its sandbox had more than {MOST_PROCESSES} processes, and all of them were ended"
        if code is None:
            return "its process hung up"
        how = f"died of {signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
        return f"its process {how}" + (f": {told}" if told else "")
