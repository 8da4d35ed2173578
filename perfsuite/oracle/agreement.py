"""Whether a candidate's result is near the library's on the same inputs: a look that needs no right answer.

It costs next to nothing, so that many timed calls can be looked at where only a few are held against FP64.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from perfsuite.problems.tensors import tensors_in

if TYPE_CHECKING:
    import torch

SLACK = 2.0
"""Errors differ from inputs to inputs, and the judged ones may be small by chance."""
FEW, TOO_FEW = 256, 16
"""Elements of a result whose norm varies from inputs to inputs; below the second number it may come close to zero."""
FAR = 0.5
"""What is called apart where elements are few: another result altogether."""


def norms_apart(mine: Any, rivals: Any) -> torch.Tensor | None:
    """The norms of the difference of two results and of the second, side by side and still on their device.

    Nothing is waited for. None where either is not one plain result, or where they cannot be compared.
    """
    from torch import Tensor

    if not (isinstance(mine, Tensor) and isinstance(rivals, Tensor)):
        return None  # of several results the limits are not known one by one
    if not rivals.is_floating_point() or mine.shape != rivals.shape:
        return None
    one, other = _with_arithmetic(mine, rivals)
    return _norms(one - other, other, _wide(other))


def share_of(difference: float, size: float) -> float | None:
    """How far apart two results with these norms are, relative to the second; infinite where that is finite and their
    difference is not. None where the norms do not tell, and `apart` has to."""
    if not math.isfinite(size):
        return None
    return _relative(difference, size) if math.isfinite(difference) else math.inf


def apart(mine: Any, rivals: Any) -> float:
    """How far two results are apart, relative to the second, in the Frobenius norm: the largest of all their tensors.

    Infinite where one is finite or NaN and the other is not. Waits for their device.
    """
    pairs = zip(tensors_in(mine), tensors_in(rivals), strict=True)
    comparable = [(one, other) for one, other in pairs if other.is_floating_point() and one.shape == other.shape]
    return max((_share(one, other) for one, other in comparable), default=0.0)


def _share(one: torch.Tensor, other: torch.Tensor) -> float:
    import torch

    one, other = _with_arithmetic(one, other)
    # In the results' own dtype: of numbers that are near each other the difference is exact there, and of others it is
    # off by a rounding. A finite norm says that every element is finite.
    difference, size = _norms(one - other, other, _wide(other)).tolist()
    if not (math.isfinite(difference) and math.isfinite(size)):
        alike = (one == other) | (one.isnan() & other.isnan())
        both = one.isfinite() & other.isfinite()
        if not bool((alike | both).all()):
            return math.inf
        mine, rivals = (torch.where(both, values.double(), 0.0) for values in (one, other))
        difference, size = _norms(mine - rivals, rivals, torch.float64).tolist()
    return _relative(difference, size)


def _with_arithmetic(one: torch.Tensor, other: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The same values in a dtype that has arithmetic: 8 bits have none."""
    return (one.float(), other.float()) if other.element_size() == 1 else (one, other)


def _relative(difference: float, size: float) -> float:
    import torch

    return difference / max(size, torch.finfo(torch.float32).tiny)


def _norms(difference: torch.Tensor, values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Both norms, summed in `dtype`."""
    import torch

    return torch.stack([torch.linalg.vector_norm(each, dtype=dtype) for each in (difference, values)])


def _wide(values: torch.Tensor) -> torch.dtype:
    import torch

    return torch.promote_types(values.dtype, torch.float32)


def furthest_allowed(limit: float, rival_error: float, elements: int) -> float:
    """How far apart results of so many elements may be.

    The candidate is within `limit` of the right answer, the library `rival_error` off.
    """
    if elements < TOO_FEW:
        return math.inf
    allowed = SLACK * (limit + rival_error)
    return max(allowed, FAR) if elements < FEW else allowed
