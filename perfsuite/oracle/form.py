"""Checks the structure, type, memory, shape, dtype and device of a result before its numbers are read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perfsuite.oracle.judgement import Judgement, wrong
from perfsuite.outcome import Reason, UnjudgeableError
from perfsuite.problems.base import Inputs
from perfsuite.problems.checks import plain_name
from perfsuite.problems.nests import Flat, Nest, has_layouts, nest_of, outline
from perfsuite.problems.tensors import PLAIN, leaves_in, own_attributes, tensors_in, turns

if TYPE_CHECKING:
    import torch

DENSE_BYTES = 1 << 30
"""Largest dense form in which a sparse result is compared; larger ones are compared by indices and values."""


def check_kind(output: Any) -> Judgement | None:
    """None if every leaf of `output` is a plain tensor, a number, text or None; otherwise the fault.

    This runs before anything else reads the output. A subclass of Tensor is a fault even if it behaves: it can put the
    work off until the checker looks.
    """
    import torch

    nest = nest_of(output)
    if type(output) is torch.Tensor and nest is not None and own_attributes(output):
        return wrong(Reason.BAD_TYPE, f"the output {_attributes(output)}")
    for path, leaf in leaves_in(output):
        what = f"output{path}" if path else "the output"
        if isinstance(leaf, torch.Tensor):
            if (fault := _tensor_fault(what, leaf)) is not None:
                return fault
        elif not _plain(leaf):
            allowed = "allowed are tensors and numbers, in tuples, lists, dicts, dataclasses and other pytrees of torch"
            return wrong(Reason.BAD_TYPE, f"{what} is {_described(leaf)}; {allowed}")
    return None


def require_judgeable(expected: Any) -> None:
    """Raise UnjudgeableError if the rival's result has a form that perfsuite cannot judge."""
    if (fault := check_kind(expected)) is not None:
        raise UnjudgeableError(
            f"perfsuite cannot judge what the rival returns: {fault.sentence.replace('the output', 'its result', 1)}; "
            "return plain tensors from both sides, or register the class with torch.utils._pytree.register_pytree_node"
        )


def check_form(output: Any, expected: Any) -> Judgement | None:
    """`check_kind`; and structure, shapes, dtypes and devices against `expected`, the library's result."""
    import torch

    if (fault := check_kind(output)) is not None:
        return fault
    if (fault := _structure_fault(output, expected, "")) is not None:
        return fault
    for (path, one), (_, other) in zip(leaves_in(output), leaves_in(expected), strict=True):
        what = f"output{path}" if path else "the output"
        if isinstance(one, torch.Tensor):
            fault = _form(what, one, other)
        elif isinstance(one, str) and one != other:
            fault = wrong(Reason.INACCURATE, f"{what} is {one!r}; it must be {other!r}")
        if fault is not None:
            return fault
    return None


def memory_shared(output: Any, inputs: Inputs) -> list[tuple[str, frozenset[int]]]:
    """(path, places of the arguments' tensors in whose memory it lies) of every tensor of a result."""
    import torch

    owners: dict[int, set[int]] = {}
    for place, tensor in enumerate(tensors_in(inputs)):
        if tensor.numel():
            owners.setdefault(tensor.untyped_storage().data_ptr(), set()).add(place)
    return [
        (path, frozenset(owners.get(leaf.untyped_storage().data_ptr(), ()) if leaf.numel() else ()))
        for path, leaf in leaves_in(output)
        if isinstance(leaf, torch.Tensor)
    ]


def check_memory(mine: list[tuple[str, frozenset[int]]], rivals: list[tuple[str, frozenset[int]]]) -> Judgement | None:
    """The fault of a result that lies in an argument's memory although the rival's does not; None if there is none.

    mine, rivals: of `memory_shared`, for results of one structure.
    """
    for (path, shared), (_, theirs) in zip(mine, rivals, strict=True):
        if shared - theirs:
            what = f"output{path}" if path else "the output"
            must = "it must have memory of its own, as the rival's has"
            return wrong(Reason.BAD_TYPE, f"{what} lies in the memory of an input; {must}")
    return None


def in_one_memory(one: Any, other: Any, inputs: Inputs) -> bool:
    """True if tensors of two results share memory that is not that of the inputs."""
    given = {tensor.untyped_storage().data_ptr() for tensor in tensors_in(inputs)}
    mine, others = (
        {tensor.untyped_storage().data_ptr() for tensor in tensors_in(nest) if tensor.numel()} for nest in (one, other)
    )
    return bool(mine & others - given)


def values_in(result: Any, path: str = "") -> list[tuple[str, torch.Tensor]]:
    """(path, tensor) of everything in a result that is compared: numbers as tensors without axes, sparse ones dense."""
    import torch

    if type(result) is torch.Tensor and result.layout is torch.strided and not result.is_nested:
        return [(path, result.resolve_conj().resolve_neg())]
    if isinstance(result, torch.Tensor) and result.layout not in (torch.strided, torch.jagged):
        dense = result.numel() * result.element_size() <= DENSE_BYTES
        if dense or (result.layout is torch.sparse_coo and not result.is_coalesced()):
            result = result.to_dense() if dense else result.coalesce()
    if (nest := nest_of(result)) is not None:
        return [found for step, part in nest.parts for found in values_in(part, path + step)]
    if isinstance(result, torch.Tensor):
        return [(path, result)]
    if isinstance(result, int | float | complex):
        # torch gives such a number from a float32, as a rule; so it counts as one.
        kinds = {bool: torch.bool, int: torch.int64, float: torch.float32, complex: torch.complex64}
        return [(path, torch.tensor(result, dtype=kinds.get(type(result), torch.float32)))]
    return []


def _structure_fault(one: Any, other: Any, path: str) -> Judgement | None:
    mine, theirs = nest_of(one), nest_of(other)
    what = f"output{path}" if path else "the output"
    if isinstance(one, Flat):
        if has_layouts(other):
            raise UnjudgeableError("sparse and nested results cannot leave a process; run without --perf-isolate")
        librarys = other.structure if isinstance(other, Flat) else outline(other)
        if one.structure == librarys:
            return None
        return wrong(Reason.BAD_TYPE, f"{what} is {one.structure}; the library's is {librarys}")
    if mine is None and theirs is None:
        if _leaf_kind(one) == _leaf_kind(other):
            return None
    elif mine is not None and theirs is not None and _alike(mine, theirs):
        faults = (
            _structure_fault(part, their_part, path + step)
            for (step, part), (_, their_part) in zip(mine.parts, theirs.parts, strict=True)
        )
        return next((fault for fault in faults if fault is not None), None)
    return wrong(Reason.BAD_TYPE, f"{what} is {_described(one)}; the library's is {_described(other)}")


def _alike(mine: Nest, theirs: Nest) -> bool:
    """True if the nests have one structure: tuples or lists of one length, or dictionaries with the same keys.

    Named tuples with the same names in another order could be meant either way, so they are not alike.
    """
    same_names = set(mine.names) & set(theirs.names) and mine.names != theirs.names
    return mine.kind == theirs.kind and len(mine.parts) == len(theirs.parts) and not same_names


def _leaf_kind(leaf: Any) -> object:
    import torch

    return torch.Tensor if isinstance(leaf, torch.Tensor) else type(leaf)


def _plain(leaf: Any) -> bool:
    import torch

    return isinstance(leaf, bool | int | float | complex | str | None | torch.dtype | torch.device)


def _tensor_fault(what: str, one: torch.Tensor) -> Judgement | None:
    import torch

    if type(one) not in (torch.Tensor, torch.nn.Parameter):
        return wrong(Reason.BAD_TYPE, f"{what} is a {_type_name(one)}; it must be a plain torch.Tensor")
    if own_attributes(one):
        return wrong(Reason.BAD_TYPE, f"{what} {_attributes(one)}")
    if one.layout is not torch.strided or one.is_meta or one.is_quantized:
        return wrong(Reason.BAD_TYPE, f"{what} is {one.layout} on {one.device}; it must be strided and have memory")
    return None


def _attributes(one: torch.Tensor) -> str:
    return f"carries attributes of its own ({', '.join(own_attributes(one))}); it must be a plain torch.Tensor"


def _form(what: str, one: torch.Tensor, other: torch.Tensor) -> Judgement | None:
    if one.shape != other.shape:
        return wrong(Reason.BAD_SHAPE, f"{what} has shape {tuple(one.shape)}; it must be {tuple(other.shape)}")
    if one.dtype is not other.dtype:
        return wrong(Reason.BAD_DTYPE, f"{what} is {plain_name(one.dtype)}; it must be {plain_name(other.dtype)}")
    if one.device != other.device:
        return wrong(Reason.BAD_DEVICE, f"{what} is on {one.device}; it must be on {other.device}")
    if (mine := turns(one)) != PLAIN and mine != turns(other):
        by, call = ("conjugated", "resolve_conj") if mine[0] else ("negated", "resolve_neg")
        said = f"{what} is {by} by a mark alone, and its readers do the work; return what {call}() gives"
        return wrong(Reason.BAD_TYPE, said)
    return None


def _described(value: Any) -> str:
    """A value for messages: "a tuple of 2", "a dict with 'loss' and 'logits'", "None"."""
    import torch

    if isinstance(value, torch.Tensor):
        layout = "" if value.layout is torch.strided else f"{plain_name(value.layout)} "
        return f"a {layout}tensor"
    if value is None:
        return "None"
    if isinstance(value, dict):
        return f"a {_type_name(value)} with the keys {', '.join(map(repr, value)) or '(none)'}"
    return f"a {_type_name(value)}" + (f" of {len(value)}" if isinstance(value, tuple | list) else "")


def _type_name(value: Any) -> str:
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
