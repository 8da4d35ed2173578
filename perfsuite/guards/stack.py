"""Objects compared by identity."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

_is = operator.is_


class Stack:
    """Objects in order, compared by identity: a mode of a candidate may define its own comparison."""

    __slots__ = ("items",)

    def __init__(self, items: Sequence[Any]) -> None:
        self.items = tuple(items)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Stack) or len(self.items) != len(other.items):
            return False
        return all(map(_is, self.items, other.items))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return ", ".join(item if isinstance(item, str) else type(item).__name__ for item in self.items) or "none"


EMPTY, NOTHING = Stack(()), Stack((None,))


def stack_of(items: Sequence[Any]) -> Stack:
    """A stack of these; the same one whenever there are none. Most looks compare such, behind every sample."""
    return Stack(items) if items else EMPTY


def stack_of_one(item: Any) -> Stack:
    """A stack of this object; the same one whenever it is None."""
    return NOTHING if item is None else Stack((item,))
