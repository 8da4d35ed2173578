"""The process that forks workers, from inside: it carries out the requests of `perfsuite.isolate.nursery`."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from perfsuite.isolate.own_files import OwnFiles

MOST_MESSAGE_BYTES = 1 << 18
POLL_SECONDS, STOP_POLL_SECONDS = 2e-3, 2e-5
STOP_SECONDS = 5.0
"""Longest wait for a worker to stop. One that is in the kernel stops when it leaves it, and computes nothing there."""
END_SECONDS = 5.0
"""Longest wait for a worker to end; a worker with unfinished GPU work needs some time."""
PROCESSES_ALONE = 2
"""Processes in a sandbox without workers: its first process, and the one that forks workers."""
MOST_PROCESSES = 128
"""Processes that may run in a sandbox in which they see no others. Beyond that all of its workers are ended."""
WATCH_SECONDS = 0.02
OF_TRITON = (
    ("triton.runtime.cache", "triton_key", False),
    ("triton.compiler.compiler", "triton_key", False),
    ("triton.runtime.build", "platform_key", False),
    ("triton.backends.nvidia.driver", "library_dirs", False),
    ("triton.backends.nvidia.compiler", "get_ptxas_version", True),
)
"""Functions of Triton that keep what they return, and that each first launch calls, cached or not: the digest of its
library of 400 MB, and what `ptxas`, `ldconfig` and `file` print. The last word tells if the architecture is given."""
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 1, 4, 36


def serve(
    descriptor: int, alone: bool, architecture: int, folder: str | None, program: str, modules: Sequence[str]
) -> None:
    """Carry out the requests from that socket until the parent closes it.

    alone: it sees no process but its own sandbox's, and ends all of them if they are too many. architecture: of the
    card, such as 90: candidates may be in Triton, so it is loaded here too, if it is installed; 0 without a card.
    folder: the sandbox's own; None without a sandbox. program: the module whose `serve` a worker runs. modules: others
    that are loaded here, so that no worker loads them.
    """
    import torch  # noqa: F401  (loaded here, so that no worker loads it)

    if architecture:
        _load_triton(architecture)
    become = importlib.import_module(program).serve
    _load(modules)
    _prctl(PR_SET_DUMPABLE, 0)  # a candidate must not change the process that forks the next ones
    _prctl(PR_SET_CHILD_SUBREAPER, int(folder is not None))  # what a worker leaves becomes a child of this process
    files = None if folder is None else OwnFiles(folder)
    end, crowded = socket.socket(fileno=descriptor), False
    while True:
        if alone and not select.select([end], [], [], WATCH_SECONDS)[0]:
            crowded = _too_many() or crowded
            continue
        try:
            said, descriptors, _, _ = socket.recv_fds(end, MOST_MESSAGE_BYTES, 2)
        except ConnectionResetError:  # it was closed before an answer was read
            return
        if not said:
            return
        request = json.loads(said)
        if "wait" in request:
            answer: dict[str, Any] = {"code": _ended(request["wait"], request["seconds"]), "crowded": crowded}
        elif "signal" in request:
            _signalled(request["signal"], request["number"], alone)
            answer = {"others": max(0, _processes() - PROCESSES_ALONE - 1) if alone else 0}
        elif "load" in request:
            _load(request["load"])
            answer = {}
        elif "known" in request:
            if files is not None:
                files.put_back(request["known"], descriptors[0] if descriptors else None)
            answer = {}
        elif "leave" in request:
            clean, left = _left(request["leave"], files, alone)
            answer = {"clean": clean}
            if left is not None:
                socket.send_fds(end, [json.dumps(answer).encode()], [left])
                os.close(left)
                continue
        else:
            crowded = False
            child = os.fork()
            if child == 0:
                end.close()
                _become(become, request, *descriptors)
            answer = {"worker": child}
            for descriptor in descriptors:
                os.close(descriptor)
        end.send(json.dumps(answer).encode())


def _load(modules: Sequence[str]) -> None:
    """Import these, as far as that can be done."""
    for name in modules:
        with contextlib.suppress(Exception):  # whatever a broken installation raises, those who need it will say
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # what is loaded stays: a worker's collector would walk over all of it


def _load_triton(architecture: int) -> None:
    """Load Triton, with what it finds out in a process's first launch. It makes no context here."""
    with contextlib.suppress(Exception):  # whatever a broken installation raises, its candidates will say
        importlib.import_module("triton")
        for module, name, asks in OF_TRITON:
            with contextlib.suppress(Exception):  # another version has other names
                getattr(importlib.import_module(module), name)(*[architecture] * asks)


def _left(child: int, files: OwnFiles | None, alone: bool) -> tuple[bool, int | None]:
    """End a worker (0: it has ended) and, in a sandbox, all that it has left.

    Return if nothing of it stays, and the descriptor of the files to keep, if there are any.
    """
    _signalled(child, signal.SIGKILL, alone)
    clean = not child or _ended(child, END_SECONDS, gone=True) is not None
    if files is None:
        return clean, None
    if not (clean and _swept(alone)):
        return False, None
    return True, files.take_away()


def _swept(alone: bool) -> bool:
    """End the processes that a worker has left, which are children of this one now. False if some are left."""
    deadline = time.monotonic() + END_SECONDS
    while left := _children() or (alone and _processes() > PROCESSES_ALONE):
        if time.monotonic() > deadline:
            return False
        with contextlib.suppress(ProcessLookupError):
            if alone:
                os.kill(-1, signal.SIGKILL)
        for one in left if isinstance(left, list) else ():
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(one, signal.SIGKILL)
                os.waitpid(one, os.WNOHANG)
        time.sleep(POLL_SECONDS)
    return True


def _children() -> list[int]:
    """The processes whose parent is this one, in any state."""
    own, found = str(os.getpid()), []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if Path("/proc", name, "stat").read_text().rpartition(")")[2].split()[1] == own:
                found.append(int(name))
    return found


def _processes() -> int:
    return sum(name.isdigit() for name in os.listdir("/proc"))


def _too_many() -> bool:
    """True if there were too many processes. All are then ended at once, but for this one and the sandbox's first."""
    if _processes() <= MOST_PROCESSES:
        return False
    os.kill(-1, signal.SIGKILL)
    return True


def _signalled(child: int, number: int, alone: bool) -> None:
    """Signal the worker's group. alone: all of the sandbox, for a candidate may leave its group."""
    if child <= 1:
        return
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        os.kill(-1 if alone else -child, number)
        deadline = time.monotonic() + STOP_SECONDS
        # It is left waitable, for `_ended` asks for its exit code.
        seen = os.WSTOPPED | os.WEXITED | os.WNOWAIT | os.WNOHANG
        while number == signal.SIGSTOP and os.waitid(os.P_PID, child, seen) is None and time.monotonic() < deadline:
            time.sleep(STOP_POLL_SECONDS)


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _ended(child: int, seconds: float, *, gone: bool = False) -> int | None:
    """The exit code of a child; None after so many seconds, or if there is no such child (gone: then 0)."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            found, status = os.waitpid(child, os.WNOHANG)
        except ChildProcessError:
            return 0 if gone else None
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() >= deadline:
            return None
        time.sleep(POLL_SECONDS)


def _become(program: Callable[[int], None], request: dict[str, Any], channel: int, log: int) -> None:
    """Turn this process into a worker, until it ends."""
    code: Any = 1
    try:
        _prctl(PR_SET_DUMPABLE, 1)
        os.setsid()  # all that it starts is stopped and ended with it
        # A stopped worker does not see that its socket has closed, so it ends with the process that forked it.
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        os.dup2(log, 2)
        os.close(log)
        os.environ.clear()
        os.environ.update(request["environment"])
        os.chdir(request["folder"])
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # on Ctrl-C the parent ends the workers
        faulthandler.enable()
        program(channel)
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)
