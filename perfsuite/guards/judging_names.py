"""The modules and classes whose names the judgement rests on: of builtins, Python, torch and perfsuite."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

OWN = "perfsuite."
JUDGING = tuple(
    OWN + name
    for name in ("case", "clock", "device", "guards", "oracle", "outcome", "problems", "verdict")
)  # fmt: skip
"""Parts of perfsuite that run while a case is judged. The modules that they import are compared as well."""
PYTHON = (
    *("builtins", "math", "time", "statistics", "random", "functools", "operator", "itertools", "dataclasses", "json"),
)
"""Modules of Python of which every name is compared."""
SYSTEM = ("_signal", "ctypes", "gc", "importlib", "os", "resource", "signal", "sys", "threading", "types", "warnings")
"""Modules of Python of which only what is called is compared."""
LIBRARIES = (
    *("torch", "torch.nn.functional", "torch.linalg", "torch.cuda", "torch.cuda.graphs", "torch.cuda.streams"),
    *("torch.backends.cuda", "torch.backends.cudnn", "torch.autograd", "torch.autograd.grad_mode", "torch.random"),
    *("torch._tensor", "torch._ops", "torch.overrides", "torch.utils._python_dispatch", "torch.utils._pytree"),
    *("torch.library", "torch.nn.modules.module", "numpy", "numpy.linalg"),
)
CORE = ("torch._C", "torch._C._nn", "torch._C._autograd", "torch.nn.attention", "torch.multiprocessing.reductions")
"""Modules of torch of which only what is called is compared."""
CLASSES = {
    "torch": ("Tensor", "Generator"),
    "torch.cuda": ("Event", "Stream", "CUDAGraph"),
    "torch.autograd.grad_mode": ("no_grad", "enable_grad", "inference_mode"),
    "torch.nn.modules.module": ("Module",),
    "torch.overrides": ("TorchFunctionMode",),
    "torch.utils._python_dispatch": ("TorchDispatchMode",),
}
"""Module of torch -> its classes whose methods are compared. Of perfsuite's modules and of Python's, all are."""
MEANT_TO_BE_REPLACED = ("hook", "showwarning", "formatwarning", "_showwarnmsg_impl")
"""Ends of names that programs replace as they are meant to be. The judgement rests on none of them."""
Counts = Callable[[str, Any], bool]
"""(name, value) -> True if they are compared."""
_REBOUND = (bool, type(None), types.ModuleType)
"""Kinds of values that libraries bind anew as they go."""


def judging_modules() -> dict[str, types.ModuleType]:
    """Name -> module, of all that are loaded."""
    own = [name for name in list(sys.modules) if name.startswith(OWN)]
    names = (*PYTHON, *SYSTEM, *sorted(_imported(own)), *LIBRARIES, *CORE, *own)
    return {name: one for name in names if isinstance(one := sys.modules.get(name), types.ModuleType)}


def judging_owners(modules: Mapping[str, types.ModuleType]) -> Iterator[tuple[str, Any, Counts]]:
    """(full name, module or class, the names of it that are compared)."""
    for name, module in modules.items():
        counts = _counts(name)
        yield name, module, counts
        named = CLASSES.get(name, ())
        all_of_them = name.startswith(OWN) or (name not in LIBRARIES and name not in CORE and name != "builtins")
        for key, value in vars(module).items():
            if isinstance(value, type) and (key in named or (all_of_them and _defined_in(value, name))):
                methods = counts if counts is not _called else lasting
                yield f"{name}.{value.__name__}", value, methods


def _counts(module: str) -> Counts:
    if module.startswith(OWN):
        return _every
    return lasting if module in PYTHON or module in LIBRARIES else _called


def lasting(_: str, value: Any) -> bool:
    """True for a value of a kind that libraries do not bind anew as they go.

    An empty tuple stands where a library fills in values once, as torch does for its generators when CUDA starts.
    """
    return not isinstance(value, _REBOUND) and not (type(value) is tuple and not value)


def _every(_: str, value: Any) -> bool:
    """True but for a module that has left the table of modules, as behind a test of a plugin that ran pytest inside.

    It is another one as soon as anybody imports it again.
    """
    return not isinstance(value, types.ModuleType) or sys.modules.get(value.__name__) is value


def _called(name: str, value: Any) -> bool:
    return callable(value) and not name.endswith(MEANT_TO_BE_REPLACED)


def _defined_in(cls: type, name: str) -> bool:
    """True for a class that this module wrote in Python; nobody can change others."""
    return cls.__module__ == name and bool(cls.__flags__ & _HEAP_TYPE)


_HEAP_TYPE = 1 << 9


def _imported(own: list[str]) -> set[str]:
    """The modules that stand under a name in the judging parts of perfsuite."""
    found = set()
    for name in own:
        if name.startswith(JUDGING):
            found |= {one.__name__ for one in vars(sys.modules[name]).values() if isinstance(one, types.ModuleType)}
    return {name for name in found if not name.startswith("perfsuite")}
