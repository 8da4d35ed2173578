"""The marker `perf_target`; the case judges it while it times both sides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from perfsuite.pytest_plugin.marker import Marker, MarkerError, is_positive


@dataclass(frozen=True, kw_only=True)
class PerfTarget(Marker):
    """The candidate must reach the fraction `at_least` of the rival's speed; give one marker for each rival."""

    overridable = ("at_least",)
    selector = "against"
    against: str | Callable[..., Any] | None = None
    at_least: float = 1.0

    def __post_init__(self) -> None:
        if self.against is not None and not isinstance(self.against, str) and not callable(self.against):
            raise MarkerError(
                f"against is {self.against!r}; it must be a rival's name, such as 'cublas', or a callable"
            )
        if not is_positive(self.at_least):
            raise MarkerError(
                f"at_least is {self.at_least!r}; it must be a number over 0 (0.9: nine tenths of the rival's speed)"
            )
