"""Compiles flash-attn-4's kernels for Hopper on a machine without a card, and writes them for `flash_objects`.

    python -m perfsuite.problems.flash_export tests.perf.hopper.flash_problems:PROBLEMS --output flash-objects

The argument names a list of `Attention` problems in a module. For each, the package's own forward and backward run
with torch's fake tensors: its compiler makes the kernels, and the calls that would be made are written down. A C
compiler links the kernels to one library. Needs the packages flash-attn-4 and nvidia-cutlass-dsl, and no GPU.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfsuite.problems.checks import torch_dtype
from perfsuite.problems.flash_objects import LIBRARY, PLANS, key
from perfsuite.problems.rivals.flash_attn import mask_of

if TYPE_CHECKING:
    import torch

    from perfsuite.problems.families.attention import Attention

TARGET = {"FLASH_ATTENTION_ARCH": "sm_90", "CUTE_DSL_ARCH": "sm_90a", "FLASH_ATTENTION_NUM_SMS": "132"}
"""Read by the package and its compiler: the architecture, and the multiprocessors of an H100 or H200."""
ALLOCATIONS = ("empty", "empty_like", "empty_strided", "zeros", "zeros_like", "new_empty", "new_zeros")
HARMLESS = ("detach", "alias", "view", "transpose", "permute", "as_strided", "device")
# A function of the compiler's runtime that the kernels call, beside its static library.
SHIM = """
#include <stdint.h>
extern const char* cudaGetErrorName(int);
extern const char* cudaGetErrorString(int);
void CuteDSLRT_TVMFFISetRaisedCudaError(void (*raise)(const char*, const char**, int32_t), int32_t error) {
  const char* parts[] = {cudaGetErrorName(error), ": ", cudaGetErrorString(error)};
  raise("RuntimeError", parts, 3);
}
"""


class Kernels:
    """In place of one of the package's caches: exports what was compiled, and notes calls instead of making them."""

    def __init__(self, kind: str, folder: Path, calls: list[tuple[str, tuple[Any, ...]]]) -> None:
        self.kind, self.folder, self.calls = kind, folder, calls
        self.names: dict[Any, str] = {}

    def __contains__(self, of: Any) -> bool:
        return of in self.names

    def __setitem__(self, of: Any, compiled: Any) -> None:
        name = f"flash_{self.kind}_{len(self.names)}"
        compiled.export_to_c(object_file_path=str(self.folder / f"{name}.o"), function_name=name)
        self.names[of] = name

    def __getitem__(self, of: Any) -> Callable[..., None]:
        name = self.names[of]
        return lambda *arguments: self.calls.append((name, arguments))


class Plans:
    """Notes what the package does for a problem."""

    def __init__(self, folder: Path) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.package = package = importlib.import_module("flash_attn.cute.interface")
        vars(package)["is_fake_mode"] = lambda: False  # else it makes no calls after compiling
        for name in ("_flash_attn_fwd", "_bwd_preprocess", "_flash_attn_bwd", "_bwd_postprocess_convert"):
            getattr(package, name).compile_cache = Kernels(name.strip("_"), folder, self.calls)

    def of(self, problem: Attention) -> tuple[str, dict[str, Any]]:
        """(key, plans). ValueError if the package does what a plan cannot hold."""
        import torch
        from torch._subclasses.fake_tensor import FakeTensorMode

        def tensor(heads: int, rows: int, columns: int) -> torch.Tensor:
            shape = problem.batch, heads, rows, columns
            return torch.empty(shape, dtype=torch_dtype(problem.dtype), device="cuda").transpose(1, 2)

        mask = mask_of(problem)
        causal, window = mask.get("causal", False), mask.get("window_size", (None, None))
        options = {
            "softmax_scale": problem.scale,
            "causal": causal,
            "window_size_left": window[0],
            "window_size_right": window[1],
        }
        forward, backward = self.package._flash_attn_fwd, self.package._flash_attn_bwd
        with FakeTensorMode():
            kv_heads = problem.kv_heads or problem.heads
            q, d_out = (tensor(problem.heads, problem.seq_q, of) for of in (problem.head_dim, problem.columns))
            k, v = (tensor(kv_heads, problem.keys, of) for of in (problem.head_dim, problem.columns))
            inputs = {"q": q, "k": k, "v": v}
            made = {"inference": self._plan(inputs, lambda *given: forward(*given, **options)[:1])[0]}
            plan, (out, lse) = self._plan(inputs, lambda *given: forward(*given, return_lse=True, **options)[:2])
            made["forward"] = plan
            if problem.backward:
                inputs |= {"out": out, "dout": d_out, "lse": lse}
                made["backward"] = self._plan(inputs, lambda *given: backward(*given, **options))[0]
            return key(q, k, v, problem.scale, causal, window), made

    def _plan(self, inputs: dict[str, torch.Tensor], function: Callable[..., Any]) -> tuple[dict[str, Any], Any]:
        self.calls.clear()
        with _noted() as zeroed:
            result = function(*inputs.values())
        written = _Written(inputs, zeroed)
        calls = [[name, written.of(arguments)] for name, arguments in self.calls]
        return {"scratch": written.scratch, "calls": calls, "returns": written.of(result)}, result


class _Written:
    """Arguments in the form of a plan, and the tensors that must be allocated for them."""

    def __init__(self, inputs: dict[str, torch.Tensor], zeroed: set[int]) -> None:
        self.zeroed = zeroed
        self.names: dict[int, dict[str, Any]] = {_storage(one): {"input": name} for name, one in inputs.items()}
        self.layouts = {_storage(one): _layout(one) for one in inputs.values()}
        self.scratch: list[dict[str, Any]] = []

    def of(self, given: Any) -> Any:
        import torch

        if isinstance(given, torch.Tensor):
            return self._tensor(given)
        if isinstance(given, (tuple, list)):
            return [self.of(one) for one in given]
        if given is None or isinstance(given, (bool, int, float)):
            return given
        raise ValueError(f"flash-attn-4 hands on a {type(given).__name__}; a plan cannot hold that")

    def _tensor(self, given: torch.Tensor) -> dict[str, Any]:
        identity, layout = _storage(given), _layout(given)
        if identity not in self.names:
            self.names[identity], self.layouts[identity] = {"scratch": len(self.scratch)}, layout
            dtype = str(given.dtype).removeprefix("torch.")
            self.scratch.append(layout | {"dtype": dtype, "zero": identity in self.zeroed})
        if given.storage_offset() or layout != self.layouts[identity]:
            of = self.names[identity]
            raise ValueError(f"flash-attn-4 hands on a part or another view of {of}; a plan cannot hold that")
        return self.names[identity]


def _layout(tensor: torch.Tensor) -> dict[str, Any]:
    return {"shape": list(tensor.shape), "stride": list(tensor.stride())}


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _noted() -> Any:
    """A context that notes which storages are filled with zeros. ValueError for any operator but allocations."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Noted(TorchDispatchMode):
        def __enter__(self) -> Any:
            super().__enter__()
            self.zeroed: set[int] = set()
            self.held: list[torch.Tensor] = []  # so that no other storage takes an identity
            return self.zeroed

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            found = func(*args, **(kwargs or {}))
            name = func.overloadpacket.__name__
            if name not in (*ALLOCATIONS, *HARMLESS):
                raise ValueError(f"flash-attn-4 calls torch's {name}; a plan cannot hold that")
            if name in ALLOCATIONS:
                self.held.append(found)
                if "zeros" in name:
                    self.zeroed.add(_storage(found))
            return found

    return Noted()


def link(folder: Path, target: Path, compiler: str) -> None:
    """The objects of the folder as one library. FileNotFoundError if CUDA's runtime or the compiler's is not found."""
    import torch

    packages = Path(torch.__file__).parents[1]
    static = sorted(packages.glob("nvidia_cutlass_dsl/cu*/lib/libcuda_dialect_runtime_static.a"))
    homes = [packages / "nvidia", Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))]
    runtimes = [found for home in homes for found in sorted(home.glob("**/libcudart.so.*"))]
    if not static or not runtimes:
        raise FileNotFoundError(
            "libcuda_dialect_runtime_static.a (of nvidia-cutlass-dsl) or libcudart.so.N (of CUDA, under CUDA_HOME) "
            "is not here"
        )
    shim = folder / "shim.c"
    shim.write_text(SHIM)
    objects = sorted(map(str, folder.glob("*.o")))
    command = [compiler, "-shared", "-fPIC", "-s", "-O1", str(shim), *objects, str(static[-1]), str(runtimes[0])]
    subprocess.run([*command, "-Wl,--exclude-libs,ALL", "-o", str(target)], check=True)


def export(problems: Iterable[Attention], output: Path, compiler: str) -> int:
    """Write the folder; returns how many problems have a plan. Those that the package refuses are named on stderr."""
    os.environ.update({name: os.environ.get(name, value) for name, value in TARGET.items()})
    found = {}
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        plans = Plans(Path(folder))
        for problem in problems:
            try:
                name, plan = plans.of(problem)
            except (AssertionError, NotImplementedError, ValueError) as error:
                print(f"{problem.name}: no plan: {error}", file=sys.stderr)
                continue
            found[name] = plan
            print(problem.name, flush=True)
        link(Path(folder), output / LIBRARY, compiler)
    about = {name: version(name) for name in ("flash-attn-4", "nvidia-cutlass-dsl")}
    record = about | {"architecture": os.environ["CUTE_DSL_ARCH"], "problems": found}
    (output / PLANS).write_text(json.dumps(record))
    return len(found)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", metavar="MODULE:NAME", help="a list of Attention problems")
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER", help="write the library and the plans")
    parser.add_argument("--compiler", default="cc", metavar="FILE", help="the C compiler that links (default: cc)")
    given = parser.parse_args(arguments)
    module, _, name = given.problems.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    problems = list(getattr(importlib.import_module(module), name))
    made = export(problems, given.output, given.compiler)
    print(f"{made} of {len(problems)} problems in {given.output}")
    return int(made < len(problems))


if __name__ == "__main__":
    sys.exit(main())
