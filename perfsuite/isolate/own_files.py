"""Files that candidates leave in their sandbox. A candidate finds those of the same text alone, never another's.

Compilers keep what they made: Triton, Inductor and the driver, each in another folder. Whoever can write there can
plant a kernel that another candidate loads. So the folder is emptied behind each candidate. What the same text left is
put back for its next process, which then compiles nothing again.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pickle
import shutil
import stat
from collections import OrderedDict

MOST_BYTES, MOST_FILES = 32 << 20, 4096
"""Bytes and files that are kept of one text; what leaves more keeps nothing."""
MOST_KEPT_BYTES, MOST_TEXTS = 256 << 20, 256
"""Bytes that are kept in all, and texts: each has a descriptor. What was used least recently goes first."""
IN_MEMORY = "/dev/shm"
SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL


class OwnFiles:
    """The writable folders of a sandbox, in the process that forks workers. No candidate runs when it is called.

    It keeps nothing: what a text has left goes to the parent, which gives it to the next process of that text, in
    whatever sandbox that is.
    """

    def __init__(self, folder: str) -> None:
        """folder: the one that HOME and TMPDIR name."""
        self._folder, self._known = folder, False

    def put_back(self, known: bool, descriptor: int | None) -> None:
        """Put back what the processes of a text left. known: what its process leaves now will be wanted.

        descriptor: of what `take_away` gave, and closed here; None if there is nothing.
        """
        self._known = known
        if descriptor is None:
            return
        with open(descriptor, "rb"):  # from its begin: the parent's descriptor shares the position
            files: dict[str, tuple[int, bytes]] = pickle.loads(os.pread(descriptor, os.fstat(descriptor).st_size, 0))
        for name, (mode, content) in files.items():
            path = os.path.join(self._folder, name)
            with contextlib.suppress(OSError):  # what is there already, the driver has made since
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode), "wb") as made:
                    made.write(content)

    def take_away(self) -> int | None:
        """Empty the folders. The descriptor of what the last text left; None for nothing, or if nobody wants it."""
        found = self._found() if self._known else None
        self._known = False
        for folder in (self._folder, IN_MEMORY):
            empty(folder)
        return _in_memory(pickle.dumps(found)) if found else None

    def _found(self) -> dict[str, tuple[int, bytes]] | None:
        """Path -> (mode, content) of the regular files in the folder; None if they are too many or too large."""
        found: dict[str, tuple[int, bytes]] = {}
        room = MOST_BYTES
        for base, _, names in os.walk(self._folder):
            for name in names:
                path = os.path.join(base, name)
                with contextlib.suppress(OSError):
                    seen = os.lstat(path)
                    if not stat.S_ISREG(seen.st_mode):
                        continue
                    room -= seen.st_size
                    if room < 0 or len(found) >= MOST_FILES:
                        return None
                    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as opened:
                        found[os.path.relpath(path, self._folder)] = seen.st_mode & 0o700, opened.read(seen.st_size)
        return found


class KeptFiles:
    """Files of texts, in the process that starts sandboxes. It never reads them: it hands descriptors on."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[int, int]] = OrderedDict()
        """Digest of a text -> (descriptor, bytes)."""

    def of(self, key: str) -> int | None:
        """The descriptor of what the processes of this text left; None for nothing."""
        if key not in self._kept:
            return None
        self._kept.move_to_end(key)
        return self._kept[key][0]

    def keep(self, key: str, descriptor: int) -> None:
        """Keep this in place of what the text had left before."""
        if key in self._kept:
            os.close(self._kept.pop(key)[0])
        self._kept[key] = descriptor, os.fstat(descriptor).st_size
        while len(self._kept) > MOST_TEXTS or sum(size for _, size in self._kept.values()) > MOST_KEPT_BYTES:
            os.close(self._kept.popitem(last=False)[1][0])


def _in_memory(content: bytes) -> int:
    """The descriptor of memory with that content, which nobody can change."""
    descriptor = os.memfd_create("perfsuite", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with open(descriptor, "wb", closefd=False) as opened:
        opened.write(content)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, SEALS)
    return descriptor


def empty(folder: str) -> None:
    """Remove everything in a folder that can be removed."""
    with contextlib.suppress(OSError):
        for one in list(os.scandir(folder)):
            if one.is_dir(follow_symlinks=False):
                _opened_up(one.path)
                shutil.rmtree(one.path, ignore_errors=True)
            else:
                with contextlib.suppress(OSError):
                    os.unlink(one.path)


def _opened_up(folder: str) -> None:
    """Let the owner enter and change this folder and those in it: a candidate may have taken that right away."""
    with contextlib.suppress(OSError):
        os.chmod(folder, 0o700)
    for base, names, _ in os.walk(folder):
        for name in names:
            path = os.path.join(base, name)
            if not os.path.islink(path):
                with contextlib.suppress(OSError):
                    os.chmod(path, 0o700)
