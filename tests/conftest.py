"""What all tests share."""

from __future__ import annotations

from types import ModuleType

import pytest

pytest_plugins = ["pytester"]


@pytest.hookimpl
def pytest_perfsuite_device_check() -> str | None:
    """Under --gpu the kernels of this repository must have been built for one."""
    try:
        import cuda_llm_ops
    except ImportError as error:
        return str(error)
    facts = cuda_llm_ops.build_info()
    if facts["flavour"] == "cuda":
        return None
    return f"cuda_llm_ops is a portable build, without CUDA kernels: {facts['reason']}"


@pytest.fixture(scope="session")
def ops() -> ModuleType:
    """The kernels under test."""
    import cuda_llm_ops

    return cuda_llm_ops
