"""A process that `perfsuite.pytest_plugin.fresh_process` has made, from inside: it runs pytest once."""

from __future__ import annotations

import json
import os
import socket
import sys

import pytest

from perfsuite.history.run_pytest import import_plugins


def serve(descriptor: int) -> None:
    """Run pytest as the socket of that descriptor says, and end with its exit code."""
    with socket.socket(fileno=descriptor) as end, end.makefile() as lines:
        order = json.loads(lines.readline())
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.path[:] = order["path"]
    import_plugins(order["words"])
    raise SystemExit(int(pytest.main(order["words"])))
