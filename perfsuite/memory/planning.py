"""Plans by arithmetic: the largest batch that fits, aligned sizes, the memory of an attention call."""

from __future__ import annotations

import math

from perfsuite.memory.model import AttentionMemory
from perfsuite.report.units import whole

OVERHEAD = 0.20
"""Share added to a batch for the allocator's rounding and fragments and for the library's workspaces."""
WORKING_SHARE = 0.10
"""Working set of the guide's attention estimate, as a share of the output."""
ALIGNMENT = 16
"""Elements: 32 bytes of 16-bit values. Every tensor-core instruction takes a divisor of this number."""


def largest_batch(bytes_a_sample: float, limit_bytes: float, *, fixed_bytes: float = 0.0) -> int:
    """The largest power of two whose batch fits: fixed + batch · bytes_a_sample · (1 + OVERHEAD) <= limit.

    0 if no sample fits. Raises ValueError if the sample or the limit is not positive, or if a number is infinite.
    """
    for name, value in {"bytes_a_sample": bytes_a_sample, "limit_bytes": limit_bytes}.items():
        if not 0 < value < math.inf:
            raise ValueError(f"{name} is {value!r}; it must be a positive number")
    if not 0 <= fixed_bytes < math.inf:
        raise ValueError(f"fixed_bytes is {fixed_bytes!r}; it must be 0 or more")
    fitting = math.floor((limit_bytes - fixed_bytes) / (bytes_a_sample * (1.0 + OVERHEAD)))
    return 1 << (fitting.bit_length() - 1) if fitting >= 1 else 0


def aligned(size: int, multiple: int = ALIGNMENT) -> int:
    """`size`, rounded up to a multiple of `multiple`."""
    size, multiple = whole("size", size), whole("multiple", multiple)
    return -(-size // multiple) * multiple


def with_working_set(memory: AttentionMemory) -> float:
    """The tuning guide's estimate for flash attention, in bytes: Q, K, V, O and WORKING_SHARE of the output.

    2 x 16 x 8192 x 64 in FP16 gives 131.2 MiB. The guide prints "~55 MB", but Q, K, V and O alone are 128 MiB.
    """
    return memory.inputs + memory.output * (1.0 + WORKING_SHARE)
