"""Lists the series of a suite, and of the problems that cases.json follows without a test."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from perfsuite.history.commits import HistoryError
from perfsuite.history.run_pytest import COMMAND
from perfsuite.record.store import read_record

if TYPE_CHECKING:
    from perfsuite.history.series import Declared
    from perfsuite.record.case import Case

VARIABLE = "PERFSUITE_ASV_PROBLEMS"
"""The pairs of problem and candidate, as JSON, for the pytest that collects FOLLOWED."""
FOLLOWED = Path(__file__).parent / "followed"
Pair = dict[str, str]


def read_pairs(path: Path) -> list[Pair]:
    """The problems, with their candidates, that a list of cases follows without a test."""
    if not path.exists():
        return []
    try:
        found = json.loads(path.read_text(encoding="utf-8")).get("problems", [])
        return [{"problem": str(pair["problem"]), "candidate": str(pair["candidate"])} for pair in found]
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise HistoryError(f"{path} is not a list of cases: {type(error).__name__}: {error}") from None


def collected(tests: Sequence[str], pairs: Sequence[Pair]) -> tuple[list[str], dict[str, str]]:
    """The paths that pytest collects for `tests` and `pairs`, and the environment that it needs for them."""
    return [*tests, *([str(FOLLOWED)] if pairs else [])], {VARIABLE: json.dumps(list(pairs))} if pairs else {}


def listed(tests: Sequence[str], pairs: Sequence[Pair]) -> Declared:
    """The series of a suite's gated cases and of `pairs`, which pytest collects without measuring."""
    from perfsuite.history.series import declared

    return declared(listed_cases(tests, pairs))


def listed_cases(tests: Sequence[str], pairs: Sequence[Pair]) -> list[Case]:
    """The cases of a suite and of `pairs`, without any measurement."""
    with tempfile.TemporaryDirectory(prefix="perfsuite-cases-") as folder:
        record = Path(folder) / "cases.jsonl"
        line = [*COMMAND, "-p", "perfsuite.pytest_plugin.listing", "--gpu", f"--perf-record={record}"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST_")}
        files, variables = collected(tests, pairs)
        done = subprocess.run([*line, *files], capture_output=True, text=True, check=False, env=environment | variables)
        if done.returncode != 0 or not record.exists():
            last = (done.stdout + done.stderr).strip().splitlines()[-1:] or ["no output"]
            raise HistoryError(f"pytest could not list {' '.join(tests)} (exit {done.returncode}): {last[0]}")
        return read_record(record)
