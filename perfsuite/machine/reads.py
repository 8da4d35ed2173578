"""Ceilings of reading: as many bytes as a call reads, by several kernels, each from memory that no cache holds.

A large read has time to reach the card's full rate; a read of a few megabytes has not, since it begins and ends. What a
call can attain is therefore the best of several kernels on as many bytes. They are launched so that the next one begins
while the last one ends, as a good kernel does.
"""

from __future__ import annotations

import ctypes
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from perfsuite.device import turns
from perfsuite.machine.ceilings import largest
from perfsuite.machine.device_code import DeviceCodeError, Kernel, compiled
from perfsuite.machine.read_source import SOURCE

if TYPE_CHECKING:
    import torch

VECTOR_BYTES = 16
LARGEST = VECTOR_BYTES * (2**31 - 1)
"""Bytes of the largest read."""
LIBRARY = "torch.sum"
ROUNDS = 9
MOST_PLACES = 256
"""Of a read in turn: tiny ones are found in L2."""
COLD = 3
"""Reads are from memory that is at least so many L2 caches large."""


@dataclass(frozen=True)
class Launch:
    """A launch of a kernel: threads of a block, and blocks of a multiprocessor or vectors of a block."""

    threads: int
    blocks_a_multiprocessor: int = 0
    vectors_a_block: int = 0

    def blocks(self, vectors: int, multiprocessors: int) -> int:
        """Blocks of the grid that reads so many vectors."""
        if self.vectors_a_block:
            return max(1, -(-vectors // self.vectors_a_block))
        return self.blocks_a_multiprocessor * multiprocessors


LAUNCHES = {
    "strided_8": Launch(1024, 2),
    "strided_4_once": Launch(256, 8),
    "ranges_8": Launch(512, 4),
    "short_blocks_4": Launch(256, vectors_a_block=1024),
    "bulk_strided_8k": Launch(32, 6),
    "bulk_ranges_8k": Launch(32, 6),
    "bulk_strided_16k": Launch(32, 6),
}
"""Kernels of read_source.py, and how each is launched."""


@dataclass(frozen=True)
class Reads:
    """Calls that read as many bytes each; call i reads the i-th of so many places in turn."""

    names: tuple[str, ...]
    calls: tuple[Callable[[int], object], ...]
    places: int


def reads_of(bytes_: int, cold_bytes: int) -> Reads:
    """Calls on the current device that read `bytes_`, from as many places as make up `cold_bytes`, or MOST_PLACES.

    Raises:
        ValueError: `bytes_` is not from 4 to LARGEST.
        DeviceCodeError: the kernels cannot be compiled.
    """
    import torch

    if not 4 <= bytes_ <= LARGEST:
        raise ValueError(f"bytes_ is {bytes_}; it must be from 4 to {LARGEST}")
    vectors = -(-bytes_ // VECTOR_BYTES)
    places = max(1, min(MOST_PLACES, -(-cold_bytes // bytes_)))
    pitch = -(-vectors // 8) * 8  # every place begins a line of 128 bytes
    data = torch.randn(places * pitch * VECTOR_BYTES // 2, device="cuda", dtype=torch.float16).view(torch.int32)
    multiprocessors = torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count

    def of_kernel(name: str, launch: Launch) -> Callable[[int], object]:
        kernel = _kernel(name, torch.cuda.current_device())
        blocks = launch.blocks(vectors, multiprocessors)
        out = torch.empty(blocks * launch.threads, device="cuda", dtype=torch.int32)
        place = [data[4 * pitch * index :] for index in range(places)]
        return lambda index: early(kernel, blocks, launch.threads, (place[index], vectors, out))

    ours = {name: of_kernel(name, launch) for name, launch in LAUNCHES.items()}
    numbers = data.view(torch.float32).view(places, 4 * pitch)[:, : 4 * vectors]
    ours[LIBRARY] = lambda index: numbers[index].sum()
    return Reads(tuple(ours), tuple(ours.values()), places)


@cache
def own_size_bytes_a_second(device: int, bytes_: int) -> float:
    """Bytes read per second by the fastest of the kernels on as many bytes, or on the largest part of the memory.

    The median of ROUNDS replays of a graph, kernels in turn. DeviceCodeError if they cannot be compiled.
    """
    import torch

    with torch.cuda.device(device):
        read = min(max(bytes_, VECTOR_BYTES), largest(LARGEST, device))
        reads = reads_of(read, COLD * torch.cuda.get_device_properties(device).L2_cache_size)
        graphs = [_captured(call, reads.places) for call in reads.calls]
        with turns.timing():
            rounds = [[_seconds(graph) / reads.places for graph in graphs] for _ in range(ROUNDS + 1)][1:]
        return read / min(statistics.median(of) for of in zip(*rounds, strict=True))


def _captured(call: Callable[[int], object], places: int) -> torch.cuda.CUDAGraph:
    import torch

    call(0)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for index in range(places):
            call(index)
    return graph


def _seconds(graph: torch.cuda.CUDAGraph) -> float:
    import torch

    before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    before.record()
    graph.replay()
    after.record()
    after.synchronize()
    return before.elapsed_time(after) / 1e3


@cache
def _kernel(name: str, device: int) -> Kernel:
    return compiled(SOURCE, name)


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute: which one, and its value, of which only a number is used."""

    _fields_ = [("which", ctypes.c_int), ("gap", ctypes.c_int), ("value", ctypes.c_int), ("rest", ctypes.c_int * 15)]


class _Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = [
        *((name, ctypes.c_uint) for name in ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "shared")),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    ]


_PROGRAMMATIC_STREAM_SERIALIZATION = 6


def early(kernel: Kernel, blocks: int, threads: int, arguments: tuple[Any, ...]) -> None:
    """Launch a kernel that may begin while the one before it ends, where the card can do that (Hopper and later)."""
    import torch

    handle = getattr(kernel, "func", None)
    if handle is None or torch.cuda.get_device_capability() < (9, 0):
        kernel((blocks, 1, 1), (threads, 1, 1), arguments)
        return
    values = [_value(one) for one in arguments]
    pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(one) for one in values))
    attribute = _Attribute(_PROGRAMMATIC_STREAM_SERIALIZATION, 0, 1)
    stream = torch.cuda.current_stream().cuda_stream
    config = _Config(blocks, 1, 1, threads, 1, 1, 0, stream, ctypes.pointer(attribute), 1)
    code = ctypes.CDLL("libcuda.so.1").cuLaunchKernelEx(ctypes.byref(config), handle, pointers, None)
    if code:
        raise DeviceCodeError(f"a kernel that reads was not launched: CUDA error {code}")


def _value(argument: int | torch.Tensor) -> ctypes.c_int | ctypes.c_void_p:
    return ctypes.c_int(argument) if isinstance(argument, int) else ctypes.c_void_p(argument.data_ptr())
