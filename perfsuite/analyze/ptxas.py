"""Reads ptxas' report on compiled kernels: registers, shared memory, stack, spills and performance advisories."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from dataclasses import dataclass, replace
from pathlib import Path

_UNNAMED = re.compile(r"(_GLOBAL__N__)[0-9a-f]{8}(_\d+_\w+?_)[0-9a-f]{8}")
"""The mark of an unnamed namespace in a mangled name; its two numbers change with every compilation."""
_ENTRY = re.compile(r"Compiling entry function '(?P<symbol>[^']+)' for '(?P<arch>[^']+)'")
_MEMORY = re.compile(
    r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads"
)
_REGISTERS = re.compile(r"Used (?P<registers>\d+) registers")
_SHARED = re.compile(r"(?P<shared>\d+) bytes smem")
# C75xx: setmaxnreg ignored, wgmma serialised, waits injected. Each silently costs a large factor.
_ADVISORY = re.compile(r"\((?P<code>C75\d\d)\)\s*(?P<text>.*)")


@dataclass(frozen=True)
class KernelResources:
    """One kernel for one architecture. Static shared memory is in bytes a block; the other sizes in bytes a thread."""

    source: str
    arch: str
    symbol: str
    name: str
    registers: int
    static_shared: int
    stack: int
    spill_stores: int
    spill_loads: int

    @property
    def spills(self) -> bool:
        """True if registers or arrays of this kernel live in local memory."""
        return bool(self.stack or self.spill_stores or self.spill_loads)


@dataclass(frozen=True)
class Advisory:
    """A C75xx line of ptxas."""

    source: str
    arch: str
    code: str
    text: str


@dataclass(frozen=True)
class Compilation:
    """The result of one nvcc run over one source for one architecture."""

    kernels: tuple[KernelResources, ...]
    advisories: tuple[Advisory, ...]
    seconds: float


class CompileError(Exception):
    """nvcc refused a source; the message holds its output."""


def parse(log: str, *, source: str, arch: str) -> tuple[list[KernelResources], list[Advisory]]:
    """Read the output of `nvcc -Xptxas -v`. Names are left mangled; see `demangle`.

    A block of lines belongs to the entry function named before it. Device functions that were not inlined have blocks
    without an entry line, which are passed over.
    """
    kernels: list[KernelResources] = []
    advisories: list[Advisory] = []
    entry: str | None = None
    properties_of: str | None = None
    stack = stores = loads = 0
    for line in log.splitlines():
        if match := _ADVISORY.search(line):
            advisories.append(Advisory(source, arch, match["code"], match["text"].strip()))
        elif match := _ENTRY.search(line):
            entry = match["symbol"]
            stack = stores = loads = 0
        elif "Function properties for" in line:
            properties_of = line.rsplit(" ", 1)[-1]
        elif (match := _MEMORY.search(line)) and properties_of == entry:
            stack, stores, loads = (int(match[name]) for name in ("stack", "stores", "loads"))
        elif (match := _REGISTERS.search(line)) and entry is not None:
            shared = int(found["shared"]) if (found := _SHARED.search(line)) else 0
            registers = int(match["registers"])
            symbol = without_marks(entry)
            kernels.append(KernelResources(source, arch, symbol, symbol, registers, shared, stack, stores, loads))
            entry = None
    return kernels, advisories


def without_marks(symbol: str) -> str:
    """The mangled name as it is in every compilation: the marks of its unnamed namespace are zeros."""
    return _UNNAMED.sub(r"\g<1>00000000\g<2>00000000", symbol)


def demangle(symbols: list[str]) -> dict[str, str]:
    """Map mangled names to readable ones through binutils' `c++filt`; without it, names stay as they are."""
    tool = shutil.which("c++filt")
    if tool is None or not symbols:
        return {symbol: symbol for symbol in symbols}
    run = subprocess.run([tool], input="\n".join(symbols), capture_output=True, text=True, check=True)
    return dict(zip(symbols, (_shorten(line) for line in run.stdout.splitlines()), strict=True))


def _shorten(demangled: str) -> str:
    """The name without return type, parameters, anonymous namespace and casts of constants."""
    name = demangled.replace("(anonymous namespace)::", "").removeprefix("void ")
    name = re.sub(r"\((?:unsigned |signed )?(?:int|long|bool|char|short|[\w:]+)\)(?=-?\d)", "", name)
    depth = 0
    for index, character in enumerate(name):
        depth += {"<": 1, ">": -1}.get(character, 0)
        if character == "(" and depth == 0:
            return name[:index]
    return name


def compile_resources(source: Path, arch: str, *, nvcc: str, flags: list[str], cubin: Path) -> Compilation:
    """Compile the device code of `source` for `arch` ("80", "90a") to `cubin`; needs no GPU. Raises CompileError."""
    command = [nvcc, "-cubin", f"-gencode=arch=compute_{arch},code=sm_{arch}", "-Xptxas", "-v", *flags]
    start = time.perf_counter()
    run = subprocess.run([*command, "-o", str(cubin), str(source)], capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - start
    log = run.stdout + run.stderr
    if run.returncode != 0:
        raise CompileError(f"{source} does not compile for sm_{arch}:\n{log.strip()}")
    kernels, advisories = parse(log, source=str(source), arch=f"sm_{arch}")
    names = demangle([kernel.symbol for kernel in kernels])
    named = tuple(replace(kernel, name=names[kernel.symbol]) for kernel in kernels)
    return Compilation(named, tuple(advisories), seconds)
