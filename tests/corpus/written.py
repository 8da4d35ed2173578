"""Cases of the corpus: modules, of which an honest copy is gated, and what is passed to the plain call."""

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
from perfsuite.problems.backward import with_gradients
from perfsuite.settings import Settings

Size = tuple[Any, ...]


@dataclass(frozen=True)
class Given:
    """What a test passes to `perf`."""

    candidate: Callable[..., Any]
    rival: Callable[..., Any]
    args: Any
    kwargs: dict[str, Any] = field(default_factory=dict)
    backward: bool = False
    deterministic: bool = True
    options: dict[str, Any] = field(default_factory=dict)
    """Further fields of the problem, such as written arguments."""

    def gate(self, label: str, settings: Settings, *, at_least: float | None = None) -> Comparison:
        """Judge the candidate as `perf(candidate, args=, against=)` does."""
        problem, candidate = (
            Custom(self.args, self.kwargs, against=self.rival, label=label, **self.options),
            self.candidate,
        )
        if self.backward:
            problem, candidate = with_gradients(problem, candidate)
        return compare(problem, candidate, at_least=at_least, settings=settings, deterministic=self.deterministic)


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

    def written(self, size: Size) -> tuple[Callable[..., nn.Module], Callable[[], Any], Callable[[], Any]]:
        """(Model, get_inputs, get_init_inputs) at that size."""
        return self.build, lambda: self.make(*size), lambda: list(size)

    def given(self, device: str, *, compiled: str | None = None) -> Given:
        """An honest copy of the module against the module itself.

        compiled: a backend of torch.compile, by which the copy is compiled.
        """
        torch.manual_seed(0)
        Model, get_inputs, get_init_inputs = self.written(self.card if device == "cuda" else self.small)
        model = Model(*get_init_inputs()).to(device).eval()
        inputs = torch.utils._pytree.tree_map_only(torch.Tensor, lambda one: one.to(device), get_inputs())
        twin = copy.deepcopy(model)
        return Given(twin if compiled is None else torch.compile(twin, backend=compiled), model, tuple(inputs))


@dataclass(frozen=True)
class Call:
    """One form of call; `make(rows, width)` makes it anew on torch's default device."""

    name: str
    kind: str
    make: Callable[[int, int], Given]
    small: tuple[int, int] = (24, 48)
    card: tuple[int, int] = (4096, 4096)

    def given(self, device: str) -> Given:
        """The call, on that device."""
        torch.manual_seed(0)
        with torch.device(device):
            return self.make(*(self.card if device == "cuda" else self.small))


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
        self, name: str, function: Callable[..., Any], make: Callable[..., Any], small: Size, card: Size
    ) -> None:
        """Add a module without parameters."""
        self.module(name, lambda *size: Function(function), make, small, card)

    def module(
        self,
        name: str,
        build: Callable[..., nn.Module],
        make: Callable[..., Any],
        small: Size,
        card: Size,
    ) -> None:
        """Add a module."""
        self.modules.append(Module(name, self.kind, build, make, small, card))


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
