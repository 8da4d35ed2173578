"""What all tests share."""

from __future__ import annotations

import ctypes
import os
import random
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

pytest_plugins = ["pytester"]
TOOLKIT = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "include")


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


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """What a test draws depends on its name alone, not on the tests before it in its process."""
    seed = zlib.crc32(item.nodeid.encode())
    random.seed(seed)
    if torch := sys.modules.get("torch"):
        torch.manual_seed(seed)
        for one in vars(getattr(item, "module", None) or object).values():
            if isinstance(one, torch.Generator):
                one.manual_seed(seed)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(seed)


@pytest.fixture(scope="session")
def ops() -> ModuleType:
    """The kernels under test."""
    import cuda_llm_ops

    return cuda_llm_ops


@pytest.fixture(scope="session")
def compile_for_host() -> Callable[..., ctypes.CDLL]:
    """Makes a library of a C++ file that includes device headers: (the file, a folder to put it in, flags) -> library.

    The headers of CUDA are found without a flag. Skips where there are none, or no compiler.
    """

    def compiled(source: Path, folder: Path, *flags: str) -> ctypes.CDLL:
        compiler = shutil.which("g++")
        if compiler is None or not (TOOLKIT / "cuda_runtime.h").is_file():
            pytest.skip(f"needs g++ and the headers of CUDA in {TOOLKIT}")
        library = folder / f"{source.stem}.so"
        always = ["-std=c++17", "-O1", "-shared", "-fPIC"]
        subprocess.run([compiler, *always, *flags, f"-I{TOOLKIT}", "-o", library, source], check=True)
        return ctypes.CDLL(str(library))

    return compiled
