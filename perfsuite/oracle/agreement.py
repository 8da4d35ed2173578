"""Whether a candidate's result is near the library's on the same inputs: a look that needs no right answer.

It costs next to nothing, so that many timed calls can be looked at where only a few are held against FP64.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from perfsuite.oracle.tensors import tensors_in

if TYPE_CHECKING:
    import torch

SLACK = 2.0
"""Errors differ from inputs to inputs, and the judged ones may be small by chance."""
FEW, TOO_FEW = 256, 16
"""Elements of a result whose norm varies from inputs to inputs; below the second number it may come close to zero."""
FAR = 0.5
"""What is called apart where elements are few: another result altogether."""


def apart(mine: Any, rivals: Any) -> float:
    """How far two results are apart, relative to the second, in the Frobenius norm: the largest of all their tensors.

    Infinite where one is finite or NaN and the other is not. Waits for their device.
    """
    pairs = zip(tensors_in(mine), tensors_in(rivals), strict=True)
    comparable = [(one, other) for one, other in pairs if other.is_floating_point() and one.shape == other.shape]
    return max((_share(one, other) for one, other in comparable), default=0.0)


def _share(one: torch.Tensor, other: torch.Tensor) -> float:
    import torch

    if other.element_size() == 1:  # no arithmetic in 8 bits
        one, other = one.float(), other.float()
    # In the results' own dtype: of numbers that are near each other the difference is exact there, and of others it is
    # off by a rounding. A finite norm says that every element is finite.
    wide = torch.promote_types(other.dtype, torch.float32)
    difference, size = _norms(one - other, other, wide)
    if not (math.isfinite(difference) and math.isfinite(size)):
        alike = (one == other) | (one.isnan() & other.isnan())
        both = one.isfinite() & other.isfinite()
        if not bool((alike | both).all()):
            return math.inf
        mine, rivals = (torch.where(both, values.double(), 0.0) for values in (one, other))
        difference, size = _norms(mine - rivals, rivals, torch.float64)
    return difference / max(size, torch.finfo(torch.float32).tiny)


def _norms(difference: torch.Tensor, values: torch.Tensor, dtype: torch.dtype) -> tuple[float, float]:
    """Both norms, summed in `dtype`, by one transfer."""
    import torch

    norms = [torch.linalg.vector_norm(each, dtype=dtype) for each in (difference, values)]
    one, other = torch.stack(norms).tolist()
    return one, other


def furthest_allowed(limit: float, rival_error: float, elements: int) -> float:
    """How far apart results of so many elements may be.

    The candidate is within `limit` of the right answer, the library `rival_error` off.
    """
    if elements < TOO_FEW:
        return math.inf
    allowed = SLACK * (limit + rival_error)
    return max(allowed, FAR) if elements < FEW else allowed
