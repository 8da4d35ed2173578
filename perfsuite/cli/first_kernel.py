"""Looks at the kernel that `perfsuite init` is pointed at: how to import it, what to call, which arguments it takes."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from perfsuite.cli.callables import load_callable
from perfsuite.outcome import UserError

SHAPES = ((1024, 1024), (4096,), (8, 128, 512), (2, 8, 128, 64))
"""Shapes to try where none is given: a matrix, a vector, a batch of matrices, attention."""


@dataclass(frozen=True)
class Side:
    """A function or a module of torch, as the test refers to it."""

    text: str
    """The expression: "kernels.softmax", or the name of the function that `source` defines."""
    imports: str = ""
    """The module to import, if any."""
    source: str = ""
    """The definition of a function, of a rival that was given as a lambda."""
    module: bool = False
    """True if it is a torch.nn.Module, or a class of one, of which the test makes one."""
    is_class: bool = False
    call: Callable[..., Any] | None = None


@dataclass(frozen=True)
class First:
    """All that the first test says."""

    candidate: Side
    rival: Side
    parameters: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    dtype: str
    same_state: bool = False
    """True if both sides are modules whose parameters have the same names and shapes."""
    untried: str = ""
    """Why the arguments were not tried, or the error of the calls."""

    @property
    def name(self) -> str:
        """The kernel's name, as part of the names of files and functions."""
        return self.candidate.text.rpartition(".")[2].lower()


def side_of(text: str, what: str) -> Side:
    """The side that a user names: `module:function`, a dotted name, or a lambda; UserError if it is none."""
    if text.lstrip().startswith("lambda"):
        return _of_lambda(text.strip(), what)
    if text.endswith(".py") or ".py:" in text:
        file, _, function = text.partition(":")
        raise UserError(f"{what} is {text!r}; name the module: {Path(file).stem}:{function or 'function'}")
    if ":" not in text and "." in text:
        text = ":".join(text.rsplit(".", 1))
    found = load_callable(text)
    place, _, path = text.partition(":")
    return Side(f"{place}.{path}", place, module=_is_module(found), is_class=inspect.isclass(found), call=found)


def _of_lambda(text: str, what: str) -> Side:
    try:
        found = ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise UserError(f"{what} is {text!r}, which Python cannot read: {error.msg}") from None
    if not isinstance(found, ast.Lambda):
        raise UserError(f"{what} is {text!r}; it must be module:function, a dotted name, or a lambda")
    source = f"def rival({ast.unparse(found.args)}):\n    return {ast.unparse(found.body)}\n"
    names: dict[str, Any] = {}
    if importlib.util.find_spec("torch") is not None:
        import torch

        names["torch"] = torch
    exec(source, names)
    return Side("rival", source=source, call=names["rival"])


def _is_module(found: Any) -> bool:
    torch = sys.modules.get("torch")  # a module of torch has imported it
    if torch is None:
        return False
    return isinstance(found, torch.nn.Module) or (inspect.isclass(found) and issubclass(found, torch.nn.Module))


def guessed_rival(candidate: str) -> str | None:
    """The function of torch with the kernel's name, if there is one."""
    name = candidate.rpartition(":")[2].rpartition(".")[2].lower()
    if importlib.util.find_spec("torch") is None:
        return None
    import torch

    for place, owner in (("torch.nn.functional", torch.nn.functional), ("torch", torch)):
        if callable(getattr(owner, name, None)):
            return f"{place}:{name}"
    return None


def first_of(candidate: Side, rival: Side, shapes: Sequence[tuple[int, ...]], dtype: str) -> First:
    """The first test, with arguments that both sides take, if such are found."""
    parameters = _parameters(candidate)
    if len(shapes) == 1:
        shapes = list(shapes) * len(parameters)
    if shapes and len(shapes) != len(parameters):
        wanted = ", ".join(parameters) or "no arguments"
        raise UserError(
            f"{len(shapes)} --shape are given, and {candidate.text} takes {wanted}: give one, or one for each"
        )
    given = [tuple(shapes)] if shapes else [(shape,) * len(parameters) for shape in SHAPES]
    first = First(candidate, rival, parameters, given[0], dtype)
    if importlib.util.find_spec("torch") is None:
        return replace(first, untried="torch is not installed")
    return _tried(first, given)


def _parameters(side: Side) -> tuple[str, ...]:
    """The names of the arguments that a call must have."""
    function: Any = side.call
    if side.module:
        function = function.forward
    try:
        listed = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # a builtin without a signature
        return ("x",)
    if side.module and side.is_class:
        listed = listed[1:]  # self
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = tuple(one.name for one in listed if one.kind in positional and one.default is inspect.Parameter.empty)
    return needed or (("x",) if any(one.kind == inspect.Parameter.VAR_POSITIONAL for one in listed) else ())


def _tried(first: First, given: Sequence[tuple[tuple[int, ...], ...]]) -> First:
    """The test with the first shapes of `given` that both sides take, tried on the GPU if there is one."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    trouble = ""
    with torch.no_grad():
        try:
            sides = [_made(side, device) for side in (first.candidate, first.rival)]
        except Exception as error:  # the user's class may raise anything
            return replace(first, untried=_sentence(error))
        if first.candidate.module and len(given) > 1:
            given = [*_shapes_of(sides[0]), *given]
        same = _same_state(*sides) if first.candidate.module and first.rival.module else False
        for shapes in given:
            arguments = [torch.randn(shape, device=device, dtype=getattr(torch, first.dtype)) for shape in shapes]
            try:
                for side in sides:
                    side(*arguments)
            except Exception as error:  # the user's kernel may raise anything
                trouble = trouble or _sentence(error)
            else:
                return replace(first, shapes=shapes, same_state=same)
    return replace(first, untried=trouble, same_state=same)


def _made(side: Side, device: str) -> Any:
    made: Any = side.call() if side.module and side.is_class and side.call else side.call
    return made.to(device) if side.module else made


def _same_state(one: Any, other: Any) -> bool:
    shapes = [{name: value.shape for name, value in module.state_dict().items()} for module in (one, other)]
    return shapes[0] == shapes[1]


def _shapes_of(module: Any) -> list[tuple[tuple[int, ...], ...]]:
    """Shapes that the first weight of a module suggests."""
    weight = next((one for one in module.parameters() if one.dim() >= 2), None)
    if weight is None:
        return []
    if weight.dim() == 2:
        return [((128, weight.shape[1]),)]
    return [((8, weight.shape[1], *(32,) * (weight.dim() - 2)),)]


def _sentence(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:200]


def needs_folder_on_path(module: str) -> bool:
    """True if a module is found only because the current folder is on the path, as in a flat folder of modules."""
    top, here = module.partition(".")[0], os.path.realpath(os.getcwd())
    kept = sys.path[:]
    sys.path[:] = [path for path in kept if path and os.path.realpath(path) != here]
    try:
        finders = [finder.find_spec(top, None) for finder in sys.meta_path if hasattr(finder, "find_spec")]
    finally:
        sys.path[:] = kept
    return not any(finders)
