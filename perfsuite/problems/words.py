"""Values of a problem's parameters as words of a command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def _pair(text: str) -> tuple[int, int]:
    first, second = map(int, text.split(","))
    return first, second


READ: dict[str, tuple[Callable[[str], Any], str]] = {
    "int": (int, "a whole number"),
    "float": (float, "a number"),
    "str": (str, "a word"),
    "tuple[int,int]": (_pair, "two whole numbers with a comma between, such as 256,-1"),
}
"""Type of a parameter, without blanks -> (what reads its value, what a value is)."""


def value_of(name: str, text: str | None, kind: str) -> Any:
    """The value of the parameter `name` of that type, one of READ. ValueError for another text, and for None."""
    read, form = READ[kind]
    if text is None:
        raise ValueError(f"{name} has no value; behind it there must be {form}")
    try:
        return read(text)
    except ValueError:
        raise ValueError(f"{name} is {text!r}; it must be {form}") from None
