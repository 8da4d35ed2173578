"""Measures the links of this machine: copies by torch, collectives by NCCL, names from NVML."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from perfsuite.machine.links import COLLECTIVES, NVLINK_VERSIONS, Collective, Link, nvlink_peak, pcie_peak

COPY_BYTES = 2**28
COLLECTIVE_BYTES = 2**30
SMALL_BYTES = 8
REPEATS, SMALL_REPEATS = 5, 100
MOST_NVLINKS = 18
Named = tuple[str, float | None]
"""A link's name and its peak, in bytes a second."""


def host_links(device: int, uuid: str) -> list[Link]:
    """The links to and from pinned and pageable memory of the host."""
    import torch

    name, peak = pcie_of(uuid)
    there = torch.empty(COPY_BYTES, dtype=torch.uint8, device=torch.device("cuda", device))
    found = []
    for pinned in (True, False):
        here = torch.ones(COPY_BYTES, dtype=torch.uint8, pin_memory=pinned)
        kind = name if pinned else f"pageable, {name}"
        found.append(Link("host", f"gpu {device}", kind, *_copy(here, there, (device,)), peak))
        found.append(Link(f"gpu {device}", "host", kind, *_copy(there, here, (device,)), peak))
    return found


def device_links(first: int, second: int, uuids: Sequence[str]) -> list[Link]:
    """The links from each of two GPUs to the other."""
    import torch

    tensors = {one: torch.ones(COPY_BYTES, dtype=torch.uint8, device=f"cuda:{one}") for one in (first, second)}
    name, peak = between(uuids[first], uuids[second])
    found = []
    for source, target in ((first, second), (second, first)):
        kind = name if torch.cuda.can_device_access_peer(target, source) else f"through the host, {name}"
        measured = _copy(tensors[source], tensors[target], (source, target))
        found.append(Link(f"gpu {source}", f"gpu {target}", kind, *measured, peak))
    return found


def _copy(source: Any, target: Any, devices: Sequence[int]) -> tuple[float, float]:
    """Bytes a second of a large copy, and seconds of a small one."""
    import torch

    def wait() -> None:
        for device in devices:
            torch.cuda.synchronize(device)

    large = timed(lambda: target.copy_(source, non_blocking=True), wait, REPEATS)
    few_source, few_target = source[:SMALL_BYTES], target[:SMALL_BYTES]
    small = timed(lambda: few_target.copy_(few_source, non_blocking=True), wait, SMALL_REPEATS)
    return source.numel() / min(large), statistics.median(small)


def timed(call: Callable[[], Any], wait: Callable[[], None], repeats: int) -> list[float]:
    """Seconds of each of `repeats` calls, until the enqueued work has ended. Two more calls come before."""
    found = []
    for _ in range(repeats + 2):
        wait()
        begun = time.perf_counter()
        call()
        wait()
        found.append(time.perf_counter() - begun)
    return found[2:]


def collectives_on_rank(rank: int, world: int) -> list[Collective]:
    """The collectives of all GPUs, as `ranks.run` measures them on each GPU."""
    import torch

    def made(size: int) -> dict[str, Callable[[], Any]]:
        whole = torch.ones(size, dtype=torch.uint8, device="cuda")
        part = whole[: size // world].clone()
        reduced = torch.ones(size // 2, dtype=torch.float16, device="cuda")
        return {
            "all_reduce": lambda: torch.distributed.all_reduce(reduced),
            "all_gather": lambda: torch.distributed.all_gather_into_tensor(whole, part),
        }

    large, small = made(COLLECTIVE_BYTES // world * world), made(SMALL_BYTES * world)
    found = []
    for name in COLLECTIVES:
        seconds = min(timed(large[name], torch.cuda.synchronize, REPEATS))
        latency = statistics.median(timed(small[name], torch.cuda.synchronize, SMALL_REPEATS))
        found.append(Collective(name, world, float(COLLECTIVE_BYTES // world * world), seconds, latency))
    return found


def pcie_of(uuid: str) -> Named:
    """The card's PCIe link at its fastest setting, since an idle card slows it down."""
    import pynvml  # type: ignore[import-untyped]

    try:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        generation = int(pynvml.nvmlDeviceGetMaxPcieLinkGeneration(handle))
        width = int(pynvml.nvmlDeviceGetMaxPcieLinkWidth(handle))
    except pynvml.NVMLError:
        return "PCIe", None
    return f"PCIe {generation}.0 x{width}", pcie_peak(generation, width)


def between(first: str, second: str) -> Named:
    """The link between two cards: NVLink if the driver reports it, else PCIe."""
    import pynvml

    try:
        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByUUID(uuid) for uuid in (first, second)]
        status = pynvml.nvmlDeviceGetP2PStatus(*handles, pynvml.NVML_P2P_CAPS_INDEX_NVLINK)
        if status != pynvml.NVML_P2P_STATUS_OK:
            return pcie_of(first)
    except pynvml.NVMLError:
        return "unknown link", None
    version, links = _nvlinks(handles[0])
    return f"NVLink {version} x{links}" if links else "NVLink", nvlink_peak(version, links)


def _nvlinks(handle: Any) -> tuple[str, int]:
    """Version and number of a card's active NVLinks; "" and 0 if the driver does not report them."""
    import pynvml

    version, active = "", 0
    for link in range(MOST_NVLINKS):
        try:
            if pynvml.nvmlDeviceGetNvLinkState(handle, link) == pynvml.NVML_FEATURE_ENABLED:
                active += 1
                number = int(pynvml.nvmlDeviceGetNvLinkVersion(handle, link))
                version = NVLINK_VERSIONS.get(number, f"of version number {number}")
        except pynvml.NVMLError:
            break
    return version, active
