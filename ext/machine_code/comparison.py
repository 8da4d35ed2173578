"""What differs between two kernels, and the first instruction that does."""

from __future__ import annotations

import re
import shutil
import subprocess
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from machine_code.cubin import WORD, Kernel
from machine_code.errors import UsageError

_INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;")


@dataclass(frozen=True)
class Difference:
    """The parts of a kernel that are not equal; empty for equal kernels."""

    parts: tuple[str, ...]
    at: int | None = None  # the first instruction that differs

    def __bool__(self) -> bool:
        return bool(self.parts)


def compare(old: Kernel, new: Kernel) -> Difference:
    """Compare code with its control bits, constants, and launch attributes."""
    parts = []
    if old.code != new.code:
        parts.append("code")
    if old.relocations != new.relocations:
        parts.append("addresses of other symbols")
    if old.constants != new.constants:
        parts.append("constants")
    if old.attributes != new.attributes:
        parts.append("attributes")
    return Difference(tuple(parts), _first(old, new) if "code" in parts else None)


def _first(old: Kernel, new: Kernel) -> int:
    most = min(len(old.code), len(new.code)) // WORD
    return next((index for index in range(most) if old.word(index) != new.word(index)), most)


def find_nvdisasm(given: str | None) -> str | None:
    """The path of nvdisasm: the one given, or on PATH, or of the package nvidia-cuda-nvdisasm, or None."""
    packages = sorted(Path(sysconfig.get_path("purelib"), "nvidia").glob("cu*/bin"))
    found = shutil.which(given) if given else shutil.which("nvdisasm")
    if given and not found:
        raise UsageError(f"--nvdisasm {given} is no program")
    return found or next(filter(None, (shutil.which("nvdisasm", path=str(folder)) for folder in packages)), None)


def instruction(nvdisasm: str | None, kernel: Kernel, index: int) -> str:
    """One instruction as text."""
    if index >= kernel.instructions:
        return "(the end)"
    if nvdisasm is None:
        low, high = kernel.word(index)
        return (
            f"{high:#018x} {low:016x} (nvdisasm is not found, which prints it as text; it comes with the CUDA toolkit "
            "and with `pip install nvidia-cuda-nvdisasm`)"
        )
    command = [nvdisasm, "--print-code", "--cuda-function-index", str(kernel.index), str(kernel.cubin)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise UsageError(f"nvdisasm refused {kernel.cubin}: {done.stderr.strip()}")
    for line in done.stdout.splitlines():
        match = _INSTRUCTION.search(line)
        if match and int(match[1], 16) == index * WORD:
            return re.sub(r"\s+", " ", match[2])
    return f"(nvdisasm prints no instruction at {index * WORD:#x})"
