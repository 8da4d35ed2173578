"""The operators' tests run on the CPU everywhere, and on the GPU as well under --gpu."""

import pytest


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)
