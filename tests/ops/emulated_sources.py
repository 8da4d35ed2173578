"""Device code for the emulator of thread blocks (`emulated_block.h`), and the flags that compile it for the host."""

from __future__ import annotations

import re
from pathlib import Path

from device_sources import copy_without_ptx

HERE = Path(__file__).parent
BLOCK = HERE / "emulated_block.h"
SHARED = re.compile(r"extern __shared__ __align__\(1024\) ([\w ]+?) (\w+)\[\];")
"""How a kernel declares the shared memory that its launch gives it."""


def copy_for_emulator(folder: Path, header: Path = BLOCK) -> Path:
    """Copy all sources to `folder`: `header` stands for the instructions of PTX, and launches go to the emulator."""
    build = copy_without_ptx(folder, f'#include "{header}"\n')
    (build / "cuda/launch_config.h").write_text((HERE / "emulated_launch.h").read_text())
    for source in (build / "cuda").rglob("*.cuh"):
        text = source.read_text()
        if (changed := SHARED.sub(r"\1* \2 = emulated::shared_memory();", text)) != text:
            source.write_text(changed)
    return build


def emulator_flags(build: Path, header: Path = BLOCK) -> list[str]:
    """For g++, before the sources of `build`, which it then takes for C++."""
    flags = ["-w", "-Wno-psabi", "-O2", "-fno-strict-aliasing", "-DCUDA_LLM_OPS_SM90_ATTENTION"]
    return [*flags, "-include", str(header), f"-I{build}", f"-I{HERE}", "-x", "c++"]
