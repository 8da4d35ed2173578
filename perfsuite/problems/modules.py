"""Parameters and buffers of two modules, drawn anew alike for a check.

A kernel may leave out a bias that happens to be zero, or running statistics that nobody has trained. So a candidate and
a rival with the same state are judged with other values too.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from perfsuite.problems.tensors import tensors_in

if TYPE_CHECKING:
    import torch

SPREAD = 0.2
"""Standard deviation of constant values once they are drawn anew, relative to them; of zeros, absolute."""


def module_of(function: Callable[..., Any]) -> torch.nn.Module | None:
    """The module that a callable is, or whose method it is, or of which it is a partial or a compiled form."""
    import torch

    plain = (types.FunctionType, types.MethodType, torch.nn.Module)
    while not isinstance(function, plain):
        inner = function.func if isinstance(function, functools.partial) else getattr(function, "__wrapped__", None)
        if inner is None:
            break
        function = inner
    if hasattr(function, "_torchdynamo_orig_callable"):  # torch.compile of a method
        function = function._torchdynamo_orig_callable
    found = function if isinstance(function, torch.nn.Module) else getattr(function, "__self__", None)
    found = getattr(found, "_orig_mod", found)
    return found if isinstance(found, torch.nn.Module) else None


def unlike(one: torch.nn.Module, other: torch.nn.Module) -> list[str]:
    """Keys by which the states of two modules differ: absent, of another shape or dtype, or outside of the state.

    A module may keep its weights packed beside its state; values that are drawn anew would not reach them.
    """
    mine, theirs = one.state_dict(), other.state_dict()
    keys = [
        key
        for key in {**mine, **theirs}
        if key not in mine
        or key not in theirs
        or mine[key].shape != theirs[key].shape
        or mine[key].dtype != theirs[key].dtype
    ]
    return sorted({*keys, *_outside(one, mine), *_outside(other, theirs)})


@contextmanager
def drawn_anew(one: torch.nn.Module, other: torch.nn.Module, generator: torch.Generator) -> Iterator[None]:
    """Give both modules the same new parameters and running statistics, in place; put the given ones back at the end.

    The modules must not be `unlike`. Other buffers stay: they may be masks or tables that a kernel computes itself.
    """
    import torch

    states = [one.state_dict(), other.state_dict()]
    kept = [{key: value.clone() for key, value in state.items()} for state in states]
    try:
        with torch.no_grad():
            for key in _drawn(one):
                fresh = _fresh(kept[0][key], generator)
                for state in states:
                    state[key].copy_(fresh)
        yield
    finally:
        with torch.no_grad():
            for state, values in zip(states, kept, strict=True):
                for key, value in values.items():
                    state[key].copy_(value)


def _drawn(module: torch.nn.Module) -> list[str]:
    """Keys of the state that are drawn anew: parameters, and running means and variances."""
    from torch.nn.modules.batchnorm import _NormBase

    state = module.state_dict()
    norms = [name for name, part in module.named_modules() if isinstance(part, _NormBase)]
    statistics = {f"{name}.{key}".lstrip(".") for name in norms for key in ("running_mean", "running_var")}
    parameters = {name for name, _ in module.named_parameters(remove_duplicate=False)}
    return [key for key in state if key in parameters | statistics]


def _outside(module: torch.nn.Module, state: dict[str, torch.Tensor]) -> list[str]:
    """Names of tensors that a module keeps beside its state, in memory of their own."""
    known = {value.untyped_storage().data_ptr() for value in state.values()}
    found = []
    for name, part in module.named_modules():
        hidden = {key: value for key, value in vars(part).items() if key not in ("_parameters", "_modules")}
        for key, value in {**hidden, **hidden.pop("_buffers", {})}.items():
            if any(tensor.numel() and tensor.untyped_storage().data_ptr() not in known for tensor in tensors_in(value)):
                found.append(f"{name}.{key}".lstrip("."))
    return found


def _fresh(value: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """New values with the mean and deviation of the given ones, or near them if they are constant; of the same sign."""
    import torch

    if not (value.is_floating_point() or value.is_complex()) or not value.numel():
        return value
    wide = value.to(torch.complex128 if value.is_complex() else torch.float64)
    noise = torch.randn(value.shape, dtype=wide.dtype, device=generator.device, generator=generator).to(value.device)
    if not bool(wide.isfinite().all()):
        return value
    mean = wide.mean()
    deviation = wide.std() if value.numel() > 1 else torch.zeros((), device=value.device)
    if float(deviation.abs()) == 0:
        deviation = SPREAD * (mean.abs() if float(mean.abs()) else torch.ones((), device=value.device))
    fresh = mean + noise * deviation
    if not value.is_complex() and float(wide.min()) >= 0 and float(mean) > 0:  # a variance, a scale
        fresh = fresh.abs()
    return fresh.to(value.dtype)
