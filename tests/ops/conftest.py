"""The operators' tests run on the CPU everywhere, and on the GPU as well under --gpu."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Thousands of small calls, often in several workers: threads that wait for each other would take most of the time.

    The tests that are about threads (test_threads.py) set their number themselves.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
