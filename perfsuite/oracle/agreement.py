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


def apart(mine: Any, rivals: Any) -> torch.Tensor:
    """How far two results are apart, relative to the second, in the Frobenius norm: the largest of all their tensors.

    A scalar on their device, for which nothing is waited; infinite where one is finite or NaN and the other is not.
    """
    import torch

    found = [torch.zeros((), device=one.device) for one in tensors_in(rivals)][:1]
    for one, other in zip(tensors_in(mine), tensors_in(rivals), strict=True):
        if not other.is_floating_point() or one.shape != other.shape:
            continue
        alike = (one == other) | (one.isnan() & other.isnan())
        both = one.isfinite() & other.isfinite()
        difference = torch.where(both, one.float() - other.float(), 0.0)
        size = torch.linalg.vector_norm(torch.where(other.isfinite(), other.float(), 0.0))
        share = torch.linalg.vector_norm(difference) / size.clamp(min=torch.finfo(torch.float32).tiny)
        found.append(torch.where((alike | both).all(), share, torch.inf))
    return torch.stack(found).max() if found else torch.zeros(())


def furthest_allowed(limit: float, rival_error: float, elements: int) -> float:
    """How far apart results of so many elements may be.

    The candidate is within `limit` of the right answer, the library `rival_error` off.
    """
    if elements < TOO_FEW:
        return math.inf
    allowed = SLACK * (limit + rival_error)
    return max(allowed, FAR) if elements < FEW else allowed
