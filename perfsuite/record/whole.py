"""Files that are written whole or not at all, and what may stand in their place."""

from __future__ import annotations

import os
from pathlib import Path


def refusal(path: Path, *, replaced: bool = True) -> str | None:
    """Why no file can be put at `path`, or None. replaced: written beside its place and then moved there.

    To be asked before an hour of measuring. A device or a pipe is refused where it would be replaced: written by root,
    /dev/null would be a file from then on.
    """
    if os.path.isdir(path):
        return "it is a folder"
    if os.path.exists(path) and not replaced:
        return None if os.access(path, os.W_OK) else "it may not be written to"
    if os.path.exists(path) and not os.path.isfile(path):
        return "it is a device or a pipe, not a file"
    # What is not there yet is made, below the nearest folder that is.
    above = next(parent for parent in path.resolve().parents if os.path.exists(parent))
    if not os.path.isdir(above):
        return f"{above} is no folder"
    if not os.access(above, os.W_OK):
        return f"{above} cannot be written to"
    return None


def write_whole(path: Path, text: str) -> None:
    """Write beside `path` and move it there in one step. Raises OSError, and then leaves what was there as it was."""
    if refused := refusal(path):
        raise OSError(f"{path} cannot be written: {refused}")
    target = path.resolve()  # a link stays one
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        beside.write_text(text, encoding="utf-8")
        os.replace(beside, target)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise OSError(f"{path} cannot be written: {error.strerror}") from None
