"""Runs a property for a time: some seconds in a test run, and longer with PERFSUITE_FUZZ_SECONDS (`nox -s fuzz`).

The first seeds are always the same, so that a test run tries the same inputs every time as far as its time goes.
"""

from __future__ import annotations

import copy
import itertools
import json
import os
import resource
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from filelock import FileLock
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from tests.nightly.written import update

SECONDS = 4.0
"""Of each fuzzer in a test run."""
EXAMPLES = 20
"""Of one seed. The time is looked at after each seed."""
DESCRIPTORS = 64
"""That a fuzzer may open beyond those that are open."""
FIRST = int(os.environ.get("PERFSUITE_FUZZ_SEED", "0"))
_SPECIAL = [
    *("", " ", "\0", "\n", "\x1b[2J", "\ud800", "<script>alert(1)</script>", "$(touch x)", "`x`", "../../x", "*" * 50),
    *("nan", "inf", "-1", "1e999", "9" * 40, "x" * 10_000, "NVIDIA H200", "portable", "🚀", "\u202e", "|", "--", "-x"),
]


def texts() -> st.SearchStrategy[str]:
    """Short text of any letters, and text that has broken programs."""
    return st.one_of(st.sampled_from(_SPECIAL), st.text(st.characters(codec=None), max_size=20))


def values() -> st.SearchStrategy[Any]:
    """JSON values of any form."""
    numbers = st.one_of(
        st.integers(-3, 70), st.integers(), st.floats(), st.sampled_from([10**400, -(10**400), 2**63, 1e308, 5e-324])
    )
    leaves = st.one_of(st.none(), st.booleans(), numbers, texts())
    return st.recursive(
        leaves,
        lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts(), inner, max_size=4)),
        max_leaves=8,
    )


@st.composite
def mutated(draw: st.DrawFn, bases: Sequence[Any]) -> Any:
    """One of some JSON values, in which up to two parts are removed or other values."""
    whole = [copy.deepcopy(draw(st.sampled_from(bases)))]
    for _ in range(draw(st.integers(0, 2))):
        place: Any = whole
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            key = draw(st.sampled_from(keys))
            if isinstance(place[key], dict | list) and place[key] and draw(st.integers(0, 4)):
                place = place[key]
                continue
            break
        if isinstance(place, dict) and draw(st.booleans()):
            del place[key]
        elif place is not whole or draw(st.booleans()):
            place[key] = draw(values())
        if not isinstance(whole[0], dict | list):
            break
    return whole[0]


def fuzz(check: Callable[..., None], **arguments: st.SearchStrategy[Any]) -> int:
    """Call `check` with drawn arguments until the time is over; return the number of calls.

    At the first failure hypothesis shrinks the arguments and shows them. Few descriptors may be opened meanwhile, so
    that a leak of them is a failure too.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + DESCRIPTORS, hard))
    limit = float(os.environ.get("PERFSUITE_FUZZ_SECONDS", SECONDS))
    start, tried, failed = time.monotonic(), 0, True

    def counted(**drawn: Any) -> None:
        nonlocal tried
        tried += 1
        check(**drawn)

    try:
        for number in itertools.count(FIRST):
            run = settings(
                max_examples=EXAMPLES,
                deadline=None,
                database=None,
                suppress_health_check=list(HealthCheck),
                print_blob=False,
            )(given(**arguments)(counted))
            seed(number)(run)()
            if time.monotonic() > start + limit:
                failed = False
                return tried
        raise AssertionError
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        if path := os.environ.get("PERFSUITE_FUZZ_OUTPUT"):
            note(Path(path), tried, time.monotonic() - start, failed)


def note(path: Path, tried: int, seconds: float, failed: bool) -> None:
    """Add the inputs of a fuzzer to those that a file of results has of it."""
    test = os.environ["PYTEST_CURRENT_TEST"].partition(" ")[0]
    name = test.rpartition("test_fuzz_")[2].replace(".py::test_", ": ").replace("_", " ")
    with FileLock(f"{path}.lock"):  # several processes may try inputs at once, of other seeds
        before = {"inputs": 0, "minutes": 0.0, "findings": 0}
        if path.exists():
            rows = json.loads(path.read_text())["rows"]
            before = next((row for row in rows if row["fuzzer"] == name), before)
        row = {"fuzzer": name, "inputs": before["inputs"] + tried}
        row |= {"minutes": round(before["minutes"] + seconds / 60, 1), "findings": before["findings"] + failed}
        update(path, [row], key="fuzzer")
