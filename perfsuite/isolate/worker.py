"""The process that a candidate runs in: gets inputs, calls it, puts the results where the parent told it to.

Forked by `perfsuite.isolate.nursery`. Nothing that it says is believed beyond its form: the parent holds the right
answers, the clock and the verdict.
"""

from __future__ import annotations

import importlib
import importlib.util
import pickle
import resource
import socket
import sys
from collections.abc import Callable
from typing import Any

from perfsuite.isolate.channel import Channel
from perfsuite.isolate.memory import Arena, rebuild
from perfsuite.oracle.form import check_kind
from perfsuite.problems.base import Inputs
from perfsuite.problems.tensors import tensors_in

SHARE_OF_MEMORY = 0.5
"""Of the memory that is free, on the host and on a card, how much a candidate may take."""


class Worker:
    """Carries out the parent's orders, one after the other."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.candidate: Callable[..., Any] | None = None
        self.sets: list[Inputs] = []
        self.buffers: list[list[Any]] = []
        self.output: Any = None
        self._arenas: dict[str, Arena] = {}

    def serve(self) -> None:
        """Until the parent hangs up."""
        while True:
            try:
                request, descriptor = self.channel.next_order()
            except EOFError:
                return
            try:
                getattr(self, f"do_{request.pop('do')}")(descriptor, **request)
            except Exception as error:  # the candidate's, as a rule: it goes back to the parent as a receipt
                self.channel.reply(_failure(error))

    def do_load(
        self,
        _: int | None,
        candidate: bytes,
        path: list[str],
        modules: dict[str, str],
        room: int,
        threads: int,
        device: str,
    ) -> None:
        """Import the candidate as the parent knows it; `room`: what it may take of the host from here on, in bytes.

        Of a card it may take as large a share of what is free, as far as torch's allocator sees to that.
        """
        import torch

        torch.set_num_threads(threads)
        sys.path[:] = path
        for name, file in modules.items():
            _import(name, file)
        self.candidate = pickle.loads(candidate)
        # What a process maps in all is bounded on a CPU. The driver of a card reserves far more addresses than it uses,
        # so there only what can be written counts.
        kind, column = (resource.RLIMIT_DATA, 5) if device == "cuda" else (resource.RLIMIT_AS, 0)
        if device == "cuda":
            free, total = torch.cuda.mem_get_info()
            torch.cuda.set_per_process_memory_fraction(SHARE_OF_MEMORY * free / total)
        with open("/proc/self/statm") as statm:
            taken = int(statm.read().split()[column]) * resource.getpagesize()
        resource.setrlimit(kind, (taken + room, taken + room))
        self.channel.reply({"done": True})

    def do_call(self, descriptor: int | None, args: Any, kwargs: Any) -> None:
        """Call once; the receipt says what came back, `fetch` gets it."""
        import torch

        inputs = self._open("call", descriptor, args, kwargs)
        assert self.candidate is not None
        with torch.no_grad():
            self.output = inputs.call(self.candidate)
        fault = check_kind(self.output, inputs)
        if fault is not None:
            self.channel.reply({"fault": str(fault.reason), "sentence": fault.sentence})
            return
        tensors = [{"shape": list(one.shape), "dtype": str(one.dtype)[6:]} for one in tensors_in(self.output)]
        self.channel.reply({"tensors": tensors, "single": isinstance(self.output, torch.Tensor)})

    def do_fetch(self, descriptor: int | None, into: Any) -> None:
        """Copy the result of the last call, as it is now."""
        for buffer, tensor in zip(self._nest("fetch", descriptor, into), tensors_in(self.output), strict=True):
            buffer.copy_(tensor)
        _synchronise()
        self.output = None
        self.channel.reply({"done": True})

    def do_sets(self, descriptor: int | None, sets: list[tuple[Any, Any]], buffers: list[Any]) -> None:
        """The inputs that `run` goes through, and where it puts the two results that it is asked for."""
        opened = self._nest("sets", descriptor, [sets, buffers])
        self.sets = [Inputs(args, kwargs) for args, kwargs in opened[0]]
        self.buffers = opened[1]
        self.channel.reply({"done": True})

    def do_run(self, _: int | None, start: int, calls: int, chosen: int) -> None:
        """`calls` calls; a receipt when they are done, and another when the chosen and the last result are copied."""
        import torch

        output, kept = None, None
        with torch.no_grad():
            for call in range(calls):
                output = self.sets[(start + call) % len(self.sets)].call(self.candidate)  # type: ignore[arg-type]
                if call == chosen:
                    kept = output
        _synchronise()
        self.channel.reply({"done": True})
        faults = [check_kind(result, Inputs(())) for result in (kept, output) if calls]
        fault = next((fault for fault in faults if fault is not None), None)
        if fault is not None:
            self.channel.reply({"fault": str(fault.reason), "sentence": fault.sentence})
            return
        for result, into in zip((kept, output), self.buffers, strict=False):
            for tensor, buffer in zip(tensors_in(result), tensors_in(into), strict=bool(calls)):
                if tensor.shape == buffer.shape and tensor.dtype == buffer.dtype:
                    buffer.copy_(tensor)
                elif calls:
                    raise ValueError(f"a timed call returned {tensor.dtype}{tuple(tensor.shape)}")
        _synchronise()
        self.channel.reply({"done": True})

    def _open(self, what: str, descriptor: int | None, args: Any, kwargs: Any) -> Inputs:
        opened = self._nest(what, descriptor, [args, kwargs])
        return Inputs(opened[0], opened[1])

    def _nest(self, what: str, descriptor: int | None, nest: Any) -> Any:
        if descriptor is not None:
            self._arenas[what] = Arena(0, descriptor)
        return rebuild(nest, self._arenas.get(what))


def _import(name: str, file: str) -> None:
    """Import a module by name, or from its file where the name alone is not enough (a test module's)."""
    try:
        importlib.import_module(name)
        return
    except ImportError:
        spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{name} cannot be loaded from {file}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)


def _failure(error: Exception) -> dict[str, Any]:
    import torch

    said = str(error)
    memory = isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in said
    return {"error": type(error).__name__, "sentence": said[:2000], "memory": memory}


def _synchronise() -> None:
    import torch

    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def serve(descriptor: int) -> None:
    """Carry out what comes over the socket of that descriptor, until the parent hangs up."""
    Worker(Channel(socket.socket(fileno=descriptor))).serve()
