"""Reads the problems that candidates are judged on: a family as JSON, a module file, or a FlashInfer definition.

Their files are trusted: they run in the judging process.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perfsuite.judge.flashinfer import task_of_definition
from perfsuite.judge.from_test import task_of_test
from perfsuite.judge.tasks import FORMS, Task, Workload, loaded, text_of
from perfsuite.outcome import UserError, one_line
from perfsuite.problems.base import Problem
from perfsuite.problems.families.custom import Custom
from perfsuite.problems.listing import families

MODEL, NEW_MODEL = "Model", "ModelNew"


def task_of(given: Any, *, device: str = "cpu") -> Task:
    """The task of a path, of JSON text, of a JSON value or of a problem; UserError if it describes none."""
    if isinstance(given, Task):
        return given
    if isinstance(given, Problem):
        return Task(f"{given.family} {given.name}", (Workload(given.name, given),))
    folder = Path.cwd()
    if isinstance(given, Path) or (isinstance(given, str) and not given.lstrip().startswith(("{", "["))):
        path = Path(given)
        if "::" in str(given):
            return task_of_test(str(given), device)
        if path.suffix == ".py":
            return _of_module(path, device)
        given, folder = text_of(path), path.resolve().parent
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError) as error:
            raise UserError(one_line(f"the problem is no JSON: {error}; it must be {FORMS}")) from None
    if isinstance(given, Mapping) and "module" in given:
        task = _of_module(Path(str(given["module"])), device)
        return Task(**{**vars(task), "at_least": _number("at_least", given.get("at_least"))})
    if isinstance(given, Mapping) and "definition" in given:
        return task_of_definition(given, folder, device)
    return _of_families(given)


def _of_families(given: Any) -> Task:
    rows = given.get("workloads", [given]) if isinstance(given, Mapping) else given
    whole = dict(given) if isinstance(given, Mapping) and "workloads" in given else {}
    if not isinstance(rows, list) or not rows or not all(isinstance(row, Mapping) for row in rows):
        raise UserError(one_line(f"the problem is {given!r}; it must be {FORMS}"))
    whole.pop("workloads", None)
    at_least, against = whole.pop("at_least", None), whole.pop("against", None)
    found = []
    for row in rows:
        values = {**whole, **row}
        at_least = values.pop("at_least", at_least)
        weight, rival = _number("weight", values.pop("weight", 1.0)), values.pop("against", against)
        name, known = values.pop("family", None), families()
        if not isinstance(name, str) or name not in known or name == Custom.family:
            allowed = ", ".join(one for one in known if one != Custom.family)
            raise UserError(one_line(f"family is {name!r}; allowed are {allowed}"))
        try:
            problem = known[name](**values)
            if rival is not None:
                problem.rival(str(rival))
        except (TypeError, ValueError) as error:
            raise UserError(one_line(f"{name}: {error}")) from None
        assert weight is not None
        found.append(Workload(problem.name, problem, weight, rival))
    first = found[0].problem
    name = f"{first.family} {first.name}" + (f" and {len(found) - 1} more" if len(found) > 1 else "")
    return Task(name, tuple(found), function="run", at_least=_number("at_least", at_least))


def _number(name: str, value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
        raise UserError(one_line(f"{name} is {value!r}; it must be a number over 0 and below 1e9"))
    return float(value)


def _of_module(path: Path, device: str) -> Task:
    """A file with `Model`, `get_inputs()` and, if the class takes arguments, `get_init_inputs()`."""
    import torch

    module = loaded(path)
    for name in (MODEL, "get_inputs"):
        if not callable(getattr(module, name, None)):
            raise UserError(f"{path} has no {name}; a module file has Model, get_inputs and get_init_inputs")
    torch.manual_seed(0)
    arguments = tuple(getattr(module, "get_init_inputs", list)())
    named = arguments[1] if len(arguments) == 2 and isinstance(arguments[1], dict) else {}
    places = arguments[0] if named and isinstance(arguments[0], list | tuple) else arguments
    torch.manual_seed(0)
    model = module.Model(*places, **named)
    if device != "cpu":
        model = model.to(device)
    inputs = tuple(one.to(device) if isinstance(one, torch.Tensor) else one for one in module.get_inputs())
    flops, moved = (getattr(module, name, None) for name in ("FLOPS", "BYTES"))
    problem = Custom(inputs, label=path.stem, against=model, flops=flops, bytes=moved)
    state = {name: value.cpu() for name, value in model.state_dict().items()}
    return Task(
        path.stem, (Workload(problem.name, problem, against=model),), NEW_MODEL, None, (tuple(places), named), state
    )
