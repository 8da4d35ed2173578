"""The state of the process that both sides share, and the functions that the judgement rests on.

A candidate need not be fast if the rival can be made slow: one thread, no cuDNN, a slower matrix product. Nor need it
be right if the function that compares can be replaced. What is here sees the plain ways of doing so. It runs in the
same process, so a determined attacker can undo it: against that, candidates are run in a process of their own.
"""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Setting:
    """One global setting of torch: how it is read and put back, and the value in a fresh process (None: any)."""

    name: str
    read: Callable[[], Any]
    write: Callable[[Any], Any]
    default: Any = None


@dataclass(frozen=True)
class Surroundings:
    """The values of all settings at one moment."""

    values: dict[str, Any]

    @staticmethod
    def now() -> Surroundings:
        """Read them."""
        return Surroundings({setting.name: setting.read() for setting in _settings()})

    def changes(self) -> list[str]:
        """What differs now, as "name from x to y"."""
        now = Surroundings.now().values
        return [f"{name} from {old} to {now[name]}" for name, old in self.values.items() if now[name] != old]

    def restore(self) -> None:
        """Put back what differs now."""
        for setting in _settings():
            if setting.read() != self.values[setting.name]:
                setting.write(self.values[setting.name])


def handicaps() -> list[str]:
    """Settings that are not those of a fresh process and slow a rival, or make it less exact; for a warning."""
    return [
        f"{setting.name} is {setting.read()}, not {setting.default}"
        for setting in _settings()
        if setting.default is not None and setting.read() != setting.default
    ]


def replaced() -> list[str]:
    """Functions that clocks, oracle and rivals rest on and that something has replaced, by their full names."""
    gone = [name for name, value, homes in _of_others() if not _comes_from(_plain(value), homes)]
    homes = tuple(str(Path(file).parent) for file in (_PACKAGE, os.__file__))
    for name, module in list(sys.modules.items()):
        if name.startswith(_OURS):
            gone += [
                place.name for place in _places(name, module) if not (place.as_it_was() or place.comes_from(homes))
            ]
    return gone


class _Place:
    """Where a function of ours stands, and what was found there when it was last found right.

    There are some six hundred, and three looks a case at each.
    """

    __slots__ = ("_code", "_function", "_key", "_there", "_value", "name")

    def __init__(self, name: str, there: Mapping[str, Any], key: str) -> None:
        self.name, self._there, self._key = name, there, key
        self._value: Any = None
        self._function: Any = None
        self._code: types.CodeType | None = None

    def as_it_was(self) -> bool:
        """Whether the same stands there, and does the same: code can be exchanged without exchanging the function."""
        value = self._value
        return value is not None and self._there.get(self._key) is value and self._function.__code__ is self._code

    def comes_from(self, homes: tuple[str, ...]) -> bool:
        """Whether what stands there now was written in one of the folders; it is then what should. Built-in is none."""
        value = self._there.get(self._key)
        function = _plain(value)
        code = _code(function)
        if code is None or not _comes_from(function, homes):
            return False
        self._value, self._function, self._code = value, function, code
        return True


def _settings() -> list[Setting]:
    import torch

    matmul, cuda, cudnn = torch.backends.cuda.matmul, torch.backends.cuda, torch.backends.cudnn

    def attribute(owner: Any, name: str, label: str, default: Any = None) -> Setting:
        return Setting(label, lambda: getattr(owner, name), lambda value: setattr(owner, name, value), default)

    return [
        Setting("torch.num_threads", torch.get_num_threads, torch.set_num_threads),
        Setting("torch.default_dtype", torch.get_default_dtype, torch.set_default_dtype, torch.float32),
        Setting(
            "torch.deterministic_algorithms",
            torch.are_deterministic_algorithms_enabled,
            torch.use_deterministic_algorithms,
            False,
        ),
        Setting("SDPA's flash backend", cuda.flash_sdp_enabled, cuda.enable_flash_sdp, True),
        Setting("SDPA's efficient backend", cuda.mem_efficient_sdp_enabled, cuda.enable_mem_efficient_sdp, True),
        Setting("SDPA's math backend", cuda.math_sdp_enabled, cuda.enable_math_sdp, True),
        Setting("SDPA's cuDNN backend", cuda.cudnn_sdp_enabled, cuda.enable_cudnn_sdp, True),
        attribute(cudnn, "enabled", "torch.backends.cudnn.enabled", True),
        attribute(matmul, "allow_fp16_accumulation", "cuBLAS's float16 accumulation", False),
    ]


def _of_others() -> list[tuple[str, Any, tuple[str, ...]]]:
    """(full name, what stands there now, the folders that it may come from if it is written in Python)."""
    import random
    import statistics
    import time

    import torch

    python, torch_home = (str(Path(file).parent) for file in (os.__file__, torch.__file__))
    found: list[tuple[str, Any, tuple[str, ...]]] = [
        (f"time.{name}", getattr(time, name), ()) for name in ("perf_counter", "perf_counter_ns", "monotonic")
    ]
    found.append(("statistics.median", statistics.median, (python,)))
    found.append(("random.SystemRandom.random", random.SystemRandom.random, (python,)))
    found += [(f"torch.{name}", getattr(torch, name), ()) for name in ("mm", "bmm", "equal", "stack", "cat")]
    attention = torch.nn.functional.scaled_dot_product_attention
    found.append(("torch.nn.functional.scaled_dot_product_attention", attention, ()))
    for owner, names in (
        (torch.cuda.Event, ("record", "elapsed_time", "synchronize")),
        (torch.cuda.CUDAGraph, ("replay", "capture_begin", "capture_end")),
        (torch.cuda, ("synchronize",)),
    ):
        home = "" if owner is torch.cuda else f"{owner.__name__}."
        found += [(f"torch.cuda.{home}{name}", getattr(owner, name), (torch_home,)) for name in names]
    return found


# Modules whose functions and methods measure, judge and decide.
_OURS = tuple(
    f"perfsuite.{name}" for name in ("oracle.", "guards.", "clock.", "verdict.", "problems.", "case.", "outcome")
)
# Name -> the module of that name, and where it had functions at first sight. What is added later, as torch.compile does
# to modules that it traces through, replaces none.
_PLACES: dict[str, tuple[types.ModuleType, list[_Place]]] = {}


def _places(name: str, module: types.ModuleType) -> list[_Place]:
    """Where functions of a module, and methods of classes defined there, stood at first sight.

    Methods named __so__ are left out: dataclasses write theirs themselves.
    """
    known, places = _PLACES.get(name, (None, []))
    if known is not module:
        there = vars(module)
        places = [_Place(f"{name}.{key}", there, key) for key, value in there.items() if _is_function(value)]
        for cls in [value for value in there.values() if isinstance(value, type) and value.__module__ == name]:
            names = [key for key, value in vars(cls).items() if _is_function(value) and not key.startswith("__")]
            places += [_Place(f"{name}.{cls.__name__}.{key}", vars(cls), key) for key in names]
        _PLACES[name] = module, places
    return places


def _plain(value: Any) -> Any:
    """The function under a property, a class method or a static one."""
    if isinstance(value, property):
        return value.fget
    return value.__func__ if isinstance(value, classmethod | staticmethod) else value


def _code(function: Any) -> types.CodeType | None:
    """What a function written in Python does; it can be exchanged without exchanging the function."""
    return getattr(function, "__code__", None)


def _is_function(value: Any) -> bool:
    return isinstance(_plain(value), types.FunctionType)


# The folder that holds the package.
_PACKAGE = Path(__file__).parent


def _comes_from(value: Any, homes: tuple[str, ...]) -> bool:
    """Whether a function is built in, or written in one of the folders; a replacement from Python is neither."""
    code = _code(value)
    if code is None:
        return isinstance(value, _BUILT_IN)
    return str(code.co_filename).startswith(homes) if homes else False


_BUILT_IN = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)
