"""The libraries that candidates are measured against, one file each: cuBLAS, SDPA, FlashAttention.

Every rival may be called inside CUDA graph capture. Settings for a fair comparison (no reduced precision in the sums)
are changed around the call only, and only if they differ. This costs the host a few microseconds at most.
"""

from __future__ import annotations

import pkgutil
from functools import lru_cache
from importlib import import_module
from types import ModuleType


@lru_cache
def rivals_for(family: str) -> dict[str, ModuleType]:
    """The file of each rival that serves a family, by the rival's name.

    A rival's file defines SERVES (families), NAMES (its names) and `rival(problem, name)`, which returns a callable.
    """
    modules = [import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)]
    return {name: module for module in modules if family in module.SERVES for name in module.NAMES}
