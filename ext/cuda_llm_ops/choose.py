"""Which attention kernel to call: by measurement, and with a way out where memory runs short."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from .choose_table import H200
from .ops import flash_attention, naive_attention, tiled_attention


class Measured(NamedTuple):
    """Seconds of a call at one length, by kernel."""

    length: int
    naive: float
    tiled: float
    flash: float

    @property
    def fastest(self) -> str:
        """The kernel that took least."""
        times = {"naive": self.naive, "tiled": self.tiled, "flash": self.flash}
        return min(times, key=times.__getitem__)


MEASURED: Mapping[str, tuple[Measured, ...]] = {
    "cuda": tuple(Measured(*row) for row in H200),
    # The portable build on two threads of an x86-64 CPU, float32, batch 1, 4 heads of 64, full; medians of 7 calls
    # (3 at 1024), the kernels in turn. float16 has the same order at every length.
    "cpu": (
        Measured(16, 101.9e-6, 72.7e-6, 57.4e-6),
        Measured(64, 1045.7e-6, 342.8e-6, 204.2e-6),
        Measured(128, 4105.3e-6, 1140.2e-6, 632.1e-6),
        Measured(256, 11758.8e-6, 3319.0e-6, 1709.1e-6),
        Measured(512, 44650.9e-6, 10320.7e-6, 6363.6e-6),
        Measured(1024, 208294.5e-6, 40555.0e-6, 23217.7e-6),
    ),
}
"""Measurements by kind of device, shortest first."""
_KERNELS: Mapping[str, Callable[..., Tensor]] = {
    "naive": naive_attention,
    "tiled": tiled_attention,
    "flash": flash_attention,
}


class FlashFallbackWarning(RuntimeWarning):
    """`safe_flash_attention` ran out of memory and called scaled_dot_product_attention instead."""


# Said every time, not once a place as Python does by default; filters of the user's come before this one.
warnings.simplefilter("always", FlashFallbackWarning, append=True)


def fastest_kernel(device: str, length: int, measured: Mapping[str, tuple[Measured, ...]] = MEASURED) -> str:
    """ "naive", "tiled" or "flash": what was fastest at the shortest measured length that is not below `length`.

    Past the longest one that one decides; on a kind of device without measurements "flash", the O(N) one.
    """
    rows = measured.get(device, ())
    if not rows:
        return "flash"
    return next((row.fastest for row in rows if row.length >= length), rows[-1].fastest)


def optimal_attention(
    q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False, *, scale: float | None = None
) -> Tensor:
    """The attention kernel that was measured to be the fastest for this device and length of keys.

    Rules of thumb ("naive under 128, tiled under 512") do not hold here: flash is the fastest at every length that was
    measured, on the H200 and on the CPU, see MEASURED. Arguments, result and errors are `flash_attention`'s.
    """
    length = k.shape[-2] if isinstance(k, Tensor) and k.dim() >= 2 else 0
    kind = q.device.type if isinstance(q, Tensor) else ""
    return _KERNELS[fastest_kernel(kind, length)](q, k, v, is_causal, scale=scale)


def safe_flash_attention(
    q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False, *, scale: float | None = None
) -> Tensor:
    """`flash_attention`; where that runs out of memory, and only there, torch's scaled_dot_product_attention.

    Each fallback is told by a FlashFallbackWarning with the sizes. Arguments, result and errors are
    `flash_attention`'s; a torch.OutOfMemoryError of the fallback is raised as it is.
    """
    try:
        return flash_attention(q, k, v, is_causal, scale=scale)
    except torch.OutOfMemoryError as error:
        why = (str(error).splitlines() or ["no reason given"])[0]
    # Outside of the handler, which would keep alive what the failed call had allocated.
    warnings.warn(
        f"flash_attention of q {tuple(q.shape)} and k {tuple(k.shape)} ran out of memory ({why}); "
        "scaled_dot_product_attention is called instead",
        FlashFallbackWarning,
        stacklevel=2,
    )
    grouped = q.shape[1] != k.shape[1]
    return torch.nn.functional.scaled_dot_product_attention(
        q, k, v, is_causal=is_causal, scale=scale, enable_gqa=grouped
    )
