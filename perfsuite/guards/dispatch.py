"""The state that torch's dispatcher asks at every call: dispatch modes, dispatch keys, and observers of operators."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from perfsuite.guards.stack import EMPTY, Stack, stack_of


def dispatch_modes() -> Stack:
    """The modes that are on."""
    import torch

    count = torch._C._len_torch_dispatch_stack()
    return stack_of([torch._C._get_dispatch_stack_at(place) for place in range(count)]) if count else EMPTY


def write_dispatch_modes(old: Stack) -> None:
    """Put these modes on, and no others."""
    from torch.utils._python_dispatch import _pop_mode, _push_mode

    for mode in reversed(dispatch_modes().items):
        key = getattr(mode, "_mode_key", None)  # torch's own kinds of modes have a place of their own
        _pop_mode(key if key is not None else None)
    for mode in old.items:
        _push_mode(mode)


def keys(label: str) -> tuple[Callable[[], Any], Callable[[Any], None]]:
    """A reader and a writer of the keys that calls include, or exclude. Modes change them as well."""
    import torch

    read: Callable[[], Any] = getattr(torch._C, f"_dispatch_tls_local_{label}_set")
    return read, partial(_write_keys, label, read)


def _write_keys(label: str, read: Callable[[], Any], old: Any) -> None:
    import torch

    write, now = getattr(torch._C, f"_dispatch_tls_set_dispatch_key_{label}d"), read()
    for key in torch._C.DispatchKey.__members__.values():
        if old.has(key) != now.has(key):
            write(key, old.has(key))


def observed() -> Callable[[], bool] | None:
    """A function that is true while somebody observes torch's operators: on all threads, or on the one that asks.

    Python has no name for it, and C++ has: at::hasCallbacks() of ATen/record_function.h. None where it is not found.
    """
    import torch

    try:
        found = ctypes.CDLL(torch._C.__file__)._ZN2at12hasCallbacksEv
    except (OSError, AttributeError):
        return None
    found.restype, found.argtypes = ctypes.c_bool, []
    return cast(Callable[[], bool], found)
