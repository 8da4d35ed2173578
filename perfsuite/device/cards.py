"""Finds the cards of this machine by NVML, which makes no CUDA context."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Device:
    """One card. Sizes in bytes."""

    index: int
    """Its number among the cards that this process can see."""
    name: str
    uuid: str
    capability: tuple[int, int]
    memory_bytes: int
    selector: str
    """The value of CUDA_VISIBLE_DEVICES that selects this card alone."""


@dataclass(frozen=True)
class Devices:
    """The cards, or the reason why there are no cards."""

    cards: tuple[Device, ...] = ()
    driver: str | None = None
    missing: str | None = None
    """One sentence without a full stop; None if there is a card."""


def find_devices(environ: Mapping[str, str]) -> Devices:
    """The cards that CUDA_VISIBLE_DEVICES leaves, in its order."""
    try:
        import pynvml  # type: ignore[import-untyped]
    except ImportError:
        return Devices(missing="nvidia-ml-py is not installed, so no GPU can be found")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return Devices(missing=f"no NVIDIA driver answers (NVML: {error})")
    try:
        driver = pynvml.nvmlSystemGetDriverVersion()
        every = [_read(index) for index in range(pynvml.nvmlDeviceGetCount())]
        visible = environ.get("CUDA_VISIBLE_DEVICES")
        chosen = every if visible is None else select(every, visible)
    except pynvml.NVMLError as error:
        return Devices(missing=f"the NVIDIA driver refused to describe its GPUs (NVML: {error})")
    finally:
        pynvml.nvmlShutdown()
    if not every:
        return Devices(driver=driver, missing=f"the NVIDIA driver {driver} sees no GPU")
    if not chosen:
        hidden = f"CUDA_VISIBLE_DEVICES is {visible!r} and leaves none of {len(every)} GPUs"
        return Devices(driver=driver, missing=hidden)
    return Devices(tuple(chosen), driver)


def select(every: list[Device], visible: str) -> list[Device]:
    """The devices that CUDA_VISIBLE_DEVICES names, renumbered. As in CUDA, the first bad entry ends the list."""
    chosen: list[Device] = []
    for entry in (part.strip() for part in visible.split(",")):
        if entry.isdecimal() and int(entry) < len(every):
            device = every[int(entry)]
        elif entry.startswith("GPU-"):
            fitting = [device for device in every if device.uuid.startswith(entry)]
            if len(fitting) != 1:
                break
            device = fitting[0]
        elif entry.startswith("MIG-") and every:
            # A slice of a card. NVML gives the facts of the whole card; the selector is that of the slice.
            device = every[0]
        else:
            break
        chosen.append(replace(device, index=len(chosen), selector=entry))
    return chosen


def usable_devices(environ: Mapping[str, str]) -> Devices:
    """The cards that torch can use in this process. Imports torch if there is a card."""
    found = find_devices(environ)
    if not found.cards:
        return found
    try:
        import torch
    except ImportError as error:
        return Devices(driver=found.driver, missing=f"torch cannot be imported ({error})")
    if torch.version.cuda is None:
        return Devices(driver=found.driver, missing=f"torch {torch.__version__} is built without CUDA")
    if not torch.cuda.is_available():
        why = f"torch {torch.__version__} cannot use it (driver {found.driver}, CUDA {torch.version.cuda})"
        return Devices(driver=found.driver, missing=why)
    return found


def _read(index: int) -> Device:
    import pynvml

    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    return Device(
        index=index,
        name=pynvml.nvmlDeviceGetName(handle),
        uuid=pynvml.nvmlDeviceGetUUID(handle),
        capability=(int(major), int(minor)),
        memory_bytes=int(pynvml.nvmlDeviceGetMemoryInfo(handle).total),
        selector=str(index),
    )
