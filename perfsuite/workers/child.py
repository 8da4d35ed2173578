"""One process that answers lines: a request in, an answer out. Started when needed, and again if it died."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

BESIDE = "PERFSUITE_PROCESSES_ON_CARD"
"""The variable that tells a process how many use its card in turns, itself among them."""
_TAIL = 400


class DiedError(Exception):
    """The process has ended; the message has the end of its output."""


class Child:
    """A process of Python. It finds the modules that this one finds."""

    def __init__(
        self,
        words: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        bound: bool = False,
        place: str = "",
    ) -> None:
        """words: the command line behind `python`. environment: variables besides this process's own.

        bound: the operating system kills the process when the thread that started it ends. place: its name for a
        reader.
        """
        self.place = place
        self._words, self._environment, self._bound = tuple(words), dict(environment or {}), bound
        self._process: subprocess.Popen[bytes] | None = None
        self._log: Any = None
        self.starts = 0
        """Starts of the process; the first one is no fault."""

    def prepare(self) -> bool:
        """Wait until a request would be served. False if there is no place for the process any more."""
        return True

    def ask(self, request: bytes, seconds: float | None = None) -> bytes:
        """The answer to one request, both without a line break.

        DiedError if the process ends, or takes longer than `seconds`; None sets no limit.
        """
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        timer = None if seconds is None else threading.Timer(seconds, self._kill)
        if timer is not None:
            timer.start()
        try:
            process.stdin.write(request + b"\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except (OSError, ValueError):  # ValueError: another thread closed this child
            line = b""
        finally:
            if timer is not None:
                timer.cancel()
        if not line.endswith(b"\n"):
            raise DiedError(self._epitaph(process))
        return line[:-1]

    @property
    def pid(self) -> int | None:
        """The number of the process; None while there is none."""
        return None if self._process is None or self._process.poll() is not None else self._process.pid

    def end(self) -> None:
        """End the process; another thread that asks it gets a DiedError. The next request starts another one."""
        self._kill()
        if (process := self._process) is not None:
            process.wait()  # so that the next request finds it ended

    def close(self) -> None:
        """End the process, and keep nothing of it."""
        self.end()
        if self._process is not None:
            for end in (self._process.stdin, self._process.stdout, self._log):
                if end is not None:
                    with contextlib.suppress(OSError):
                        end.close()
        self._process = None

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self.close()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  (it lives as long as the process)
        path = os.pathsep.join(one for one in sys.path if one)
        self._process = subprocess.Popen(
            [sys.executable, *self._words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, "PYTHONPATH": path, **self._environment},
            start_new_session=True,  # Ctrl-C ends the parent, which ends its processes
            preexec_fn=_end_with_parent if self._bound else None,
        )
        self.starts += 1
        return self._process

    def _kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _epitaph(self, process: subprocess.Popen[bytes]) -> str:
        code = process.wait()
        try:
            self._log.seek(0)
            said = self._log.read().decode(errors="replace").strip()
        except ValueError:  # another thread closed this child
            said = ""
        return f"exit code {code}" + (f": {said[-_TAIL:]}" if said else "")


def serve() -> tuple[Iterator[str], Callable[[str], None]]:
    """In the process itself: its requests, and a function that writes an answer. Each is one line.

    Whatever a library prints is no answer, and whatever reads the standard input reads no request. When the requests
    end, the parent is gone: the process ends at once, in the middle of an answer too. Otherwise it would compute on
    beside the processes of the next parent, and disturb their times.
    """
    given, answers = os.fdopen(os.dup(0), encoding="utf-8"), os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    read: queue.SimpleQueue[str] = queue.SimpleQueue()

    def follow() -> None:
        for line in given:
            read.put(line)
        os._exit(0)

    def answer(line: str) -> None:
        answers.write(line + "\n")
        answers.flush()

    threading.Thread(target=follow, daemon=True).start()
    return iter(read.get, None), answer


def _end_with_parent() -> None:
    """Ask the operating system to kill this process when the thread that made it ends."""
    import ctypes

    PR_SET_PDEATHSIG = 1  # linux/prctl.h
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
