"""Runs a candidate by itself, in a process of its own: for tools that watch a process, and to see what its time is of.

Nothing that such a run says decides about right or fast: the candidate shares its process.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from perfsuite.isolate import sandbox
from perfsuite.isolate.source import Sent, Source
from perfsuite.judge.tasks import PREFIX
from perfsuite.problems.base import Inputs

PROGRAM = "perfsuite.judge.alone_call"
MOST_OUTPUT_BYTES = 1 << 20
"""Bytes of output that are kept, from its beginning; the rest is read and dropped."""
CANDIDATE, INPUTS, REQUEST, RESULT = "candidate.pkl", "inputs.pt", "request.json", "result.json"


@dataclass(frozen=True)
class Ran:
    """The end of a run."""

    code: int | None
    """The exit code; None if the time ran out."""
    output: str
    result: Mapping[str, Any] | None
    """The facts that the program wrote when its calls had ended; None if they did not end."""


class Alone:
    """A candidate and sets of inputs in a folder, for any number of runs. Use it in a `with` statement."""

    def __init__(self, function: Callable[..., Any], sets: Sequence[Inputs], device: str) -> None:
        """function: source text, or a trusted function that can be pickled; PicklingError or TypeError for others."""
        import torch

        self._device, self._stack = device, contextlib.ExitStack()
        self.folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="perfsuite-alone-")))
        written, placed, modules = io.BytesIO(), None, {}
        if isinstance(function, Source):
            held, placed = function.placed()
            self._stack.enter_context(held)
        else:
            for name in {str(getattr(one, "__module__", "")) for one in (function, type(function))}:
                if name.startswith(PREFIX):
                    modules[name] = str(getattr(sys.modules.get(name), "__file__", ""))
        Sent(written, placed).dump(function)
        (self.folder / CANDIDATE).write_bytes(written.getvalue())
        torch.save([(one.args, dict(one.kwargs)) for one in sets], self.folder / INPUTS, pickle_module=pickle)
        request = {"path": [path for path in sys.path if path], "device": device, "modules": modules}
        (self.folder / REQUEST).write_text(json.dumps(request))

    def __enter__(self) -> Alone:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(
        self,
        mode: str,
        *,
        under: Sequence[str] = (),
        seconds: float,
        variables: Mapping[str, str] | None = None,
    ) -> Ran:
        """Run it once, in the sandbox if the machine has one. mode: see `alone_call`. under: a tool's command line.

        seconds: the longest time; then the process and all that it started are ended.
        """
        (self.folder / RESULT).unlink(missing_ok=True)
        folder = str(self.folder)
        line = [*under, sys.executable, "-m", PROGRAM, folder, mode]
        if sandbox.why_not() is None:
            box = sandbox.command(self.folder, alone=True, on_card=self._device == "cuda")[:-1]
            line = [*box, "--bind", folder, folder, "--chdir", folder, "--", *line]
        path = os.pathsep.join(path for path in sys.path if path)
        places = {"TMPDIR": folder, "HOME": folder, "PYTHONPATH": path}
        process = subprocess.Popen(
            line,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **places, **(variables or {})},
            start_new_session=True,
        )
        assert process.stdout is not None
        kept = bytearray()
        reader = threading.Thread(target=_keep, args=(process.stdout, kept), daemon=True)
        reader.start()
        code: int | None = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = process.wait(seconds)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        reader.join(timeout=1.0)
        return Ran(code, kept.decode(errors="replace"), self._result())

    def _result(self) -> Mapping[str, Any] | None:
        try:
            with (self.folder / RESULT).open("rb") as file:
                found = json.loads(file.read(MOST_OUTPUT_BYTES))
        except (OSError, ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None


def _keep(stream: IO[bytes], kept: bytearray) -> None:
    """Read to the end, and keep the beginning."""
    with contextlib.suppress(OSError, ValueError):
        while block := os.read(stream.fileno(), 1 << 16):
            kept += block[: max(0, MOST_OUTPUT_BYTES - len(kept))]
