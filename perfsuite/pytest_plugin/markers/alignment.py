"""The marker `alignment`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from perfsuite.outcome import Reason
from perfsuite.pytest_plugin.marker import Finding, Marker, MarkerError, Subject, is_count, is_positive


@dataclass(frozen=True, kw_only=True)
class Alignment(Marker):
    """With head_dim (of attention) or k (of a product) set to `dim`, a FLOP may take `max_drop` longer at most."""

    overridable = ("max_drop",)
    example: ClassVar[Mapping[str, Any]] = {"dim": 1}
    dim: int
    max_drop: float = 0.20

    def __post_init__(self) -> None:
        if not is_count(self.dim):
            raise MarkerError(f"dim is {self.dim!r}; it must be a whole number of elements, at least 1, such as 129")
        if not is_positive(self.max_drop):
            raise MarkerError(f"max_drop is {self.max_drop!r}; it must be a number over 0 (0.2: a fifth more a FLOP)")

    def judge(self, subject: Subject) -> Iterator[Finding]:
        """Time both sizes in turn, and compare the time of a FLOP."""
        from perfsuite.analyze.resources import at_dim

        name, other = at_dim(subject.problem, self.dim)
        own, there = subject.side_by_side(subject.problem, other)
        assert subject.problem.flops is not None
        assert other.flops is not None  # at_dim refuses problems without FLOPs
        drop = there / own * subject.problem.flops / other.flops - 1.0
        sentence = (
            f"a FLOP takes {drop:+.0%} time at {name} {self.dim} against {subject.problem.params[name]} "
            f"({there * 1e6:.4g} us, {own * 1e6:.4g} us), at most {self.max_drop:+.0%} allowed"
        )
        measured = {"seconds": own, "misaligned_seconds": there, "drop": drop}
        yield Finding("alignment", Reason.TOO_SLOW if drop > self.max_drop else None, sentence, measured)
