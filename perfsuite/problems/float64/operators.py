"""Facts about an operator of torch, and the leaves of its arguments and results.

An operator is asked once in a process: the questions take longer than a small operator does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from .equivalents import Equivalent, equivalent

if TYPE_CHECKING:
    import torch

KNOWN_NAMESPACES = frozenset({"aten", "prims", "prim", "torchvision"})
"""Operators of other namespaces may be code that only takes the dtypes it was written for."""
_EMPTY = ("aten::empty", "aten::new_empty")
_WRITES_STATISTICS = ("aten::native_batch_norm", "aten::cudnn_batch_norm", "aten::miopen_batch_norm")
_NODES = (list, tuple, dict)


class Facts(NamedTuple):
    """Answers about an operator that do not change."""

    name: str
    """Without its overload."""
    known: bool
    """True if it is one of torch's."""
    takes_apart: bool
    """True if it is made of other operators."""
    makes_a_view: bool
    gives_empty: bool
    """True if it gives memory without values."""
    gives_a_number: bool
    draws: bool
    """True if it draws random numbers."""
    writes: tuple[tuple[str, int], ...]
    """Name and place of each argument that it writes."""
    special: Equivalent | None
    """Its float64 form, if it has none itself."""


def _of(operator: Any) -> Facts:
    import torch

    name = plain_name(operator)
    statistics = name.startswith(_WRITES_STATISTICS)

    def written(argument: Any) -> bool:
        writes = argument.alias_info is not None and argument.alias_info.is_write
        return writes or (statistics and argument.name.startswith("running_"))

    return Facts(
        name,
        known=operator.namespace in KNOWN_NAMESPACES,
        takes_apart=operator._can_decompose(),
        makes_a_view=operator.is_view or name.startswith("aten::set_"),
        gives_empty=name.startswith(_EMPTY),
        gives_a_number=operator is torch.ops.aten._local_scalar_dense.default,
        draws=torch.Tag.nondeterministic_seeded in operator.tags,
        writes=tuple((one.name, place) for place, one in enumerate(operator._schema.arguments) if written(one)),
        special=equivalent(name),
    )


def _remembering() -> Callable[[Any], Facts]:
    # In a cell, where no module holds it: what a candidate puts under an operator would be believed.
    found: dict[Any, Facts] = {}

    def facts_of(operator: Any) -> Facts:
        """The facts about an operator. Those of torch's own are kept; others may be given further kernels."""
        from torch._ops import OpOverload

        if (facts := found.get(operator)) is not None:
            return facts
        facts = _of(operator)
        if facts.known and type(operator) is OpOverload:  # whose equality nobody else defines
            found[operator] = facts
        return facts

    return facts_of


facts_of = _remembering()


def plain_name(operator: Any) -> str:
    """The operator's name without its overload."""
    return str(operator.name()).partition(".")[0]


def leaves(value: Any) -> list[Any]:
    """The leaves of an argument or of a result, in the order of torch's own walk."""
    kind = type(value)
    if kind is tuple or kind is list:
        return [leaf for part in value for leaf in leaves(part)]
    if isinstance(value, _NODES):
        from torch.utils._pytree import tree_leaves

        return tree_leaves(value)
    return [value]


def tensors_of(value: Any) -> list[torch.Tensor]:
    """The tensors among the leaves."""
    from torch import Tensor

    return [leaf for leaf in leaves(value) if isinstance(leaf, Tensor)]


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """The same nest with `change(leaf)` in place of every leaf."""
    kind = type(value)
    if kind is tuple or kind is list:
        return kind([mapped(part, change) for part in value])
    if isinstance(value, _NODES):
        from torch.utils._pytree import tree_map

        return tree_map(change, value)
    return change(value)
