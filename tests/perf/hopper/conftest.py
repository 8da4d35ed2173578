"""What the gates for Hopper share."""

from __future__ import annotations

import pytest

from perfsuite.problems.rivals.flash_attn import missing


@pytest.fixture
def flash_kernels(request: pytest.FixtureRequest) -> None:
    """Skips where FlashAttention's kernels are missing; the suite's cases are listed all the same."""
    why = missing()
    if why is not None and not request.config.pluginmanager.has_plugin("perfsuite.pytest_plugin.listing"):
        pytest.skip(why)
