"""Runs any function of torch in float64 without its help."""

from .answer import in_float64, is_float64
from .blocks import in_little_memory
from .nudge import nudged

__all__ = ["in_float64", "in_little_memory", "is_float64", "nudged"]
