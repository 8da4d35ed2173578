"""The form of a module of the corpus, and the gate of an honest copy of it."""

from __future__ import annotations

import copy
import importlib
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from perfsuite.case.comparison import Comparison
from perfsuite.case.run import compare
from perfsuite.problems import Custom
from perfsuite.settings import Settings

Size = tuple[Any, ...]


@dataclass(frozen=True)
class Module:
    """One module: `Model(*get_init_inputs())` is called with `get_inputs()`, as machine-written kernels are."""

    name: str
    kind: str
    """The file's subject, such as "products"."""
    build: Callable[..., nn.Module]
    """Takes a size."""
    make: Callable[..., tuple[Any, ...]]
    """Makes the arguments of one call from a size."""
    small: Size
    """For a test on a CPU: a few thousand elements."""
    card: Size
    """For a GPU: one call takes 20 us or more."""
    options: dict[str, Any] = field(default_factory=dict)
    """Further fields of the problem, such as those for gradients or written arguments."""

    def written(self, size: Size) -> tuple[Callable[..., nn.Module], Callable[[], Any], Callable[[], Any]]:
        """(Model, get_inputs, get_init_inputs) at that size."""
        return self.build, lambda: self.make(*size), lambda: list(size)

    def gate(
        self, settings: Settings, *, size: Size, at_least: float | None = None, compiled: str | None = None
    ) -> Comparison:
        """Judge an honest copy of the module against the module itself, with a plain call.

        compiled: a backend of torch.compile, by which the copy is compiled.
        """
        torch.manual_seed(0)
        Model, get_inputs, get_init_inputs = self.written(size)
        model = Model(*get_init_inputs()).to(settings.device).eval()
        inputs = torch.utils._pytree.tree_map_only(torch.Tensor, lambda one: one.to(settings.device), get_inputs())
        problem = Custom(tuple(inputs), against=model, label=self.name, **self.options)
        twin = copy.deepcopy(model)
        candidate = twin if compiled is None else torch.compile(twin, backend=compiled)
        return compare(problem, candidate, at_least=at_least, settings=settings)


class Function(nn.Module):
    """A module without parameters around a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


class Collection:
    """The modules of one file."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.modules: list[Module] = []

    def function(
        self, name: str, function: Callable[..., Any], make: Callable[..., Any], small: Size, card: Size, **options: Any
    ) -> None:
        """Add a module without parameters."""
        self.module(name, lambda *size: Function(function), make, small, card, **options)

    def module(
        self,
        name: str,
        build: Callable[..., nn.Module],
        make: Callable[..., Any],
        small: Size,
        card: Size,
        **options: Any,
    ) -> None:
        """Add a module."""
        self.modules.append(Module(name, self.kind, build, make, small, card, options))


def all_modules() -> Iterator[Module]:
    """The modules of every file beside this one that has a MODULES."""
    for found in sorted(pkgutil.iter_modules([str(Path(__file__).parent)]), key=lambda one: one.name):
        if not found.name.startswith("test_") and found.name not in ("written", "__main__"):
            collection = getattr(importlib.import_module(f"{__package__}.{found.name}"), "MODULES", None)
            if isinstance(collection, Collection):
                yield from collection.modules


def normal(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Normal values of that shape."""
    return torch.randn(shape).to(dtype)


def positive(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Values between 0 and 1."""
    return torch.rand(shape).to(dtype)


def whole(high: int, *shape: int) -> torch.Tensor:
    """Whole numbers below `high`."""
    return torch.randint(high, shape)
