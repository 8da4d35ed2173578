"""Shortens the traceback of a wrong call of `perf` to the test's own line and the sentence."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

import pluggy
import pytest

_OURS = (f"{Path(__file__).parents[1]}/", f"{Path(pluggy.__file__).parent}/", "<string>")
"""Files of the frames to cut; the `__init__` of a dataclass is in "<string>"."""


def shorten(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Cut the traceback of an error that perfsuite raised; `--full-trace` shows it all."""
    info = call.excinfo
    if info is None or item.config.getoption("fulltrace", False) or not _explains(info.value):
        return
    frames: list[TracebackType] = []
    entry: TracebackType | None = info.tb
    while entry is not None:
        frames.append(entry)
        entry = entry.tb_next
    while frames and frames[-1].tb_frame.f_code.co_filename.startswith(_OURS):
        frames.pop()
    # A new chain, since pytest follows `tb_next` again when it shows an entry.
    short: TracebackType | None = None
    for one in reversed(frames):
        short = TracebackType(short, one.tb_frame, one.tb_lasti, one.tb_lineno)
    if short is not None:
        info.traceback = type(info.traceback)(short)


def _explains(error: BaseException) -> bool:
    """True for an error that explains a wrong call; unexpected errors keep their traceback."""
    return isinstance(error, TypeError | ValueError) or type(error).__module__.startswith("perfsuite.")
