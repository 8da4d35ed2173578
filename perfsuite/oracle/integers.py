"""Judges integers and truth values: exact, but for those that follow from rounded numbers or from the order of values.

A quantiser, a threshold or an argmax gives another integer where float64 lies on the other side of a rounding. A right
kernel does so about as often as the library. Indices that point to equal values are equally right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from perfsuite.oracle.judgement import Judgement, wrong
from perfsuite.outcome import Reason
from perfsuite.problems.answers import Mark, Pointer

if TYPE_CHECKING:
    import torch

TIMES_THE_LIBRARY = 2
ONE_MORE = 1
"""Element that may differ although the library's never did: where few do, that is chance."""

MoreDraws = Callable[[], Iterator[tuple["torch.Tensor", "torch.Tensor"]]]


def judge_integers(
    mine: torch.Tensor, exact: torch.Tensor, rivals: torch.Tensor, mark: Mark, more: MoreDraws
) -> Judgement:
    """Judge `mine` against the float64 answer `exact`; all three of one shape.

    more: gives (the float64 answer, the library's answer) on further inputs. It is called if the first do not decide.
    """
    import torch

    total = mine.numel()
    if not total or torch.equal(mine, exact):
        return _right(f"all {total} integers are exact")
    differs = mine != exact
    if mark.pointer is not None:
        found = _pointed(mine, exact, mark.pointer)
        if isinstance(found, Judgement):
            return found
        differs &= ~found
    count = int(differs.sum())
    if not count:
        said = f"{int((mine != exact).sum())} of {total} indices point elsewhere, to equal values"
        return _right(said)
    theirs = int((rivals != exact).sum())
    if mark.rounded and mark.pointer is None and not bool((_units(mine, exact)[differs] <= 1).all()):
        furthest = int(_units(mine, exact).amax())
        return wrong(Reason.INACCURATE, f"{count} of {total} integers differ from float64's, by up to {furthest} units")
    allowed = TIMES_THE_LIBRARY * theirs + (ONE_MORE if mark.rounded else 0)
    if count > allowed and mark.rounded:
        theirs = max(
            [theirs, *(int((answer != right).sum()) for right, answer in more() if right.shape == exact.shape)]
        )
        allowed = TIMES_THE_LIBRARY * theirs + ONE_MORE
    said = f"{count} of {total} integers differ from float64's, the library's in {theirs}"
    if count <= allowed:
        return _right(f"{said}, each by one unit or a tie")
    return wrong(Reason.INACCURATE, f"{said}; allowed are {allowed}")


def _right(sentence: str) -> Judgement:
    return Judgement(ok=True, reason=None, sentence=sentence, candidate_error=0.0, rival_error=0.0, limit=0.0)


def _units(mine: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """Distances in units; of bytes that may hold two numbers of 4 bits, the smaller of both readings."""
    import torch

    if mine.dtype is torch.bool:
        return (mine != exact).long()
    one, other = mine.long(), exact.long()
    apart = (one - other).abs()
    if mine.dtype is not torch.uint8:
        return apart
    nibbles = torch.maximum(((one >> 4) - (other >> 4)).abs(), ((one & 15) - (other & 15)).abs())
    return torch.minimum(apart, nibbles)


def _pointed(mine: torch.Tensor, exact: torch.Tensor, to: Pointer) -> torch.Tensor | Judgement:
    """True at each index that points to a value equal to the right one; a judgement if indices are impossible."""
    source, axis = (to.source.flatten(), 0) if to.axis is None else (to.source, to.axis)
    if source.dim() == 0:
        source = source.view(1)
    size = source.shape[axis]
    mine, exact = mine.long(), exact.long()
    if bool(((mine < 0) | (mine >= size)).any()):
        return wrong(Reason.INACCURATE, f"an index lies outside of 0 to {size - 1}")
    reduced = mine.dim() < source.dim()
    if to.axis is None:
        chosen = [source.take(each) for each in (mine, exact)]
    else:
        places = [each.unsqueeze(axis) if reduced else each for each in (mine, exact)]
        if places[0].dim() != source.dim():
            return mine == exact  # the indices were rearranged: nothing is known of what they point to
        if any(
            a > b
            for at, (a, b) in enumerate(zip(places[0].shape, source.shape, strict=True))
            if at != axis % source.dim()
        ):
            return mine == exact
        if to.distinct and not reduced:
            ordered = mine.sort(axis).values
            if bool((ordered.diff(dim=axis) == 0).any()):
                return wrong(Reason.INACCURATE, "an index comes twice in a row of indices that must differ")
        chosen = [source.gather(axis, each) for each in places]
        chosen = [each.squeeze(axis) if reduced else each for each in chosen]
    one, other = chosen
    near = (one - other).abs() <= to.slack
    return near | (one == other) | (one.isnan() & other.isnan())
