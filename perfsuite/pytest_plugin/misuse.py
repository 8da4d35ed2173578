"""What a wrong call of `perf` shows: the test's own line and the sentence, without the way through perfsuite."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

import pluggy
import pytest

_OURS = (f"{Path(__file__).parents[1]}/", f"{Path(pluggy.__file__).parent}/", "<string>")
"""Where files of the way lie; the `__init__` of a dataclass is in "<string>"."""


def shorten(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Cut the traceback of an error that perfsuite raised at the last line outside it; `--full-trace` shows it all."""
    info = call.excinfo
    if info is None or item.config.getoption("fulltrace", False) or not _is_told(info.value):
        return
    way: list[TracebackType] = []
    entry: TracebackType | None = info.tb
    while entry is not None:
        way.append(entry)
        entry = entry.tb_next
    while way and way[-1].tb_frame.f_code.co_filename.startswith(_OURS):
        way.pop()
    # Made anew, since pytest follows `tb_next` again when it shows an entry.
    short: TracebackType | None = None
    for one in reversed(way):
        short = TracebackType(short, one.tb_frame, one.tb_lasti, one.tb_lineno)
    if short is not None:
        info.traceback = type(info.traceback)(short)


def _is_told(error: BaseException) -> bool:
    """Whether perfsuite says by it what is wrong with a call; what it did not expect is shown whole."""
    return isinstance(error, TypeError | ValueError) or type(error).__module__.startswith("perfsuite.")
