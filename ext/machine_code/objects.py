"""Compilation to cubins, cached by content.

The key of the cache is the preprocessed text without comments, line markers and white space outside literals. So a
change of comments, of formatting, or of a file's place compiles nothing again.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from machine_code.errors import UsageError
from machine_code.revisions import Revision

_LITERAL_OR_SPACE = re.compile(r'("(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\')|\s+')


@dataclass(frozen=True)
class Object:
    """One source compiled for one architecture."""

    source: str
    arch: str
    cubin: Path
    log: str  # what `ptxas -v` printed


@dataclass(frozen=True)
class Compiler:
    """nvcc, its flags, and the folder of what it compiled before."""

    nvcc: str
    flags: tuple[str, ...]
    include: tuple[str, ...]  # folders, relative to a revision's root
    cache: Path

    def compile(self, revision: Revision, source: str, arch: str) -> Object:
        """Compile one source for one architecture ("80", "90a"), or take the result of an earlier run."""
        cubin = self.cache / "objects" / f"{self._key(revision, source, arch)}.cubin"
        log = cubin.with_suffix(".log")
        if not cubin.is_file() or not log.is_file():
            cubin.parent.mkdir(parents=True, exist_ok=True)
            partial = cubin.with_suffix(f".{os.getpid()}.partial")
            printed = self._run(revision, source, arch, "-cubin", "-Xptxas", "-v", "-o", str(partial)).stderr
            log.write_bytes(printed)
            partial.rename(cubin)
        return Object(source, arch, cubin, log.read_text(errors="replace"))

    def _key(self, revision: Revision, source: str, arch: str) -> str:
        # `nvcc -E` leaves out the macro that guards code for one architecture alone, as sm_90a.
        digits = arch.rstrip("af")
        feature = [f"-D__CUDA_ARCH_FEAT_SM{digits}_ALL"] if arch.endswith("a") else []
        text = self._run(revision, source, arch, "-E", "-Xcompiler", "-P", *feature).stdout.decode(errors="replace")
        squeezed = _LITERAL_OR_SPACE.sub(lambda match: match[1] or " ", text)
        version = subprocess.run([self.nvcc, "--version"], capture_output=True, check=False).stdout
        digest = hashlib.sha256()
        for part in (version, arch.encode(), " ".join(self.flags).encode(), squeezed.encode()):
            digest.update(hashlib.sha256(part).digest())
        return digest.hexdigest()[:32]

    def _run(self, revision: Revision, source: str, arch: str, *more: str) -> subprocess.CompletedProcess[bytes]:
        include = [f"-I{revision.root / folder}" for folder in self.include]
        defines = [f"-D{name}" for name in revision.defines()]
        target = f"-gencode=arch=compute_{arch},code=sm_{arch}"
        command = [self.nvcc, target, *self.flags, *defines, *include, *more, source]
        done = subprocess.run(command, capture_output=True, cwd=revision.root, check=False)
        if done.returncode != 0:
            words = (done.stderr + done.stdout).decode(errors="replace").strip()
            raise UsageError(f"{source} of {revision.name} does not compile for sm_{arch}:\n{words}")
        return done


def find_nvcc(given: str | None) -> str:
    """The path of nvcc: the one given, or on PATH, or below CUDA_HOME."""
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    candidates = [given] if given else ["nvcc", str(Path(home, "bin", "nvcc"))]
    for candidate in candidates:
        if found := shutil.which(candidate):
            return found
    raise UsageError(f"nvcc is not found (looked for {', '.join(candidates)}); install the CUDA toolkit or pass --nvcc")


def compile_all(
    compiler: Compiler, tasks: list[tuple[Revision, str, str]], jobs: int, progress: Callable[[int, str], None]
) -> list[Object]:
    """Compile (revision, source, architecture) tasks side by side, in the order of `tasks`."""
    with ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(compiler.compile, *task) for task in tasks]
        objects = []
        try:
            for number, (future, (revision, source, arch)) in enumerate(zip(futures, tasks, strict=True), start=1):
                objects.append(future.result())
                progress(number, f"{revision.name} {source} sm_{arch}")
        except UsageError:
            pool.shutdown(cancel_futures=True)
            raise
    return objects
