"""Programs of the CUDA toolkit that commands run."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from perfsuite.outcome import UserError


def find_nvcc(given: str | None = None) -> str:
    """The path of nvcc; UserError if it is missing."""
    homes = (os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH"), "/usr/local/cuda")
    places = [str(Path(home) / "bin" / "nvcc") for home in homes if home]
    return _find("nvcc", given, places, "install the CUDA toolkit or pass --nvcc PATH")


def find_ncu(given: str | None = None) -> str:
    """The path of Nsight Compute; UserError if it is missing."""
    return _find("ncu", given, ["/usr/local/cuda/bin/ncu"], "install Nsight Compute or pass --ncu PATH")


def _find(name: str, given: str | None, places: list[str], remedy: str) -> str:
    candidates = [given] if given else [name, *places]
    for candidate in candidates:
        if found := shutil.which(candidate):
            return found
    raise UserError(f"no {name}: looked for {', '.join(candidates)}; {remedy}")
