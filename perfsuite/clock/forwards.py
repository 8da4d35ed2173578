"""Captures into CUDA graphs, and forward passes in them, for sides whose backward alone is timed.

A captured backward reads what its forward pass kept, at fixed addresses. So the forward pass is captured too, for each
set of inputs, and replayed whenever the values of the set have changed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from perfsuite.clock.base import CaptureError, SideFailedError
from perfsuite.clock.memory import free_default_generator
from perfsuite.clock.rounds import Side
from perfsuite.problems.base import Inputs


@contextlib.contextmanager
def capturing(graph: Any, pool: Any, device: int) -> Iterator[None]:
    """Capture into `graph`, on the current stream, what the block enqueues; the capture ends however the block does.

    If torch cannot end a capture, its allocator still serves the pool to everyone. This ends that too.
    """
    graph.capture_begin(pool=pool, capture_error_mode="thread_local")
    try:
        yield
    except BaseException:
        with contextlib.suppress(RuntimeError):
            _end(graph, pool, device)
        raise
    _end(graph, pool, device)


def _end(graph: Any, pool: Any, device: int) -> None:
    import torch

    try:
        graph.capture_end()
    except RuntimeError:
        with contextlib.suppress(RuntimeError):  # capture_end did that before it failed
            torch._C._cuda_endAllocateToPool(device, pool)
        raise


def capture(graph: Any, enqueue: Callable[[], Any], side: Side, *, pool: Any, device: int) -> None:
    """Capture into `graph` what `enqueue` puts on the current stream. Raises CaptureError with the side's failure."""
    import torch

    torch.cuda.current_stream().synchronize()
    failure: BaseException | None = None
    ended = False
    try:
        with capturing(graph, pool, device):
            try:
                enqueue()
            except SideFailedError as error:
                failure = error.cause
            ended = True
    except RuntimeError as error:
        if not ended:  # neither side's fault
            raise
        failure = failure or error
    if failure is not None:
        free_default_generator(device)
        raise CaptureError(side, failure) from failure


class Pool:
    """Memory for graphs that come and go. Made on the stream that captures.

    torch frees a pool with its last graph, and refuses to capture into it from then on. A small graph therefore keeps
    this one.
    """

    def __init__(self, device: int, handle: Any = None) -> None:
        """handle: of a pool whose memory comes from elsewhere; by default from torch's allocator."""
        import torch

        self.handle = torch.cuda.graph_pool_handle() if handle is None else handle
        self._anchor = torch.cuda.CUDAGraph()
        with capturing(self._anchor, self.handle, device):
            torch.zeros(1, device="cuda")


class Forwards:
    """Captured forward passes, by side and set of inputs. What they keep lies in a memory pool of its own."""

    def __init__(self) -> None:
        self._pool: Pool | None = None
        self._graphs: dict[tuple[Side, int], Any] = {}

    def capture(self, side: Side, sets: Iterable[Inputs], forward: Callable[[Inputs], Any], device: int) -> None:
        """Capture `forward` on each set on the current stream, and run it once. Raises CaptureError."""
        import torch

        self._pool = self._pool or Pool(device)
        for inputs in sets:
            graph = torch.cuda.CUDAGraph()
            capture(graph, partial(forward, inputs), side, pool=self._pool.handle, device=device)
            graph.replay()
            self._graphs[side, id(inputs)] = graph

    def replay(self, side: Side, sets: Iterable[Inputs]) -> None:
        """Run the forward passes on these sets, each once, where they were captured."""
        if not self._graphs:
            return
        for place in dict.fromkeys(map(id, sets)):
            if (graph := self._graphs.get((side, place))) is not None:
                graph.replay()

    def reset(self) -> None:
        """Free the graphs."""
        for graph in self._graphs.values():
            graph.reset()
        self._graphs.clear()
