"""The state of the process that both sides share, and the functions that the judgement rests on.

A candidate need not be fast if the rival can be made slow: one thread, no cuDNN, a slower matrix product. Nor need it
be right if the function that compares can be replaced. What is here sees the plain ways of doing so. It runs in the
same process, so a determined attacker can undo it: against that, candidates are run in a process of their own.
"""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Callable
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
    return [name for name, value, homes in _relied_on() if not _comes_from(value, homes)]


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


def _relied_on() -> list[tuple[str, Any, tuple[str, ...]]]:
    """(full name, what stands there now, the folders that it may come from if it is written in Python)."""
    import random
    import statistics
    import time

    import torch

    python, torch_home, ours = (str(Path(file).parent) for file in (os.__file__, torch.__file__, _PACKAGE))
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
    for name, module in list(sys.modules.items()):
        if name.startswith("perfsuite.oracle."):
            own = [
                (key, value)
                for key, value in vars(module).items()
                if isinstance(value, types.FunctionType) and not key.startswith(_OF_TORCH_COMPILE)
            ]
            found += [(f"{name}.{key}", value, (ours, python)) for key, value in own]
    return found


# Where torch.compile traces through a function it leaves the rest of it beside it, under such a name. None is replaced.
_OF_TORCH_COMPILE = "__resume_at_"
# The folder that holds the package.
_PACKAGE = Path(__file__).parent


def _comes_from(value: Any, homes: tuple[str, ...]) -> bool:
    """Whether a function is built in, or written in one of the folders; a replacement from Python is neither."""
    code = getattr(value, "__code__", None)
    if code is None:
        return isinstance(value, _BUILT_IN)
    return str(code.co_filename).startswith(homes) if homes else False


_BUILT_IN = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)
