"""A lock per card: two runs, or two workers of one run, never measure on it at the same time."""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

POLL_SECONDS = 0.05
MOST_WAIT_SECONDS = 900.0


class CardBusy(Exception):
    """Another run kept the card for longer than this one would wait."""


def lock_path(uuid: str, scope: str) -> Path:
    """The lock file of a card; `scope` is "run" (held for a whole run) or "case" (held for one test)."""
    return Path(tempfile.gettempdir()) / f"perfsuite-{re.sub(r'[^0-9A-Za-z-]', '_', uuid)}.{scope}.lock"


@contextmanager
def hold(
    uuids: Iterable[str], scope: str, *, wait_seconds: float | None = None, tell: Callable[[str], None] | None = None
) -> Iterator[None]:
    """Hold the locks of all these cards; always taken in the same order, so that two runs cannot block each other.

    The kernel frees a lock when its holder dies, so a crashed run leaves nothing behind. Raises CardBusy, naming the
    holder, when `wait_seconds` (MOST_WAIT_SECONDS unless given) pass, or where a lock cannot be opened. tell: takes
    the sentence of a wait that begins; a run that says nothing for minutes is taken for one that hangs.
    """
    longest = MOST_WAIT_SECONDS if wait_seconds is None else wait_seconds
    with ExitStack() as held:
        for uuid in sorted(set(uuids)):
            held.enter_context(_hold_one(uuid, scope, longest, tell))
        yield


@contextmanager
def _hold_one(uuid: str, scope: str, wait_seconds: float, tell: Callable[[str], None] | None) -> Iterator[None]:
    import fcntl

    path = lock_path(uuid, scope)
    try:
        descriptor = _open(path)
    except OSError as error:
        raise CardBusy(f"the lock of the card {uuid} cannot be opened: {error}") from None
    try:
        deadline = time.monotonic() + wait_seconds
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
                kept = f"the card {uuid} is kept by another run (process {holder}, lock {path})"
                if time.monotonic() >= deadline:
                    raise CardBusy(f"{kept}; waited {wait_seconds:g} s") from None
                if tell is not None:
                    tell(f"{kept}; waiting for it, {wait_seconds:g} s at most")
                    tell = None
                time.sleep(POLL_SECONDS)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _open(path: Path) -> int:
    """The lock file, made where it is missing; writable by all, so that another user's run can wait for the card."""
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            os.fchmod(descriptor, 0o666)
        except PermissionError:
            # Another user made the file in between, with the mode that it needs.
            return descriptor
        return descriptor
