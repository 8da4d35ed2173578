"""Forward and backward of a function as one computation: its result, and the gradients, are the answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from perfsuite.problems.families.custom import Custom
from perfsuite.problems.modules import module_of
from perfsuite.problems.tensors import leaves_in, map_tensors, tensors_in

if TYPE_CHECKING:
    import torch


class GradientError(ValueError):
    """Nothing can be differentiated as asked; the message says what to change."""


@dataclass(frozen=True)
class Plan:
    """The gradients that are computed: by which arguments, of which results, and the parameters that are compared."""

    arguments: frozenset[str]
    """Paths of the tensors in (*args, kwargs) that require grad."""
    outputs: tuple[str, ...]
    """Paths of the results whose gradients are given."""
    parameters: frozenset[str]
    """Names of parameters that both sides have, with one shape."""


class Differentiated:
    """Calls a function and its backward: `(*args, kwargs, gradients of the results)` -> results and gradients."""

    def __init__(self, function: Callable[..., Any], plan: Plan) -> None:
        self.__wrapped__ = function
        self._plan = plan
        self._parameters = _parameters(module_of(function))

    def like(self, function: Callable[..., Any]) -> Differentiated:
        """The same for another function: a rival that a marker names."""
        return Differentiated(function, self._plan)

    def __call__(self, *given: Any) -> dict[str, Any]:
        """The result, and the gradients by their arguments' paths and their parameters' names."""
        import torch

        *before, options, output_gradients = given
        with torch.enable_grad():
            args, kwargs, leaves = _with_leaves(tuple(before), options, self._plan.arguments)
            result = self.__wrapped__(*args, **kwargs)
            found = dict(leaves_in(result))
            outputs: list[torch.Tensor] = []
            for path in self._plan.outputs:
                one = found.get(path)
                if not isinstance(one, torch.Tensor) or not one.requires_grad:
                    what = f"output{path}" if path else "the result"
                    raise RuntimeError(f"{what} does not require grad: its backward is missing")
                outputs.append(one)
            by = {**leaves, **self._parameters}
            gradients = torch.autograd.grad(
                outputs, list(by.values()), grad_outputs=output_gradients, allow_unused=True, materialize_grads=True
            )
        kept = {
            name: gradient
            for name, gradient in zip(by, gradients, strict=True)
            if name in leaves or name in self._plan.parameters
        }
        return {"result": map_tensors(result, lambda one: one.detach()), "gradient": kept}


def with_gradients(problem: Custom, candidate: Callable[..., Any]) -> tuple[Custom, Differentiated]:
    """(the same computation with its backward, the candidate with its backward).

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
    paths = [f"args{path}" for path, leaf in leaves_in((*args, kwargs)) if _differentiable(leaf) and leaf.requires_grad]
    mine, theirs = (_parameters(module_of(side)) for side in (candidate, rival))
    if not paths and not theirs:
        raise GradientError(
            f"backward=True, but no argument of {problem.label} requires grad, and the rival is no module with "
            "parameters; write args=(x.requires_grad_(), ...)"
        )
    shared = frozenset(name for name in theirs if name in mine and mine[name].shape == theirs[name].shape)
    outputs = _outputs(rival, args, kwargs, frozenset(paths))
    if not outputs:
        raise GradientError(f"backward=True, but no result of {problem.label} requires grad: the rival has no backward")
    plan = Plan(frozenset(paths), tuple(outputs), shared)

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
        label=f"{problem.label} with gradients",
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
        args, kwargs, _ = _with_leaves(args, kwargs, paths)
        result = rival(*args, **kwargs)
    return {path: one.detach() for path, one in leaves_in(result) if _differentiable(one) and one.requires_grad}


def _with_leaves(
    args: tuple[Any, ...], kwargs: dict[str, Any], paths: frozenset[str]
) -> tuple[tuple[Any, ...], dict[str, Any], dict[str, torch.Tensor]]:
    """The arguments with new leaves of autograd at `paths`, and these leaves by their paths."""
    leaves: dict[str, torch.Tensor] = {}
    named: dict[int, str] = {}
    for path, leaf in leaves_in((*args, kwargs)):
        if _differentiable(leaf):
            named.setdefault(id(leaf), f"args{path}")

    def leaf_of(tensor: torch.Tensor) -> torch.Tensor:
        name = named.get(id(tensor), "")
        if name not in paths:
            return tensor
        leaves[name] = tensor.detach().requires_grad_()
        return leaves[name]

    *new, options = map_tensors((*args, kwargs), leaf_of)
    return tuple(new), options, leaves


def _parameters(module: torch.nn.Module | None) -> dict[str, torch.nn.Parameter]:
    if module is None:
        return {}
    return {name: value for name, value in module.named_parameters() if value.requires_grad}


def _differentiable(leaf: Any) -> bool:
    import torch

    return isinstance(leaf, torch.Tensor) and (leaf.is_floating_point() or leaf.is_complex())


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
