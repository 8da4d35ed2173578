"""The structure of arguments and results: the parts of each kind of nest, and a way to put them together again.

Nests are those of torch's pytree (tuples, named tuples, torch's return types, lists, dictionaries, registered classes)
and dataclasses, registered or not. Sparse and nested tensors count as nests of the plain tensors that they consist of.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perfsuite.problems.base import Inputs

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Nest:
    """One level of a nest. Two nests have the same structure if their kinds are equal and their parts' are."""

    kind: Hashable
    parts: list[tuple[str, Any]]
    """(step from the nest to the part, such as '["loss"]' or '.values'; the part), in an order that the kind fixes."""
    rebuild: Callable[[list[Any]], Any]
    """The same nest from other parts."""
    layout: bool = False
    """True for a sparse or nested tensor: its whole numbers say where the values lie."""
    names: tuple[str, ...] = ()
    """Names of the parts of a named tuple."""


@dataclass(frozen=True)
class Flat:
    """A result of another process: its leaves in order, and its structure in words, as `outline` gives it."""

    structure: str
    leaves: tuple[Any, ...]


def nest_of(value: Any) -> Nest | None:
    """`value` as a nest; None for a leaf: a plain tensor, a number, text, None, or an object of an unknown class.

    No method of a candidate's class runs here, but for those of classes that are registered with torch's pytree.
    """
    import torch

    kind = type(value)
    if kind is torch.Tensor and value.layout is torch.strided and not value.is_nested:
        return None
    if kind is tuple or kind is list:
        return Nest("sequence", [(f"[{place}]", part) for place, part in enumerate(value)], kind)
    if isinstance(value, torch.Tensor):
        return _tensor_nest(value)
    if kind is dict or kind is OrderedDict or kind is defaultdict:
        return _mapping_nest(value)
    if kind is Inputs:
        parts = [("args", tuple(value.args)), ("kwargs", dict(value.kwargs))]
        return Nest(Inputs, parts, lambda made: Inputs(*made))
    if kind is Flat:
        parts = [(f"[{place}]", leaf) for place, leaf in enumerate(value.leaves)]
        return Nest((Flat, value.structure), parts, lambda made: Flat(value.structure, tuple(made)))
    if isinstance(value, tuple):
        return _tuple_nest(value)
    if isinstance(value, str | int | float | complex | None):
        return None
    if (found := _registered_nest(value)) is not None:
        return found
    if dataclasses.is_dataclass(value) and not isinstance(value, type) and not isinstance(value, Mapping):
        return _dataclass_nest(value)
    return None


def outline(value: Any) -> str:
    """The structure of a nest in words, the same for nests that are alike: '("loss": tensor, "rest": (int))'."""
    import torch

    if type(value) is Flat:
        return value.structure
    if (nest := nest_of(value)) is None:
        return "tensor" if isinstance(value, torch.Tensor) else type(value).__name__
    if nest.kind == "sequence":
        return f"({', '.join(outline(part) for _, part in nest.parts)})"
    kind = type(value).__qualname__ if not isinstance(value, Mapping) else ""
    return f"{kind}({', '.join(f'{step}: {outline(part)}' for step, part in nest.parts)})"


def has_layouts(value: Any) -> bool:
    """True if a sparse or nested tensor is among the leaves of `value`."""
    nest = nest_of(value)
    return nest is not None and (nest.layout or any(has_layouts(part) for _, part in nest.parts))


def _mapping_nest(value: Mapping[Any, Any]) -> Nest:
    kind = type(value)
    names = sorted(value, key=lambda name: (type(name).__name__, repr(name)))

    def rebuild(made: list[Any]) -> Any:
        parts = dict(zip(names, made, strict=True))
        items = [(name, parts[name]) for name in value]  # in the order of the given one
        if isinstance(value, defaultdict):
            return defaultdict(value.default_factory, items)
        return OrderedDict(items) if kind is OrderedDict else dict(items)

    return Nest(("mapping", *names), [(f"[{_key(name)}]", value[name]) for name in names], rebuild)


def _key(name: Any) -> str:
    return f'"{name}"' if isinstance(name, str) else repr(name)


def _tuple_nest(value: tuple[Any, ...]) -> Nest:
    """A named tuple, one of torch's return types, or another subclass of tuple."""
    import torch

    cls, parts = type(value), list(tuple.__iter__(value))
    names = getattr(cls, "_fields", None) or tuple(list(vars(cls).get("__match_args__", ()))[: len(parts)])
    named = isinstance(names, tuple) and len(names) == len(parts)
    steps = [f".{name}" for name in names] if named else [f"[{place}]" for place in range(len(parts))]

    def rebuild(made: list[Any]) -> Any:
        # A structure sequence of C and torch.Size have constructors of their own; the other classes' may be a user's.
        own = hasattr(cls, "n_sequence_fields") or cls is torch.Size
        return cls(made) if own else tuple.__new__(cls, made)

    return Nest("sequence", list(zip(steps, parts, strict=True)), rebuild, names=tuple(names) if named else ())


def _registered_nest(value: Any) -> Nest | None:
    from torch.utils import _pytree as pytree

    if type(value) not in pytree.SUPPORTED_NODES:
        return None
    try:
        found, spec = pytree.tree_flatten_with_path(value, is_leaf=lambda one: one is not value)
        parts = [(pytree.keystr(path), part) for path, part in found]
    except ValueError:  # the class names no keys
        bare, spec = pytree.tree_flatten(value, is_leaf=lambda one: one is not value)
        parts = [(f"[{place}]", part) for place, part in enumerate(bare)]
    return Nest((type(value), *(step for step, _ in parts)), parts, lambda made: pytree.tree_unflatten(made, spec))


def _dataclass_nest(value: Any) -> Nest:
    cls = type(value)
    names = [field.name for field in dataclasses.fields(value)]

    def read(name: str) -> Any:
        # From the instance itself, so that no property of the class computes a part only when somebody looks.
        return own[name] if name in own else object.__getattribute__(value, name)

    own = dict(value.__dict__) if hasattr(value, "__dict__") else {}

    def rebuild(made: list[Any]) -> Any:
        copy = object.__new__(cls)
        for name, part in {**own, **dict(zip(names, made, strict=True))}.items():
            object.__setattr__(copy, name, part)
        return copy

    return Nest((cls, *names), [(f".{name}", read(name)) for name in names], rebuild)


def _tensor_nest(tensor: torch.Tensor) -> Nest | None:
    """The plain tensors of a sparse or nested tensor; None for other tensors, subclasses of unknown kind included."""
    import torch

    if type(tensor) is not torch.Tensor:
        jagged = "torch.nested._internal.nested_tensor"
        known = type(tensor).__module__ == jagged and type(tensor).__name__ == "NestedTensor"
        return _jagged_nest(tensor) if known else None
    if tensor.is_nested:
        return _old_nested_nest(tensor)
    layout = tensor.layout
    if layout is torch.strided:
        return None
    shape = tuple(tensor.shape)
    kind = (str(layout), shape)
    if layout is torch.sparse_coo:
        whole = tensor.is_coalesced()
        parts = [(".indices", tensor._indices()), (".values", tensor._values())]

        def together(made: list[Any]) -> Any:
            return torch.sparse_coo_tensor(made[0], made[1], shape, is_coalesced=whole, check_invariants=False)

        return Nest(kind, parts, together, layout=True)
    rows = layout in (torch.sparse_csr, torch.sparse_bsr)
    if not rows and layout not in (torch.sparse_csc, torch.sparse_bsc):
        return None
    names = ("crow_indices", "col_indices") if rows else ("ccol_indices", "row_indices")
    parts = [(f".{name}", getattr(tensor, name)()) for name in (*names, "values")]

    def compressed(made: list[Any]) -> Any:
        first, second, values = made
        return torch.sparse_compressed_tensor(first, second, values, shape, layout=layout, check_invariants=False)

    return Nest(kind, parts, compressed, layout=True)


def _jagged_nest(tensor: Any) -> Nest:
    """A nested tensor of the layout torch.jagged."""
    import torch

    own = vars(tensor)
    parts = [(f".{name.strip('_')}", own[name]) for name in ("_values", "_offsets", "_lengths")]
    ragged = own["_ragged_idx"]

    def rebuild(made: list[Any]) -> Any:
        values, offsets, lengths = made
        return torch.nested.nested_tensor_from_jagged(values, offsets, lengths, jagged_dim=ragged)

    return Nest(("jagged", ragged), parts, rebuild, layout=True)


def _old_nested_nest(tensor: Any) -> Nest:
    """A nested tensor of the layout torch.strided: one buffer; sizes and strides lie on the CPU."""
    import torch

    where = (tensor._nested_tensor_size(), tensor._nested_tensor_strides(), tensor._nested_tensor_storage_offsets())

    def rebuild(made: list[Any]) -> Any:
        return torch._nested_view_from_buffer(made[0], *where)

    sizes = tuple(map(tuple, where[0].tolist()))
    return Nest(("nested", sizes), [(".values", tensor.values())], rebuild, layout=True)
