"""The process in which a candidate runs: receives inputs, calls the candidate, writes results to shared memory.

`perfsuite.isolate.nursery` forks it. The parent holds the right answers, the clock and the verdict, and trusts nothing
that a worker sends.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import importlib.util
import io
import resource
import socket
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from perfsuite.case.failures import MOST_TEXT, frames_of
from perfsuite.isolate.card_memory import call_driver
from perfsuite.isolate.channel import Channel
from perfsuite.isolate.memory import Opened
from perfsuite.isolate.source import Received, SourceError
from perfsuite.oracle.form import check_kind, memory_shared
from perfsuite.oracle.judgement import Judgement
from perfsuite.outcome import Reason
from perfsuite.problems.base import Inputs
from perfsuite.problems.nests import outline
from perfsuite.problems.tensors import PLAIN, leaves_in, tensors_in, turns

if TYPE_CHECKING:
    from perfsuite.isolate.card_queue import CardQueue

TRITON_COMPILER = "triton.compiler"
"""The module whose exceptions say that Triton refuses a source."""
SHARE_OF_MEMORY = 0.5
"""Share of the free memory, of the host and of a card, that a candidate may use."""


def serve(descriptor: int) -> None:
    """Be a worker, until the parent closes the socket of that descriptor."""
    Worker(descriptor).serve()


class Worker:
    """Carries out the parent's orders, one after another."""

    def __init__(self, descriptor: int) -> None:
        """descriptor: of the socket from which the orders come."""
        self.channel = Channel(socket.socket(fileno=descriptor))
        self.candidate: Callable[..., Any] | None = None
        self.sets: list[Inputs] = []
        self.buffers: list[Any] = []
        self.output: Any = None
        self.held: list[Any] = []
        """The results of the last `run`."""
        self.queue: CardQueue | None = None
        self._failed: Exception | None = None
        """The failure of an order behind its receipt; the receipt of the next order says so."""
        self._arenas: dict[str, Opened] = {}
        self._folder = "\0"
        """Where the candidate's source lies, which frames leave out."""

    def serve(self) -> None:
        """Carry out orders until the parent closes the socket."""
        self.channel.introduce()
        while True:
            try:
                request, descriptors = self.channel.next_order()
            except EOFError:
                return
            try:
                if self._failed is not None:
                    failed, self._failed = self._failed, None
                    raise failed
                what, card = request.pop("do"), request.pop("card", None)
                if descriptors:
                    self._arenas[what] = Opened(descriptors, card)
                getattr(self, f"do_{what}")(**request)
            except Exception as error:  # mostly the candidate's; it goes to the parent as a receipt
                self.channel.reply(_failure(error, self._folder))

    def do_driver(self) -> None:
        """Load the driver of the cards, without a context. If it does not load, `begin` says so."""
        with contextlib.suppress(RuntimeError):
            call_driver("cuInit", ctypes.c_uint(0))
        self.channel.reply({"done": True})

    def do_begin(self, device: str) -> None:
        """Make the card's context, before anything of the candidate is here."""
        if device == "cuda":
            import torch

            torch.cuda.mem_get_info()
        self.channel.reply({"done": True})

    def do_load(
        self,
        candidate: bytes,
        path: list[str],
        modules: dict[str, str],
        room: int,
        share: float,
        again: bool,
        threads: int,
        device: str,
        folder: str,
    ) -> None:
        """Import the candidate as the parent has it. room: bytes of host memory that it may use from now on.

        share: of the card's free memory, to which torch's allocator limits it. again: the candidate is trusted, and
        another one may follow it, under limits of its own.
        """
        import torch

        torch.set_num_threads(threads)
        sys.path[:] = path
        for name, file in modules.items():
            _import(name, file)
        # On a CPU the limit is for the whole address space. A card's driver reserves far more addresses than it uses,
        # so there it is for writable memory alone.
        kind, column = (resource.RLIMIT_DATA, 5) if device == "cuda" else (resource.RLIMIT_AS, 0)
        if device == "cuda":
            free, total = torch.cuda.mem_get_info()
            torch.cuda.set_per_process_memory_fraction(share * free / total)
        with open("/proc/self/statm") as statm:
            taken = int(statm.read().split()[column]) * resource.getpagesize()
        resource.setrlimit(kind, (taken + room, resource.getrlimit(kind)[1] if again else taken + room))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        self._folder = folder
        self.candidate = Received(io.BytesIO(candidate)).load()  # the first lines of source text run under the limits
        self.channel.reply({"done": True})

    def do_forget(self) -> None:
        """Free all that belongs to a trusted candidate, before another one comes."""
        import torch

        if self.queue is not None:
            self.queue.close()
        self.queue = self.candidate = self.output = None
        self.sets, self.buffers, self.held = [], [], []
        self._arenas.clear()
        gc.collect()
        _synchronise()
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()
        self.channel.reply({"done": True})

    def do_call(self, args: Any, kwargs: Any) -> None:
        """Call the candidate once; the receipt describes the result, and `fetch` copies it."""
        import torch

        inputs = Inputs(*self._arenas["call"].rebuild([args, kwargs]))
        assert self.candidate is not None
        with torch.no_grad():
            self.output = inputs.call(self.candidate)
        if self._refused(check_kind(self.output)):
            return
        given, shared = list(tensors_in(inputs)), dict(memory_shared(self.output, inputs))
        tensors = []
        for path, one in leaves_in(self.output):
            if not isinstance(one, torch.Tensor):
                continue
            described = _described(one)
            for place in shared[path]:  # a view: the parent returns one of the same argument
                if given[place].dtype == one.dtype:
                    apart = (one.data_ptr() - given[place].data_ptr()) // one.element_size()
                    described["view"] = {"of": place, "apart": apart}
            tensors.append(described)
        leaves = [None if isinstance(leaf, torch.Tensor) else _sent(leaf) for _, leaf in leaves_in(self.output)]
        places = [place for place, (_, leaf) in enumerate(leaves_in(self.output)) if isinstance(leaf, torch.Tensor)]
        structure = {"structure": outline(self.output), "leaves": leaves, "places": places}
        self.channel.reply({"tensors": tensors, "single": isinstance(self.output, torch.Tensor), **structure})

    def do_fetch(self, into: Any) -> None:
        """Copy the current contents of the last call's result."""
        for buffer, tensor in zip(self._arenas["fetch"].rebuild(into), tensors_in(self.output), strict=True):
            buffer.copy_(tensor)
        _synchronise()
        self.output = None
        self.channel.reply({"done": True})

    def do_probe(self, into: Any) -> None:
        """Add one to numbers in shared memory, for a parent that asks whether that arrives."""
        into = self._arenas["probe"].rebuild(into)
        into += 1
        _synchronise()
        self.channel.reply({"done": True})

    def do_sets(self, sets: list[tuple[Any, Any]], buffers: list[Any]) -> None:
        """Set the inputs that `run` rotates, and the buffers for the results that `hand` copies.

        The receipt says where the inputs lie in this process's memory.
        """
        opened, self.buffers = self._arenas["sets"].rebuild([sets, buffers])
        self.sets = [Inputs(args, kwargs) for args, kwargs in opened]
        self.channel.reply({"base": self._arenas["sets"].address})

    def do_run(self, start: int, calls: int) -> None:
        """Make `calls` calls and send a receipt. All results stay: nobody here knows which of them counts.

        The receipt says where each result lies, and how the last one's elements are laid out: the parent reads the
        results where they are when this process has been stopped.
        """
        import torch

        self.held = held = []
        sets, candidate = self.sets, self.candidate
        with torch.no_grad():
            for call in range(start, start + calls):
                held.append(sets[call % len(sets)].call(candidate))  # type: ignore[arg-type]
        _synchronise()
        if not held:
            self.channel.reply({"done": True})
        elif not self._refused(check_kind(held[-1])):
            at = [tensor.data_ptr() for result in held for tensor in tensors_in(result)]
            self.channel.reply({"at": at, "tensors": [_described(tensor) for tensor in tensors_in(held[-1])]})

    def do_pool(self, pools: int, costs: bool) -> None:
        """Open memory for the words and the results of the card's protocol. costs: as in `CardQueue`."""
        from perfsuite.isolate.card_queue import CardQueue

        if self.queue is not None:
            self.queue.close()
        memory = self._arenas["pool"].card_memory
        assert memory is not None
        self.queue = CardQueue(memory, pools, costs=costs)
        self.channel.reply({"done": True})

    def do_capture(self, key: int, pool: int, sets: list[int]) -> None:
        """Capture calls; the receipt says where in the shared memory each result lies, and its form."""
        assert self.queue is not None
        assert self.candidate is not None
        results = self.queue.capture(key, pool, self.candidate, [self.sets[place] for place in sets])
        for result in results:
            if self._refused(check_kind(result)):
                return
        at = [self.queue.offset(tensor) for result in results for tensor in tensors_in(result)]
        self.channel.reply({"at": at, "tensors": [_described(tensor) for tensor in tensors_in(results[-1])]})

    def do_queue(self, keys: list[int], value: int, ahead: int) -> None:
        """Enqueue graphs behind the parent's word. The receipt comes when the first `ahead` are there."""
        assert self.queue is not None
        told = []

        def tell() -> None:
            told.append(True)
            self.channel.reply({"done": True})

        try:
            self.queue.queue(keys, value, ahead, tell)
        except Exception as error:
            if not told:
                raise
            self._failed = error

    def do_touch(self, keys: list[int]) -> None:
        """Run graphs, none of which is timed."""
        assert self.queue is not None
        self.queue.touch(keys)
        self.channel.reply({"done": True})

    def do_wait(self) -> None:
        """Wait for all that was enqueued; this says if it failed."""
        _synchronise()
        self.channel.reply({"done": True})

    def do_drop(self, forget: list[int]) -> None:
        """Free the results of captures, and these graphs."""
        if self.queue is not None:
            self.queue.drop()
            self.queue.forget(forget)
        self.channel.reply({"done": True})

    def do_hand(self, chosen: list[int]) -> None:
        """Copy the results of these calls of the last `run`, and that of its last call, into the buffers."""
        held = self.held
        for result, into in zip([*(held[call] for call in chosen), held[-1]], self.buffers, strict=False):
            if self._refused(check_kind(result)):
                return
            for tensor, buffer in zip(tensors_in(result), tensors_in(into), strict=True):
                if tensor.shape != buffer.shape or tensor.dtype != buffer.dtype:
                    raise ValueError(f"a timed call returned {tensor.dtype}{tuple(tensor.shape)}")
                buffer.copy_(tensor)
        _synchronise()
        self.channel.reply({"done": True})
        self.held = []

    def _refused(self, fault: Judgement | None) -> bool:
        """True if a result has a fault, which then goes to the parent."""
        if fault is not None:
            self.channel.reply({"fault": str(fault.reason), "sentence": fault.sentence})
        return fault is not None


def _import(name: str, file: str) -> None:
    """Import a module by name, or from its file if the name does not suffice (a test module)."""
    with contextlib.suppress(ImportError):
        importlib.import_module(name)
        return
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{name} cannot be loaded from {file}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)


def _described(tensor: Any) -> dict[str, Any]:
    """The form of a tensor, as the channel takes it."""
    form = {"shape": list(tensor.shape), "dtype": str(tensor.dtype)[6:], "stride": list(tensor.stride())}
    marks = turns(tensor)
    return form if marks == PLAIN else {**form, "turns": list(marks)}


def _sent(leaf: Any) -> Any:
    """A leaf that is no tensor, as the channel takes it."""
    return leaf if isinstance(leaf, bool | int | float | str | None) else str(leaf)


def _failure(error: Exception, folder: str) -> dict[str, Any]:
    import torch

    said = str(error)
    none = isinstance(error, SourceError)  # too little memory to import is a failure of the candidate
    memory = isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in said
    # The private folder has another name in each run.
    frames = [frame.rpartition(folder)[2] for frame in frames_of(error)]
    reason = {"reason": str(error.reason)} if isinstance(error, SourceError) else {}
    if any(kind.__module__.startswith(TRITON_COMPILER) for kind in type(error).__mro__):
        reason = {"reason": str(Reason.DOES_NOT_COMPILE)}
        said = f"Triton does not compile it: {next(reversed(said.split(chr(10))), '')}"
    return {
        "error": type(error).__name__,
        "sentence": said[:MOST_TEXT],
        "memory": memory and not none,
        "frames": frames,
        **reason,
    }


def _synchronise() -> None:
    import torch

    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
