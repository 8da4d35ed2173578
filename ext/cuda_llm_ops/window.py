"""Options of the attention operators, and the sliding window: FlashAttention's pair of numbers of keys."""

from __future__ import annotations

from typing import Any, TypeAlias, TypedDict

Window: TypeAlias = tuple[int, int]


class Options(TypedDict, total=False):
    """The options of `flash_attention` whose types do not decide the type of its result."""

    scale: float | None
    bottom_right: bool
    window: Window | None


def sides(op: str, window: Any) -> Window:
    """(left, right) in keys, -1 where there is no limit.

    Raises:
        TypeError: `window` is no pair of whole numbers.
        ValueError: one of them is below -1.
    """
    if window is None:
        return -1, -1
    if not isinstance(window, tuple | list) or len(window) != 2:
        raise TypeError(f"{op}: window is {window!r}; it must be a pair of numbers of keys, (left, right), or None")
    for side in window:
        if isinstance(side, bool) or not isinstance(side, int):
            raise TypeError(f"{op}: window is {window!r}; each side must be a whole number of keys, -1 for no limit")
        if side < -1:
            raise ValueError(f"{op}: window is {window!r}; each side must be a number of keys, or -1 for no limit")
    left, right = window
    return min(left, _MOST), min(right, _MOST)


_MOST = 2**62  # more keys than any sequence has, and within what the operator takes
