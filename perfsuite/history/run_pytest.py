"""Runs pytest with plugins of perfsuite, which leaves no file behind: `python -m perfsuite.history.run_pytest ...`.

pytest keeps the bytecode of a plugin that it imports itself under a name of its own. No installer knows that file, so
it would stay when perfsuite is removed. Plugins that are imported before pytest looks for them have no such file.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from itertools import pairwise

COMMAND = (sys.executable, "-m", __name__, "-q", "-p", "no:cacheprovider", "-p", "perfsuite.plugin")
"""A command line of pytest, to which options and tests may be added."""


def import_plugins(words: Sequence[str]) -> None:
    """Import the modules of perfsuite that pytest would import as plugins by these arguments."""
    for before, word in pairwise(("", *words)):
        name = word if before == "-p" else word.removeprefix("-p")
        if name.startswith("perfsuite."):
            importlib.import_module(name)


if __name__ == "__main__":
    import pytest

    import_plugins(sys.argv[1:])
    sys.exit(pytest.console_main())
