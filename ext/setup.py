"""Builds the extension cuda_llm_ops._C; all metadata is in pyproject.toml.

CUDA_LLM_OPS_BUILD chooses what is built:

    auto      (default) CUDA where nvcc is found and torch has CUDA, else the portable flavour (CPU kernels); the step
              down is announced and recorded in the build
    cuda      CUDA, or the build fails        (FORCE_CUDA=1 means the same)
    portable  the CPU kernels alone, or the build fails

Where not even the CPU kernels can be built, the build fails and says why. Nothing here looks for a visible GPU.
MAX_JOBS bounds the parallel compilations.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from setuptools import setup

ROOT = Path(__file__).resolve().parent
SWITCH = "CUDA_LLM_OPS_BUILD"
CHOICES = ("auto", "cuda", "portable")
MIN_TORCH = (2, 10)
MIN_NVCC = (12, 0)  # the first to compile for compute_90a
# (virtual architecture, code): machine code for Ampere and Hopper, and PTX for what comes between and after.
ARCHITECTURES = (("compute_80", "sm_80"), ("compute_80", "compute_80"), ("compute_90a", "sm_90a"))
# Families whose dispatch takes its Hopper path: the build defines CUDA_LLM_OPS_SM90_<family> for each.
HOPPER_FAMILIES = ("GEMM", "ATTENTION", "FP8")
# torch's build passes these to nvcc; the device code here includes no torch and uses the operators they disable.
TORCH_DISABLES = (
    "__CUDA_NO_HALF_OPERATORS__",
    "__CUDA_NO_HALF_CONVERSIONS__",
    "__CUDA_NO_HALF2_OPERATORS__",
    "__CUDA_NO_BFLOAT16_CONVERSIONS__",
)


@dataclass(frozen=True)
class Plan:
    """What to build, why, and whether that is less than this machine should give."""

    flavour: str  # "cuda" or "portable"
    reason: str
    degraded: bool = False


def requested() -> str:
    choice = os.environ.get(SWITCH) or ("cuda" if os.environ.get("FORCE_CUDA") == "1" else "auto")
    if choice not in CHOICES:
        raise SystemExit(f"{SWITCH}={choice!r} is not a build of cuda_llm_ops; allowed are {', '.join(CHOICES)}")
    return choice


def nvcc_path() -> Path | None:
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    found = [Path(home, "bin", "nvcc")] if home else []
    on_path = shutil.which("nvcc")
    found += [Path(on_path)] if on_path else []
    found.append(Path("/usr/local/cuda/bin/nvcc"))
    return next((path for path in found if path.is_file()), None)


def nvcc_version(nvcc: Path) -> str:
    printed = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=False).stdout
    release = re.search(r"release [\d.]+, V([\d.]+)", printed)
    return release[1] if release else ""


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def why_no_extension() -> str | None:
    """The reason why not even the portable flavour can be built, or None."""
    try:
        torch = importlib.import_module("torch")
    except ImportError as error:
        return (
            f"torch cannot be imported in the build environment ({error}). pip's build isolation hides an installed "
            "torch: install torch, setuptools, pybind11 and ninja first, then repeat the command with "
            "--no-build-isolation"
        )
    if numbers(torch.__version__) < MIN_TORCH:
        return f"torch is {torch.__version__} and must be {'.'.join(map(str, MIN_TORCH))} or newer"
    compiler = os.environ.get("CXX", "").split()[:1] or ["c++", "g++", "clang++"]
    if not any(map(shutil.which, compiler)):
        return f"no C++ compiler is found (looked for {', '.join(compiler)})"
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        return f"Python.h is not in {sysconfig.get_path('include')}"
    return None


def why_no_cuda() -> tuple[str, bool] | None:
    """The reason why the CUDA flavour cannot be built and whether it is a loss (torch has CUDA), or None."""
    version = importlib.import_module("torch").version.cuda
    if version is None:
        return "torch is built without CUDA", False
    nvcc = nvcc_path()
    if nvcc is None:
        return f"torch has CUDA {version} but nvcc is not found (in CUDA_HOME, on PATH, in /usr/local/cuda)", True
    found = nvcc_version(nvcc)
    if numbers(found)[:1] != numbers(version)[:1]:
        return f"torch has CUDA {version} but {nvcc} is of CUDA {found or 'unknown'}; the majors must agree", True
    if numbers(found) < MIN_NVCC:
        return f"{nvcc} is {found} and must be {'.'.join(map(str, MIN_NVCC))} or newer", True
    return None


def make_plan() -> Plan:
    choice = requested()
    missing = why_no_extension()
    if missing is not None:
        raise SystemExit(f"cuda_llm_ops cannot be built: {missing}.")
    if choice == "portable":
        return Plan("portable", f"{SWITCH}=portable asked for it")
    no_cuda = why_no_cuda()
    if no_cuda is None:
        return Plan("cuda", "nvcc is found and torch has CUDA")
    if choice == "cuda":
        raise SystemExit(f"cuda_llm_ops cannot be built with CUDA: {no_cuda[0]}. {SWITCH}=portable builds CPU kernels.")
    return Plan("portable", *no_cuda)


def announce(plan: Plan) -> None:
    if plan.flavour == "cuda":
        print(f"cuda_llm_ops is built with CUDA: {plan.reason}.", file=sys.stderr, flush=True)
        return
    text = f"cuda_llm_ops is built portable, WITHOUT CUDA: {plan.reason}."
    if plan.degraded:
        text += f" To make this a failure: {SWITCH}=cuda."
    line = "*" * 100
    print(f"{line}\n{text}\n{line}", file=sys.stderr, flush=True)


def git(*arguments: str) -> str | None:
    command = ["git", "-c", "safe.directory=*", "-C", str(ROOT), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def commit_and_dirty() -> tuple[str, bool]:
    """The commit, "" where it is unknown, and whether files of the extension differ from it.

    PERFSUITE_COMMIT names it for a copy without git's folder, with "-dirty" at its end where it is.
    """
    if (ROOT.parent / ".git").exists():
        changed = git("status", "--porcelain", "--", ".")
        return git("rev-parse", "HEAD") or "", bool(changed)
    given = os.environ.get("PERFSUITE_COMMIT", "")
    return given.removesuffix("-dirty"), given.endswith("-dirty")


def build_facts(plan: Plan) -> str:
    """The header that only module.cpp includes: when a fact changes, one file is compiled again."""
    nvcc = nvcc_path() if plan.flavour == "cuda" else None
    digest = runpy.run_path(str(ROOT / "cuda_llm_ops/_sources.py"))["digest"]
    commit, dirty = commit_and_dirty()
    facts: dict[str, str | int] = {
        "FLAVOUR": plan.flavour,
        "REASON": plan.reason,
        "DEGRADED": int(plan.degraded),
        "ARCHITECTURES": " ".join(code for _, code in ARCHITECTURES) if nvcc else "",
        "NVCC": nvcc_version(nvcc) if nvcc else "",
        "TORCH": str(importlib.import_module("torch").__version__),
        "COMMIT": commit,
        "DIRTY": int(dirty),
        "SOURCES": digest(ROOT / "csrc", plan.flavour),
    }
    return "#pragma once\n" + "".join(f"#define BUILD_{name} {json.dumps(value)}\n" for name, value in facts.items())


def pybind11_includes() -> list[str]:
    try:
        return [importlib.import_module("pybind11").get_include()]
    except ImportError:
        return []  # torch's include folder has one


def extension(plan: Plan, generated: Path) -> Any:
    from torch.utils.cpp_extension import CppExtension, CUDAExtension

    csrc = ROOT / "csrc"
    sources = [*csrc.glob("*.cpp"), *csrc.glob("cpu/*.cpp")]
    common = ["-O3", "-std=c++17", "-DNDEBUG"]
    cxx = [*common, "-g0", "-fvisibility=hidden", "-Wall"]
    nvcc = [*common, "-lineinfo", "--threads", "2" if (os.cpu_count() or 1) >= 8 else "1"]
    if plan.flavour == "cuda":
        sources += csrc.glob("cuda/**/*.cu")
        cxx.append("-DCUDA_LLM_OPS_WITH_CUDA")
        nvcc += [f"-U{name}" for name in TORCH_DISABLES]
        nvcc += [f"-DCUDA_LLM_OPS_SM90_{family}" for family in HOPPER_FAMILIES]
        nvcc += [f"-gencode=arch={arch},code={code}" for arch, code in ARCHITECTURES]
    make = CUDAExtension if plan.flavour == "cuda" else CppExtension
    return make(
        name="cuda_llm_ops._C",
        sources=sorted(str(path.relative_to(ROOT)) for path in sources),
        include_dirs=[str(csrc), str(generated), *pybind11_includes()],
        extra_compile_args={"cxx": cxx, "nvcc": nvcc} if plan.flavour == "cuda" else {"cxx": cxx},
    )


def extension_build(plan: Plan) -> dict[str, Any]:
    """The arguments of setup() that compile the extension, with its objects kept for the next build."""
    if plan.flavour == "cuda":
        nvcc = nvcc_path()
        assert nvcc is not None
        os.environ["CUDA_HOME"] = str(nvcc.parent.parent)  # before torch.utils.cpp_extension looks for it
    os.environ.setdefault("MAX_JOBS", str(os.cpu_count() or 1))
    from torch.utils.cpp_extension import BuildExtension

    torch = importlib.import_module("torch")
    objects = ROOT / "build" / f"{plan.flavour}-{sys.implementation.cache_tag}-torch{torch.__version__}"

    class BuildExt(BuildExtension):  # type: ignore[misc, valid-type]
        def finalize_options(self) -> None:
            super().finalize_options()
            self.build_temp = str(objects)  # an editable install would have a new temporary folder each time

        def run(self) -> None:
            facts, path = build_facts(plan), objects / "generated/build_facts.h"
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.is_file() or path.read_text() != facts:
                path.write_text(facts)
            try:
                super().run()
            except Exception as error:
                raise SystemExit(
                    f"cuda_llm_ops ({plan.flavour}) failed to compile: {error}. The compiler's words are above."
                ) from error

    return {"ext_modules": [extension(plan, objects / "generated")], "cmdclass": {"build_ext": BuildExt}}


def main() -> None:
    # Reading the metadata (egg_info, dist_info, sdist) needs no plan, and importing torch for it takes seconds. But pip
    # would install torch, a dependency, between the metadata and a build that fails for the lack of it.
    if "dist_info" in sys.argv and importlib.util.find_spec("torch") is None:
        raise SystemExit(f"cuda_llm_ops cannot be built: {why_no_extension()}.")
    if not {"bdist_wheel", "build", "build_ext", "build_py", "develop", "editable_wheel", "install"} & set(sys.argv):
        setup()
        return
    plan = make_plan()
    announce(plan)
    setup(**extension_build(plan))


if __name__ == "__main__":
    main()
