"""Files that candidates leave in their sandbox. A candidate finds those of the same text alone, never another's.

Compilers keep what they made: Triton, Inductor and the driver, each in another folder. Whoever can write there can
plant a kernel that another candidate loads. So the folder is emptied behind each candidate. What the same text left is
put back for its next process, which then compiles nothing again.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
import stat
from collections import OrderedDict

MOST_BYTES, MOST_FILES = 32 << 20, 4096
"""Bytes and files that are kept of one text; what leaves more keeps nothing."""
MOST_KEPT_BYTES = 256 << 20
"""Bytes that are kept in all. What was used least recently goes first."""
IN_MEMORY = "/dev/shm"


class OwnFiles:
    """The writable folders of a sandbox, in the process that forks workers. No candidate runs when it is called.

    The contents lie in memory by descriptors, which a forked worker closes: no candidate reads another's.
    """

    def __init__(self, folder: str) -> None:
        """folder: the one that HOME and TMPDIR name."""
        self._folder, self._key = folder, ""
        self._kept: OrderedDict[str, tuple[int, int]] = OrderedDict()
        """Digest of a text -> (descriptor, bytes)."""

    def put_back(self, key: str) -> None:
        """Put back what the processes of this text left. An empty key: nothing was kept, and nothing will be."""
        self._key = key
        if key not in self._kept:
            return
        self._kept.move_to_end(key)
        descriptor, size = self._kept[key]
        files: dict[str, tuple[int, bytes]] = pickle.loads(os.pread(descriptor, size, 0))
        for name, (mode, content) in files.items():
            path = os.path.join(self._folder, name)
            with contextlib.suppress(OSError):  # what is there already, the driver has made since
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode), "wb") as opened:
                    opened.write(content)

    def take_away(self) -> None:
        """Keep what the last text left, and empty the folders."""
        found = self._found() if self._key else None
        if found:
            self._keep(self._key, pickle.dumps(found))
        self._key = ""
        for folder in (self._folder, IN_MEMORY):
            empty(folder)

    def forget(self) -> None:
        """Close all descriptors: this process becomes a worker."""
        for descriptor, _ in self._kept.values():
            os.close(descriptor)
        self._kept.clear()

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

    def _keep(self, key: str, content: bytes) -> None:
        if key in self._kept:
            os.close(self._kept.pop(key)[0])
        descriptor = os.memfd_create("perfsuite", os.MFD_CLOEXEC)
        with open(descriptor, "wb", closefd=False) as opened:
            opened.write(content)
        self._kept[key] = descriptor, len(content)
        while sum(size for _, size in self._kept.values()) > MOST_KEPT_BYTES:
            os.close(self._kept.popitem(last=False)[1][0])


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
