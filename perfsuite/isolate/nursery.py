"""A process that has loaded torch, never runs a candidate, and forks a worker for each request.

Loading torch takes seconds, a fork milliseconds. Every message is a JSON object; a new worker's descriptors go with it.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import faulthandler
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import traceback
from typing import Any

from perfsuite.isolate.card_probe import why_not
from perfsuite.isolate.sandbox import box_for

MOST_MESSAGE_BYTES = 1 << 18
POLL_SECONDS, STOP_POLL_SECONDS = 2e-3, 2e-5
STOP_SECONDS = 5.0
"""Longest wait for a worker to stop. One that is in the kernel stops when it leaves it, and computes nothing there."""
PROCESSES_ALONE = 2
"""Processes in a sandbox without workers: its first process, and the one that forks workers."""
MOST_PROCESSES = 128
"""Processes that may run in a sandbox in which they see no others. Beyond that all of its workers are ended."""
WATCH_SECONDS = 0.02
PR_SET_PDEATHSIG, PR_SET_DUMPABLE = 1, 4


class NurseryError(RuntimeError):
    """The process that forks workers has ended; the message gives the reason."""


class Nursery:
    """The parent's side: starts with the first worker and ends with the interpreter."""

    def __init__(self, *, sandboxed: bool = False, device: str = "cpu", alone: bool = True) -> None:
        self._owner = os.getpid()
        self.opens_card_memory = False
        """True if its workers open memory of the card by its descriptor."""
        self.crowded = False
        """True if the worker that was last asked after was ended for having too many processes."""
        self._box, self.sandbox = box_for(sandboxed, device, alone=alone)
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        path = os.pathsep.join(path for path in sys.path if path)
        program = SERVE.format(theirs.fileno(), self._box.alone, device == "cuda")
        # The output of a candidate belongs to no report; each worker's standard error goes to a log.
        self._process = subprocess.Popen(
            [*self._box.command, sys.executable, "-c", program],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={**os.environ, **self._box.environment, "PYTHONPATH": path},
        )
        theirs.close()
        atexit.register(self.close)

    @property
    def boxed(self) -> bool:
        """True if it stands in a sandbox."""
        return bool(self._box.command)

    @property
    def alive(self) -> bool:
        """True if it still runs, and this process started it: it serves no other."""
        return self._owner == os.getpid() and self._process.poll() is None

    def worker(self, end: socket.socket, log: int) -> int:
        """Fork a worker that serves the other side of `end` and writes errors to `log`; return its process id."""
        request = {"environment": {**os.environ, **self._box.environment}, "folder": os.getcwd()}
        return int(self._ask(request, [end.fileno(), log])["worker"])

    @property
    def alone(self) -> bool:
        """True if its processes see no others, and so have other numbers there than here."""
        return self._box.alone

    def signal(self, worker: int, number: int) -> int:
        """Send a signal to a worker and to all that it has started; return the number of the others, if it is known.

        After SIGSTOP the worker has stopped, with every thread, when this returns.
        """
        return int(self._ask({"signal": worker, "number": int(number)})["others"])

    def clear(self) -> None:
        """End this process too if a worker has left processes in its sandbox."""
        if self._box.alone and self._ask({"count": True})["count"] > PROCESSES_ALONE:
            self.close()

    def ended(self, worker: int, seconds: float) -> int | None:
        """The exit code of a worker (negative: a signal), after at most `seconds`; None if it still runs."""
        answer = self._ask({"wait": worker, "seconds": seconds})
        self.crowded = bool(answer["crowded"])
        return None if answer["code"] is None else int(answer["code"])

    def close(self) -> None:
        """End the process. Its workers end by themselves when their sockets close."""
        if self._owner == os.getpid():
            self._socket.close()
            self._process.kill()
            self._process.wait()
            self._box.close()

    def _ask(self, request: dict[str, Any], descriptors: list[int] | None = None) -> dict[str, Any]:
        try:
            socket.send_fds(self._socket, [json.dumps(request).encode()], descriptors or [])
            said = self._socket.recv(MOST_MESSAGE_BYTES)
        except OSError as error:
            raise NurseryError(f"the process that forks workers does not answer: {error}") from None
        if not said:
            raise NurseryError(f"the process that forks workers has ended, with exit code {self._process.wait()}")
        answer: dict[str, Any] = json.loads(said)
        return answer


SERVE = "from perfsuite.isolate import nursery; nursery.serve({}, {}, {})"
_started: dict[tuple[bool, str], Nursery] = {}


def nursery(*, sandboxed: bool = False, device: str = "cpu") -> Nursery:
    """This process's nursery of that kind; a new one if it has not started or has ended."""
    kind = sandboxed, device
    if kind not in _started or not _started[kind].alive:
        _started[kind] = _on_card(sandboxed) if device == "cuda" else Nursery(sandboxed=sandboxed)
    return _started[kind]


def _on_card(sandboxed: bool) -> Nursery:
    """A nursery whose workers open memory of the card, in the closest sandbox in which they do.

    Where none of them does, there is no sandbox; if none does there either, the driver's older handles open the memory.
    """
    reason = "no sandbox: the code is trusted"
    for sees in ("itself", "others") if sandboxed else ():
        made = Nursery(sandboxed=True, device="cuda", alone=sees == "itself")
        if (why := _tried(sees, made)) is None:
            made.opens_card_memory = True
            return made
        made.close()
        reason = f"no sandbox: {why}" if made.boxed else made.sandbox
    made = Nursery(device="cuda")
    made.sandbox = reason
    made.opens_card_memory = _tried("all", made) is None
    return made


def _tried(sees: str, made: Nursery) -> str | None:
    """card_probe.why_not, asked once for each kind of sandbox."""
    if sees not in _probed:
        _probed[sees] = why_not(made)
    return _probed[sees]


_probed: dict[str, str | None] = {}
"""Processes that those of a nursery see (of the sandbox itself, others too, or all) -> the reason that they do not open
a card's memory, if any."""


def serve(descriptor: int, alone: bool, on_card: bool) -> None:
    """Carry out the requests from that socket, to fork and to wait, until the parent closes it.

    alone: it sees no process but its own sandbox's, and ends all of them if they are too many. on_card: candidates may
    be in Triton, so it is loaded here too, if it is installed.
    """
    import torch  # noqa: F401  (loaded here, so that no worker loads it)

    if on_card:
        with contextlib.suppress(Exception):  # whatever a broken installation raises, its candidates will say
            importlib.import_module("triton")

    from perfsuite.isolate import worker

    _dumpable(False)  # a candidate must not change the process that forks the next ones
    end, crowded = socket.socket(fileno=descriptor), False
    while True:
        if alone and not select.select([end], [], [], WATCH_SECONDS)[0]:
            crowded = _too_many() or crowded
            continue
        said, descriptors, _, _ = socket.recv_fds(end, MOST_MESSAGE_BYTES, 2)
        if not said:
            return
        request = json.loads(said)
        if "wait" in request:
            answer: dict[str, Any] = {"code": _ended(request["wait"], request["seconds"]), "crowded": crowded}
        elif "signal" in request:
            _signalled(request["signal"], request["number"], alone)
            answer = {"others": max(0, _processes() - PROCESSES_ALONE - 1) if alone else 0}
        elif "count" in request:
            answer = {"count": _processes()}
        else:
            crowded = False
            child = os.fork()
            if child == 0:
                end.close()
                _become(worker, request, *descriptors)
            answer = {"worker": child}
            for descriptor in descriptors:
                os.close(descriptor)
        end.send(json.dumps(answer).encode())


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


def _dumpable(value: bool) -> None:
    """Let other processes of this user look into this one, or not."""
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, int(value), 0, 0, 0)


def _ended(child: int, seconds: float) -> int | None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            found, status = os.waitpid(child, os.WNOHANG)
        except ChildProcessError:
            return None
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() >= deadline:
            return None
        time.sleep(POLL_SECONDS)


def _become(worker: Any, request: dict[str, Any], channel: int, log: int) -> None:
    """Turn this process into a worker, until it ends."""
    code: Any = 1
    try:
        _dumpable(True)
        os.setsid()  # all that it starts is stopped and ended with it
        # A stopped worker does not see that its socket has closed, so it ends with the process that forked it.
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        os.dup2(log, 2)
        os.close(log)
        os.environ.clear()
        os.environ.update(request["environment"])
        os.chdir(request["folder"])
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # on Ctrl-C the parent ends the workers
        faulthandler.enable()
        worker.Worker(channel).serve()
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)
