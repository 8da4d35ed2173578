"""Writes files in one step: readers find the old file or the new one, never a part."""

from __future__ import annotations

import os
from pathlib import Path


def refusal(path: Path, *, replaced: bool = True) -> str | None:
    """The reason why `path` cannot be written, or None. replaced: a file is moved there, instead of written in place.

    A device or a pipe must not be replaced: as root, /dev/null would become a file.
    """
    if os.path.isdir(path):
        return "it is a folder"
    if os.path.exists(path) and not replaced:
        return None if os.access(path, os.W_OK) else "it may not be written to"
    if os.path.exists(path) and not os.path.isfile(path):
        return "it is a device or a pipe, not a file"
    # Missing folders are made below the nearest one that exists.
    above = next(parent for parent in path.resolve().parents if os.path.exists(parent))
    if not os.path.isdir(above):
        return f"{above} is no folder"
    return None if os.access(above, os.W_OK) else f"{above} cannot be written to"


def write_whole(path: Path, text: str) -> None:
    """Write beside `path` and move it there in one step. After an OSError the old file is unchanged."""
    if refused := refusal(path):
        raise OSError(f"{path} cannot be written: {refused}")
    target = path.resolve()  # a link stays one
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        beside.write_text(text, encoding="utf-8", errors="backslashreplace")
        os.replace(beside, target)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise OSError(f"{path} cannot be written: {error.strerror}") from None
