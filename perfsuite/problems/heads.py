"""The parameters that problems of attention share: grouped heads, the scale of the logits, the dtype."""

from __future__ import annotations

import math

from perfsuite.problems.base import Problem
from perfsuite.problems.checks import dtype_name, positive, scale_factor


class Heads(Problem):
    """Base of the families whose queries read keys and values. A subclass declares the fields below, with defaults."""

    heads: int
    head_dim: int
    kv_heads: int | None
    scale: float | None
    dtype: str

    def check_heads(self, *sizes: str) -> None:
        """Check and convert the shared parameters and the whole numbers named `sizes`, for `__post_init__`."""
        put = object.__setattr__
        put(self, "kv_heads", self.heads if self.kv_heads is None else self.kv_heads)
        for what in ("heads", "kv_heads", "head_dim", *sizes):
            put(self, what, positive(what, getattr(self, what)))
        if self.heads % self.key_heads:
            raise ValueError(f"kv_heads is {self.kv_heads}; it must divide heads, which is {self.heads}")
        put(self, "scale", scale_factor(self.scale))
        put(self, "dtype", dtype_name("dtype", self.dtype))

    @property
    def key_heads(self) -> int:
        """Heads of the keys and values."""
        assert self.kv_heads is not None  # check_heads filled it in
        return self.kv_heads

    @property
    def scaling(self) -> float:
        """The factor on the logits, with the default filled in."""
        return 1.0 / math.sqrt(self.head_dim) if self.scale is None else self.scale

    @property
    def heads_word(self) -> str:
        """The heads in a name: "8", or "8/2" for grouped queries."""
        return str(self.heads) if self.heads == self.kv_heads else f"{self.heads}/{self.kv_heads}"

    @property
    def scale_word(self) -> str:
        """The end of a name: " scale 0.5", or "" for the default."""
        return "" if self.scale is None else f" scale {self.scale:g}"

    @property
    def default_rival(self) -> str:
        return "sdpa"
