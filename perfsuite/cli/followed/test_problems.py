"""Gates of the problems that cases.json follows without a test, collected in the same run as the suite."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from perfsuite.cli.asv_problems import VARIABLE, Pair
from perfsuite.cli.callables import load_callable
from perfsuite.cli.problem_specs import problem_of

LEAST_SPEED = 1e-6
"""These gates only measure: every kernel is fast enough for them."""


@pytest.mark.gpu
@pytest.mark.perf_target(at_least=LEAST_SPEED)
@pytest.mark.parametrize("pair", json.loads(os.environ.get(VARIABLE, "[]")), ids=lambda pair: pair["problem"])
def test_problem(pair: Pair, perf: Any) -> None:
    """Check and time one candidate on one problem."""
    perf(problem_of(pair["problem"]), load_callable(pair["candidate"]))
