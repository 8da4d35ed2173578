"""The marker `correctness`."""

from __future__ import annotations

from dataclasses import dataclass

from perfsuite.pytest_plugin.marker import Marker, MarkerError


@dataclass(frozen=True, kw_only=True)
class Correctness(Marker):
    """The answer must be right; the tolerance is set from the error of the library `against` (default: the rival's).

    With deterministic=False, equal inputs may give other bits, as with atomic additions.
    """

    against: str | None = None
    deterministic: bool = True

    def __post_init__(self) -> None:
        if self.against is not None and not isinstance(self.against, str):
            raise MarkerError(f"against is {self.against!r}; it must be the name of a library, such as 'cublas'")
        if not isinstance(self.deterministic, bool):
            raise MarkerError(f"deterministic is {self.deterministic!r}; it must be True or False")
