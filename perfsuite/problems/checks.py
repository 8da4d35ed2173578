"""Validation of a problem's parameters: a clear error naming the parameter, its value and what is allowed."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

ITEM_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
HALF_DTYPES = ("float16", "bfloat16")
LONG_NAMES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
"""Short name of a dtype -> torch's name."""
DTYPE_WORDS = LONG_NAMES | {name: name for name in ITEM_BYTES}
"""Spellings of a dtype on the command line -> torch's name."""


def positive(what: str, value: Any) -> int:
    """`value` as an int of at least 1."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{what} is {value!r}; it must be a whole number of at least 1") from None
    if isinstance(value, bool) or number < 1:
        raise ValueError(f"{what} is {value!r}; it must be a whole number of at least 1")
    return number


def flag(what: str, value: Any) -> bool:
    """`value`, which must be True or False."""
    if not isinstance(value, bool):
        raise TypeError(f"{what} is {value!r}; it must be True or False")
    return value


def is_backward(value: Any) -> bool:
    """True for False, True and "only"."""
    return isinstance(value, bool) or value == "only"


def label_of(value: Any) -> str:
    """`value`, which must be a name for tables: one printable line."""
    if not isinstance(value, str) or not value:
        raise TypeError(f"label is {value!r}; it must be a text of at least one character")
    if not value.isprintable():
        raise ValueError(f"label is {value!r}; it stands in tables, so it must be one printable line")
    return value


def plain_name(dtype: object) -> str:
    """ "float16" for torch.float16."""
    return str(dtype).removeprefix("torch.")


def dtype_name(what: str, value: Any, allowed: tuple[str, ...] = tuple(ITEM_BYTES)) -> str:
    """The plain name of a dtype given as a name or as a `torch.dtype`."""
    name = plain_name(value)
    if name not in allowed:
        raise ValueError(f"{what} is {value!r}; it must be one of {', '.join(allowed)}")
    return name


def scale_factor(value: Any) -> float | None:
    """The softmax scale: None for 1/sqrt(head_dim), or a finite number of at least 0."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"scale is {value!r}; it must be a number, or None for 1/sqrt(head_dim)")
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"scale is {value!r}; it must be finite and not negative, or None for 1/sqrt(head_dim)")
    return float(value)


def window_sides(value: Any) -> tuple[int, int] | None:
    """A sliding window: None, or a pair of whole numbers of keys, -1 for a side without a limit."""
    if value is None:
        return None
    pair = tuple(value) if isinstance(value, list | tuple) else ()
    if len(pair) != 2 or not all(isinstance(side, int) and not isinstance(side, bool) and side >= -1 for side in pair):
        raise ValueError(
            f"window is {value!r}; it must be a pair of whole numbers of keys, (left, right), -1 for no limit, or None"
        )
    return pair


def torch_dtype(name: str) -> torch.dtype:
    """The `torch.dtype` of a plain name."""
    import torch

    dtype = getattr(torch, name)
    assert isinstance(dtype, torch.dtype)
    return dtype
