"""Makes parameters of the two sets of sizes that a test declares: the whole one, and the small one for CI."""

from __future__ import annotations

import pytest

from perfsuite.pytest_plugin import marks
from perfsuite.pytest_plugin.marker import MarkerError
from perfsuite.pytest_plugin.options import takes_ci_sizes

NAME = "perf_sizes"


def parametrize(metafunc: pytest.Metafunc) -> None:
    """Parametrize a test by its `perf_sizes`; of several for the same names the nearest counts. CollectError if bad."""
    node = metafunc.definition
    try:
        values = marks.values_of(node, NAME)
    except MarkerError as error:
        raise pytest.Collector.CollectError(f"{node.nodeid}: {error}") from None
    small = takes_ci_sizes(metafunc.config)
    for value in values:
        if unknown := [name for name in value.parameters if name not in metafunc.fixturenames]:
            raise pytest.Collector.CollectError(
                f"{node.nodeid}: @pytest.mark.{NAME} names {unknown[0]!r}; the test has no such argument"
            )
        metafunc.parametrize(", ".join(value.parameters), value.ci if small else value.full, ids=value.ids)
