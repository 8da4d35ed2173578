"""A lock for each card: two runs, or two workers of one run, never measure on it at the same time."""

from __future__ import annotations

import os
import re
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from perfsuite.outcome import UserError

MOST_WAIT_SECONDS = 900.0
POLL_SECONDS = 0.05


class CardBusy(UserError):
    """Another run kept the card for longer than this run waits."""


def lock_path(uuid: str, scope: str) -> Path:
    """The lock file of a card; `scope` is "run" (held for a whole run) or "case" (held for one test).

    It lies in a folder that only this user may write to: in a folder of all, somebody could put a link in its place.
    """
    return lock_folder() / f"{re.sub(r'[^0-9A-Za-z-]', '_', uuid)}.{scope}.lock"


def lock_folder() -> Path:
    """The folder of this user's locks."""
    return Path(tempfile.gettempdir()) / f"perfsuite-{os.getuid()}"


def claim(path: Path) -> None:
    """Make the folder of a lock. CardBusy if it or the lock is a link, no plain file, or somebody else's."""
    folder = path.parent
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    for place, is_right, kind in ((folder, stat.S_ISDIR, "folder"), (path, stat.S_ISREG, "file")):
        try:
            found = place.lstat()
        except FileNotFoundError:
            continue
        if not is_right(found.st_mode) or found.st_uid != os.getuid():
            raise CardBusy(f"the lock {path} cannot be used: {place} is no {kind} of this user's own; remove it")


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
    try:
        claim(path)
        lock = filelock.FileLock(path, mode=0o600)
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
        _name_holder(path)
        yield
    finally:
        lock.release()


@contextmanager
def hold_together(uuids: Iterable[str], scope: str, *, wait_seconds: float = MOST_WAIT_SECONDS) -> Iterator[None]:
    """Hold the locks of all these cards beside others that call this too. `hold` excludes them, and they exclude it.

    Raises CardBusy after `wait_seconds`, or if a lock cannot be opened.
    """
    import fcntl

    until = time.monotonic() + wait_seconds
    with ExitStack() as held:
        for uuid in sorted(set(uuids)):
            claim(path := lock_path(uuid, scope))
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            except OSError as error:
                raise CardBusy(f"the lock of the card {uuid} cannot be opened: {error}") from None
            held.callback(os.close, descriptor)
            while True:
                with suppress(BlockingIOError):
                    fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
                    break
                if time.monotonic() > until:
                    kept = f"the card {uuid} is kept by another run (process {_holder(path)}, lock {path})"
                    raise CardBusy(f"{kept}; waited {wait_seconds:g} s")
                time.sleep(POLL_SECONDS)
        yield


def _name_holder(path: Path) -> None:
    """Write this process's number into the lock, which is never a link."""
    descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW)
    try:
        os.write(descriptor, f"{os.getpid()}\n".encode())
    finally:
        os.close(descriptor)


def _holder(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()[:32] or "unknown"
    except OSError:
        return "unknown"
