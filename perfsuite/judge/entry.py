"""Makes one Python function of a candidate of any form, as source text that a worker imports."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perfsuite.isolate.source import Source
from perfsuite.judge.candidates import Candidate
from perfsuite.judge.tasks import PREFIX, Task, Workload
from perfsuite.outcome import UserError

ENTRY, SHAPES = "perfsuite_entry.py", "perfsuite_shapes.py"
_MODEL = """\
import torch

from {module} import {name} as made

given = torch.load({state!r}, weights_only=False)
places, named = given["arguments"]
torch.manual_seed(0)
model = made(*places, **named).to({device!r})
mine = model.state_dict() if hasattr(model, "state_dict") else {{}}
theirs = given["state"]
if mine.keys() == theirs.keys() and all(mine[key].shape == theirs[key].shape for key in mine):
    model.load_state_dict(theirs)
run = model
"""
_RESULTS = """\
from {module} import {name} as inner


def run(*args):
    found = inner(*args)
    return tuple(found[name] for name in {results!r}) if isinstance(found, dict) and {several} else (
        found[{first!r}] if isinstance(found, dict) else found
    )
"""
_DESTINATION = """\
import torch

from {module} import {name} as inner
from perfsuite_shapes import shapes


def run(*args):
    results = [torch.empty(shape, dtype=dtype, device=device) for shape, dtype, device in shapes(args)]
    inner(*args, *results)
    return results[0] if len(results) == 1 else tuple(results)
"""


def function_of(candidate: Candidate, task: Task) -> str:
    """The name of the judged function: the candidate's, else ModelNew or run, whichever the problem asks for."""
    return candidate.function or task.function


def source_of(candidate: Candidate, task: Task, workload: Workload, device: str, folder: Path) -> Source:
    """The source that a worker imports for a candidate of Python. folder: for the rival's parameters and buffers."""
    name, module = function_of(candidate, task), Path(candidate.main).with_suffix("")
    words: dict[str, Any] = {"module": str(module).replace(os.sep, "."), "name": name}
    if task.model is not None and name == task.function:
        import torch

        place = folder / "model.pt"
        torch.save({"arguments": task.model, "state": dict(task.state)}, place)
        return _wrapped(candidate.files, _MODEL.format(**words, state=str(place), device=device))
    if candidate.destination:
        shapes = shapes_source(workload, folder)
        return _wrapped({**candidate.files, SHAPES: shapes}, _DESTINATION.format(**words))
    if task.results:
        several = {"results": task.results, "several": len(task.results) > 1, "first": task.results[0]}
        return _wrapped(candidate.files, _RESULTS.format(**words, **several))
    if "/" in candidate.main:
        return _wrapped(candidate.files, "from {module} import {name} as run\n".format(**words))
    rest = {key: text for key, text in candidate.files.items() if key != candidate.main}
    return Source(candidate.files[candidate.main], name, name=candidate.main, files=rest)


def _wrapped(files: Mapping[str, str], text: str) -> Source:
    return Source(text, "run", name=ENTRY, files=files, made=(ENTRY, SHAPES))


_SHAPES = """\
import importlib.util
import pickle
import sys

import torch
from torch.utils._pytree import tree_leaves, tree_map

known = {{}}
for name, file in {modules!r}.items():
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, file)
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])


def library():
    with open({place!r}, "rb") as stored:
        return pickle.load(stored)


def shapes(args):
    key = tuple((one.shape, one.dtype) if isinstance(one, torch.Tensor) else one for one in args)
    if key not in known:
        rival = library()
        if isinstance(rival, torch.nn.Module):
            rival = rival.to("meta")
        tensors = [one for one in tree_leaves(args) if isinstance(one, torch.Tensor)]
        try:
            found = rival(*tree_map(lambda one: one.to("meta") if isinstance(one, torch.Tensor) else one, args))
        except Exception:
            found = library()(*args)
        leaves = [one for one in tree_leaves(found) if isinstance(one, torch.Tensor)]
        known[key] = [(one.shape, one.dtype, tensors[0].device) for one in leaves]
    return known[key]
"""


def shapes_source(workload: Workload, folder: Path) -> str:
    """The source of a module whose `shapes(args)` gives shape, dtype and device of every result.

    It calls the rival on tensors without values.
    """
    import pickle
    import sys

    from perfsuite.isolate.compare import NamedRival

    against = workload.problem.default_rival if workload.against is None else workload.against
    rival = against if callable(against) else NamedRival(workload.problem, str(against))
    if against is None:
        raise UserError(f"{workload.name} has no rival; a candidate that writes its results needs one")
    place = folder / "rival.pkl"
    try:
        place.write_bytes(pickle.dumps(rival))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise UserError(f"the rival of {workload.name} cannot be sent to another process: {error}") from None
    names = {str(getattr(one, "__module__", "")) for one in (rival, type(rival))}
    files = {name: getattr(sys.modules.get(name), "__file__", None) for name in names if name.startswith(PREFIX)}
    return _SHAPES.format(modules={name: file for name, file in files.items() if file}, place=str(place))
