"""Runs programs that end with this process, however it ends.

A program runs in a separate session under a watcher. The watcher holds the reading end of a pipe. The kernel closes
the writing end when this process ends, also after SIGKILL, and the watcher then kills the program's process group. An
interrupt of the group reaches the program, which may end well; the watcher waits for it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

WATCHER = """
import os, signal, subprocess, sys, threading
pipe, line = int(sys.argv[1]), sys.argv[2:]
signal.signal(signal.SIGINT, lambda *_: None)
try:
    child = subprocess.Popen(line, stdin=subprocess.DEVNULL)
except OSError as error:
    print(f"{line[0]} cannot be run: {error}", file=sys.stderr)
    os._exit(127)
def watch():
    os.read(pipe, 1)
    os.killpg(0, signal.SIGKILL)
threading.Thread(target=watch, daemon=True).start()
code = child.wait()
sys.stdout.flush()
os._exit(code if code >= 0 else 128 - code)
"""
ENDS = (signal.SIGTERM, signal.SIGHUP)
"""Signals by which a service or a closed terminal ends a program."""


@contextmanager
def started(
    line: Sequence[str], *, cwd: Path | None = None, environment: Mapping[str, str] | None = None, **streams: Any
) -> Iterator[subprocess.Popen[str]]:
    """Run a program; leaving the context kills what still runs of it. streams: as of subprocess.Popen."""
    reading, writing = os.pipe()
    try:
        watched = [sys.executable, "-c", WATCHER, str(reading), *line]
        child = subprocess.Popen(
            watched,
            cwd=cwd,
            env=environment,
            pass_fds=[reading],
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            **streams,
        )
    except BaseException:
        os.close(writing)
        raise
    finally:
        os.close(reading)
    try:
        yield child
    finally:
        os.close(writing)
        child.wait()


def run(
    line: Sequence[str], *, cwd: Path | None = None, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """The exit code and output of a program."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with started(line, cwd=cwd, environment=environment, **pipes) as child:
        out, err = child.communicate()
    return subprocess.CompletedProcess(list(line), child.returncode, out, err)


@contextmanager
def signals_as_interrupts() -> Iterator[None]:
    """Turn the signals of ENDS into KeyboardInterrupt, so that a command puts everything back before it ends.

    Does nothing outside the main thread, where Python allows no handler. A signal that is ignored stays ignored.
    """

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in ENDS}
    try:
        for number, handler in before.items():
            if handler is not signal.SIG_IGN:
                signal.signal(number, interrupt)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
