"""Runs the compilers on judged C++ and CUDA text: in a sandbox, with a time limit, cached by content."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from perfsuite.analyze.ptxas import demangle, parse
from perfsuite.isolate import sandbox
from perfsuite.judge.answer import Kernel, bounded

LIBRARY = "candidate.so"
MODULE = "perfsuite_candidate"
_ARCHITECTURES = {"8.0": "80", "9.0": "90a", "10.0": "100a"}
_FLAGS = ["-O3", "-std=c++17", "-shared"]
PLAIN = ["g++", *_FLAGS, "-fPIC", "-march=native", "-fopenmp"]
CUDA = ["nvcc", *_FLAGS, "-Xcompiler", "-fPIC", "-Xptxas", "-v", "--threads", "2"]


class NoCompilerError(RuntimeError):
    """The compiler is not installed; the message names it."""


@dataclass(frozen=True)
class Build:
    """The result of a compiler: the library, or None if it refused the source, with its output."""

    library: Path | None
    output: str
    kernels: tuple[Kernel, ...]
    seconds: float
    cached: bool
    late: bool = False


def build(files: Mapping[str, str], main: str, *, tensors: bool, cuda: bool, seconds: float) -> Build:
    """Compile `main` to a library that the cache keeps. tensors: against torch. seconds: the compiler's limit."""
    begin = time.perf_counter()
    line = [*(CUDA if cuda else PLAIN), *(_torch_flags(cuda) if tensors else ())]
    line += _targets() if cuda else []
    if shutil.which(line[0]) is None:
        raise NoCompilerError(f"{line[0]} is not installed, so the candidate cannot be compiled")
    key = hashlib.sha256(json.dumps([sorted(files.items()), main, line, _version(line[0])]).encode()).hexdigest()
    kept = cache() / key[:2] / key
    if not (kept / "build.json").is_file():
        found = _compiled(files, main, line, kept, seconds)
        if found is not None:
            return Build(None, found, (), time.perf_counter() - begin, False, late=True)
        cached = False
    else:
        cached = True
    said = json.loads((kept / "build.json").read_text())
    library = kept / LIBRARY if said["made"] else None
    kernels = _kernels(said["output"]) if cuda and said["made"] else ()
    return Build(library, bounded(said["shown"]), kernels, time.perf_counter() - begin, cached)


def cache() -> Path:
    """The folder of compiled candidates; a hash of source, compiler and flags names each."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base, "perfsuite", "judge")


def _compiled(files: Mapping[str, str], main: str, line: list[str], kept: Path, seconds: float) -> str | None:
    """Compile into `kept`; a sentence if the time ran out, and then nothing is kept."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="perfsuite-compile-") as folder:
        for name, text in files.items():
            place = Path(folder, name)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8", errors="surrogatepass")
        # The source before the libraries: the linker leaves out those that nothing before them needs.
        whole = [line[0], str(Path(folder, main)), "-o", str(Path(folder, LIBRARY)), "-I", folder, *line[1:]]
        if sandbox.why_not() is None:
            box = sandbox.command(Path(folder), alone=True)[:-1]
            whole = [*box, "--bind", folder, folder, "--chdir", folder, "--", *whole]
        environment = {**os.environ, "TMPDIR": folder, "HOME": folder}
        process = subprocess.Popen(
            whole,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
        try:
            output = process.communicate(timeout=seconds)[0].decode(errors="replace")
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.communicate()
            return f"the compiler did not end within {seconds:g} s"
        made = process.returncode == 0 and Path(folder, LIBRARY).is_file()
        shown = output.replace(f"{folder}/", "")
        fresh = Path(tempfile.mkdtemp(dir=kept.parent))
        if made:
            shutil.copyfile(Path(folder, LIBRARY), fresh / LIBRARY)
        (fresh / "build.json").write_text(json.dumps({"made": made, "output": output[-200_000:], "shown": shown}))
        try:
            os.replace(fresh, kept)
        except OSError:  # another process was faster
            shutil.rmtree(fresh, ignore_errors=True)
    return None


def _kernels(output: str) -> tuple[Kernel, ...]:
    found, _ = parse(output, source="candidate", arch="")
    targets = re.findall(r"Compiling entry function '[^']+' for '([^']+)'", output)
    names = demangle([one.symbol for one in found])
    return tuple(
        Kernel(
            name=names[one.symbol],
            arch=arch,
            registers=one.registers,
            spill_bytes=one.spill_stores + one.spill_loads,
        )
        for one, arch in zip(found, targets, strict=False)
    )


def _targets() -> list[str]:
    """Device code for the cards of this machine; without a card for sm_80 and sm_90a."""
    import torch

    here = {".".join(map(str, torch.cuda.get_device_capability(at))) for at in range(torch.cuda.device_count())}
    named = {_ARCHITECTURES.get(one, one.replace(".", "")) for one in here} or {"80", "90a"}
    return [f"-gencode=arch=compute_{one},code=sm_{one}" for one in sorted(named)]


def _torch_flags(cuda: bool) -> list[str]:
    from torch.utils import cpp_extension

    kind = "cuda" if cuda else "cpu"
    places = [f"-I{path}" for path in (*cpp_extension.include_paths(kind), sysconfig.get_paths()["include"])]
    folders = [f"-L{path}" for path in cpp_extension.library_paths(kind)]
    libraries = ["-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_python", *(["-lc10_cuda", "-ltorch_cuda"] if cuda else [])]
    return [*places, *folders, f"-DTORCH_EXTENSION_NAME={MODULE}", *libraries]


def _version(program: str) -> str:
    found = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    return found.stdout
