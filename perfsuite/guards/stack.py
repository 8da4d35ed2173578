"""Objects compared by identity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class Stack:
    """Objects in order, compared by identity: a mode of a candidate may define its own comparison."""

    __slots__ = ("items",)

    def __init__(self, items: Sequence[Any]) -> None:
        self.items = tuple(items)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Stack) or len(self.items) != len(other.items):
            return False
        return all(one is another for one, another in zip(self.items, other.items, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return ", ".join(item if isinstance(item, str) else type(item).__name__ for item in self.items) or "none"
