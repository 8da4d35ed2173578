"""Compares a candidate's result with the library's on the same inputs.

This needs no right answer and costs next to nothing. So it covers many timed calls; FP64 covers only a few.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from perfsuite.problems.nests import has_layouts
from perfsuite.problems.tensors import tensors_in

if TYPE_CHECKING:
    import torch

SLACK = 2.0
"""Errors differ from inputs to inputs, and the judged ones may be small by chance."""
FEW, TOO_FEW = 256, 16
"""Elements of a result whose norm varies from inputs to inputs; below the second number it may be nearly zero."""
FAR = 0.5
"""The least distance that counts as another result where elements are few."""


def norms_apart(mine: Any, rivals: Any) -> torch.Tensor | None:
    """(norm of the difference of two results, norm of the second), on their device and without waiting for it.

    None where either is not one plain result, or where they cannot be compared.
    """
    from torch import Tensor

    if not (isinstance(mine, Tensor) and isinstance(rivals, Tensor)) or has_layouts((mine, rivals)):
        return None  # the limits of several results are not known one by one
    if not rivals.is_floating_point() or mine.shape != rivals.shape:
        return None
    one, other = _with_arithmetic(mine, rivals)
    return _norms(one - other, other, _wide(other))


def share_of(difference: float, size: float) -> float | None:
    """The distance of two results with these norms, relative to the second; infinite if only the second is finite.

    None if the second norm is not finite: only `apart` can compare such results.
    """
    if not math.isfinite(size):
        return None
    return _relative(difference, size) if math.isfinite(difference) else math.inf


def apart(mine: Any, rivals: Any) -> float:
    """The largest distance of two results' tensors, relative to the second result's, in the Frobenius norm.

    Infinite where one is finite or NaN and the other is not. Waits for their device.
    """
    pairs = zip(tensors_in(mine), tensors_in(rivals), strict=True)
    comparable = [(one, other) for one, other in pairs if other.is_floating_point() and one.shape == other.shape]
    return max((_share(one, other) for one, other in comparable), default=0.0)


def _share(one: torch.Tensor, other: torch.Tensor) -> float:
    import torch

    one, other = _with_arithmetic(one, other)
    # In the results' own dtype: the difference of numbers near each other is exact there, and that of others is off by
    # a rounding. A finite norm means that every element is finite.
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
    """The largest allowed distance of results: `limit` and `rival_error` are those from the right answer."""
    if elements < TOO_FEW:
        return math.inf
    allowed = SLACK * (limit + rival_error)
    return max(allowed, FAR) if elements < FEW else allowed
