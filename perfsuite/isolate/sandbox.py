"""The operating system's sandbox around workers, by bubblewrap: no network, read-only files, no one to signal."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

PROGRAM = "bwrap"
MOST_FILE_BYTES = 1 << 30
"""Bytes of all files that a candidate may keep in its own folder, which lies in memory."""
TRY_SECONDS = 20.0


@dataclass(frozen=True)
class Box:
    """The command before that of a process, and the variables for it; both empty without a sandbox."""

    command: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    folder: Path | None = None

    def close(self) -> None:
        """Remove the folder, which is empty on this side."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


def box_for(sandboxed: bool) -> tuple[Box, str]:
    """A box, and a sentence for the record: the sandbox, or the reason that there is none."""
    if not sandboxed:
        return Box(), "no sandbox: the code is trusted"
    if (reason := why_not()) is not None:
        return Box(), f"no sandbox: {reason}"
    folder = Path(tempfile.mkdtemp(prefix="perfsuite-"))
    places = {name: str(folder) for name in ("TMPDIR", "HOME", "XDG_CACHE_HOME")}
    return Box(tuple(command(folder)), places, folder), "in a sandbox of bubblewrap"


def command(folder: Path) -> list[str]:
    """bubblewrap's command line: a process in it writes to `folder` alone, and sees no network.

    It keeps this machine's numbers of processes: handles of a card's memory do not cross them, and the parent stops a
    worker by its number. `no_parent` hides the parent's process instead.
    """
    alone = ["--unshare-user-try", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    files = ["--ro-bind", "/", "/", "--dev-bind", "/dev", "/dev", "--proc", "/proc"]
    own = [
        "--size",
        str(MOST_FILE_BYTES),
        "--tmpfs",
        str(folder),
        "--size",
        str(MOST_FILE_BYTES),
        "--tmpfs",
        "/dev/shm",
    ]
    return [PROGRAM, *alone, *files, *own, "--cap-drop", "ALL", "--die-with-parent", "--"]


@lru_cache(maxsize=1)
def why_not() -> str | None:
    """The reason that this machine has no sandbox; None if it has one."""
    if shutil.which(PROGRAM) is None:
        return "bubblewrap (bwrap) is not installed"
    with tempfile.TemporaryDirectory(prefix="perfsuite-") as folder:
        try:
            tried = subprocess.run(
                [*command(Path(folder)), "true"], capture_output=True, text=True, timeout=TRY_SECONDS
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"bubblewrap does not start: {error}"
    if tried.returncode == 0:
        return None
    said = next(iter(tried.stderr.splitlines()), f"exit code {tried.returncode}")
    return f"bubblewrap does not start here: {said[:200]}"
