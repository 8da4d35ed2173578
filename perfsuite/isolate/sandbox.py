"""The operating system's sandbox around workers, by bubblewrap: no network, read-only files, no one to signal."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from perfsuite.device.locks import lock_folder

PROGRAM = "bwrap"
MOST_FILE_BYTES = 1 << 30
"""Bytes of all files that a candidate may keep in its own folder, which lies in memory."""
CACHES = ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")
"""Variables by which a user moves a compiler's cache. A candidate could not write there."""
TRY_SECONDS = 20.0


@dataclass(frozen=True)
class Box:
    """The command before that of a process, and the variables for it; both empty without a sandbox."""

    command: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    folder: Path | None = None
    alone: bool = False
    """True if the processes in it see no other process."""

    def close(self) -> None:
        """Remove the folder, which is empty on this side."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


def box_for(sandboxed: bool, device: str, *, alone: bool = True) -> tuple[Box, str]:
    """A box, and a sentence for the record: the sandbox, or the reason that there is none.

    alone: the processes in it see no other process.
    """
    if not sandboxed:
        return Box(), "no sandbox: the code is trusted"
    if (reason := why_not()) is not None:
        return Box(), f"no sandbox: {reason}"
    folder = Path(tempfile.mkdtemp(prefix="perfsuite-"))
    places = {name: str(folder) for name in ("TMPDIR", "HOME", "XDG_CACHE_HOME")}
    places |= {name: str(folder / name.lower()) for name in CACHES if name in os.environ}
    kind = "in a sandbox of bubblewrap" + ("" if alone else ", which shows the numbers of other processes")
    return Box(tuple(command(folder, alone=alone, on_card=device == "cuda")), places, folder, alone), kind


def command(folder: Path, *, alone: bool, on_card: bool = False) -> list[str]:
    """bubblewrap's command line: a process in it writes to `folder` alone, and sees no network.

    alone: it sees no other process either. on_card: it sees the machine's devices.
    """
    size = str(MOST_FILE_BYTES)
    apart = ["--unshare-user-try", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    apart += ["--unshare-pid"] if alone else []
    devices = ["--dev-bind", "/dev", "/dev"] if on_card else ["--dev", "/dev"]
    files = ["--ro-bind", "/", "/", *devices, "--proc", "/proc"]
    own = ["--size", size, "--tmpfs", str(folder), "--size", size, "--tmpfs", "/dev/shm"]
    # A candidate that held a card's lock would keep all others from the card.
    own += ["--tmpfs", str(locks), "--remount-ro", str(locks)] if (locks := lock_folder()).is_dir() else []
    return [PROGRAM, *apart, *files, *own, "--cap-drop", "ALL", "--die-with-parent", "--"]


@lru_cache(maxsize=1)
def why_not() -> str | None:
    """The reason that this machine has no sandbox; None if it has one."""
    if shutil.which(PROGRAM) is None:
        return "bubblewrap (bwrap) is not installed"
    with tempfile.TemporaryDirectory(prefix="perfsuite-") as folder:
        try:
            line = [*command(Path(folder), alone=True), "true"]
            tried = subprocess.run(line, capture_output=True, text=True, timeout=TRY_SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"bubblewrap does not start: {error}"
    if tried.returncode == 0:
        return None
    said = next(iter(tried.stderr.splitlines()), f"exit code {tried.returncode}")
    return f"bubblewrap does not start here: {said[:200]}"
