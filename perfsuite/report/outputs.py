"""Shows a command's output in a document: a recorded file in a fence, and a line that names the machine.

    <!-- perfsuite:output ../records/h200/mission/hierarchy.txt -->
    <!-- /perfsuite:output -->

The file's first line, after "# ", names the machine. `records/outputs.py` writes such files.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from perfsuite.record.schema import RecordError


def output(path: Path, filters: Mapping[str, str]) -> str:
    """The fenced output and its origin. Raises RecordError for other files."""
    if filters:
        raise RecordError(f"{path}: an output is shown as a whole; it takes no {', '.join(filters)}=")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RecordError(f"{path}: cannot be read: {error}") from None
    origin, _, body = text.partition("\n")
    if not origin.startswith("# ") or not body.startswith("$ "):
        raise RecordError(f"{path}: is no output of a command; it must begin with '# where' and '$ command'")
    if "```" in body:
        raise RecordError(f"{path}: holds a fence of its own and cannot be shown in one")
    return f"```\n{body.rstrip()}\n```\n\nMeasured on {origin.removeprefix('# ')}."
