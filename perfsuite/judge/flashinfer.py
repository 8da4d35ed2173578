"""FlashInfer-Bench's forms: a definition with its workloads as a problem, a solution as a candidate.

The forms have no version number. These are the ones of flashinfer-bench 0.1: Definition, Workload and Solution with
`spec.destination_passing_style`.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfsuite.judge.tasks import Task, Workload, loaded
from perfsuite.outcome import UserError, one_line
from perfsuite.problems.distributions import draw
from perfsuite.problems.families.custom import Custom

if TYPE_CHECKING:
    import torch

FORM = "flashinfer-bench 0.1"
_DTYPES = {"float8_e4m3": "float8_e4m3fn"}
_PYTHON = ("python", "triton", "pytorch")


def solution(given: Mapping[str, Any]) -> dict[str, Any]:
    """The candidate of a Solution, as `candidates.candidate_of` reads it; UserError for what is not supported."""
    spec, sources = given["spec"], given["sources"]
    if not isinstance(spec, dict) or not isinstance(sources, list):
        raise UserError("a FlashInfer solution has spec, an object, and sources, a list of path and content")
    if not all(isinstance(one, dict) and {"path", "content"} <= one.keys() for one in sources):
        raise UserError("each of the solution's sources must have path and content")
    entry, language = str(spec.get("entry_point")), str(spec.get("language", "")).lower()
    file, found, function = entry.partition("::")
    if not found:
        raise UserError(one_line(f"entry_point is {entry!r}; it must be FILE::FUNCTION"))
    form = {} if language in _PYTHON else {"form": "tensors"}
    if language not in (*_PYTHON, "cuda", "cpp", "c++"):
        raise UserError(one_line(f"language is {language!r}; allowed are {', '.join(_PYTHON)}, cuda and cpp"))
    if spec.get("build_commands"):
        raise UserError("the solution has build_commands, which are not run; give sources that compile by themselves")
    return {
        "files": {str(one["path"]): one["content"] for one in sources},
        "main": file,
        "function": function,
        "name": str(given.get("name", "solution")),
        # The form's default is that a solution writes its results to arguments.
        "destination": bool(spec.get("destination_passing_style", True)),
        **form,
    }


def task_of_definition(given: Mapping[str, Any], folder: Path, device: str) -> Task:
    """The task of {"definition": {...}, "workloads": [...]}; both may be paths, workloads also of JSON lines."""
    definition = _value(given["definition"], folder)
    rows = _value(given.get("workloads"), folder, lines=True)
    if not isinstance(definition, dict) or not {"name", "axes", "inputs", "outputs", "reference"} <= definition.keys():
        raise UserError("a FlashInfer definition has name, axes, inputs, outputs and reference")
    if not isinstance(rows, list) or not rows:
        raise UserError("workloads must be a list of at least one FlashInfer workload, or a path to JSON lines")
    reference = _reference(str(definition["reference"]))
    workloads = tuple(_workload(definition, row, reference, folder, device) for row in rows)
    target = given.get("at_least")
    return Task(
        str(definition["name"]), workloads, at_least=None if target is None else float(target),
        results=tuple(definition["outputs"]),
    )  # fmt: skip


def _value(given: Any, folder: Path, *, lines: bool = False) -> Any:
    if not isinstance(given, str):
        return given
    try:
        text = (folder / given).read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines() if line.strip()] if lines else json.loads(text)
    except (OSError, ValueError) as error:
        raise UserError(one_line(f"{given!r} cannot be read: {error}")) from None


def _reference(text: str) -> Any:
    """The definition's `run`, from a file so that another process can import it."""
    name = hashlib.sha256(text.encode()).hexdigest()[:16]
    file = Path(tempfile.gettempdir(), f"perfsuite-reference-{name}.py")
    if not file.is_file() or file.read_text() != text:
        file.write_text(text)
    found = getattr(loaded(file), "run", None)
    if not callable(found):
        raise UserError("the definition's reference defines no function run")
    return found


def _workload(definition: Mapping[str, Any], given: Any, reference: Any, folder: Path, device: str) -> Workload:
    row = given.get("workload", given) if isinstance(given, dict) else None
    if not isinstance(row, dict) or not isinstance(row.get("axes"), dict):
        raise UserError(one_line(f"a workload is {given!r}; it must have axes and inputs"))
    axes = {}
    for name, axis in definition["axes"].items():
        value = axis.get("value") if axis.get("type") == "const" else row["axes"].get(name)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise UserError(one_line(f"axis {name} is {value!r}; the workload must give a whole number"))
        axes[name] = value
    sources = row.get("inputs", {})
    kept = {name: _stored(one, folder, device) for name, one in sources.items() if one.get("type") == "safetensors"}

    def arguments(generator: torch.Generator) -> tuple[Any, ...]:
        return tuple(
            kept[name] if name in kept else _drawn(name, spec, sources.get(name, {}), axes, generator)
            for name, spec in definition["inputs"].items()
        )

    words = ",".join(f"{name}={axes[name]}" for name, axis in definition["axes"].items() if axis.get("type") == "var")
    name = words or str(row.get("uuid", "all axes constant"))
    problem = Custom(arguments, label=f"{definition['name']} {words}".strip(), against=reference)
    places: dict[str, tuple[int, int | None]] = {}
    for at, (input_name, spec) in enumerate(definition["inputs"].items()):
        if spec.get("shape") is None:
            places[input_name] = (at, None)
        for place, axis in enumerate(spec.get("shape") or ()):
            places.setdefault(axis, (at, place))
    return Workload(name, problem, float(row.get("weight", 1.0)), reference, places)


def _drawn(
    name: str, spec: Mapping[str, Any], source: Mapping[str, Any], axes: Mapping[str, int], generator: Any
) -> Any:
    """One argument: a scalar, or a tensor of the definition's shape and dtype."""
    import torch

    if spec.get("shape") is None:
        if "value" not in source:
            raise UserError(f"input {name} is a scalar, and the workload gives no value")
        return source["value"]
    shape = tuple(axes[axis] for axis in spec["shape"])
    dtype = getattr(torch, _DTYPES.get(spec["dtype"], spec["dtype"]), None)
    if not isinstance(dtype, torch.dtype):
        raise UserError(one_line(f"input {name} has dtype {spec['dtype']!r}, which torch does not have"))
    if dtype.is_floating_point:
        return draw("normal", shape, torch.float32, generator).to(dtype)
    most = 2 if dtype is torch.bool else 100
    return torch.randint(0, most, shape, device=generator.device, generator=generator).to(dtype)


def _stored(source: Mapping[str, Any], folder: Path, device: str) -> Any:
    try:
        from safetensors.torch import load_file  # type: ignore[import-not-found]
    except ImportError:
        raise UserError("a workload reads safetensors: pip install safetensors") from None
    found = load_file(str(folder / source["path"]), device=device)
    if source.get("tensor_key") not in found:
        raise UserError(one_line(f"{source['path']} has no {source.get('tensor_key')!r}; it has {', '.join(found)}"))
    return found[source["tensor_key"]]
