"""Measures every instance of the Hopper attention kernels on the card at hand, for the fit of their cost model.

No operator names an instance, so this compiles time_attention.cu with the kernels, without torch, and runs it.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from cost_models import host_library
from cost_models.errors import UsageError

CUDA = host_library.ROOT / "ext/csrc/cuda"
NEEDED = ("counters", "device", "tensor_map")
FLAGS = ("-O3", "-std=c++17", "-DNDEBUG", "-DCUDA_LLM_OPS_SM90_ATTENTION", "-gencode=arch=compute_90a,code=sm_90a")


def sources() -> list[Path]:
    """The timing program, the Hopper kernels of attention, and what they need."""
    kernels = [path for path in sorted((CUDA / "attention/sm90").rglob("*.cu")) if "varlen" not in path.name]
    return [host_library.HERE / "time_attention.cu", *kernels, *(CUDA / f"{name}.cu" for name in NEEDED)]


def measure(seconds: float, seed: int = 0) -> Iterator[dict[str, Any]]:
    """Lines of times.py.

    Raises:
        UsageError: nvcc is missing, a source does not compile, or there is no card of compute capability 9.0.
    """
    nvcc = str(host_library.cuda_home() / "bin/nvcc")
    with tempfile.TemporaryDirectory(prefix="time_attention-") as name:
        folder = Path(name)
        if not _has_hopper(nvcc, folder):
            raise UsageError("there is no GPU of compute capability 9.0 to measure on; pass --times FILE")

        def compiled(numbered: tuple[int, Path]) -> str:
            made = folder / f"{numbered[0]}.o"
            include = f"-I{host_library.ROOT / 'ext/csrc'}"
            _run([nvcc, *FLAGS, include, "-c", str(numbered[1]), "-o", str(made)], f"{numbered[1]} does not compile")
            return str(made)

        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            objects = list(pool.map(compiled, enumerate(sources())))
        program = folder / "time_attention"
        _run([nvcc, *FLAGS[-1:], *objects, "-o", str(program)], "the timing program does not link")
        printed = _run([str(program), str(seconds), str(seed)], "the timing program failed")
    yield from map(json.loads, printed.splitlines())


def _has_hopper(nvcc: str, folder: Path) -> bool:
    """Ask for a device of compute capability 9.0 by a small program, before minutes of compilation."""
    source, program = folder / "ask.cu", folder / "ask"
    source.write_text("int main() { cudaDeviceProp p; return cudaGetDeviceProperties(&p, 0) != 0 || p.major != 9; }\n")
    _run([nvcc, str(source), "-o", str(program)], f"{nvcc} does not work")
    return subprocess.run([str(program)], check=False).returncode == 0


def _run(command: list[str], failure: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise UsageError(f"{failure}:\n{(done.stderr or done.stdout).strip()}")
    return done.stdout
