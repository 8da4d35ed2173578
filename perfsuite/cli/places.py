"""Checks the files that a command reads or writes before it begins, since some commands measure for minutes."""

from __future__ import annotations

from pathlib import Path

from perfsuite.outcome import UserError
from perfsuite.record.atomic_write import refusal
from perfsuite.record.store import latest_path


def record_or_latest(given: Path | None) -> Path:
    """The record that the user named, or the newest one under `.perfsuite/`; UserError if none exists."""
    path = given or latest_path(Path.cwd())
    if path is None:
        raise UserError("there is no record under .perfsuite/runs here; name one, or run `pytest --gpu`")
    return path


def check_place(flag: str, path: Path | None, *, replaced: bool = True, makes_folder: bool = False) -> None:
    """UserError if no file can be written to `path`; None passes.

    replaced: as in `refusal`. makes_folder: the command makes a missing folder.
    """
    if path is None:
        return
    refused = refusal(path, replaced=replaced)
    if refused is None and not makes_folder and not path.parent.is_dir():
        refused = f"there is no folder {path.parent}"
    if refused is not None:
        raise UserError(f"{flag} is {str(path)!r}, which cannot be written: {refused}")
