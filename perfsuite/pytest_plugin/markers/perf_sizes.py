"""The marker `perf_sizes`; `pytest_plugin.sizes` makes the parameters of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from perfsuite.pytest_plugin.marker import Marker, MarkerError


@dataclass(frozen=True, kw_only=True)
class PerfSizes(Marker):
    """The test runs once for each value in `full`, under --perf-ci once for each in `ci`; `ids` names a value.

    `names` is the parameter, or several in one text ("m, n"); each value is then a tuple. It may be given without
    `names=`. Values may be `pytest.param`, and several such markers form a product, as with `parametrize`.
    """

    gates = False
    positional = ("names",)
    selector = "names"
    names: str | Sequence[str]
    full: Sequence[Any]
    ci: Sequence[Any]
    ids: Callable[[Any], object] | None = None

    def __post_init__(self) -> None:
        names = self.parameters
        if not names or not all(isinstance(name, str) and name.isidentifier() for name in names):
            raise MarkerError(f"names is {self.names!r}; it must name parameters of the test, such as 'n' or 'm, n'")
        for which in ("full", "ci"):
            values = getattr(self, which)
            if not isinstance(values, Sequence) or isinstance(values, str) or not values:
                raise MarkerError(f"{which} is {values!r}; it must be a list with at least one value")
        if self.ids is not None and not callable(self.ids):
            said = "it must be a function of a value; pytest.param(value, id=...) names one value"
            raise MarkerError(f"ids is {self.ids!r}; {said}")

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the test's parameters."""
        if isinstance(self.names, str):
            return tuple(filter(None, (name.strip() for name in self.names.split(","))))
        return tuple(self.names) if isinstance(self.names, Sequence) else ()
