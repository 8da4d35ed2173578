"""Turns on a card that several processes of one judge or run use: they work side by side, or one of them times alone.

All that touches the card counts as work: to start and to end a process there, the calls of the checks, captures. A
process that times has the card for itself: whoever works has given it back before, with all of its processes idle or
gone. Locks of files decide, so a process that dies gives its turn back. Without `share` there is nobody beside, and
all of this does nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from perfsuite.device.idle import seconds_until_idle


def _nothing() -> None:
    """Rest of a process that has nothing else on the card."""


class Turns:
    """The turns of this process; see the module. Several threads of it may work at once, and one of them be alone."""

    def __init__(self, path: Path, processes: int, contexts: Callable[[], int], *, in_process: bool = False) -> None:
        """path: the lock of the card, in a folder that candidates do not see. processes: those that use the card.

        contexts: counts the processes that this one has on the card, itself among them. in_process: candidates run in
        this process, which then waits until its card is idle before it gives its turn back.
        """
        self.path, self.processes, self.in_process = path, processes, in_process
        self._contexts, self._path, self._own = contexts, path, path.with_name(f"{path.name}.{os.getpid()}")
        self._lock, self._waiting = _opened(path), _opened(path.with_name(f"{path.name}.waiting"))
        fcntl.flock(self._lock, fcntl.LOCK_SH)  # whoever is alone removes the counts of those that have died
        self._count = _opened(self._own)
        fcntl.flock(self._count, fcntl.LOCK_EX)  # as long as this process lives
        fcntl.flock(self._lock, fcntl.LOCK_UN)
        self._changed = threading.Condition()
        self._inside: Counter[int] = Counter()
        """Works that have begun, by thread; 0: those that wait for the end of a process."""
        self._is_alone = self._stays_alone = False
        self._owner = 0
        """The thread that is alone, or was so last."""
        self._rest: Callable[[], object] = _nothing

    def begin(self, thread: int | None = None) -> None:
        """Begin to work; waits while somebody else is alone, another thread of this process too.

        thread: whose work it is, by default this thread's; 0, the end of a process, waits for nobody.
        """
        whose = threading.get_ident() if thread is None else thread
        with self._changed:
            self._changed.wait_for(lambda: not self._is_alone or self._stays_alone or whose in (0, self._owner))
            if not self._inside:
                self._join()
            self._inside[whose] += 1

    def end(self, thread: int | None = None) -> None:
        """End what `begin` began."""
        with self._changed:
            whose = threading.get_ident() if thread is None else thread
            self._inside[whose] -= 1
            if not self._inside[whose]:
                del self._inside[whose]
            if not self._inside:
                self._is_alone = self._stays_alone = False
                self._give_back()
            elif self._is_alone and set(self._inside) == {0}:
                self._is_alone = self._stays_alone = False  # what it waits for needs no card of its own
                self._tell()
                fcntl.flock(self._lock, fcntl.LOCK_SH)
            self._changed.notify_all()

    def alone(self, rest: Callable[[], object] = _nothing, *, stay: bool = False) -> None:
        """Wait until nobody else uses the card, and keep it so until `beside`, or with `stay` until `end`.

        rest: stops what else this process has on the card, while others may be alone, before this one and after it.
        stay: other threads of this process may work meanwhile. The caller works.
        """
        with self._changed:
            own = self._inside[threading.get_ident()]
            if not own:
                return
            if not self._is_alone:
                rest()
                self._changed.wait_for(lambda: self._inside.total() == own)
                self._give_back()
                with _held(self._waiting, fcntl.LOCK_SH):
                    fcntl.flock(self._lock, fcntl.LOCK_EX)
                self._is_alone, self._owner, self._rest = True, threading.get_ident(), rest
            self._stays_alone = self._stays_alone or stay

    def beside(self) -> None:
        """Let others work again; the caller works on, once all who wait to be alone have been so.

        Else each of them would wait for the captures of the one before, and captures are made at the same time.
        """
        with self._changed:
            if not self._is_alone or self._stays_alone:
                return
            self._is_alone = False
            if self._inside.total() == self._inside[threading.get_ident()]:
                self._rest()
                self._give_back()
                self._join()
            else:  # a process of this one is ending, and uses the card
                self._tell()
                fcntl.flock(self._lock, fcntl.LOCK_SH)
            self._changed.notify_all()

    def pause(self) -> None:
        """Let those who wait to be alone be so first; the caller works on.

        Nothing happens while the caller is alone, where another thread of this process works, or where candidates run
        in other processes, which could go on.
        """
        with self._changed:
            own = self._inside[threading.get_ident()]
            idle = own and not self._is_alone and self._inside.total() == own
            if self.in_process and idle and self._somebody_waits():
                self._give_back()
                self._join()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """The caller, who works, does not in this block. Behind it nobody is alone, but for one who stayed so."""
        with self._changed:
            own, stays = self._inside[threading.get_ident()], self._stays_alone
        for _ in range(own):
            self.end()
        try:
            yield
        finally:
            for _ in range(own):
                self.begin()
            if stays:
                self.alone(stay=True)

    def leave(self) -> None:
        """Give up the turns for good."""
        self._own.unlink(missing_ok=True)
        for lock in (self._count, self._lock, self._waiting):
            os.close(lock)

    def _somebody_waits(self) -> bool:
        try:
            fcntl.flock(self._waiting, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(self._waiting, fcntl.LOCK_UN)
        return False

    @property
    def is_alone(self) -> bool:
        """True while a thread of this process is alone."""
        return self._is_alone

    @property
    def guarded(self) -> bool:
        """True if no other thread of this process works while one is alone."""
        return not self._stays_alone

    @property
    def share(self) -> float:
        """The share of the machine's and of the card's free memory that is this process's."""
        with self._changed:
            return 1.0 if self._stays_alone else 1.0 / self.processes

    def contexts_beside(self) -> int:
        """The processes that the others have on the card, as each said when it gave its turn back."""
        found = 0
        for path in self._path.parent.glob(f"{self._path.name}.[0-9]*"):
            if path == self._own:
                continue
            with contextlib.suppress(OSError, ValueError), path.open("rb") as there:
                try:
                    fcntl.flock(there, fcntl.LOCK_SH | fcntl.LOCK_NB)
                    path.unlink()  # it has died
                except BlockingIOError:
                    found += int(there.read() or b"0")
        return found

    def _join(self) -> None:
        """Begin behind all who wait to be alone: they follow one another, and all others work at the same time."""
        with _held(self._waiting, fcntl.LOCK_EX):
            pass
        fcntl.flock(self._lock, fcntl.LOCK_SH)

    def _give_back(self) -> None:
        if self.in_process:
            _finish()
        self._tell()
        fcntl.flock(self._lock, fcntl.LOCK_UN)

    def _tell(self) -> None:
        os.ftruncate(self._count, 0)
        os.pwrite(self._count, str(self._contexts()).encode(), 0)


@contextlib.contextmanager
def _held(lock: int, kind: int) -> Iterator[None]:
    fcntl.flock(lock, kind)
    try:
        yield
    finally:
        fcntl.flock(lock, fcntl.LOCK_UN)


def _opened(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _finish() -> None:
    """Wait until nothing of this process runs on its card. A broken context runs nothing.

    Work that does not end is waited for as long as `idle` does: the others would wait for ever.
    """
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        with contextlib.suppress(RuntimeError):
            seconds_until_idle(torch.cuda.current_device())


_mine: Turns | None = None


def share(path: Path, processes: int, contexts: Callable[[], int], *, in_process: bool = False) -> None:
    """From now on use the card in turns with other processes; see `Turns`."""
    global _mine
    _mine = Turns(path, processes, contexts, in_process=in_process)


def leave() -> None:
    """`Turns.leave`."""
    global _mine
    mine, _mine = _mine, None
    if mine is not None:
        mine.leave()


def shared() -> Turns | None:
    """The turns of this process; None if it is the only one that uses the card."""
    return _mine


@contextlib.contextmanager
def working() -> Iterator[None]:
    """The block works on the card."""
    mine = _mine
    if mine is not None:
        mine.begin()
    try:
        yield
    finally:
        if mine is not None:
            mine.end()


def alone(rest: Callable[[], object] = _nothing) -> None:
    """`Turns.alone`."""
    if _mine is not None:
        _mine.alone(rest)


def beside() -> None:
    """`Turns.beside`."""
    if _mine is not None:
        _mine.beside()


@contextlib.contextmanager
def timing() -> Iterator[None]:
    """The block is alone, if the caller works; afterwards the caller works beside others again, if it did before."""
    was = is_alone()
    alone()
    try:
        yield
    finally:
        if not was:
            beside()


def is_alone() -> bool:
    """True if no other process works: this one is alone, or the only one."""
    return _mine is None or _mine.is_alone


def pause() -> None:
    """`Turns.pause`."""
    if _mine is not None:
        _mine.pause()


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """`Turns.paused`."""
    with contextlib.nullcontext() if _mine is None else _mine.paused():
        yield


def in_process() -> bool:
    """True if several processes share the card, each with the candidates that it calls."""
    return _mine is not None and _mine.in_process


def until_gone(wait: Callable[[], object]) -> None:
    """Call `wait`, which waits for the end of processes, in a thread, and count as working until then."""
    mine = _mine
    if mine is None:
        return
    mine.begin(0)

    def waited() -> None:
        try:
            wait()
        finally:
            mine.end(0)

    threading.Thread(target=waited, name="perfsuite turns", daemon=True).start()


def guarded() -> bool:
    """`Turns.guarded`; False if this process is the only one that uses the card, for it takes no turns then."""
    return _mine is not None and _mine.guarded


def memory_share() -> float:
    """`Turns.share`; 1 if this process is the only one that uses the card."""
    return 1.0 if _mine is None else _mine.share


def contexts_beside() -> int:
    """`Turns.contexts_beside`."""
    return 0 if _mine is None else _mine.contexts_beside()
