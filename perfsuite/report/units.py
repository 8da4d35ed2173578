"""Reads sizes as people write them, such as "7B" parameters, "80GB" and "fp16", and writes bytes as text."""

from __future__ import annotations

import math
import re
from typing import Any

from perfsuite.problems.checks import LONG_NAMES, plain_name, positive

ITEM_BYTES = {"fp32": 4.0, "fp16": 2.0, "bf16": 2.0, "fp8": 1.0, "int8": 1.0, "int4": 0.5}
"""Bytes of an element by its short name."""
_SHORT_NAMES = {long: short for short, long in LONG_NAMES.items()}
_COUNTS = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}
_BYTES = {"b": 1.0} | {
    f"{letter}{infix}b": float(base**power)
    for power, letter in enumerate("kmgt", start=1)
    for infix, base in (("", 1000), ("i", 1024))
}


def item_bytes(dtype: str) -> float:
    """Bytes of one element; ValueError lists the known dtypes."""
    name = _SHORT_NAMES.get(plain_name(dtype), plain_name(dtype))
    if name not in ITEM_BYTES:
        raise ValueError(f"dtype is {dtype!r}; it must be one of {', '.join(ITEM_BYTES)}")
    return ITEM_BYTES[name]


def whole(what: str, value: Any) -> int:
    """`value` as an int of at least 1; ValueError, for the command line, even if it is no number."""
    try:
        return positive(what, value)
    except TypeError as error:
        raise ValueError(str(error)) from None


def count(text: str) -> float:
    """A number of parameters: "7B", "125M", "6.74e9"."""
    return _with_suffix(text, _COUNTS, "a positive number such as 7B, 125M or 6.7e9")


def size(text: str) -> float:
    """A number of bytes: "80GB" (80e9), "24GiB", "1000B"."""
    return _with_suffix(text, _BYTES, "a size such as 80GB, 24GiB or 512MB")


def text_of(value: float) -> str:
    """ "2.15 GB (2.00 GiB)": decimal and binary, three figures each; below a kilobyte plainly "64 B"."""
    return f"{_scaled(value, 1000, '')} ({_scaled(value, 1024, 'i')})" if value >= 1000 else f"{value:g} B"


def decimal_text(value: float) -> str:
    """ "2.15 GB": decimal alone."""
    return _scaled(value, 1000, "") if value >= 1000 else f"{value:g} B"


def _scaled(value: float, base: int, infix: str) -> str:
    scaled, letters = value / base, "kMGT" if not infix else "KMGT"
    for letter in letters[:-1]:
        if scaled < 999.5:
            return f"{_three(scaled)} {letter}{infix}B"
        scaled /= base
    return f"{_three(scaled)} {letters[-1]}{infix}B"


def _three(value: float) -> str:
    return f"{value:.{max(0, 2 - max(0, math.floor(math.log10(value))))}f}" if value >= 1 else f"{value:.2f}"


def _with_suffix(text: str, suffixes: dict[str, float], allowed: str) -> float:
    found = re.fullmatch(r"\s*([0-9.]+(?:[eE][+-]?[0-9]+)?)\s*([a-zA-Z]*)\s*", text)
    try:
        value = float(found[1]) * suffixes[found[2].lower()] if found else math.nan
    except (ValueError, KeyError):
        value = math.nan
    if not 0 < value < math.inf:
        raise ValueError(f"{text!r} is not {allowed}")
    return value
