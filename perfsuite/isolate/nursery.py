"""A process that has loaded torch, never runs a candidate, and forks a worker for each request.

Loading torch takes seconds, a fork milliseconds. Every message is a JSON object; a new worker's descriptors go with it.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from perfsuite.device import turns
from perfsuite.isolate.card_probe import why_not
from perfsuite.isolate.forks import END_SECONDS, MOST_MESSAGE_BYTES
from perfsuite.isolate.own_files import KeptFiles
from perfsuite.isolate.sandbox import box_for

Started = TypeVar("Started")


class NurseryError(RuntimeError):
    """The process that forks workers has ended; the message gives the reason."""


class Nursery:
    """The parent's side: starts with the first worker and ends with the interpreter."""

    def __init__(
        self,
        *,
        sandboxed: bool = False,
        device: str = "cpu",
        alone: bool = True,
        program: str = "perfsuite.isolate.worker",
        modules: Sequence[str] = (),
        architecture: int | None = None,
    ) -> None:
        """program: the module whose `serve` a worker runs. modules: what is loaded for all workers, if it can be.

        architecture: of the card, such as 90; by default torch tells it.
        """
        self._owner = os.getpid()
        self._lock = threading.RLock()
        self._owed: list[str] = []
        """For each answer that it will send and nobody has read: the digest of the text of the worker that left."""
        self._key = ""
        self.workers: set[int] = set()
        """Those that nobody has ended."""
        self.reserved = False
        """True if somebody is about to start a worker in it."""
        self.opens_card_memory = False
        """True if its workers open memory of the card by its descriptor."""
        self.crowded = False
        """True if the worker that was last asked after was ended for having too many processes."""
        self._box, self.sandbox = box_for(sandboxed, device, alone=alone)
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        path = os.pathsep.join(path for path in sys.path if path)
        folder = None if self._box.folder is None else str(self._box.folder)
        architecture = _architecture(device) if architecture is None else architecture
        program = SERVE.format(theirs.fileno(), self._box.alone, architecture, folder, program, tuple(modules))
        # The output of a candidate belongs to no report; each worker's standard error goes to a log.
        self._process = _lasting(
            lambda: subprocess.Popen(
                [*self._box.command, sys.executable, "-c", program],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={**os.environ, **self._box.environment, "PYTHONPATH": path},
            )
        )
        theirs.close()
        atexit.register(self.close)

    @property
    def boxed(self) -> bool:
        """True if it stands in a sandbox."""
        return bool(self._box.command)

    @property
    def settling(self) -> bool:
        """True if `settle` would have something to wait for."""
        return bool(self._owed)

    @property
    def alive(self) -> bool:
        """True if it still runs, and this process started it: it serves no other."""
        return self._owner == os.getpid() and self._process.poll() is None

    def worker(self, end: socket.socket, log: int, *, folder: str = "") -> int:
        """Fork a worker that serves the other side of `end` and writes errors to `log`; return its process id.

        folder: in which it runs; without one, this process's. A sandbox has one worker at a time: what the one before
        it has left there is gone.
        """
        request = {"environment": {**os.environ, **self._box.environment}, "folder": folder or os.getcwd()}
        with self._lock:
            self.settle()
            if self.boxed and self.workers:
                raise NurseryError("another candidate's process is in this sandbox")
            self.workers.add(made := int(self._ask(request, [end.fileno(), log])["worker"]))
        return made

    def put_back(self, key: str) -> None:
        """Give the worker, before it loads its candidate, the files that the candidates of this key have left.

        key: a digest of the text; empty if its files are not kept.
        """
        if self.boxed:
            self._key, kept = key, _files.of(key)
            self._ask({"known": bool(key)}, None if kept is None else [kept])

    @property
    def alone(self) -> bool:
        """True if its processes see no others, and so have other numbers there than here."""
        return self._box.alone

    def load(self, modules: Sequence[str]) -> None:
        """Import more modules, for the workers that follow."""
        self._ask({"load": list(modules)})

    def signal(self, worker: int, number: int) -> int:
        """Send a signal to a worker and to all that it has started; return the number of the others, if it is known.

        After SIGSTOP the worker has stopped, with every thread, when this returns.
        """
        return int(self._ask({"signal": worker, "number": int(number)})["others"])

    def leave(self, worker: int, *, ended: bool = False) -> None:
        """Begin to end a worker (ended: it has ended), with all that it has left in its sandbox; do not wait for that.

        `settle` waits. So does the next request.
        """
        with self._lock, contextlib.suppress(OSError):
            if self.alive and worker in self.workers:
                self.workers.discard(worker)
                socket.send_fds(self._socket, [json.dumps({"leave": 0 if ended else worker}).encode()], [])
                self._owed.append(self._key)
                self._key = ""

    def settle(self) -> None:
        """Wait until the workers that left are gone. If something of theirs is not, end this process too."""
        with self._lock:
            while self._owed and self.alive:
                key = self._owed.pop(0)
                self._socket.settimeout(3 * END_SECONDS)
                try:
                    said, left, _, _ = socket.recv_fds(self._socket, MOST_MESSAGE_BYTES, 1)
                    clean = bool(said) and bool(json.loads(said)["clean"])
                    for descriptor in left:
                        _files.keep(key, descriptor)
                except OSError:
                    clean = False
                finally:
                    self._socket.settimeout(None)
                if not clean:
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
        with self._lock:
            self.settle()
            return self._answer(request, descriptors)

    def _answer(self, request: dict[str, Any], descriptors: list[int] | None) -> dict[str, Any]:
        try:
            socket.send_fds(self._socket, [json.dumps(request).encode()], descriptors or [])
            said = self._socket.recv(MOST_MESSAGE_BYTES)
        except OSError as error:
            raise NurseryError(f"the process that forks workers does not answer: {error}") from None
        if not said:
            raise NurseryError(f"the process that forks workers has ended, with exit code {self._process.wait()}")
        answer: dict[str, Any] = json.loads(said)
        return answer


_files = KeptFiles()
"""Files that candidates have left in the sandboxes of this process."""
_starters: dict[int, ThreadPoolExecutor] = {}
"""By process: a thread that stays."""


def _lasting(start: Callable[[], Started]) -> Started:
    """The result of `start`, called in a thread that stays: a sandbox ends with the thread that has started it."""
    if threading.current_thread() is threading.main_thread():
        return start()
    if os.getpid() not in _starters:
        _starters[os.getpid()] = ThreadPoolExecutor(1, "perfsuite nursery")
    return _starters[os.getpid()].submit(start).result()


SERVE = "from perfsuite.isolate import forks; forks.serve({}, {}, {}, {!r}, {!r}, {!r})"
_started: dict[tuple[bool, str], list[Nursery]] = {}
_starting = threading.RLock()


def nursery(*, sandboxed: bool = False, device: str = "cpu") -> Nursery:
    """One of this process's nurseries of that kind; a new one if none has started or all have ended."""
    with _starting:
        return next(iter(_alive(sandboxed, device)), None) or _new(sandboxed, device)


def free_nursery(*, sandboxed: bool = False, device: str = "cpu") -> Nursery:
    """A nursery of that kind that takes a worker: in a sandbox there is no other worker. It is reserved for it."""
    with _starting:
        free = [one for one in _alive(sandboxed, device) if not (one.boxed and (one.workers or one.reserved))]
        for one in sorted(free, key=lambda one: one.settling):  # those with nothing to wait for first
            one.settle()
            if one.alive:
                break
        else:
            one = _new(sandboxed, device)
        one.reserved = True
        return one


def prepare(architecture: int) -> None:
    """Start processes for the first candidates of a card, and for a rival, while torch is still being loaded here.

    architecture: the card's, such as 90, since torch cannot be asked yet.
    """
    with _starting:
        for sandboxed in (True, True, False):
            made = Nursery(sandboxed=sandboxed, device="cuda", architecture=architecture)
            _prepared.setdefault(sandboxed, []).append(made)


def contexts() -> int:
    """The processes that this one has on its card, itself among them, if all that have left are gone."""
    return 1 + sum(len(one.workers) for (_, device), there in _started.items() if device == "cuda" for one in there)


def settle() -> None:
    """Wait until every worker that has left is gone: one that is dying still uses the machine."""
    with _starting:
        there = [one for kind in _started for one in _alive(*kind)]
    for one in there:
        one.settle()


def _alive(sandboxed: bool, device: str) -> list[Nursery]:
    there = [one for one in _started.get((sandboxed, device), []) if one.alive]
    _started[sandboxed, device] = there
    return list(there)


def _architecture(device: str) -> int:
    """The card's architecture, such as 90; 0 for processors."""
    if device != "cuda":
        return 0
    import torch

    major, minor = torch.cuda.get_device_capability() if torch.cuda.is_available() else (8, 0)
    return 10 * major + minor


def _new(sandboxed: bool, device: str) -> Nursery:
    made = _on_card(sandboxed) if device == "cuda" else Nursery(sandboxed=sandboxed)
    _started[sandboxed, device].append(made)
    return made


def _on_card(sandboxed: bool) -> Nursery:
    """A nursery whose workers open memory of the card, in the closest sandbox in which they do.

    Where none of them does, there is no sandbox; if none does there either, the driver's older handles open the memory.
    """
    reason = "no sandbox: the code is trusted"
    for sees in ("itself", "others") if sandboxed else ():
        made = _ready(sandboxed=True, alone=sees == "itself")
        if (why := _tried(sees, made)) is None:
            made.opens_card_memory = True
            return made
        made.close()
        reason = f"no sandbox: {why}" if made.boxed else made.sandbox
    made = _ready(sandboxed=False)
    made.sandbox = reason
    made.opens_card_memory = _tried("all", made) is None
    return made


def _ready(*, sandboxed: bool, alone: bool = True) -> Nursery:
    """One that `prepare` has started and that still runs; else a new one."""
    while alone and (there := _prepared.get(sandboxed)):
        if (made := there.pop(0)).alive:
            return made
    return Nursery(sandboxed=sandboxed, device="cuda", alone=alone)


def _tried(sees: str, made: Nursery) -> str | None:
    """card_probe.why_not, asked once for each kind of sandbox."""
    if sees not in _probed:
        with turns.working():
            _probed[sees] = why_not(made)
    return _probed[sees]


_prepared: dict[bool, list[Nursery]] = {}
"""Sandboxed or not -> the nurseries of a card that nobody has taken yet."""
_probed: dict[str, str | None] = {}
"""Processes that those of a nursery see (of the sandbox itself, others too, or all) -> the reason that they do not open
a card's memory, if any."""
