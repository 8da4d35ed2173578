"""Checks the files that a command reads or writes before it begins, since some commands measure for minutes."""

from __future__ import annotations

import sys
from pathlib import Path

from perfsuite.cli.plugin_known import pytest_words
from perfsuite.outcome import UserError
from perfsuite.record.atomic_write import refusal
from perfsuite.record.places import OWN_FOLDER, latest_path, partials_below


def record_or_latest(given: Path | None) -> Path:
    """The record that the user named, or the newest one under `.perfsuite/`; UserError if none exists."""
    if given is not None:
        return given
    path = latest_path(Path.cwd())
    partials = partials_below(Path.cwd() / OWN_FOLDER)
    newest = partials[-1] if partials else None
    if newest is not None and (path is None or newest.stat().st_mtime > path.stat().st_mtime):
        said = f"the newest run did not finish: {newest} holds its cases (`perfsuite partial` lists such files)"
        if path is None:
            raise UserError(f"there is no whole record under .perfsuite/runs here; {said}")
        print(f"perfsuite: {said}", file=sys.stderr)
    if path is None:
        raise UserError(f"there is no record under .perfsuite/runs here; name one, or run `{pytest_words()} --gpu`")
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
