"""The parameters of a compiled function, read from its declaration, and the value that each gets in a call.

Pointers get the input tensors in order, then the results. `stream` gets the current stream. Numbers get the size of
their name (m, n, k of a product; the axes of a definition), else all sizes of all inputs in order; a single number gets
the count of the first input's elements. `arguments` of a candidate overrides all of this.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from perfsuite.judge.tasks import Workload
from perfsuite.outcome import UserError, one_line
from perfsuite.problems.base import Problem

_TYPES = {
    **dict.fromkeys(("int", "int32_t"), "ctypes.c_int32"),
    **dict.fromkeys(("unsigned", "unsigned int", "uint32_t"), "ctypes.c_uint32"),
    **dict.fromkeys(("long", "long long", "int64_t"), "ctypes.c_int64"),
    **dict.fromkeys(("size_t", "uint64_t"), "ctypes.c_uint64"),
    "float": "ctypes.c_float",
    "double": "ctypes.c_double",
    "bool": "ctypes.c_bool",
}
_TOKEN = re.compile(
    r"(?:arg(?P<arg>\d+)(?:\.shape\[(?P<axis>\d+)\])?|out(?P<out>\d*)|(?P<stream>stream)|(?P<number>-?\d+))"
)
DISTINCT = (48, 80, 112, 176, 208, 272)
"""Sizes that differ, by which the axes of a family's inputs are known."""


@dataclass(frozen=True)
class Parameter:
    """One parameter as it is declared."""

    declared: str
    name: str
    pointer: bool

    @property
    def stream(self) -> bool:
        """True for the stream."""
        return self.name == "stream" or "Stream_t" in self.declared or "CUstream" in self.declared

    @property
    def ctype(self) -> str:
        """Its type in ctypes; UserError for one that has none here."""
        if self.pointer or self.stream:
            return "ctypes.c_void_p"
        kind = re.sub(r"\b(const|volatile|std::|__restrict__)\b|std::", " ", self.declared.rpartition(self.name)[0])
        kind = " ".join(kind.split())
        if kind not in _TYPES:
            raise UserError(
                one_line(f"parameter {self.declared!r} has a type that cannot be passed: {', '.join(_TYPES)}")
            )
        return _TYPES[kind]


def parameters_of(text: str, name: str, *, kernel: bool) -> tuple[Parameter, ...] | None:
    """The parameters of the function of that name; None if it is not declared."""
    plain = re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL)
    if not kernel and 'extern "C"' not in plain:
        return None
    head = r"__global__[^;{]*?\b" if kernel else r"[\w*&\s]\b"
    found = re.search(rf"{head}{re.escape(name)}\s*\(([^)]*)\)\s*\{{", plain)
    if found is None:
        return None
    parts = [" ".join(part.split()) for part in found[1].split(",")]
    made = []
    for part in parts:
        if part in ("", "void"):
            continue
        word = re.search(r"([A-Za-z_]\w*)\s*(\[\s*\d*\s*\])?$", part)
        if word is None:
            raise UserError(one_line(f"parameter {part!r} of {name} has no name"))
        made.append(Parameter(part, word[1], "*" in part or word[2] is not None))
    return tuple(made)


def expressions(parameters: Sequence[Parameter], given: Sequence[str], workload: Workload) -> list[str]:
    """The value of each parameter, as Python over `args`, `held`, `given` and `results`.

    `held` are the arguments with contiguous tensors; `given` are its tensors.
    """
    if given:
        if len(given) != len(parameters):
            raise UserError(f"arguments has {len(given)} entries, and the function {len(parameters)} parameters")
        return [_of_token(token) for token in given]
    axes = {**axes_of(workload.problem), **workload.axes}
    numbers = [one for one in parameters if not one.pointer and not one.stream]
    unknown = [one for one in numbers if one.name not in axes]
    tensors, values, at = _shapes(workload.problem), [], 0
    sizes = [f"args[{arg}].shape[{axis}]" for arg, shape in tensors.items() for axis in range(len(shape))]
    if unknown and len(unknown) not in (len(sizes), 1):
        known = ", ".join(axes) or "none"
        raise UserError(
            one_line(f"parameter {unknown[0].name!r} has no known value; names of sizes are {known}; or give arguments")
        )
    rest = iter(sizes if len(unknown) == len(sizes) else [f"args[{next(iter(tensors), 0)}].numel()"])
    for one in parameters:
        if one.stream:
            values.append("(torch.cuda.current_stream().cuda_stream if given and given[0].is_cuda else None)")
        elif one.pointer:
            values.append(
                f"given[{at}].data_ptr()" if at < len(tensors) else f"results[{at - len(tensors)}].data_ptr()"
            )
            at += 1
        elif one.name in axes:
            arg, axis = axes[one.name]
            values.append(f"args[{arg}]" if axis is None else f"args[{arg}].shape[{axis}]")
        else:
            values.append(next(rest))
    return values


def _of_token(token: str) -> str:
    found = _TOKEN.fullmatch(token)
    if found is None:
        raise UserError(
            one_line(f"arguments has {token!r}; allowed are arg0, arg0.shape[1], out, out0, stream, numbers")
        )
    if found["stream"]:
        return "(torch.cuda.current_stream().cuda_stream if given and given[0].is_cuda else None)"
    if found["number"]:
        return found["number"]
    if found["arg"] is None:
        return f"results[{found['out'] or 0}].data_ptr()"
    one = f"args[{found['arg']}]"
    if found["axis"] is not None:
        return f"{one}.shape[{found['axis']}]"
    held = f"held[{found['arg']}]"
    return f"({held}.data_ptr() if isinstance({held}, torch.Tensor) else {held})"


def axes_of(problem: Problem) -> Mapping[str, tuple[int, int | None]]:
    """Size of a family -> (position of an input, axis), found by inputs of sizes that all differ."""
    if not dataclasses.is_dataclass(problem):
        return {}
    names = [
        one.name for one in dataclasses.fields(problem)
        if one.init and str(one.type) == "int" and one.default is dataclasses.MISSING
    ]  # fmt: skip
    try:
        other = dataclasses.replace(problem, **dict(zip(names, DISTINCT, strict=False)))
        shapes = _shapes(other)
    except (TypeError, ValueError, RuntimeError):
        return {}
    found: dict[str, tuple[int, int | None]] = {}
    for name, size in zip(names, DISTINCT, strict=False):
        for arg, shape in shapes.items():
            if size in shape:
                found.setdefault(name, (arg, shape.index(size)))
    return found


def _shapes(problem: Problem) -> dict[int, tuple[int, ...]]:
    """Position of every tensor among the arguments -> its shape."""
    import torch

    inputs = problem.inputs(torch.Generator().manual_seed(0))
    return {at: tuple(one.shape) for at, one in enumerate(inputs.args) if isinstance(one, torch.Tensor)}
