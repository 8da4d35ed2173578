"""Candidates of C++ and CUDA: their three forms, their arguments, and the Python function made of each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from perfsuite.isolate.source import Source
from perfsuite.judge.answer import Kernel
from perfsuite.judge.build import MODULE, NoCompilerError, build
from perfsuite.judge.candidates import Candidate
from perfsuite.judge.entry import ENTRY, function_of, shapes_source
from perfsuite.judge.parameters import Parameter, expressions, parameters_of
from perfsuite.judge.tasks import Task, Workload
from perfsuite.outcome import Reason, UserError, Verdict, one_line
from perfsuite.settings import DeviceKind

LAUNCH = "perfsuite_launch"
_EXPRESSION = re.compile(r"[\w\s+\-*/%(),<>?:]+")
_LAUNCHER = """
extern "C" int {launch}({declared}{comma}void* perfsuite_stream) {{
  const int perfsuite_shared = {shared};
  if (perfsuite_shared > 48 * 1024)
    cudaFuncSetAttribute((const void*){name}, cudaFuncAttributeMaxDynamicSharedMemorySize, perfsuite_shared);
  {name}<<<dim3({grid}), dim3({block}), perfsuite_shared, (cudaStream_t)perfsuite_stream>>>({names});
  return (int)cudaGetLastError();
}}
"""
_BINDING = """
#include <torch/extension.h>
PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {{ module.def("{name}", &{name}); }}
"""
_POINTERS = """\
import ctypes

import torch

from perfsuite_shapes import shapes

function = getattr(ctypes.CDLL({library!r}), {name!r})
function.argtypes = [{types}]
function.restype = {restype}


def run(*args):
    results = [torch.empty(shape, dtype=dtype, device=device) for shape, dtype, device in shapes(args)]
    held = [one.contiguous() if isinstance(one, torch.Tensor) else one for one in args]
    given = [one for one in held if isinstance(one, torch.Tensor)]
    failed = function({values})
    if failed:
        raise RuntimeError(f"the launch failed with CUDA error {{failed}}")
    return results[0] if len(results) == 1 else tuple(results)
"""
_TENSORS = """\
import importlib.util

spec = importlib.util.spec_from_file_location({module!r}, {library!r})
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
inner = getattr(module, {name!r})
"""
_WRITES = """\
import torch

from perfsuite_shapes import shapes


def run(*args):
    results = [torch.empty(shape, dtype=dtype, device=device) for shape, dtype, device in shapes(args)]
    inner(*args, *results)
    return results[0] if len(results) == 1 else tuple(results)
"""


@dataclass(frozen=True)
class Compiled:
    """A compiled candidate; without a `library`, the verdict on it."""

    candidate: Candidate
    name: str
    parameters: tuple[Parameter, ...] = ()
    library: Path | None = None
    output: str = ""
    kernels: tuple[Kernel, ...] = ()
    seconds: float = 0.0
    place: str | None = None
    verdict: Verdict = Verdict.WRONG
    reason: Reason = Reason.DOES_NOT_COMPILE
    sentence: str = ""
    files: Mapping[str, str] = field(default_factory=dict)

    def source(self, workload: Workload, folder: Path) -> Source:
        """The Python source that calls it in a worker."""
        library = str(self.library)
        if self.candidate.form == "tensors":
            text = _TENSORS.format(module=MODULE, library=library, name=self.name)
            if not self.candidate.destination:
                return Source(f"{text}run = inner\n", "run", name=ENTRY)
            return Source(
                text + _WRITES, "run", name=ENTRY, files={"perfsuite_shapes.py": shapes_source(workload, folder)}
            )
        values = expressions(self.parameters, self.candidate.arguments, workload)
        launched = self.candidate.form == "kernel"
        if launched:
            values = [*values, "torch.cuda.current_stream().cuda_stream"]
        types = [one.ctype for one in self.parameters] + (["ctypes.c_void_p"] if launched else [])
        text = _POINTERS.format(
            library=library,
            name=LAUNCH if launched else self.name,
            types=", ".join(types),
            restype="ctypes.c_int" if launched else "None",
            values=", ".join(values),
        )
        return Source(text, "run", name=ENTRY, files={"perfsuite_shapes.py": shapes_source(workload, folder)})


def compile_candidate(candidate: Candidate, task: Task, device: DeviceKind, seconds: float) -> Compiled:
    """Compile a candidate of C++ or CUDA. UserError if its function cannot be called."""
    name, cuda = function_of(candidate, task), candidate.language == "cuda"
    if candidate.form == "kernel" and not cuda:
        raise UserError("a __global__ kernel needs a .cu file")
    text = candidate.files[candidate.main]
    parameters: tuple[Parameter, ...] = ()
    if candidate.form == "tensors":
        if "PYBIND11_MODULE" not in text:
            text += _BINDING.format(name=name)
    else:
        found = parameters_of(text, name, kernel=candidate.form == "kernel")
        if found is None:
            kind = "__global__ void" if candidate.form == "kernel" else 'extern "C"'
            return Compiled(
                candidate, name, reason=Reason.DOES_NOT_PARSE, sentence=f"{candidate.main} has no {kind} {name}(...)"
            )
        parameters = found
        if candidate.form == "kernel":
            text += _launcher(candidate, name, parameters)
        for workload in task.workloads:
            expressions(parameters, candidate.arguments, workload)  # what cannot be called is found before it is built
    files = {**candidate.files, candidate.main: text}
    try:
        built = build(files, candidate.main, tensors=candidate.form == "tensors", cuda=cuda, seconds=seconds)
    except NoCompilerError as error:
        return Compiled(candidate, name, verdict=Verdict.UNDECIDED, reason=Reason.SERVICE_FAILED, sentence=str(error))
    made = Compiled(
        candidate, name, parameters, built.library, built.output, built.kernels, built.seconds,
        "cached" if built.cached else "ahead",
    )  # fmt: skip
    if built.late:
        return _refused(made, Reason.TIMED_OUT, built.output)
    if built.library is None:
        errors = [line for line in built.output.splitlines() if "error" in line] or built.output.splitlines()
        return _refused(made, Reason.DOES_NOT_COMPILE, one_line(errors[0] if errors else "the compiler said nothing"))
    if cuda and device == "cpu":
        said = "it compiles; there is no GPU here to run it on"
        return _refused(made, Reason.NO_DEVICE, said, Verdict.UNDECIDED)
    return made


def _refused(made: Compiled, reason: Reason, sentence: str, verdict: Verdict = Verdict.WRONG) -> Compiled:
    return Compiled(
        made.candidate, made.name, output=made.output, kernels=made.kernels, seconds=made.seconds, place=made.place,
        verdict=verdict, reason=reason, sentence=sentence,
    )  # fmt: skip


def _launcher(candidate: Candidate, name: str, parameters: tuple[Parameter, ...]) -> str:
    for one in (*candidate.grid, *candidate.block, candidate.shared):
        if not _EXPRESSION.fullmatch(one):
            raise UserError(one_line(f"{one!r} is no expression of the kernel's own parameters and whole numbers"))
    return _LAUNCHER.format(
        launch=LAUNCH,
        declared=", ".join(one.declared for one in parameters),
        comma=", " if parameters else "",
        name=name,
        names=", ".join(one.name for one in parameters),
        grid=", ".join(candidate.grid),
        block=", ".join(candidate.block),
        shared=candidate.shared,
    )
