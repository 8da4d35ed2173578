"""Processes that start before a case needs them, while another case is checked: to make a card's context takes 0.4 s.

Such a process holds nothing of a candidate. It is alone in its sandbox until one is loaded there, and no candidate
sees into another sandbox. `settle` waits until no process is starting or ending, so that none of it is timed.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass

from perfsuite.device import turns
from perfsuite.isolate import nursery
from perfsuite.isolate.errors import NotStartedError
from perfsuite.isolate.process import START_SECONDS, Process

USED_AGAIN: tuple[str, ...] = ("cuda",)
"""Devices on which a process of a rival is used again: on processors a new one costs a hundredth of a second."""
MOST_USES = 100
"""Rivals for which one process is used."""
FORGET_SECONDS = 10.0
Kind = tuple[bool, str]
"""(trusted, device)."""


@dataclass
class _Spare:
    """A process that starts, and the place in which it does."""

    place: tuple[int, str, dict[str, str]]
    made: Process | None = None
    thread: threading.Thread | None = None


_spares: dict[Kind, list[_Spare]] = {}
_kept: dict[Kind, int] = {}
_lock = threading.Lock()


def keep(count: int, *, trusted: bool, device: str) -> None:
    """From now on have so many processes of that kind ready. Where candidates see other processes, none is started."""
    there = nursery.nursery(sandboxed=not trusted, device=device)
    _kept[trusted, device] = count if trusted or there.alone else 0
    begin(trusted=trusted, device=device, count=_kept[trusted, device])


def begin(*, trusted: bool, device: str, count: int = 1) -> None:
    """Start processes of that kind until there are so many. Do not wait for them."""
    with _lock:
        spares = _spares.setdefault((trusted, device), [])
        while len(spares) < count:
            spares.append(spare := _Spare(_place()))
            spare.thread = threading.Thread(target=_make, args=(spare, trusted, device), daemon=True)
            spare.thread.start()


def take(*, trusted: bool, device: str, modules: Mapping[str, str] | None = None) -> Process:
    """A process of that kind: one that was started, if there is any, else a new one. Raises NotStartedError.

    modules: name -> file. A process that has such a module from another file is not taken.
    """
    kind, found = (trusted, device), None
    while found is None:
        with _lock:
            spare = spares.pop(0) if (spares := _spares.get(kind)) else None
        if spare is None:
            break
        if spare.place[0] != os.getpid():
            continue  # another process's, which forked this one
        if spare.thread is not None:
            turns.beside()  # it may wait until nobody is alone
            spare.thread.join()
        if spare.made is None:
            continue
        files = spare.made.modules
        fits = all(files.get(name, file) == file for name, file in (modules or {}).items())
        if spare.place == _place() and fits and spare.made.alive:
            # A rival's is measured where the host times it.
            found = spare.made if trusted and device in USED_AGAIN else _measured(spare.made)
        else:
            spare.made.close()
    made = Process(trusted=trusted, device=device) if found is None else found
    begin(trusted=trusted, device=device, count=_kept.get(kind, 0))
    return made


def give_back(made: Process) -> bool:
    """Keep a rival's process on a card for the next rival; False if it is not fit for that, or another one waits.

    It has run trusted code alone, as this process has, and has opened no memory that a candidate shares.
    """
    if made.device not in USED_AGAIN or not made.trusted or not made.alive or made.uses >= MOST_USES:
        return False
    with _lock:
        spares = _spares.setdefault((True, made.device), [])
        if spares:
            return False
        spares.append(spare := _Spare(_place()))
        spare.thread = threading.Thread(target=_forget, args=(spare, made), daemon=True)
        spare.thread.start()
    return True


def settle() -> None:
    """Wait until no process is starting, and every one that has left is gone."""
    with _lock:
        threads = [one.thread for spares in _spares.values() for one in spares if one.place[0] == os.getpid()]
    for thread in threads:
        if thread is not None:
            thread.join()
    nursery.settle()


def quiet() -> None:
    """`settle`, where no turns keep what starts and ends away from what is timed."""
    if not turns.guarded():
        settle()


def ready(device: str) -> int:
    """The processes that are started and not taken."""
    with _lock:
        spares = [one for (_, where), found in _spares.items() if where == device for one in found]
    return sum(one.made is not None and one.place[0] == os.getpid() and one.made.alive for one in spares)


def close() -> None:
    """End all that nobody has taken, and start no more."""
    with _lock:
        _kept.clear()
        spares = [one for found in _spares.values() for one in found if one.place[0] == os.getpid()]
        _spares.clear()
    for one in spares:
        if one.thread is not None:
            one.thread.join()
        if one.made is not None:
            one.made.close()
    nursery.settle()


def _measured(made: Process) -> Process | None:
    """The process, with what an order costs measured here: it started beside other threads. None if it fails."""
    try:
        made.measure()
    except (RuntimeError, OSError):
        made.close()
        return None
    return made


def _make(spare: _Spare, trusted: bool, device: str) -> None:
    with contextlib.suppress(NotStartedError):  # whoever needs one tries again, and says so
        spare.made = Process(trusted=trusted, device=device)


def _forget(spare: _Spare, made: Process) -> None:
    """Let a process free all that belongs to its last candidate, and offer it; end it if that fails."""
    with turns.working() if made.device == "cuda" else contextlib.nullcontext():
        try:
            made.seconds = FORGET_SECONDS
            made.ask({"do": "forget"})
            made.seconds = START_SECONDS
            made.uses += 1
            spare.made = made
        except (RuntimeError, OSError):
            made.close()


def _place() -> tuple[int, str, dict[str, str]]:
    """The surroundings that a new process takes over from this one."""
    return os.getpid(), os.getcwd(), dict(os.environ)
