"""A second context of the card, which has the card for a moment before times are taken.

On Hopper a kernel of a graph ends 0.2 to 0.35 us later if more than one stream of its process has worked since the card
last changed contexts. Kernels with programmatic dependent launch do not feel it. So without care the ratio of two short
kernels would depend on what else the process has done. Behind a change of contexts, both sides are timed as in a
program of one stream.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from typing import Any

LIBRARY = "libcuda.so.1"
PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry perfsuite_nothing()
{
  ret;
}
\0"""


class DriverError(RuntimeError):
    """A call of the driver failed; the message has the call and its error."""


class OtherContext:
    """A context beside torch's, with a kernel that does nothing. Takes about 0.5 GB of the card's memory."""

    def __init__(self, device: int) -> None:
        """device: the card's number, as torch counts. Raises DriverError."""
        self._driver = _driver()
        self._handle, self._kernel = ctypes.c_void_p(), ctypes.c_void_p()
        place, module = ctypes.c_int(), ctypes.c_void_p()
        self._call("cuDeviceGet", ctypes.byref(place), ctypes.c_int(device))
        with contextlib.suppress(AttributeError):
            self._call("cuCtxCreate_v4", ctypes.byref(self._handle), None, ctypes.c_uint(0), place)
        if not self._handle:
            self._call("cuCtxCreate_v2", ctypes.byref(self._handle), ctypes.c_uint(0), place)
        try:
            self._call("cuModuleLoadData", ctypes.byref(module), PTX)
            self._call("cuModuleGetFunction", ctypes.byref(self._kernel), module, b"perfsuite_nothing")
        except DriverError:
            self._call("cuCtxDestroy_v2", self._handle)
            raise
        self._leave()

    def run(self) -> None:
        """Run the kernel, and wait for it: 0.3 ms on an H200. Raises DriverError."""
        self._call("cuCtxPushCurrent_v2", self._handle)
        try:
            one, threads, nothing = ctypes.c_uint(1), ctypes.c_uint(32), ctypes.c_uint(0)
            self._call("cuLaunchKernel", self._kernel, one, one, one, threads, one, one, nothing, None, None, None)
            self._call("cuCtxSynchronize")
        finally:
            self._leave()

    def _leave(self) -> None:
        self._call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._driver, name)(*arguments)
        if code != 0:
            raise DriverError(f"{name} failed with error {code} of the driver")


def change_contexts(device: int) -> str | None:
    """Let a second context have the card; None, or why it could not. Work that is enqueued must have ended."""
    found = _made(device)
    if isinstance(found, str):
        return found
    try:
        found.run()
    except DriverError as error:
        return str(error)
    return None


@functools.cache
def _made(device: int) -> OtherContext | str:
    """The context of that card, or why there is none."""
    try:
        return OtherContext(device)
    except (DriverError, AttributeError, OSError) as error:
        return str(error)


def _driver() -> Any:
    return ctypes.CDLL(LIBRARY)
