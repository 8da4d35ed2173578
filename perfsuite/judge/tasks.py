"""A task: the workloads that candidates are judged on, and all that a candidate gets from the problem."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from perfsuite.outcome import UserError, one_line
from perfsuite.problems.base import Problem

FORMS = (
    'a family as JSON such as {"family": "gemm", "m": 64, "n": 64, "k": 64}, a list of them, a .py file with Model, '
    "get_inputs and get_init_inputs, a FlashInfer definition with its workloads, or a test's node ID"
)
PREFIX = "perfsuite_problem_"


@dataclass(frozen=True)
class Workload:
    """One problem of a task, its weight in the mean speed, and its rival; None for the problem's default rival."""

    name: str
    problem: Problem
    weight: float = 1.0
    against: Any = None
    axes: Mapping[str, tuple[int, int | None]] = field(default_factory=dict)
    """Name of a size -> position of an argument and its axis; of a plain number, no axis."""


@dataclass(frozen=True)
class Task:
    """All that candidates are judged on."""

    name: str
    workloads: tuple[Workload, ...]
    function: str = "run"
    """The function's name, if a candidate names none."""
    at_least: float | None = None
    """The target, if the problem gives one."""
    model: tuple[Any, ...] | None = None
    """Of a module file: the arguments of the class."""
    state: Mapping[str, Any] = field(default_factory=dict)
    """Of a module file: the rival's parameters and buffers, which the candidate gets too if it has the same keys."""
    results: tuple[str, ...] = ()
    """Of a FlashInfer definition: the names of the results."""


def text_of(path: Path) -> str:
    """The text of a problem's file."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(one_line(f"the problem {str(path)!r} cannot be read: {error}; it must be {FORMS}")) from None


def loaded(path: Path) -> ModuleType:
    """The module in a trusted file, under a name by which a worker finds it too."""
    text = text_of(path)
    name = f"{PREFIX}{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path.resolve())
        if spec is None or spec.loader is None:
            raise UserError(f"the problem {str(path)!r} is no Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            del sys.modules[name]
            raise UserError(one_line(f"the problem {str(path)!r} raised {type(error).__name__}: {error}")) from None
    return sys.modules[name]
