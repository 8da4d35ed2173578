"""Forward and backward of a function as one computation: its result, and the gradients, are the answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from perfsuite.problems.differentiated import Differentiated, Plan, differentiable, trained_parameters, with_leaves
from perfsuite.problems.families.custom import Custom
from perfsuite.problems.modules import module_of
from perfsuite.problems.tensors import leaves_in, map_tensors, tensors_in

if TYPE_CHECKING:
    import torch


class GradientError(ValueError):
    """Nothing can be differentiated as asked; the message says what to change."""


def with_gradients(
    problem: Custom, candidate: Callable[..., Any], *, only: bool = False
) -> tuple[Custom, Differentiated]:
    """(the same computation with its backward, the candidate with its backward). only: backward alone.

    Gradients by parameters are compared where both sides have the parameter. GradientError if no argument and no
    parameter requires grad, or no result does.
    """
    import torch

    rival = problem.reference if problem.against is None else problem.against
    if rival is None:
        raise GradientError(f"{problem.label} has nothing to be compared with: pass reference= or against=")
    generator = torch.Generator(_device(problem)).manual_seed(0)
    if callable(problem.args):
        first = problem.inputs(generator)
        args, kwargs = first.args, dict(first.kwargs)
    else:
        args, kwargs = problem.args, dict(problem.kwargs)
    paths = [f"args{path}" for path, leaf in leaves_in((*args, kwargs)) if differentiable(leaf) and leaf.requires_grad]
    mine, theirs = (trained_parameters(module_of(side)) for side in (candidate, rival))
    if not paths and not theirs:
        raise GradientError(
            f"backward=True, but no argument of {problem.label} requires grad, and the rival is no module with "
            "parameters; write args=(x.requires_grad_(), ...)"
        )
    shared = frozenset(name for name in theirs if name in mine and mine[name].shape == theirs[name].shape)
    outputs = _outputs(rival, args, kwargs, frozenset(paths))
    if not outputs:
        raise GradientError(f"backward=True, but no result of {problem.label} requires grad: the rival has no backward")
    plan = Plan(frozenset(paths), tuple(outputs), shared, only)

    def drawn(generator: torch.Generator) -> tuple[torch.Tensor, ...]:
        return tuple(_normal(one, generator) for one in outputs.values())

    def made(generator: torch.Generator) -> tuple[Any, ...]:
        inputs = problem.inputs(generator)
        return (*_detached(inputs.args), _detached(dict(inputs.kwargs)), drawn(generator))

    fixed = (*_detached(args), _detached(kwargs), drawn(generator))
    whole = replace(
        problem,
        args=made if callable(problem.args) else fixed,
        kwargs={},
        label=f"{problem.label} {'backward' if only else 'with gradients'}",
        against=None if problem.against is None else Differentiated(problem.against, plan),
        reference=None if problem.reference is None else Differentiated(problem.reference, plan),
    )
    return whole, Differentiated(candidate, plan)


def _outputs(
    rival: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], paths: frozenset[str]
) -> dict[str, torch.Tensor]:
    """Path -> tensor, of the rival's results that require grad."""
    import torch

    with torch.enable_grad():
        args, kwargs, _ = with_leaves(args, kwargs, paths)
        result = rival(*args, **kwargs)
    return {path: one.detach() for path, one in leaves_in(result) if differentiable(one) and one.requires_grad}


def _detached(nest: Any) -> Any:
    return map_tensors(nest, lambda one: one.detach())


def _normal(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Normal values of the same shape and dtype."""
    import torch

    wide = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.complex128)
    dtype = like.dtype if like.dtype in wide else torch.float32
    return torch.randn(like.shape, dtype=dtype, device=generator.device, generator=generator).to(like.dtype)


def _device(problem: Custom) -> torch.device:
    """The device of the arguments; of a callable's, the current accelerator or the CPU."""
    import torch

    given = None if callable(problem.args) else next(tensors_in((problem.args, problem.kwargs)), None)
    if given is not None:
        return given.device
    return torch.device("cuda" if callable(problem.args) and torch.cuda.is_initialized() else "cpu")
