"""Runs each operator twice: as the function asks for it, and on the float64 twins of its arguments.

The function sees its own dtypes, so that what depends on them stays as it is. Its own run also stands in for operators
that have no float64 form, and draws random numbers.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from typing import TYPE_CHECKING, Any

from .operators import Facts, facts_of, leaves, mapped, plain_name, tensors_of
from .origins import mark_results
from .twins import Twins, inexact, plain, wide

if TYPE_CHECKING:
    import torch

FOREIGN_MEMORY = "memory that code outside of torch fills"
_GIVES_AN_ADDRESS = frozenset({"data_ptr", "numpy", "__array__", "__dlpack__", "__cuda_array_interface__"})


class TooLongError(RuntimeError):
    """A float64 run went on beyond its deadline."""


class Widening:
    """The twins of one run of a function, and what was found out on the way."""

    def __init__(self, deadline: float | None = None) -> None:
        self.twins = Twins()
        self._deadline = deadline
        self.gaps: dict[str, None] = {}
        """Names of what could not be done in float64, in order."""
        self.random = False
        """True if an operator drew random numbers."""
        self._saved: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def call(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The operator's own result. Its twin is noted."""
        from torch import Tensor

        facts = facts_of(operator)
        if self._deadline is not None and time.monotonic() > self._deadline:
            raise TooLongError(f"stopped in {facts.name}")
        if facts.makes_a_view:
            return operator(*args, **kwargs)
        written = self._written(facts, args, kwargs) if facts.writes else []
        self.random = self.random or facts.draws
        if not facts.known:
            return self._opaque(operator, args, kwargs, written)
        seen: list[torch.Tensor] = []
        wide_args, wide_kwargs = self._widened(args, kwargs, written, seen)
        own = operator(*args, **kwargs)
        if facts.gives_empty:
            self.twins.note_empty(own)
            return own
        if facts.gives_a_number:
            # A number follows float64. A size or a condition must suit the tensors that the function sees.
            return wide_args[0].item() if isinstance(own, float | complex) else own
        owns = leaves(own)
        results = [leaf for leaf in owns if isinstance(leaf, Tensor)]
        if not results:
            return own
        drawn = facts.draws and facts.special is None
        result = None if drawn else self._in_float64(facts, operator, own, wide_args, wide_kwargs)
        if result is None:
            for tensor in written:
                self.twins.forget(tensor)
        self._note(owns, result, written)
        if not all(map(inexact, results)):
            first = wide_args[0] if wide_args else None
            mark_results(self.twins, facts.name, operator._schema, args, kwargs, seen, first, own)
        return own

    def restore(self) -> None:
        """Give the memory that stood before the run its values back: statistics, caches, arguments."""
        for tensor, values in self._saved.values():
            tensor.copy_(values)
        self._saved.clear()

    def _opaque(self, operator: Any, args: Any, kwargs: Any, written: list[torch.Tensor]) -> Any:
        """Run an operator that nothing is known of; its results are widened as they are."""
        self.gaps.setdefault(plain_name(operator))
        own = operator(*args, **kwargs)
        for tensor in written:
            self.twins.forget(tensor)
        self._note(leaves(own), None, written)
        return own

    def _in_float64(self, facts: Facts, operator: Any, own: Any, args: Any, kwargs: Any) -> Any:
        """The operator's result on twins; None if it has no float64 form, which is noted."""
        import torch

        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)  # what torch makes from integers or from nothing
        try:
            return facts.special(own, *args, **kwargs) if facts.special else operator(*args, **kwargs)
        except torch.OutOfMemoryError:
            raise
        except Exception:  # whatever an operator raises that does not take float64
            self.gaps.setdefault(facts.name)
            return None
        finally:
            torch.set_default_dtype(before)

    def _written(self, facts: Facts, args: Any, kwargs: Any) -> list[torch.Tensor]:
        """Tensors that the operator writes into; those from before the run are saved first."""
        given: list[torch.Tensor] = []
        for name, place in facts.writes:
            value = kwargs.get(name)
            if value is None and place < len(args):
                value = args[place]
            given += tensors_of(value)
        for tensor in given:
            self._save(tensor)
        return given

    def _save(self, tensor: torch.Tensor) -> None:
        if not plain(tensor) or not tensor.numel():
            return
        entry, key = self.twins.entry(tensor), tensor.untyped_storage()._cdata
        if (entry is None or not entry.made_here) and key not in self._saved:
            # The storage's own elements, whatever view of it is written.
            whole = tensor.detach().view_as(tensor).as_strided((_count(tensor),), (1,), 0)
            self._saved[key] = whole, whole.clone()

    def _widened(self, args: Any, kwargs: Any, written: list[torch.Tensor], seen: list[torch.Tensor]) -> Any:
        """(args, kwargs) on twins. seen: takes the tensors among them."""
        from torch import Tensor, dtype

        writable = {id(tensor) for tensor in written}

        def widen(value: Any) -> Any:
            if isinstance(value, Tensor):
                seen.append(value)
                if id(value) in writable:
                    return self.twins.of(value, written=True)
                twin, unfilled = self.twins.read(value)
                if unfilled:
                    self.gaps.setdefault(FOREIGN_MEMORY)
                return twin
            return wide(value) if isinstance(value, dtype) else value

        return mapped(args, widen), {name: mapped(value, widen) for name, value in kwargs.items()}

    def _note(self, owns: list[Any], result: Any, written: list[torch.Tensor]) -> None:
        """Keep the twins of the tensors in `owns`; where there is no fitting result, their own values widened.

        owns: the leaves of the operator's own result. result: that on twins.
        """
        from torch import Tensor

        twins = leaves(result)
        if result is None or len(twins) != len(owns):
            twins = [None] * len(owns)
        mine = {tensor.untyped_storage()._cdata for tensor in written if plain(tensor)}
        for one, other in zip(owns, twins, strict=True):
            if not isinstance(one, Tensor):
                continue
            if plain(one) and (one.untyped_storage()._cdata in mine or self.twins.entry(one) is not None):
                continue  # its storage's twin was written, or is viewed
            if not isinstance(other, Tensor) or other.shape != one.shape:
                if result is not None:
                    self.gaps.setdefault("sizes that depend on rounded values")
                if not inexact(one):
                    continue
                other = one.to(wide(one.dtype))
            self.twins.put(one, other)


def both_modes(widening: Widening) -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    """The modes under which `widening` sees every operator, and every address that the function hands out."""
    operators, addresses = _kinds_of_modes()
    return operators(widening), addresses(widening)


@cache
def _kinds_of_modes() -> tuple[Callable[[Widening], Any], Callable[[Widening], Any]]:
    import torch
    from torch._ops import HigherOrderOperator
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    plain_kinds = frozenset((torch.Tensor, torch.nn.Parameter, torch.nn.Buffer))

    class Operators(TorchDispatchMode):
        supports_higher_order_operators = True

        def __init__(self, widening: Widening) -> None:
            super().__init__()
            self.widening = widening

        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False  # otherwise the first call imports torch's compiler, which takes three seconds

        def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if isinstance(operator, HigherOrderOperator):
                kernel = operator.py_kernels.get(torch._C.DispatchKey.CompositeExplicitAutograd)
                if kernel is None:
                    raise NotImplementedError(f"{operator.name()} under a mode")
                with self:
                    return kernel(*args, **kwargs)
            if not plain_kinds.issuperset(types):
                return NotImplemented  # a subclass takes itself apart, and its parts are seen
            if facts_of(operator).takes_apart:
                with self:
                    parts = operator.decompose(*args, **kwargs)
                if parts is not NotImplemented:
                    return parts
            return self.widening.call(operator, tuple(args), kwargs)

    class Addresses(TorchFunctionMode):
        def __init__(self, widening: Widening) -> None:
            super().__init__()
            self.widening = widening

        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = getattr(function, "__name__", "")
            if name in _GIVES_AN_ADDRESS and args and isinstance(args[0], torch.Tensor):
                self.widening.twins.note_foreign(args[0])
                self.widening.gaps.setdefault("code outside of torch")
            return function(*args, **(kwargs or {}))

    return Operators, Addresses


def _count(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().nbytes() // tensor.element_size()
