"""The parent's side of a worker: starts it, calls the candidate in it, and survives its failures."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import pickle
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from perfsuite.device import turns
from perfsuite.isolate import ahead, receipt
from perfsuite.isolate.memory import Arena
from perfsuite.isolate.nursery import nursery
from perfsuite.isolate.process import Late, Process, Shared
from perfsuite.isolate.results import read_result, view_of
from perfsuite.isolate.source import Sent, Source, source_in
from perfsuite.isolate.worker import SHARE_OF_MEMORY
from perfsuite.outcome import UnjudgeableError
from perfsuite.problems.nests import Flat, has_layouts, outline
from perfsuite.problems.tensors import map_tensors, tensors_in, turned

if TYPE_CHECKING:
    import torch

Found = TypeVar("Found")


MOST_LENT_BYTES = 1 << 26
"""Shared memory of a request that is kept for the next one."""


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

        self.trusted = trusted
        """True if the code is the rival's."""
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
        self._process: Process | None = None
        self._lends: dict[str, Arena] = {}
        """The shared memory of the last request of a kind, which one process has open."""
        self._lends_to: Process | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the candidate once. If it changes its arguments, the caller's change too."""
        import torch

        if has_layouts([args, kwargs]):
            raise UnjudgeableError("sparse and nested arguments cannot leave a process; run without --perf-isolate")
        with self._lent("call", [args, kwargs]) as (arena, new):
            placed = map_tensors([args, kwargs], arena.place)
            where = arena.describe(placed)
            if self.device == "cuda":
                torch.cuda.synchronize()  # the worker does not wait for this process's stream
            said = self.ask({"do": "call", "args": where[0], "kwargs": where[1]}, new)
            told = self.told(lambda said: receipt.tensors_of(said, self.device), said)
            results = [torch.empty(one.shape, dtype=one.dtype, device=self.device) for one in told]
            with self._lent("fetch", results) as (buffers, new):
                landed = map_tensors(results, partial(buffers.place, blank=True))
                if self.device == "cuda":
                    torch.cuda.synchronize()  # what `place` writes must not come behind what the worker copies
                self.ask({"do": "fetch", "into": buffers.describe(landed)}, new)
                # The worker has waited for all of its work by now.
                for mine, theirs in zip(tensors_in([args, kwargs]), tensors_in(placed), strict=True):
                    if theirs is not mine and 0 not in mine.stride():
                        mine.copy_(theirs)
                given = list(tensors_in([args, kwargs]))
                fetched = [
                    _marked(landing, one) if one.view is None else view_of(given, one, one.view)
                    for landing, one in zip(landed, told, strict=True)
                ]
        if said.get("single") is True and len(fetched) == 1:
            return fetched[0]
        structure, leaves = self.told(lambda said: receipt.leaves_of(said, fetched), said)
        return None if structure == outline(None) else Flat(structure, leaves)

    @contextlib.contextmanager
    def _lent(self, what: str, nest: Any) -> Iterator[tuple[Arena, Arena | None]]:
        """(shared memory for the tensors of a nest; the same if the process has yet to open it).

        The memory of a request is used again for the next one: to make it, and to open it on a card, takes longer than
        a call. Nothing lies there that the process has not had.
        """
        process, on_card = self._start(), self.opens_card_memory
        arena = self._lends.pop(what, None)
        there = arena is not None and self._lends_to is process and arena.empty(nest, on_card=on_card)
        if not there:
            if arena is not None:
                arena.close()
            arena = Arena(nest, on_card=on_card)
        assert arena is not None
        try:
            yield arena, None if there else arena
        finally:
            if self._process is process and not process.closed and arena.bytes <= MOST_LENT_BYTES:
                self._lends_to, self._lends[what] = process, arena
            else:
                arena.close()

    @property
    def running(self) -> bool:
        """True if its process has started and has not been ended."""
        return self._process is not None and not self._process.closed

    def measured_overhead(self, *, least: float | None = None) -> float:
        """Seconds that an empty order costs, measured anew; or with `least` what was measured, and at most that.

        A candidate's was measured before the candidate was there, perhaps on a busy machine. If it is too long, all
        samples become too short. An order costs the same in each process, and a trusted one can be measured anew.
        """
        process = self._start()
        if least is None:
            process.measure()
        else:
            process.overhead = min(process.overhead, least)
        return process.overhead

    @property
    def opens_card_memory(self) -> bool:
        """True if its process opens memory of the card by its descriptor; starts the process."""
        return self._start().nursery.opens_card_memory

    @property
    def order_costs(self) -> list[tuple[float, float]]:
        """`Process.order_costs`."""
        return self._start().order_costs

    def arena(self, nest: Any, stacks: int = 0) -> Arena:
        """Shared memory for the tensors of a nest; see `Arena`."""
        return Arena(nest, on_card=self.opens_card_memory, stacks=stacks)

    def ask(self, request: dict[str, Any], memory: Shared | None = None, *, late: Late | None = None) -> dict[str, Any]:
        """`Process.ask`."""
        return self._start().ask(request, memory, late=late)

    def ask_each(self, requests: Sequence[dict[str, Any]]) -> Generator[dict[str, Any]]:
        """`Process.ask_each`."""
        return self._start().ask_each(requests)

    def timed(self, request: dict[str, Any]) -> tuple[float, dict[str, Any]]:
        """`Process.timed`."""
        return self._start().timed(request)

    def told(self, read: Callable[[dict[str, Any]], Found], said: dict[str, Any]) -> Found:
        """The finding of `read` in a receipt; CandidateError if it finds a fault in it."""
        return (self._process or self._start()).told(read, said)

    def stop(self) -> None:
        """Stop the process, with all that it has started, until `resume`; return when it has stopped."""
        if self._process is not None:
            self._process.stop()

    def resume(self) -> None:
        """Let the process go on."""
        if self._process is not None:
            self._process.resume()

    def result(self, form: Any, told: Sequence[receipt.Described], addresses: Sequence[int]) -> Any:
        """A copy of a result in the memory of the process, which must be stopped; see `read_result`."""
        assert self._process is not None
        return read_result(self._process.descriptors[0], form, told, addresses)

    @property
    def sandbox(self) -> str:
        """The candidate's sandbox in words, or the reason that there is none."""
        return (
            "no sandbox: the code is trusted" if self.trusted else nursery(sandboxed=True, device=self.device).sandbox
        )

    def close(self) -> None:
        """End the process, whatever it is doing; `nursery.settle` waits until it is gone. A rival's may go on."""
        while self._lends:
            self._lends.popitem()[1].close()
        if self._process is not None:
            if not (self.trusted and ahead.give_back(self._process)):
                self._process.close()
            self._process = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _start(self) -> Process:
        if self._process is not None and not self._process.closed:
            return self._process
        self.close()
        modules = _modules(self._candidate) if self._source is None else {}
        self._process = made = ahead.take(trusted=self.trusted, device=self.device, modules=modules)
        if self._source is not None:
            self._folder, placed = self._source.placed()
            Sent(written := io.BytesIO(), placed).dump(self._whole)
            self._candidate = written.getvalue()
            made.seconds = self._seconds
            modules = _modules(self._candidate)
        made.modules |= modules
        made.nursery.put_back(_key(self._source, modules))
        where = "\0" if self._folder is None else f"{Path(self._folder.name).name}/"
        request = {"candidate": self._candidate, "path": list(sys.path), "modules": modules, "room": self._room}
        request |= {"share": SHARE_OF_MEMORY * turns.memory_share(), "again": self.trusted}
        made.ask({"do": "load", **request, "threads": self._threads, "device": self.device, "folder": where})
        made.seconds = self._seconds
        return made


def _marked(landing: torch.Tensor, told: receipt.Described) -> torch.Tensor:
    """A copy of these values, with the marks of the tensor from which they came."""
    return turned(turned(landing, told.turns).resolve_conj().resolve_neg().clone(), told.turns)


def _key(source: Source | None, modules: dict[str, str]) -> str:
    """The digest of all text that a candidate consists of; empty if it cannot be told."""
    if source is not None:
        return source.digest
    text = hashlib.sha256()
    for name, file in sorted(modules.items()):
        try:
            text.update(f"{name}\0{file}\0".encode() + hashlib.sha256(Path(file).read_bytes()).digest())
        except OSError:
            return ""
    return text.hexdigest()


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
