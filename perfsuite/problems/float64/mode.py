"""Runs each operator twice: as the function asks for it, and on the float64 twins of its arguments.

The function sees its own dtypes, so that what depends on them stays as it is. Its own run also stands in for operators
that have no float64 form, and draws random numbers.
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from .equivalents import equivalent
from .origins import mark_results
from .twins import Twins, inexact, plain, wide

if TYPE_CHECKING:
    import torch

KNOWN_NAMESPACES = frozenset({"aten", "prims", "prim", "torchvision"})
"""Operators of other namespaces may be code that only takes the dtypes it was written for."""
FOREIGN_MEMORY = "memory that code outside of torch fills"
_EMPTY = ("aten::empty", "aten::new_empty")
_WRITES_STATISTICS = ("aten::native_batch_norm", "aten::cudnn_batch_norm", "aten::miopen_batch_norm")
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
        import torch
        from torch.utils._pytree import tree_leaves

        if self._deadline is not None and time.monotonic() > self._deadline:
            raise TooLongError(f"stopped in {_plain_name(operator)}")
        if operator.is_view or operator.name().startswith("aten::set_"):
            return operator(*args, **kwargs)
        written = self._written(operator, args, kwargs)
        if torch.Tag.nondeterministic_seeded in operator.tags:
            self.random = True
        if operator.namespace not in KNOWN_NAMESPACES:
            return self._opaque(operator, args, kwargs, written)
        wide_args, wide_kwargs = self._widened((args, kwargs), written)
        own = operator(*args, **kwargs)
        if operator.name().startswith(_EMPTY):
            self.twins.note_empty(own)
            return own
        if operator is torch.ops.aten._local_scalar_dense.default:
            # A number follows float64. A size or a condition must suit the tensors that the function sees.
            return wide_args[0].item() if isinstance(own, float | complex) else own
        if not _holds_tensors(own):
            return own
        drawn = torch.Tag.nondeterministic_seeded in operator.tags and equivalent(_plain_name(operator)) is None
        result = None if drawn else self._in_float64(operator, own, wide_args, wide_kwargs)
        if result is None:
            for tensor in written:
                self.twins.forget(tensor)
        self._note(own, result, written)
        seen = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        first = wide_args[0] if wide_args else None
        mark_results(self.twins, _plain_name(operator), operator._schema, args, kwargs, seen, first, own)
        return own

    def restore(self) -> None:
        """Give the memory that stood before the run its values back: statistics, caches, arguments."""
        for tensor, values in self._saved.values():
            tensor.copy_(values)
        self._saved.clear()

    def _opaque(self, operator: Any, args: Any, kwargs: Any, written: list[torch.Tensor]) -> Any:
        """Run an operator that nothing is known of; its results are widened as they are."""
        self.gaps.setdefault(_plain_name(operator))
        own = operator(*args, **kwargs)
        for tensor in written:
            self.twins.forget(tensor)
        self._note(own, None, written)
        return own

    def _in_float64(self, operator: Any, own: Any, args: Any, kwargs: Any) -> Any:
        """The operator's result on twins; None if it has no float64 form, which is noted."""
        import torch

        name, before = _plain_name(operator), torch.get_default_dtype()
        special = equivalent(name)
        torch.set_default_dtype(torch.float64)  # what torch makes from integers or from nothing
        try:
            return special(own, *args, **kwargs) if special else operator(*args, **kwargs)
        except torch.OutOfMemoryError:
            raise
        except Exception:  # whatever an operator raises that does not take float64
            self.gaps.setdefault(name)
            return None
        finally:
            torch.set_default_dtype(before)

    def _written(self, operator: Any, args: Any, kwargs: Any) -> list[torch.Tensor]:
        """Tensors that the operator writes into; those from before the run are saved first."""
        from torch import Tensor
        from torch.utils._pytree import tree_leaves

        schema, given = operator._schema, []
        places = {argument.name: place for place, argument in enumerate(schema.arguments)}
        statistics = _plain_name(operator).startswith(_WRITES_STATISTICS)
        for argument in schema.arguments:
            writes = argument.alias_info is not None and argument.alias_info.is_write
            if not writes and not (statistics and argument.name.startswith("running_")):
                continue
            value = kwargs.get(argument.name)
            if value is None and places[argument.name] < len(args):
                value = args[places[argument.name]]
            given += [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]
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

    def _widened(self, given: Any, written: list[torch.Tensor]) -> Any:
        from torch import Tensor, dtype
        from torch.utils._pytree import tree_map

        writable = {id(tensor) for tensor in written}

        def widen(value: Any) -> Any:
            if isinstance(value, Tensor):
                if id(value) not in writable and self.twins.unfilled(value):
                    self.gaps.setdefault(FOREIGN_MEMORY)
                return self.twins.of(value, written=id(value) in writable)
            return wide(value) if isinstance(value, dtype) else value

        return tree_map(widen, given)

    def _note(self, own: Any, result: Any, written: list[torch.Tensor]) -> None:
        """Keep the twins of the tensors in `own`; where there is no fitting result, their own values widened."""
        from torch import Tensor
        from torch.utils._pytree import tree_leaves

        owns = tree_leaves(own)
        results = tree_leaves(result) if result is not None else [None] * len(owns)
        mine = {tensor.untyped_storage()._cdata for tensor in written if plain(tensor)}
        for one, other in zip(owns, results if len(results) == len(owns) else [None] * len(owns), strict=True):
            if not isinstance(one, Tensor):
                continue
            known = plain(one) and self.twins.entry(one) is not None
            if known or (plain(one) and one.untyped_storage()._cdata in mine):
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
    import torch
    from torch._ops import HigherOrderOperator
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    class Operators(TorchDispatchMode):
        supports_higher_order_operators = True

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
            if any(kind not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer) for kind in types):
                return NotImplemented  # a subclass takes itself apart, and its parts are seen
            if operator._can_decompose():
                with self:
                    parts = operator.decompose(*args, **kwargs)
                if parts is not NotImplemented:
                    return parts
            return widening.call(operator, tuple(args), kwargs)

    class Addresses(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = getattr(function, "__name__", "")
            if name in _GIVES_AN_ADDRESS and args and isinstance(args[0], torch.Tensor):
                widening.twins.note_foreign(args[0])
                widening.gaps.setdefault("code outside of torch")
            return function(*args, **(kwargs or {}))

    return Operators(), Addresses()


def _holds_tensors(value: Any) -> bool:
    from torch import Tensor
    from torch.utils._pytree import tree_leaves

    return any(isinstance(leaf, Tensor) for leaf in tree_leaves(value))


def _plain_name(operator: Any) -> str:
    """The operator's name without its overload."""
    return str(operator.name()).partition(".")[0]


def _count(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().nbytes() // tensor.element_size()
