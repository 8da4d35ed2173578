"""The standard error of a worker, kept in memory up to a limit; further output of the worker fails."""

from __future__ import annotations

import os

from perfsuite.isolate.memory import sealed

MOST_LOG_BYTES = 1 << 26
_MOST_READ = 1 << 16
_MOST_SHOWN = 300


class Log:
    """A worker writes to `descriptor`. The file cannot grow, and no disk can be filled with it."""

    def __init__(self) -> None:
        self.descriptor = sealed(MOST_LOG_BYTES)

    def summary(self) -> str:
        """The first line; for an uncaught C++ exception it names the type, and a later line has the message."""
        end = min(os.lseek(self.descriptor, 0, os.SEEK_CUR), MOST_LOG_BYTES)  # the worker's writes moved it there
        last = max(end - _MOST_READ, _MOST_READ)
        read = os.pread(self.descriptor, min(end, _MOST_READ), 0) + os.pread(self.descriptor, max(end - last, 0), last)
        lines = [line.strip() for line in read.decode(errors="replace").splitlines() if line.strip(" \0")]
        told = lines[:1] + [line for line in lines[1:] if line.startswith("what():")][:1]
        return " ".join(told)[:_MOST_SHOWN]

    def close(self) -> None:
        """Free the memory."""
        os.close(self.descriptor)
