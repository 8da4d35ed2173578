"""The settings of the process that both sides share: environment, affinity, signal handlers, tracers, arithmetic."""

from __future__ import annotations

import ctypes
import gc
import importlib
import itertools
import os
import signal
import sys
import threading
import tracemalloc
from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Any

from perfsuite.guards.settings import Setting
from perfsuite.guards.stack import Stack, stack_of, stack_of_one

_READ_BY_LIBRARIES = (
    *("ATEN_", "CUBLAS", "CUDA_", "CUDNN_", "DNNL_", "GOMP_", "GOTO_", "KMP_", "LD_", "MALLOC_", "MKL_", "NCCL_"),
    *("NVIDIA_", "OMP_", "ONEDNN_", "OPENBLAS_", "PERFSUITE_", "PYTEST_", "PYTHON", "PYTORCH_", "TORCH", "TRITON_"),
)
_PLACES_OF_FILES = ("_DIR", "_PATH", "_HOME", "_FILE", "PYTEST_CURRENT_TEST")


@lru_cache(maxsize=1)
def settings_of_process() -> tuple[Setting, ...]:
    """All settings of the process that are watched."""
    return (*_environment(), *_placement(), *_interruptions(), *_arithmetic())


def _environment() -> Iterator[Setting]:
    yield Setting("environment", _variables, _write_variables, slows=_is_read, say=_difference)


def _placement() -> Iterator[Setting]:
    if hasattr(os, "sched_getaffinity"):
        yield Setting("affinity", lambda: os.sched_getaffinity(0), lambda old: os.sched_setaffinity(0, old))
        yield Setting("scheduling", lambda: os.sched_getscheduler(0))
    yield Setting("niceness", lambda: os.getpriority(os.PRIO_PROCESS, 0))


def _interruptions() -> Iterator[Setting]:
    """All that runs between two instructions of the rival."""
    yield Setting("trace function", lambda: stack_of_one(sys.gettrace()), lambda old: sys.settrace(old.items[0]))
    yield Setting("profile function", lambda: stack_of_one(sys.getprofile()), lambda old: sys.setprofile(old.items[0]))
    yield Setting("trace function of new threads", _thread_trace, _write_thread_trace)
    yield Setting("profile function of new threads", _thread_profile, _write_thread_profile)
    if sys.version_info >= (3, 12):
        yield Setting("monitoring events", _monitored, _write_monitored)
    if hasattr(signal, "setitimer"):
        yield Setting("signal handlers", _handlers, _write_handlers, say=_other_handlers)
        yield Setting("timers of signals", _timers, _write_timers)
    yield Setting("callbacks of the garbage collector", lambda: stack_of(gc.callbacks), _write_callbacks)
    collector = lambda: (gc.isenabled(), gc.get_threshold(), gc.get_debug())  # noqa: E731
    yield Setting("garbage collector", collector, _write_collector)
    yield Setting("tracing of allocations", tracemalloc.is_tracing, _write_allocations)
    yield Setting("switch interval", sys.getswitchinterval, sys.setswitchinterval)


def _arithmetic() -> Iterator[Setting]:
    yield Setting("rounding mode", _rounding, _write_rounding, "to nearest")
    if sys.platform == "linux":
        control = ctypes.CDLL(None).prctl
        yield Setting(
            "large pages of memory",
            lambda: "never" if control(PR_GET_THP_DISABLE, 0, 0, 0, 0) else "as the system has them",
            lambda old: control(PR_SET_THP_DISABLE, int(old == "never"), 0, 0, 0),
        )
        # Without loads past stores a thread is slower. Not every processor lets a thread choose.
        speculation = partial(control, PR_GET_SPECULATION_CTRL, 0, 0, 0, 0)
        if speculation() & PR_SPEC_PRCTL:
            back = partial(_write_speculation, control)
            yield Setting("the processor's speculation", speculation, back)


PR_SET_THP_DISABLE, PR_GET_THP_DISABLE = 41, 42  # linux/prctl.h
PR_GET_SPECULATION_CTRL, PR_SET_SPECULATION_CTRL, PR_SPEC_PRCTL = 52, 53, 1


def _write_speculation(control: Any, old: int) -> None:
    control(PR_SET_SPECULATION_CTRL, 0, old & ~PR_SPEC_PRCTL, 0, 0)


Variables = dict[bytes, bytes]
_signal: Any = importlib.import_module("_signal")  # without the enumerations, which take 2 us a signal


def _variables() -> tuple[Variables, Variables]:
    """The variables as libraries of C see them, and as Python does. `os.putenv` changes the former alone."""
    return _of_c(), dict(_OF_PYTHON)


_OF_PYTHON: Variables = os.environ._data  # type: ignore[attr-defined]
_ENVIRON: Any = ctypes.POINTER(ctypes.c_char_p).in_dll(ctypes.pythonapi, "environ")
"""The pointer of C, as it is whenever it is read."""
_last: list[Any] = [b"", {}]
"""The addresses of C's variables at the last look, and the variables."""


def _of_c() -> Variables:
    places = _ENVIRON
    if not places:
        return {}
    count = len(_last[1])
    addresses = ctypes.string_at(places, (count + 1) * ctypes.sizeof(ctypes.c_void_p))
    if addresses != _last[0]:
        entries: Any = places
        found: list[bytes] = list(itertools.takewhile(lambda entry: entry is not None, entries))
        pairs = [entry.partition(b"=") for entry in found]
        _last[:] = addresses, {name: value for name, _, value in pairs}
        if len(found) != count:
            _last[0] = ctypes.string_at(places, (len(found) + 1) * ctypes.sizeof(ctypes.c_void_p))
    known: Variables = _last[1]
    return known


def _write_variables(old: tuple[Variables, Variables]) -> None:
    of_c, of_python = old
    now = _of_c()
    for name in now.keys() - of_c.keys():
        os.unsetenv(name)
    for name, value in of_c.items():
        if now.get(name) != value:
            os.putenv(name, value)
    _OF_PYTHON.clear()
    _OF_PYTHON.update(of_python)


def _changed_variables(old: tuple[Variables, Variables], new: tuple[Variables, Variables]) -> list[bytes]:
    names = {
        name
        for one, other in zip(old, new, strict=True)
        for name in one.keys() | other.keys()
        if one.get(name) != other.get(name)
    }
    return sorted(names)


def _is_read(old: tuple[Variables, Variables], new: tuple[Variables, Variables]) -> bool:
    """True if a library may read one of the changed variables late."""
    names = [os.fsdecode(name) for name in _changed_variables(old, new)]
    return any(name.startswith(_READ_BY_LIBRARIES) and not name.endswith(_PLACES_OF_FILES) for name in names)


def _difference(old: tuple[Variables, Variables], new: tuple[Variables, Variables]) -> str:
    def value(where: tuple[Variables, Variables], name: bytes) -> str:
        found = where[0].get(name, where[1].get(name))
        return "unset" if found is None else repr(os.fsdecode(found)[:40])

    changed = _changed_variables(old, new)
    return ", ".join(f"{os.fsdecode(name)} from {value(old, name)} to {value(new, name)}" for name in changed)


def _handlers() -> Stack:
    """The handlers in Python. Those of C show as None, and stay unseen."""
    return Stack(tuple(map(_signal.getsignal, _SIGNALS)))


_SIGNALS = tuple(sorted(map(int, signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})))


def _other_handlers(old: Stack, new: Stack) -> str:
    both = zip(_SIGNALS, old.items, new.items, strict=True)
    return "of " + ", ".join(signal.Signals(number).name for number, one, other in both if one is not other)


def _write_handlers(old: Stack) -> None:
    if threading.current_thread() is not threading.main_thread():
        return
    for number, handler in zip(_SIGNALS, old.items, strict=True):
        if handler is not None and _signal.getsignal(number) is not handler:
            _signal.signal(number, handler)


def _timers() -> tuple[float, ...]:
    """The intervals of the timers; what is left of them changes by itself."""
    return tuple([signal.getitimer(kind)[1] for kind in _KINDS])


_KINDS = tuple(getattr(signal, name) for name in ("ITIMER_REAL", "ITIMER_VIRTUAL", "ITIMER_PROF"))


def _write_timers(old: tuple[float, ...]) -> None:
    for kind, interval in zip(_KINDS, old, strict=True):
        if signal.getitimer(kind)[1] != interval:
            signal.setitimer(kind, interval, interval)


def _thread_trace() -> Stack:
    return stack_of_one(threading.gettrace())


def _thread_profile() -> Stack:
    return stack_of_one(threading.getprofile())


def _write_thread_trace(old: Stack) -> None:
    threading.settrace(old.items[0])


def _write_thread_profile(old: Stack) -> None:
    threading.setprofile(old.items[0])


def _monitored() -> tuple[Any, ...]:
    tools = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
    return tuple((tools.get_tool(tool), tools.get_tool(tool) and tools.get_events(tool)) for tool in range(6))


def _write_monitored(old: tuple[Any, ...]) -> None:
    tools = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
    for tool, (name, events) in enumerate(old):
        if name is None and tools.get_tool(tool) is not None:
            tools.set_events(tool, 0)
            tools.free_tool_id(tool)
        elif name is not None and tools.get_tool(tool) == name:
            tools.set_events(tool, events)


def _write_callbacks(old: Stack) -> None:
    gc.callbacks[:] = old.items


def _write_collector(old: tuple[bool, tuple[int, int, int], int]) -> None:
    gc.enable() if old[0] else gc.disable()
    gc.set_threshold(*old[1])
    gc.set_debug(old[2])


def _write_allocations(old: bool) -> None:
    if not old:
        tracemalloc.stop()


def _rounding() -> str:
    """Found by arithmetic: 1 and its neighbour's half differ in the directions of rounding."""
    half = sys.float_info.epsilon / 2
    up, down = 1.0 + half / 2 != 1.0, 1.0 - half / 2 != 1.0
    below = -1.0 - half / 2 != -1.0
    if up:
        return "up"
    if below:
        return "down"
    return "to zero" if down else "to nearest"


def _write_rounding(old: str) -> None:
    if old == "to nearest":
        ctypes.CDLL(None).fesetround(0)
