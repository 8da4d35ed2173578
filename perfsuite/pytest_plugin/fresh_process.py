"""Processes that run pytest once each, for one suspect.

To import torch and all that measures takes seconds. So a template does it, once, for the first suspect, and every
process is a fork of it. A template makes no context on a card and runs no test, and while it waits it does nothing: no
round of another case is disturbed. A fork makes a context, handles and memory of its own, and ends after its run. Where
forks fail, a new interpreter runs pytest.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

import pytest

from perfsuite.isolate.nursery import Nursery, NurseryError
from perfsuite.pytest_plugin import START_PATH
from perfsuite.pytest_plugin.card_locks import turns_for_others
from perfsuite.pytest_plugin.run import FRESH_VARIABLE

PROGRAM = "perfsuite.pytest_plugin.fresh_run"
LONGEST_SECONDS = 120.0
"""Longest time of a process, including the start of Python, torch and CUDA."""
LATE_IMPORTS = ("torch.fx.experimental.symbolic_shapes",)
"""Modules that torch imports in its first use of something: this one, with sympy's 480, for gradients of given outputs.
That takes up to 3.5 s, so a template imports those that the run has loaded."""
Way = Callable[[Sequence[str], int], None]
"""Runs pytest with these arguments in a new process, for a test's comparison of that number (from 0).

Raises WayError, or TimeoutError after LONGEST_SECONDS."""


class WayError(RuntimeError):
    """A process did not start."""


class Processes:
    """Makes the processes of one run."""

    def __init__(self, folder: Path, modules: Sequence[str] = ()) -> None:
        """folder: where pytest runs. modules: further ones that the template imports, if it can."""
        self.folder, self.modules = folder, modules
        self._template: _Template | None = None
        self._forks = True

    @property
    def ways(self) -> list[Way]:
        """The ways to run pytest, the fastest first."""
        return [self.fork, self.start] if self._forks else [self.start]

    def succeeded(self, way: Way) -> None:
        """Remember that this way gave what was wanted, and the ways before it did not."""
        self._forks = way == self.fork
        if not self._forks:
            self.close()

    def prepare(self) -> None:
        """Begin the template, and do not wait for it: it is needed soon, perhaps."""
        with contextlib.suppress(NurseryError, OSError):  # whoever needs it tries again
            self._made()

    def _made(self) -> _Template:
        if self._template is None or not self._template.fits:
            self.close()
            self._template = _Template(self.modules)
        return self._template

    def fork(self, words: Sequence[str], number: int = 0) -> None:
        """Run pytest in a fork of the template."""
        try:
            self._made().run(_order(words, number), self.folder)
        except TimeoutError:
            raise
        except (NurseryError, OSError) as error:
            self.close()
            raise WayError(str(error)) from None

    def start(self, words: Sequence[str], number: int = 0) -> None:
        """Run pytest in a new interpreter."""
        ours, theirs = socket.socketpair()
        with ours, theirs:
            line = f"from {PROGRAM} import serve; serve({theirs.fileno()})"
            environment = _environment(number) | {"PYTHONPATH": os.pathsep.join(filter(None, START_PATH))}
            try:
                made = subprocess.Popen(
                    [sys.executable, "-c", line],
                    cwd=self.folder,
                    env=environment,
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            except OSError as error:
                raise WayError(str(error)) from None
            theirs.close()
            try:
                ours.sendall(_order(words, number))
                made.wait(LONGEST_SECONDS)
            except subprocess.TimeoutExpired:
                raise TimeoutError(f"it took longer than {LONGEST_SECONDS:g} s") from None
            except OSError as error:
                raise WayError(str(error)) from None
            finally:
                made.kill()
                made.wait()

    def close(self) -> None:
        """End the template."""
        if self._template is not None:
            self._template.nursery.close()
            self._template = None


class _Template:
    def __init__(self, modules: Sequence[str]) -> None:
        self._environment = _lasting_environment()
        self._imported = [*_loaded(), *modules]
        self.nursery = Nursery(program=PROGRAM, modules=self._imported)

    @property
    def fits(self) -> bool:
        """True if it runs, and began in the environment of now: a library may have read that as it was loaded."""
        return self.nursery.alive and self._environment == _lasting_environment()

    def run(self, order: bytes, folder: Path) -> None:
        if late := [name for name in _loaded() if name not in self._imported]:
            self.nursery.load(late)
            self._imported += late
        ours, theirs = socket.socketpair()
        with ours, theirs, open(os.devnull, "w") as log:
            made = self.nursery.worker(theirs, log.fileno(), folder=str(folder))
            theirs.close()
            ended = False
            try:
                ours.sendall(order)
                ended = self.nursery.ended(made, LONGEST_SECONDS) is not None
            finally:
                self.nursery.leave(made, ended=ended)
                self.nursery.settle()  # one that is dying still uses the card
        if not ended:
            raise TimeoutError(f"it took longer than {LONGEST_SECONDS:g} s")


def plugin_modules(config: pytest.Config) -> list[str]:
    """The modules of the installed plugins that this run has loaded, and what one of them imports as a run ends."""
    named = [one.__name__ for one, _ in config.pluginmanager.list_plugin_distinfo() if isinstance(one, ModuleType)]
    return [*named, "hypothesis"]


def _loaded() -> list[str]:
    """Modules of this process that a template imports. None of them makes a context on a card."""
    return ["pytest", *(name for name in list(sys.modules) if name.startswith("perfsuite.") or name in LATE_IMPORTS)]


def _order(words: Sequence[str], number: int) -> bytes:
    order = {"environment": _environment(number), "path": START_PATH, "words": list(words)}
    return (json.dumps(order) + "\n").encode()


def _environment(number: int) -> dict[str, str]:
    """This process's environment, with the chosen card, but without the marks of an xdist worker."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST_")}
    return kept | {FRESH_VARIABLE: str(number)} | turns_for_others()


def _lasting_environment() -> dict[str, str]:
    """The environment without pytest's own variables, which name the current test."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
