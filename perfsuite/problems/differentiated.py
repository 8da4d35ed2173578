"""A function together with its backward, or its backward alone, as one function of arguments and gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeGuard

from perfsuite.problems.modules import module_of
from perfsuite.problems.tensors import leaves_in, map_tensors, tensors_in

if TYPE_CHECKING:
    import torch

    from perfsuite.problems.base import Inputs


@dataclass(frozen=True)
class Plan:
    """The gradients that are computed: by which arguments, of which results, and the parameters that are compared."""

    arguments: frozenset[str]
    """Paths of the tensors in (*args, kwargs) that require grad."""
    outputs: tuple[str, ...]
    """Paths of the results whose gradients are given."""
    parameters: frozenset[str] = frozenset()
    """Names of parameters that both sides have, with one shape."""
    only: bool = False
    """True for backward alone: the forward pass is prepared before it, and its result is no part of the answer."""


@dataclass
class _Forward:
    """A forward pass that can be differentiated."""

    given: tuple[Any, ...]
    """Held, so that the identities of its tensors are not those of others."""
    result: Any
    outputs: list[torch.Tensor]
    leaves: dict[str, torch.Tensor]
    """The arguments that require grad, by path."""


class Differentiated:
    """Calls a function and its backward: `(*args, kwargs, gradients of the results)` -> results and gradients.

    For backward alone, `prepare` runs the forward pass on the same tensors first, and calls differentiate it as often
    as they like. Without `prepare`, a call runs both.
    """

    def __init__(self, function: Callable[..., Any], plan: Plan) -> None:
        self.__wrapped__ = function
        self.plan = plan
        self._parameters = trained_parameters(module_of(function))
        self._ready: dict[tuple[int, ...], _Forward] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Differentiated) and (self.__wrapped__, self.plan) == (other.__wrapped__, other.plan)

    def __hash__(self) -> int:
        return hash((self.__wrapped__, self.plan))

    def like(self, function: Callable[..., Any]) -> Differentiated:
        """The same for another function: a rival that a marker names."""
        return Differentiated(function, self.plan)

    def prepare(self, *given: Any) -> int:
        """Run the forward pass on these arguments, for the calls that follow; return the bytes that it keeps.

        If their values change, it must run again. If it was captured into a CUDA graph, a replay does that.
        """
        import torch

        kept: dict[int, int] = {}

        def note(tensor: torch.Tensor) -> torch.Tensor:
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor.detach()  # a result that its own node holds would never be freed

        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            self._ready[_identity(given)] = self._forward(given)
        for tensor in tensors_in(given):
            kept.pop(tensor.untyped_storage().data_ptr(), None)
        return sum(kept.values())

    def forget(self) -> None:
        """Free all that was prepared."""
        self._ready.clear()

    def __call__(self, *given: Any) -> dict[str, Any]:
        """The result, and the gradients by their arguments' paths and their parameters' names."""
        import torch

        forward = self._ready.get(_identity(given)) if self._ready else None
        prepared, forward = forward is not None, forward or self._forward(given)
        gradients = torch.autograd.grad(
            forward.outputs,
            [*forward.leaves.values(), *self._parameters.values()],
            grad_outputs=given[-1],
            retain_graph=prepared,
            allow_unused=True,
            materialize_grads=True,
        )
        by = zip((*forward.leaves, *self._parameters), gradients, strict=True)
        compared = {*forward.leaves, *self.plan.parameters}
        found = {name: gradient for name, gradient in by if name in compared}
        if self.plan.only:
            return {"gradient": found}
        return {"result": map_tensors(forward.result, lambda one: one.detach()), "gradient": found}

    def _forward(self, given: tuple[Any, ...]) -> _Forward:
        import torch

        *before, options, _ = given
        with torch.enable_grad():
            args, kwargs, leaves = with_leaves(tuple(before), options, self.plan.arguments)
            result = self.__wrapped__(*args, **kwargs)
        found = dict(leaves_in(result))
        outputs: list[torch.Tensor] = []
        for path in self.plan.outputs:
            one = found.get(path)
            if not isinstance(one, torch.Tensor) or not one.requires_grad:
                what = f"output{path}" if path else "the result"
                raise RuntimeError(f"{what} does not require grad: its backward is missing")
            outputs.append(one)
        return _Forward(given, result, outputs, leaves)


def needs_preparing(function: Callable[..., Any]) -> TypeGuard[Differentiated]:
    """True for backward alone, whose forward pass must run before it whenever the arguments have changed."""
    return type(function) is Differentiated and function.plan.only


def prepared(function: Callable[..., Any], inputs: Inputs) -> Callable[..., Any]:
    """`function` as it is timed: of backward alone one whose forward pass on these inputs has run, on this stream.

    That one is another object, so what others have prepared stays.
    """
    if not needs_preparing(function):
        return function
    ready = function.like(function.__wrapped__)
    ready.prepare(*inputs.args)
    return ready


def _identity(given: tuple[Any, ...]) -> tuple[int, ...]:
    return tuple(id(tensor) for tensor in tensors_in(given))


def with_leaves(
    args: tuple[Any, ...], kwargs: dict[str, Any], paths: frozenset[str]
) -> tuple[tuple[Any, ...], dict[str, Any], dict[str, torch.Tensor]]:
    """The arguments with new leaves of autograd at `paths`, and these leaves by their paths."""
    leaves: dict[str, torch.Tensor] = {}
    named: dict[int, str] = {}
    for path, leaf in leaves_in((*args, kwargs)):
        if differentiable(leaf):
            named.setdefault(id(leaf), f"args{path}")

    def leaf_of(tensor: torch.Tensor) -> torch.Tensor:
        name = named.get(id(tensor), "")
        if name not in paths:
            return tensor
        leaves[name] = tensor.detach().requires_grad_()
        return leaves[name]

    *new, options = map_tensors((*args, kwargs), leaf_of)
    return tuple(new), options, leaves


def trained_parameters(module: torch.nn.Module | None) -> dict[str, torch.nn.Parameter]:
    """The parameters that require grad, by name."""
    if module is None:
        return {}
    return {name: value for name, value in module.named_parameters() if value.requires_grad}


def differentiable(leaf: Any) -> bool:
    import torch

    return isinstance(leaf, torch.Tensor) and (leaf.is_floating_point() or leaf.is_complex())
