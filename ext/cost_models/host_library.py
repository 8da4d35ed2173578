"""Compiles a cost model for the host, as a library that Python calls."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from cost_models.errors import UsageError

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent


def load(sources: list[Path], *, cuda: bool = False) -> ctypes.CDLL:
    """Compile C++ files, whatever their suffix, and load them. `cuda`: they include headers of CUDA."""
    compiler = shutil.which(os.environ.get("CXX", "g++")) or shutil.which("c++")
    if compiler is None:
        raise UsageError("no C++ compiler is found (looked for $CXX, g++, c++); the cost model must be compiled")
    folder = Path(tempfile.gettempdir(), f"cost_models-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    key = hashlib.sha256(b"".join(path.read_bytes() for path in _with_headers(sources))).hexdigest()[:16]
    library = folder / f"{key}.so"
    if not library.is_file():
        made = library.with_suffix(f".{os.getpid()}.so")
        command = [compiler, "-std=c++17", "-O2", "-shared", "-fPIC", f"-I{ROOT / 'ext/csrc'}"]
        if cuda:
            command.append(f"-I{cuda_home() / 'include'}")
        done = subprocess.run(
            [*command, "-o", str(made), "-x", "c++", *map(str, sources)], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise UsageError(f"the cost model does not compile:\n{done.stderr.strip()}")
        made.rename(library)
    return ctypes.CDLL(str(library))


def cuda_home() -> Path:
    """The folder of the CUDA toolkit."""
    nvcc = shutil.which("nvcc")
    homes = [os.environ.get("CUDA_HOME"), str(Path(nvcc).resolve().parents[1]) if nvcc else None, "/usr/local/cuda"]
    for home in filter(None, homes):
        if Path(home, "include/cuda_runtime.h").is_file():
            return Path(home)
    raise UsageError("the CUDA toolkit is not found; set CUDA_HOME to its folder")


def _with_headers(sources: list[Path]) -> list[Path]:
    """The sources and every header that they may include: those beside them and at the top of ext/csrc."""
    folders = {path.parent for path in sources} | {ROOT / "ext/csrc", ROOT / "ext/csrc/cuda"}
    return [*sources, *sorted(header for folder in folders for header in folder.glob("*.h"))]
