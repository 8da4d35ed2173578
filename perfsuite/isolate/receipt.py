"""Reads a worker's receipts. A worker runs untrusted code, so each field is checked, and each size is limited."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, TypeGuard

from perfsuite.case.failures import MOST_TEXT
from perfsuite.outcome import Reason
from perfsuite.problems.tensors import PLAIN, Turns

if TYPE_CHECKING:
    import torch

MOST_RECEIPT_BYTES = 1 << 20
"""Longest receipt."""
MOST_RESULT_BYTES = {"cpu": 1 << 30, "cuda": 1 << 34}
"""Device -> the most memory that the tensors of one receipt may take."""
_MOST_SIZE = 1 << 62
_NO_CANDIDATE = {str(one): one for one in (Reason.DOES_NOT_PARSE, Reason.DOES_NOT_COMPILE, Reason.CANDIDATE_FAILED)}


class ReceiptError(ValueError):
    """The receipt is not of the expected form, or describes too much; the message names the field."""


@dataclass(frozen=True, slots=True)
class View:
    """A result that is a view of an argument: the argument's place, the distance in elements."""

    of: int
    apart: int


@dataclass(frozen=True, slots=True)
class Described:
    """A tensor of a result."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    stride: tuple[int, ...]
    view: View | None
    turns: Turns = PLAIN
    """Its marks: `perfsuite.problems.tensors.turns`."""

    @property
    def span(self) -> int:
        """Bytes from its first element to its last."""
        if not math.prod(self.shape):
            return 0
        steps = ((size - 1) * step for size, step in zip(self.shape, self.stride, strict=True))
        return (1 + sum(steps)) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Failure:
    """An exception of the candidate."""

    error: str
    sentence: str
    memory: bool
    frames: tuple[str, ...]
    reason: Reason | None
    """Not None: the source gave no candidate to call."""


def parsed(body: bytes) -> dict[str, Any]:
    """The receipt's JSON object; ReceiptError for other bytes."""
    try:
        receipt = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ReceiptError(f"not JSON: {_cut(str(error), 100)}") from None
    if not isinstance(receipt, dict):
        raise ReceiptError("not a JSON object")
    return receipt


def failure_in(receipt: dict[str, Any]) -> Failure | None:
    """The exception that a receipt reports, or None."""
    if "error" not in receipt:
        return None
    frames = receipt.get("frames", [])
    if not isinstance(frames, list):
        raise ReceiptError(f"frames is {_shown(frames)}; it must be a list of text")
    return Failure(
        _text(receipt, "error"),
        _text(receipt, "sentence"),
        receipt.get("memory") is True,
        tuple(_cut(str(frame), 300) for frame in frames[:100]),
        _NO_CANDIDATE.get(str(receipt.get("reason"))),
    )


def fault_in(receipt: dict[str, Any]) -> tuple[str, str] | None:
    """(reason code, sentence) of a result that cannot be judged, or None."""
    return (_text(receipt, "fault"), _text(receipt, "sentence")) if "fault" in receipt else None


def tensors_of(receipt: dict[str, Any], device: str) -> list[Described]:
    """The tensors that a receipt describes; ReceiptError if they would take more than MOST_RESULT_BYTES."""
    dtypes, total = _dtypes(), 0
    found: list[Described] = []
    for place, one in enumerate(_list(receipt, "tensors")):
        if not isinstance(one, dict):
            raise ReceiptError(f"tensors[{place}] is {_shown(one)}; it must be an object")
        dtype = one.get("dtype")
        if not isinstance(dtype, str) or dtype not in dtypes:
            raise ReceiptError(f"tensors[{place}].dtype is {_shown(dtype)}; it must be a dtype of torch")
        shape = _whole_numbers(one.get("shape"), f"tensors[{place}].shape")
        stride = _whole_numbers(one.get("stride"), f"tensors[{place}].stride")
        if len(stride) != len(shape):
            raise ReceiptError(f"tensors[{place}].stride has {len(stride)} numbers; its shape has {len(shape)}")
        found.append(Described(shape, dtypes[dtype], stride, _view(one, place), _turns(one, dtypes[dtype])))
        total += math.prod(shape) * dtypes[dtype].itemsize
    if total > (most := MOST_RESULT_BYTES[device]):
        raise ReceiptError(f"a result of {_shown(total)} bytes; at most {most} leave a process")
    return found


@cache
def _dtypes() -> dict[str, torch.dtype]:
    import torch

    return {str(one)[6:]: one for one in vars(torch).values() if isinstance(one, torch.dtype)}


def addresses_in(receipt: dict[str, Any], calls: int, tensors: int) -> list[tuple[int, ...]]:
    """For each of these calls the addresses of its result's tensors in the worker's memory."""
    at = _whole_numbers(receipt.get("at"), "at")
    if len(at) != calls * tensors:
        raise ReceiptError(f"at has {len(at)} addresses; {calls} calls with {tensors} tensors each were made")
    return [at[call * tensors : (call + 1) * tensors] for call in range(calls)]


def base_in(receipt: dict[str, Any]) -> int:
    """Where the shared inputs begin in the worker's memory."""
    return _whole_numbers([receipt.get("base")], "base")[0]


def leaves_of(receipt: dict[str, Any], tensors: list[torch.Tensor]) -> tuple[str, tuple[Any, ...]]:
    """(structure in words, leaves) of a nested result, with its tensors in their places."""
    leaves, places = list(_list(receipt, "leaves")), _whole_numbers(receipt.get("places"), "places")
    if len(places) != len(tensors) or len(set(places)) != len(places) or any(place >= len(leaves) for place in places):
        raise ReceiptError("places must name one leaf for each tensor")
    if any(isinstance(leaf, list | dict) for leaf in leaves):
        raise ReceiptError("a leaf must be a number, text, true, false or null")
    for place, one in zip(places, tensors, strict=True):
        leaves[place] = one
    structure = receipt.get("structure")
    if not isinstance(structure, str):
        raise ReceiptError(f"structure is {_shown(structure)}; it must be text")
    return structure, tuple(leaves)


def _view(one: dict[str, Any], place: int) -> View | None:
    if "view" not in one:
        return None
    view, name = one["view"], f"tensors[{place}].view"
    if not isinstance(view, dict):
        raise ReceiptError(f"{name} is {_shown(view)}; it must be an object")
    of, apart = view.get("of"), view.get("apart")
    if not _is_whole(of) or not _is_whole(apart) or of < 0:
        raise ReceiptError(f"{name} must have the whole numbers of and apart; it is {_shown(view)}")
    return View(of, apart)


def _turns(one: dict[str, Any], dtype: torch.dtype) -> Turns:
    """Its marks. Only complex numbers can be conjugated, and only numbers that have a sign negated."""
    marks = one.get("turns")
    if marks is None:
        return PLAIN
    numbers = dtype.is_floating_point or dtype.is_complex
    if not isinstance(marks, list) or len(marks) != len(PLAIN) or not numbers or (marks[0] and not dtype.is_complex):
        raise ReceiptError(f"turns is {_shown(marks)}; a tensor of {dtype} has no such marks")
    return marks[0] is True, marks[1] is True


def _list(receipt: dict[str, Any], name: str) -> list[Any]:
    value = receipt.get(name)
    if not isinstance(value, list):
        raise ReceiptError(f"{name} is {_shown(value)}; it must be a list")
    return value


def _whole_numbers(value: Any, name: str) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(_is_whole(one) and one >= 0 for one in value):
        raise ReceiptError(f"{name} is {_shown(value)}; it must be a list of whole numbers, none negative")
    return tuple(value)


def _is_whole(value: Any) -> TypeGuard[int]:
    return type(value) is int and abs(value) < _MOST_SIZE


def _text(receipt: dict[str, Any], name: str) -> str:
    value = receipt.get(name)
    if not isinstance(value, str):
        raise ReceiptError(f"{name} is {_shown(value)}; it must be text")
    return _cut(value, MOST_TEXT)


def _shown(value: Any) -> str:
    return _cut(repr(value) if not isinstance(value, int) or abs(value) < _MOST_SIZE else "a huge number", 60)


def _cut(text: str, most: int) -> str:
    """At most so many characters, without halves of surrogate pairs, which no file can hold."""
    return text[:most].encode(errors="replace").decode()
