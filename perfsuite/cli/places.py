"""Where a command is told to write: looked at before it begins, since some measure for minutes."""

from __future__ import annotations

from pathlib import Path

from perfsuite.cli.errors import UsageError
from perfsuite.record.whole import refusal


def check_place(flag: str, path: Path | None, *, replaced: bool = True, makes_folder: bool = False) -> None:
    """UsageError where no file can be written to `path`; None is no place and passes.

    replaced: as `refusal` takes it. makes_folder: the command makes the folder where there is none.
    """
    if path is None:
        return
    refused = refusal(path, replaced=replaced)
    if refused is None and not makes_folder and not path.parent.is_dir():
        refused = f"there is no folder {path.parent}"
    if refused is not None:
        raise UsageError(f"{flag} is {str(path)!r}, which cannot be written: {refused}")
