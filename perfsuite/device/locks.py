"""A lock for each card: two runs, or two workers of one run, never measure on it at the same time."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from perfsuite.outcome import UserError

MOST_WAIT_SECONDS = 900.0


class CardBusy(UserError):
    """Another run kept the card for longer than this run waits."""


def lock_path(uuid: str, scope: str) -> Path:
    """The lock file of a card; `scope` is "run" (held for a whole run) or "case" (held for one test)."""
    return Path(tempfile.gettempdir()) / f"perfsuite-{re.sub(r'[^0-9A-Za-z-]', '_', uuid)}.{scope}.lock"


@contextmanager
def hold(
    uuids: Iterable[str], scope: str, *, wait_seconds: float | None = None, tell: Callable[[str], None] | None = None
) -> Iterator[None]:
    """Hold the locks of all these cards. A fixed order keeps two runs from blocking each other.

    The operating system frees a lock when its holder dies. `tell` receives one sentence when a wait begins. Raises
    CardBusy, which names the holder, after `wait_seconds` (default MOST_WAIT_SECONDS), or if a lock cannot be opened.
    """
    longest = MOST_WAIT_SECONDS if wait_seconds is None else wait_seconds
    with ExitStack() as held:
        for uuid in sorted(set(uuids)):
            held.enter_context(_hold_one(uuid, scope, longest, tell))
        yield


@contextmanager
def _hold_one(uuid: str, scope: str, wait_seconds: float, tell: Callable[[str], None] | None) -> Iterator[None]:
    import filelock

    path = lock_path(uuid, scope)
    # Writable by all, so that another user's run can wait for the card.
    lock = filelock.FileLock(path, mode=0o666)
    try:
        try:
            lock.acquire(blocking=False)
        except filelock.Timeout:
            kept = f"the card {uuid} is kept by another run (process {_holder(path)}, lock {path})"
            if tell is not None and wait_seconds > 0:
                tell(f"{kept}; waiting for it, {wait_seconds:g} s at most")
            try:
                lock.acquire(timeout=wait_seconds)
            except filelock.Timeout:
                raise CardBusy(f"{kept}; waited {wait_seconds:g} s") from None
    except OSError as error:
        raise CardBusy(f"the lock of the card {uuid} cannot be opened: {error}") from None
    try:
        path.write_text(f"{os.getpid()}\n")
        yield
    finally:
        lock.release()


def _holder(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()[:32] or "unknown"
    except OSError:
        return "unknown"
