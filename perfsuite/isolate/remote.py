"""The parent's side of a worker: starts it, calls the candidate in it, and survives its failures."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import pickle
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from perfsuite.case.failures import MOST_FRAMES
from perfsuite.isolate import receipt
from perfsuite.isolate.channel import Channel
from perfsuite.isolate.errors import CandidateError, FormError, LateError, signal_name
from perfsuite.isolate.log import Log
from perfsuite.isolate.memory import Arena
from perfsuite.isolate.nursery import MOST_PROCESSES, NurseryError, nursery
from perfsuite.isolate.results import read_result, view_of
from perfsuite.isolate.source import Sent, source_in
from perfsuite.outcome import Reason, UnjudgeableError
from perfsuite.problems.nests import Flat, has_layouts
from perfsuite.problems.tensors import map_tensors, tensors_in

if TYPE_CHECKING:
    pass

Found = TypeVar("Found")


class Shared(Protocol):
    """Memory that an order hands to the process."""

    @property
    def descriptors(self) -> list[int]: ...
    @property
    def card(self) -> tuple[int, int] | None: ...


START_SECONDS = 120.0
"""Longest start of Python, torch and a CUDA context on a busy machine."""
OVERHEAD_REQUESTS = 21
NOTHING = {"do": "run", "start": 0, "calls": 0}
"""An order to make no call."""
END_SECONDS = 5.0
"""Longest wait for a worker to end; a worker with unfinished GPU work needs some time."""


class IsolationError(TypeError):
    """The candidate cannot be sent to another process; the message describes those that can."""


class Remote:
    """A candidate in a separate process, called like the candidate itself. A dead process is replaced."""

    def __init__(
        self, candidate: Callable[..., Any], *, device: str, seconds: float, room: int, trusted: bool = False
    ) -> None:
        """seconds: longest time of one request. room: bytes of host memory that the candidate may use.

        trusted: the code is the rival's, so its process stands in no sandbox.
        """
        import torch

        self._trusted, self._stopped = trusted, False
        self._threads = torch.get_num_threads()
        functools.update_wrapper(self, candidate, updated=())  # no attribute of a candidate replaces one of this object
        self.device, self._seconds, self._room = device, seconds, room
        self._source = source_in(candidate)
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        try:
            self._candidate = b"" if self._source is not None else pickle.dumps(candidate)
            self._whole = candidate if self._source is not None else None
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise IsolationError(
                f"{getattr(candidate, '__qualname__', candidate)!r} cannot be sent to a process of its own ({error}); "
                "--perf-isolate needs a function that can be imported, one defined at the top of its module, or its "
                "source: perfsuite.Source(text, 'name')"
            ) from None
        self._worker: int | None = None
        self._channel: Channel | None = None
        self._log: Log | None = None
        self._descriptors: list[int] = []
        """Of the process's memory, and of the process."""
        self._others = 0
        """Processes beside it in its sandbox, when it was last stopped."""
        self.overhead = 0.0
        """The least seconds that an empty request takes, measured before the candidate is loaded."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the candidate once. If it changes its arguments, the caller's change too."""
        import torch

        if has_layouts([args, kwargs]):
            raise UnjudgeableError("sparse and nested arguments cannot leave a process; run without --perf-isolate")
        with contextlib.closing(self.arena([args, kwargs])) as arena:
            placed = map_tensors([args, kwargs], arena.place)
            where = arena.describe(placed)
            if self.device == "cuda":
                torch.cuda.synchronize()  # the worker does not wait for this process's stream
            said = self.ask({"do": "call", "args": where[0], "kwargs": where[1]}, arena)
            for mine, theirs in zip(tensors_in([args, kwargs]), tensors_in(placed), strict=True):
                if theirs is not mine and 0 not in mine.stride():
                    mine.copy_(theirs)
            with self._failures():
                told = receipt.tensors_of(said, self.device)
            results = [torch.empty(one.shape, dtype=one.dtype, device=self.device) for one in told]
            with contextlib.closing(self.arena(results)) as buffers:
                landed = map_tensors(results, buffers.place)
                self.ask({"do": "fetch", "into": buffers.describe(landed)}, buffers)
                given = list(tensors_in([args, kwargs]))
                fetched = [
                    landing.clone() if one.view is None else view_of(given, one, one.view)
                    for landing, one in zip(landed, told, strict=True)
                ]
        if said.get("single") is True and len(fetched) == 1:
            return fetched[0]
        with self._failures():
            return Flat(*receipt.leaves_of(said, fetched))

    @property
    def running(self) -> bool:
        """True if its process has started and has not been ended."""
        return self._worker is not None

    @property
    def opens_card_memory(self) -> bool:
        """True if its process opens memory of the card by its descriptor; starts the process."""
        self._start()
        return self._nursery.opens_card_memory

    def arena(self, nest: Any, stacks: int = 0) -> Arena:
        """Shared memory for the tensors of a nest; see `Arena`."""
        self._start()
        return Arena(nest, on_card=self._nursery.opens_card_memory, stacks=stacks)

    def ask(self, request: dict[str, Any], memory: Shared | None = None) -> dict[str, Any]:
        """Send one request and return its receipt; CandidateError or torch.OutOfMemoryError if it fails."""
        self._start()
        self.resume()
        assert self._channel is not None
        with self._failures(f"did not return within {self._seconds:g} s, and was ended"):
            self._channel.socket.settimeout(self._seconds)
            if memory is None:
                self._channel.order(request)
            else:
                self._channel.order({**request, "card": memory.card}, memory.descriptors)
            return self._checked(self._channel.receipt())

    def timed(self, request: dict[str, Any]) -> tuple[float, dict[str, Any]]:
        """(seconds in which the process ran for this order, less those of an empty one; its receipt).

        The process is stopped before and behind it. The order lies ready when it goes on, and it is stopped when its
        receipt is there. So it computes nothing outside of this time. Its memory then stays as it is until `resume`.
        """
        self._start()
        self.stop()
        assert self._channel is not None
        now = time.perf_counter_ns
        with self._failures(f"did not return within {self._seconds:g} s, and was ended"):
            self._channel.socket.settimeout(self._seconds)
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

    def result(self, form: Any, told: Sequence[receipt.Described], addresses: Sequence[int]) -> Any:
        """A copy of a result in the memory of the process, which must be stopped; see `read_result`."""
        return read_result(self._descriptors[0], form, told, addresses)

    def told(self, read: Callable[[dict[str, Any]], Found], said: dict[str, Any]) -> Found:
        """The finding of `read` in a receipt; CandidateError if it finds a fault in it."""
        with self._failures():
            return read(said)

    @property
    def sandbox(self) -> str:
        """The candidate's sandbox in words, or the reason that there is none."""
        return (
            "no sandbox: the code is trusted" if self._trusted else nursery(sandboxed=True, device=self.device).sandbox
        )

    def stop(self) -> None:
        """Stop the process, with all that it has started, until `resume`; return when it has stopped."""
        if self._worker is not None and not self._stopped:
            self._others = self._nursery.signal(self._worker, signal.SIGSTOP)
            self._stopped = True

    def resume(self) -> None:
        """Let the process go on."""
        if self._worker is not None and self._stopped:
            self._go_on()

    def _go_on(self) -> None:
        assert self._worker is not None
        if self._others:
            self._nursery.signal(self._worker, signal.SIGCONT)
        else:
            self._signal(signal.SIGCONT)
        self._stopped = False

    def _signal(self, number: int) -> None:
        """Signal the process at once. In a sandbox in which it sees no others, those that it has started go on."""
        assert self._worker is not None
        if self._nursery.alone:
            signal.pidfd_send_signal(self._descriptors[1], number)
        else:
            os.killpg(self._worker, number)

    @contextlib.contextmanager
    def _failures(self, late: str = "") -> Iterator[None]:
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
        """End the process, whatever it is doing."""
        if self._channel is not None:
            self._channel.socket.close()
        while self._descriptors:
            os.close(self._descriptors.pop())
        if self._worker is not None:
            with contextlib.suppress(ProcessLookupError, NurseryError):
                self._nursery.signal(self._worker, signal.SIGKILL)
                self._nursery.ended(self._worker, END_SECONDS)  # then its memory is free again
                self._nursery.clear()
        if self._log is not None:
            self._log.close()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
        self._worker, self._channel, self._log, self._stopped = None, None, None, False

    def _start(self) -> None:
        if self._worker is not None:
            return

        ours, theirs = socket.socketpair()
        self._log = Log()
        self._nursery = nursery(sandboxed=not self._trusted, device=self.device)
        self._worker = self._nursery.worker(theirs, self._log.descriptor)
        theirs.close()
        self._channel = Channel(ours)
        limit, self._seconds = self._seconds, START_SECONDS
        try:
            with self._failures("its process did not start"):
                ours.settimeout(self._seconds)
                self._descriptors += self._channel.introduced()
            self.overhead = 0.0
            spent = [self.timed(NOTHING)[0] for _ in range(OVERHEAD_REQUESTS)]
            self.overhead = min(spent[1:])  # more would be taken off the time of short samples
            self.ask({"do": "begin", "device": self.device})
            if self._source is not None:
                self._folder, placed = self._source.placed()
                Sent(written := io.BytesIO(), placed).dump(self._whole)
                self._candidate = written.getvalue()
                self._seconds = limit
            request = {"candidate": self._candidate, "path": list(sys.path), "modules": _modules(self._candidate)}
            where = {
                "device": self.device,
                "folder": "\0" if self._folder is None else f"{Path(self._folder.name).name}/",
            }
            self.ask({"do": "load", **request, "room": self._room, "threads": self._threads, **where})
        finally:
            self._seconds = limit

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
        assert self._worker is not None
        code, crowded = None, False
        with contextlib.suppress(NurseryError):
            code = self._nursery.ended(self._worker, END_SECONDS)
            crowded = self._nursery.crowded
        if code is not None:
            self._worker = None
        told = "" if self._log is None else self._log.summary()
        self.close()
        if crowded:
            return f"its sandbox had more than {MOST_PROCESSES} processes, and all of them were ended"
        if code is None:
            return "its process hung up"
        how = f"died of {signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
        return f"its process {how}" + (f": {told}" if told else "")


def _modules(candidate: bytes) -> dict[str, str]:
    """The modules that the pickled candidate names, with their files in this process."""
    found: dict[str, str] = {}

    class Names(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            file = getattr(sys.modules.get(module), "__file__", None)
            if file is not None:
                found[module] = str(file)
            return super().find_class(module, name)

        def persistent_load(self, placed: Any) -> Any:
            """Some function, which nobody calls: source text is imported in the worker alone."""
            return type(placed).load

    Names(io.BytesIO(candidate)).load()
    return found
